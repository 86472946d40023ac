"""The product in double precision, and how far a single-precision result is from it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Oracle"]

# Rows of C that are compared at once: a panel of the largest default size, 12288 columns of
# 8 bytes, then takes 25 MB and stays near the cores.
_PANEL = 256


class Oracle:
    """A x B in double precision, for row-major single-precision A and B.

    Parameters
    ----------
    a, b : ndarray of float32, shapes (m, k) and (k, n)
        The operands.
    """

    def __init__(self, a: NDArray[Any], b: NDArray[Any]) -> None:
        self._product = a.astype(np.float64) @ b.astype(np.float64)
        # It only scales errors: single precision is exact enough.
        self._size = np.abs(a) @ np.abs(b)

    def errors(self, c: NDArray[Any]) -> tuple[float, float]:
        """Return max |C' - AB| and eta = max |C' - AB| / (|A||B|); NaN where C' has one.

        Parameters
        ----------
        c : ndarray of float32, shape (m, n)
            The result.
        """
        starts = range(0, len(c), _PANEL)
        with ThreadPoolExecutor() as pool:  # NumPy lets go of Python's lock while it computes
            found = np.array(list(pool.map(lambda first: self._panel(c, first), starts)))
        # NumPy's maximum keeps a NaN, Python's max may lose it.
        largest, eta = found.max(axis=0)
        return float(largest), float(eta)

    def _panel(self, c: NDArray[Any], first: int) -> tuple[float, float]:
        """Return the errors of `_PANEL` rows."""
        rows = slice(first, first + _PANEL)
        off = np.abs(c[rows] - self._product[rows])
        relative = off / np.maximum(self._size[rows], np.finfo(np.float32).tiny)
        return float(off.max()), float(relative.max())
