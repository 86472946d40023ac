"""Do two matrices share an element?  Decided exactly, on addresses, and places in files."""

from __future__ import annotations

import os
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["address_of", "in_one_file", "overlap", "overlaps_itself", "share", "span"]

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
    (low_x, high_x), (low_y, high_y) = span(*x), span(*y)
    if high_x <= low_y or high_y <= low_x:  # nearly always
        return False
    lowest = min(low_x, low_y)
    return bool(np.shares_memory(_stand_in(x, lowest), _stand_in(y, lowest)))


def share(x: NDArray[Any], c: NDArray[Any]) -> bool:
    """Whether NumPy arrays share an element, in memory or in a file, of which c's is written."""
    return bool(np.shares_memory(x, c)) or in_one_file(x, c)


def in_one_file(x: NDArray[Any], c: NDArray[Any]) -> bool:
    """Whether arrays of two `numpy.memmap` share an element of one file, of which c's is written.

    One file has other addresses wherever it is mapped.
    """
    other = _mapped(c)
    if other is None or other.mode == "c":  # whose copy nobody else sees
        return False
    one = _mapped(x)
    return (
        one is not None
        and _file(one) == _file(other)
        and overlap(_in_file(x, one), _in_file(c, other))
    )


def address_of(x: NDArray[Any]) -> int:
    """Return where a NumPy array's first element is."""
    return int(x.__array_interface__["data"][0])


def _mapped(x: NDArray[Any]) -> np.memmap[Any, Any] | None:
    """Return the map of a named file that an array is part of, if it is."""
    while isinstance(x.base, np.ndarray):
        x = x.base
    return x if isinstance(x, np.memmap) and x.filename is not None else None


def _file(mapped: np.memmap[Any, Any]) -> Any:
    """Return what tells a file from others."""
    try:
        found = os.stat(mapped.filename)  # type: ignore[arg-type]
    except OSError:  # its name is gone
        return os.fspath(mapped.filename)  # type: ignore[arg-type]
    return found.st_dev, found.st_ino


def _in_file(x: NDArray[Any], mapped: np.memmap[Any, Any]) -> tuple[Any, ...]:
    """Return an array as `overlap` takes it, its address counted from the file's beginning."""
    return mapped.offset + address_of(x) - address_of(mapped), x.shape, x.strides, x.dtype


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


def span(address: int, shape: Any, strides: Any, dtype: Any) -> tuple[int, int]:
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
