"""`python -m pscd`, the same as `pscd`."""

import sys

from pscd.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
