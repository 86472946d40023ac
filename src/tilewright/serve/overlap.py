"""Do two matrices on a device share an element?  Decided on addresses, exactly."""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np

__all__ = ["overlap", "overlaps_itself"]

# Any non-null base serves: only differences between addresses count.
_BASE = 4096


def overlap(x: tuple[Any, ...], y: tuple[Any, ...]) -> bool:
    """Whether two arrays share memory.

    Parameters
    ----------
    x, y : tuple
        Address in bytes (in one address space), shape, strides in bytes, dtype.
    """
    if 0 in x[1] or 0 in y[1]:
        return False
    (low_x, high_x), (low_y, high_y) = _span(*x), _span(*y)
    if high_x <= low_y or high_y <= low_x:  # nearly always
        return False
    lowest = min(low_x, low_y)
    return bool(np.shares_memory(_stand_in(x, lowest), _stand_in(y, lowest)))


def overlaps_itself(shape: Any, steps: Any) -> bool:
    """Whether two elements of a matrix are one place in memory.

    Two elements that are p rows and q columns apart are one where p |row step| =
    q |column step|, up to sign; the smallest such p and q are the steps without their
    common divisor, and have to be in the matrix.

    Parameters
    ----------
    shape, steps : tuple of two int
        Rows and columns; from a row or column to the next, in any unit.
    """
    # A step that is never taken does not count.
    taken = [(abs(step), size) for step, size in zip(steps, shape, strict=True) if size > 1]
    if 0 in shape or not taken:
        return False
    if any(step == 0 for step, _ in taken):
        return True
    if len(taken) < 2:
        return False
    (down, rows), (right, columns) = taken
    common = gcd(down, right)
    return bool(right // common < rows and down // common < columns)


def _span(address: int, shape: Any, strides: Any, dtype: Any) -> tuple[int, int]:
    """Return the addresses of the first byte and of the one behind the last."""
    low = high = int(address)
    for size, step in zip(shape, strides, strict=True):
        reach = step * (size - 1)
        low, high = (low + reach, high) if reach < 0 else (low, high + reach)
    return low, high + np.dtype(dtype).itemsize


def _stand_in(x: tuple[Any, ...], lowest: int) -> Any:
    """Return a host array laid out like a device array; never dereferenced."""
    address, shape, strides, dtype = x

    class Interface:
        __array_interface__ = {  # noqa: RUF012  # the array protocol's own attribute
            "data": (_BASE + address - lowest, True),
            "shape": tuple(shape),
            "strides": tuple(strides),
            "typestr": np.dtype(dtype).str,
            "version": 3,
        }

    return np.asarray(Interface())
