"""`python -m pscd`, the same as `pscd`."""

import sys

from pscd.cli import main

if __name__ == "__main__":
    sys.exit(main())
