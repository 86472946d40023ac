"""Matrices in the host's memory, or behind it, of which parts are read and written."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import Operand
from tilewright.serve.streamed.tiling import Piece

__all__ = ["HostMatrix"]


class HostMatrix:
    """An array whose parts are looked at as lines: rows of a row-major one, else columns.

    Parameters
    ----------
    array : ndarray or any array
        Two-dimensional.  What is no NumPy array gives and takes parts by ``array[i0:i1, j0:j1]``,
        as Zarr's, h5py's and Dask's do.
    """

    def __init__(self, array: Any) -> None:
        self.array = array
        self.is_here, self.itemsize = isinstance(array, np.ndarray), array.dtype.itemsize
        strides = array.strides if self.is_here else (1, 0)
        # A column-major one has short steps down its columns.
        self.row_major = abs(strides[1]) <= abs(strides[0]) or array.shape[0] == 1

    def part(self, rows: Piece, columns: Piece) -> NDArray[Any]:
        """Return a part: a view of what is here, else what is read."""
        part = self.array[slice(*rows), slice(*columns)]
        if self.is_here:
            return part  # type: ignore[no-any-return]
        wanted = rows[1] - rows[0], columns[1] - columns[0]
        try:
            made = np.asarray(part, self.array.dtype)
        except (TypeError, ValueError):  # a sparse matrix, say
            made = None
        if made is None or made.shape != wanted:
            kind = type(self.array).__name__
            raise ValueError(
                f"a part of a {kind} is no array of shape {wanted}; give a NumPy array"
            )
        return made

    def is_on(self, live: Any) -> bool:
        """Whether it is on a device."""
        return False

    def operand(self, rows: Piece, columns: Piece) -> Operand:
        """Return a part as a kernel's operand: of no matrix in the host's memory."""
        raise AssertionError(rows, columns)

    def lines(self, rows: Piece, columns: Piece) -> NDArray[Any]:
        """Return a part as lines."""
        part = self.part(rows, columns)
        return part if self.row_major else part.T

    def put(self, rows: Piece, columns: Piece, part: NDArray[Any]) -> None:
        """Write a part."""
        self.array[slice(*rows), slice(*columns)] = part
