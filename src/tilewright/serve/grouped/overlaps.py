"""Results of a group that share memory with other arrays of it are refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.serve.overlap import memory_of, overlap, span

__all__ = ["may_overlap", "place_of", "refuse_overlaps"]

Place = tuple[Any, int, Any, Any, Any]
"""Whose memory, the address or place in it, shape, strides in bytes, and dtype."""


def refuse_overlaps(a: list[Any], b: list[Any], c: list[Any]) -> None:
    """Refuse a result that shares memory with another one, or with any operand."""
    places = [[place_of(x) for x in some] for some in (a, b, c)]
    spans = np.array(
        [[_span(one) for one in some] for some in places], np.uint64
    ).transpose(1, 0, 2)  # fmt: skip
    if not may_overlap(spans[..., 0], spans[..., 1]):
        return
    for at, mine in enumerate(places[2]):
        if mine is None:
            continue
        for name, some in zip("abc", places, strict=True):
            for other, one in enumerate(some):
                if one is None or (name, other) == ("c", at) or mine[0] != one[0]:
                    continue
                if overlap(mine[1:], one[1:]):
                    raise ValueError(
                        f"c[{at}] overlaps {name}[{other}]; give c[{at}] memory of its own"
                    )


def may_overlap(first: Any, end: Any) -> bool:
    """Whether the last column's spans may share memory with any others.

    Parameters
    ----------
    first, end : NDArray
        Addresses, a row a product: of a, b and c.
    """
    order = np.argsort(first, axis=None, kind="stable")
    low, high = first.ravel()[order], end.ravel()[order]
    writes = order % first.shape[1] == first.shape[1] - 1
    # The furthest end of all spans that begin before, and of those that are written.
    every = np.maximum.accumulate(high)[:-1]
    written = np.maximum.accumulate(np.where(writes, high, 0))[:-1]
    meets = np.where(writes[1:], every, written) > low[1:]
    return bool((meets & (high[1:] > low[1:])).any())


def place_of(x: Any) -> Place | None:
    """Return where an array's memory is; None where nobody knows."""
    x = getattr(x, "words", x)  # of double-double
    if x is None:
        return None
    if isinstance(x, np.ndarray):
        return *memory_of(x), x.shape, x.strides, f"V{x.itemsize}"
    if hasattr(x, "base_data"):  # pyopencl's
        return x.base_data.int_ptr, x.offset, x.shape, x.strides, f"V{x.dtype.itemsize}"
    if hasattr(x, "data_ptr"):
        size = x.element_size()
        steps = tuple(step * size for step in x.stride())
        return str(x.device), x.data_ptr(), tuple(x.shape), steps, f"V{size}"
    if hasattr(x, "__cuda_array_interface__"):
        about, size = x.__cuda_array_interface__, x.dtype.itemsize
        return "cuda", about["data"][0], x.shape, x.strides, f"V{size}"
    return None


def _span(place: Place | None) -> tuple[int, int]:
    """Return the addresses of the first byte and of the one behind the last."""
    return (0, 0) if place is None or 0 in place[2] else span(*place[1:])
