"""Data by name or by file: toys to learn on, contamination to test with, images, and the user's own tables."""

from pscd.data.contamination import Contaminated, contaminate
from pscd.data.pictures import Images, data_root, load_images
from pscd.data.pixels import as_shape, to_bytes, to_unit
from pscd.data.rows import (
    Dataset,
    Rows,
    RowsOrStream,
    as_rows,
    check_enough,
    load_dataset,
    read_table,
    rows_of,
    split_rows,
)
from pscd.data.toys import TOYS, TOYS_1D, TOYS_2D, Toy, find_toy

__all__ = [
    "TOYS",
    "TOYS_1D",
    "TOYS_2D",
    "Contaminated",
    "Dataset",
    "Images",
    "Rows",
    "RowsOrStream",
    "Toy",
    "as_rows",
    "as_shape",
    "check_enough",
    "contaminate",
    "data_root",
    "find_toy",
    "load_dataset",
    "load_images",
    "read_table",
    "rows_of",
    "split_rows",
    "to_bytes",
    "to_unit",
]
