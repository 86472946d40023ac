"""Matrices for verification: exact data, padding that bites, guards around C.

The data are small integers: every product and every partial sum is exact in every
precision, in any order, with or without fused multiply-add.  A right kernel therefore
agrees with the oracle in every bit, and a wrong one cannot hide behind a tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.precision import Precision
from tilewright.problem import Trans

__all__ = ["LARGEST_INTEGER", "Matrix", "apply", "integers"]

# |a b| <= 64 and k <= 2**16 keep |alpha| sums below 2**24 up to |alpha| = 4.
LARGEST_INTEGER = 8

# What lies outside a matrix: NaN around inputs, so that a stray read shows in the result,
# and this value around C, so that a stray write shows.
_GUARD_VALUE = 1234.5
_GUARD_ELEMENTS = 64


def integers(
    rng: np.random.Generator, rows: int, columns: int, precision: Precision
) -> NDArray[Any]:
    """Return a rows x columns matrix of integers of at most `LARGEST_INTEGER`."""
    span = (-LARGEST_INTEGER, LARGEST_INTEGER + 1)
    real = rng.integers(*span, size=(rows, columns))
    if not precision.is_complex:
        return real.astype(precision.dtype)
    return (real + 1j * rng.integers(*span, size=(rows, columns))).astype(precision.dtype)


@dataclass
class Matrix:
    """A column-major matrix inside a larger flat array.

    Parameters
    ----------
    flat : ndarray
        Everything, guards included.
    rows, columns : int
        Size of the matrix.
    offset, ld : int
        Where it lies in `flat`, in elements.
    """

    flat: NDArray[Any]
    rows: int
    columns: int
    offset: int
    ld: int

    @classmethod
    def place(
        cls, values: NDArray[Any], *, padding: int = 0, offset: int = 0, outside: float = np.nan
    ) -> Matrix:
        """Lay values down column by column with padding, an offset and guards."""
        rows, columns = values.shape
        ld = max(1, rows) + padding
        flat = np.full(offset + ld * columns + _GUARD_ELEMENTS, outside, values.dtype)
        made = cls(flat, rows, columns, offset, ld)
        made.view()[...] = values
        return made

    @classmethod
    def result(cls, values: NDArray[Any], *, padding: int = 0, offset: int = 0) -> Matrix:
        """Lay C down, with guards that show a stray write."""
        return cls.place(values, padding=padding, offset=offset, outside=_GUARD_VALUE)

    def view(self, flat: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the matrix itself as a view of `flat`."""
        base = self.flat if flat is None else flat
        size = base.itemsize
        return np.lib.stride_tricks.as_strided(
            base[self.offset :], (self.rows, self.columns), (size, self.ld * size)
        )

    def guards_intact(self, after: NDArray[Any]) -> bool:
        """Whether nothing outside the matrix was written."""
        outside = after.copy()
        self.view(outside)[...] = _GUARD_VALUE
        return bool((outside == _GUARD_VALUE).all())


def apply(trans: Trans, x: NDArray[Any]) -> NDArray[Any]:
    """Return op(x)."""
    moved = x.T if trans.transposed else x
    return moved.conj() if trans.conjugated else moved
