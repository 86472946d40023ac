"""alpha and beta of double-double products: any numbers, as pairs."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from tilewright.serve.arrays.double_double.pairs import Pairs
from tilewright.text import shown

__all__ = ["pairs_of"]


@lru_cache(maxsize=2)
def _small_pair(value: int) -> Pairs:
    """Return a number that nobody changes as a pair: to make one takes 60 us."""
    return Pairs(value)


def _is_finite(value: Any) -> bool:
    """Whether a number, or a text of one, is neither infinite nor NaN, however large it is."""
    if isinstance(value, np.ndarray):
        value = value.item()
    if isinstance(value, str | bytes):
        return "n" not in str(value).lower()[-8:]  # of "inf", "infinity" and "nan"
    try:
        return bool(abs(value) < math.inf)
    except TypeError:  # exact numbers that have no infinity to be compared with
        return True


def pairs_of(alpha: Any, beta: Any) -> tuple[Pairs, Pairs]:
    """Return scalars as double-double ones."""
    made = []
    for name, value in (("alpha", alpha), ("beta", beta)):
        if type(value) is int and value in (0, 1):  # as nearly all are
            made.append(_small_pair(value))
            continue
        try:
            pair = Pairs(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        if pair.shape:
            raise ValueError(f"{name} has shape {pair.shape}; give one number")
        if not np.isfinite(pair.words).all() and _is_finite(value):
            raise ValueError(
                f"{name}={shown(value)} is beyond double-double; scale the arrays instead"
            )
        made.append(pair)
    return made[0], made[1]
