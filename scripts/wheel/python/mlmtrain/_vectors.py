"""Reads the vectors that ``mlmtrain embed`` writes."""

from __future__ import annotations

import array
import ast
import pathlib
import sys
from typing import Any


def read_vectors(path: pathlib.Path) -> Any:
    """The f32 matrix of a ``.npy`` file: an array where numpy is installed, else a list of rows."""
    try:
        import numpy
    except ImportError:
        return _rows(path.read_bytes())
    return numpy.load(path)


def _rows(file: bytes) -> list[list[float]]:
    # Magic number, version and the length of the header; the header is a dictionary in Python's own syntax.
    end = 10 + int.from_bytes(file[8:10], "little")
    header = ast.literal_eval(file[10:end].decode("ascii"))
    (rows, width), kind = header["shape"], header["descr"]
    if kind != "<f4" or header["fortran_order"]:
        raise ValueError(f"vectors of another kind: {header}")
    values = array.array("f", file[end:])
    if sys.byteorder == "big":
        values.byteswap()
    return [list(values[row * width : (row + 1) * width]) for row in range(rows)]
