"""Reports to look at: one HTML file for a run, a detector or an experiment, which needs no network.

`write_report` is the door. Behind it, `write` collects what a folder holds, `training`, `rows`, `plane` and `pictures`
turn it into blocks, `charts` draws with altair, and `page` makes the file.
"""

from pscd.report.write import write_report

__all__ = ["write_report"]
