"""Numbers with known products, and what they are, without any library but NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import tilewright as tw
from tilewright.double_double import error_of_product


def wide(rng: np.random.Generator, shape: tuple[int, int], bits: int) -> np.ndarray:
    """Return integers of so many bits, as Python's."""
    draw = np.frompyfunc(lambda _: int(rng.integers(0, 2**31)) << (bits - 31), 1, 1)
    low = rng.integers(-(2**20), 2**20, shape).astype(object)
    return draw(np.zeros(shape)) + low


def eta_of(c: tw.DoubleDouble, a: tw.DoubleDouble, b: tw.DoubleDouble) -> float:
    def flat(x: tw.DoubleDouble) -> np.ndarray:
        return x.words.reshape(*x.shape, -1).view(x.dtype)[..., 0]

    error, size = error_of_product(flat(c), flat(a), flat(b))
    return float(np.max(np.abs(error) / size))


def plain(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Return the product as a loop over k adds it up in double precision."""
    total = np.zeros((a.shape[0], b.shape[1]))
    with np.errstate(all="ignore"):
        for column, row in zip(a.T[:, :, None], b[:, None, :], strict=True):
            total += column * row
    return total
