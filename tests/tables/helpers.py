"""Tables of tests."""

from pscd.tables import ReadOptions, open_table


def read_frame(path, **options):
    """All of a file as a data frame."""
    return open_table(path, ReadOptions(**options)).frame()
