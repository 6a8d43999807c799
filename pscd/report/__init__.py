"""Reports: one HTML file for a run or a detector, which needs no network.

`write` chooses the page, `run` and `detector` collect its sections, `charts` draws with altair, and `page` renders the
HTML.
"""

from pscd.report.write import write_report

__all__ = ["write_report"]
