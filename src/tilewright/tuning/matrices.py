"""Matrices for verification: exact data, padding that bites, guards around C.

The data are small integers: every product and every partial sum is exact in every
precision, in any order, with or without fused multiply-add.  A right kernel therefore
agrees with the oracle in every bit, and a wrong one cannot hide behind a tolerance.

In double-double an element is such an integer plus another times 2^60, in the high and in
the low word.  Of a column of A and the row of B that it meets only one has both, so that
sums of products have 60 + 22 bits at most and are exact as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.double_double import joined, random, two_sum, words
from tilewright.precision import Precision, precision_of
from tilewright.problem import Trans

__all__ = [
    "LARGEST_INTEGER",
    "Matrix",
    "apply",
    "digits",
    "exact_result",
    "integers",
    "normal",
    "poison",
]

# |a b| <= 64 and k <= 2**16 keep |alpha| sums below 2**24 up to |alpha| = 4.
LARGEST_INTEGER = 8

# What lies outside a matrix: NaN around inputs, so that a stray read shows in the result,
# and this value around C, so that a stray write shows.
_GUARD_VALUE = 1234.5
_GUARD_ELEMENTS = 64


# What the upper one of a double-double element's two integers counts.
_UPPER = 2.0**60


def integers(
    rng: np.random.Generator, rows: int, columns: int, precision: Precision, both: Any = True
) -> NDArray[Any]:
    """Return a rows x columns matrix of integers of at most `LARGEST_INTEGER`.

    `both` says, for all elements or as an array that broadcasts, which double-double
    elements have two; others ignore it.
    """

    def one() -> NDArray[Any]:
        span = (-LARGEST_INTEGER, LARGEST_INTEGER + 1)
        real = rng.integers(*span, size=(rows, columns))
        if not precision.is_complex:
            return real.astype(np.float64)
        return real + 1j * rng.integers(*span, size=(rows, columns))

    if precision.parts == 1:
        return one().astype(precision.dtype)
    return joined(*two_sum(one() * both * _UPPER, one()), precision)


def normal(rng: np.random.Generator, shape: tuple[int, ...], precision: Precision) -> NDArray[Any]:
    """Return standard normal elements; any of integers."""
    if precision.parts == 2:
        return random(rng, shape, precision)
    if precision.is_whole:
        return rng.integers(-128, 128, shape, precision.dtype)
    single = precision.real_bytes <= 4
    x: NDArray[Any] = rng.standard_normal(shape, dtype=np.float32 if single else np.float64)
    if precision.is_complex:
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(precision.dtype)


def poison(dtype: np.dtype[Any]) -> Any:
    """Return what shows in a result where it is read: NaN, or the least of integers."""
    return np.iinfo(dtype).min if dtype.kind == "i" else np.nan


def digits(x: NDArray[Any]) -> list[NDArray[Any]]:
    """Return the integers of a matrix, the upper ones first, as float64 or complex128."""
    if x.dtype.names is None:
        return [x.astype(np.complex128 if np.iscomplexobj(x) else np.float64)]
    hi, lo = words(x)
    upper = np.round(hi / _UPPER)
    return [upper, (hi - upper * _UPPER) + lo]


def exact_result(
    a: NDArray[Any],
    b: NDArray[Any],
    c: NDArray[Any] | None,
    scalars: tuple[complex, complex],
    precision: Precision,
) -> NDArray[Any]:
    """Return alpha a b + beta c for integers of `integers`, exactly; c is None for beta = 0."""
    alpha, beta = scalars
    left, right = digits(a), digits(b)
    if precision.parts == 1:
        sums = [left[0] @ right[0]]
    else:
        sums = [left[0] @ right[1] + left[1] @ right[0], left[1] @ right[1]]
    sums = [alpha * one for one in sums]
    if c is not None:
        sums = [one + beta * old for one, old in zip(sums, digits(c), strict=True)]
    if precision.parts == 1:
        rounded: NDArray[Any] = sums[0].astype(precision.result_dtype)
        return rounded
    return joined(*two_sum(sums[0] * _UPPER, sums[1]), precision)


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
        cls, values: NDArray[Any], *, padding: int = 0, offset: int = 0, outside: Any = None
    ) -> Matrix:
        """Lay values down column by column with padding, an offset and guards."""
        outside = poison(values.dtype) if outside is None else outside
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
        raw = base.view(f"V{size}")[self.offset :]  # the interface knows no types of ml_dtypes
        steps = size, self.ld * size
        found = np.lib.stride_tricks.as_strided(raw, (self.rows, self.columns), steps)
        return found.view(base.dtype)

    def guards_intact(self, after: NDArray[Any]) -> bool:
        """Whether nothing outside the matrix was written."""
        outside = after.copy()
        self.view(outside)[...] = _GUARD_VALUE
        return bool((outside == np.array(_GUARD_VALUE).astype(after.dtype)).all())


def apply(trans: Trans, x: NDArray[Any]) -> NDArray[Any]:
    """Return op(x)."""
    moved = x.T if trans.transposed else x
    if not trans.conjugated:
        return moved
    if x.dtype.names is None:
        return moved.conj()
    hi, lo = words(moved)
    return joined(hi.conj(), lo.conj(), precision_of(x.dtype))
