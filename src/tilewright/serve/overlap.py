"""Do two matrices share an element?  Decided exactly, on addresses, and places in files."""

from __future__ import annotations

import os
from collections.abc import Callable
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "address_of",
    "in_one_file",
    "memory_of",
    "overlap",
    "overlaps_itself",
    "refuse_overlap",
    "share",
    "span",
]

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


def refuse_overlap(meet: Callable[[Any, Any], bool], c: Any, **given: Any) -> None:
    """Refuse a C that meets any of the arrays given by their names."""
    for name, x in given.items():
        if meet(x, c):
            raise ValueError(f"c overlaps {name}; give c memory of its own")


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


def memory_of(x: NDArray[Any]) -> tuple[Any, int]:
    """Return whose memory a NumPy array is in, a file's or else 0, and where in it it begins."""
    mapped = _mapped(x)
    if mapped is None or mapped.mode == "c":
        return 0, address_of(x)
    return _file(mapped), _in_file(x, mapped)[0]


def _mapped(x: NDArray[Any]) -> np.memmap[Any, Any] | None:
    """Return the map of a named file that an array is part of, if it is."""
    while True:
        below: Any = x.base
        if not isinstance(below, np.ndarray):  # of strided views and memoryviews one is between
            below = getattr(below, "base", getattr(below, "obj", None))
        if not isinstance(below, np.ndarray):
            break
        x = below
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
    """Whether two elements of an array are one place in memory: of more than a matrix, may be.

    Of more dimensions than two it is false only where each steps over all that shorter steps reach,
    as those of any part of an array that does not overlap itself do, but for some rare ones.

    Two elements of a matrix that are p rows and q columns apart are one place where
    p |row step| = q |column step|, up to sign; the smallest such p and q are the steps without
    their common divisor, and have to be in the matrix.

    Parameters
    ----------
    shape, steps : tuple of int
        Sizes; from an element to the next along each dimension, in any unit.
    """
    # A step that is never taken does not count.
    taken = sorted((abs(step), size) for step, size in zip(steps, shape, strict=True) if size > 1)
    if 0 in shape or not taken:
        return False
    if len(shape) == 2 == len(taken) and taken[0][0] > 0:
        (short, count), (long, number) = taken
        common = gcd(short, long)
        return bool(long // common < count and short // common < number)
    reach = 0
    for step, size in taken:
        if step <= reach:
            return True
        reach += step * (size - 1)
    return False


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
