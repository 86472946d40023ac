"""Arithmetic on pairs of arrays (hi, lo), element by element.

The algorithms and their names are those of Joldes, Muller & Popescu, "Tight and rigorous
error bounds for basic building blocks of double-word arithmetic", ACM TOMS 44(2), 2017;
u = 2^-53.  Arrays are float64 of NumPy or of any library with its functions and without
contraction; products are made error-free by splitting (Dekker, Numer. Math. 18, 1971), as
NumPy has no fused multiply-add.

Where a result is not finite it is what the high words alone give, with a low word of zero:
infinities and NaN are IEEE's.  NumPy warns of none of it: what is not finite on the way
decides nothing.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

__all__ = [
    "Pair",
    "add",
    "divide",
    "multiply",
    "namespace_of",
    "normalised",
    "root",
    "two_product",
    "two_sum",
]

# High and low words: float64 arrays, or scalars.
Pair = tuple[Any, Any]

# Veltkamp's constant, 2^ceil(53 / 2) + 1, cuts 53 bits into 26 and 26.
_SPLITTER = 2.0**27 + 1

# Above this the product with Veltkamp's constant overflows; such a number is cut at 2^-28 of
# its size.
_LARGE, _SMALLER = 2.0**995, 2.0**-28


def namespace_of(x: Any) -> Any:
    """Return the module with the functions for an array: NumPy for its own.

    Raises
    ------
    TypeError
        If the array's library has none like NumPy's.
    """
    if hasattr(x, "__array_namespace__"):
        return x.__array_namespace__()
    # CuPy's arrays do not say so in every version.
    found = sys.modules[type(x).__module__.partition(".")[0]]
    if not hasattr(found, "where"):
        raise TypeError(
            f"{type(x).__module__}.{type(x).__name__} has no arithmetic here;"
            " bring it to the host with .on_host()"
        )
    return found


def two_sum(x: Any, y: Any) -> Pair:
    """Return x + y as rounded sum and its error, exactly (2Sum)."""
    s = x + y
    of_y = s - x
    return s, (x - (s - of_y)) + (y - of_y)


def fast_two_sum(x: Any, y: Any) -> Pair:
    """Return x + y as rounded sum and its error; exact where |x| >= |y| (Fast2Sum)."""
    s = x + y
    return s, y - (s - x)


def _split(x: Any) -> Pair:
    large = abs(x) > _LARGE
    if large.any() if hasattr(large, "any") else large:
        scale = 1.0 - large * (1.0 - _SMALLER)
        high, low = _halves(x * scale)
        return high / scale, low / scale
    return _halves(x)


def _halves(x: Any) -> Pair:
    c = _SPLITTER * x
    high = c - (c - x)
    return high, x - high


def two_product(x: Any, y: Any) -> Pair:
    """Return x y as rounded product and its error.

    Exact unless the error underflows, or a factor rounds to 2^1024 as its high half is cut off.
    """
    p = x * y
    (xh, xl), (yh, yl) = _split(x), _split(y)
    return p, ((xh * yh - p) + xh * yl + xl * yh) + xl * yl


def _sound(hi: Any, lo: Any, plain: Any) -> Pair:
    """Return (hi, lo), but (plain, 0) where a word is not finite."""
    good = (hi - hi == 0) & (lo - lo == 0)
    if good.all() if hasattr(good, "all") else good:
        return hi, lo
    namespace = namespace_of(hi + lo)
    return namespace.where(good, hi, plain), namespace.where(good, lo, 0.0)


@np.errstate(all="ignore")
def normalised(x: Any, y: Any) -> Pair:
    """Return x + y as a pair whose high word is the double nearest to it."""
    return _sound(*two_sum(x, y), x + y)


@np.errstate(all="ignore")
def add(x: Pair, y: Pair) -> Pair:
    """Return x + y; relative error below 3 u^2 + 13 u^3 (algorithm 6, AccurateDWPlusDW)."""
    s, s_low = two_sum(x[0], y[0])
    t, t_low = two_sum(x[1], y[1])
    v, v_low = fast_two_sum(s, s_low + t)
    return _sound(*fast_two_sum(v, t_low + v_low), x[0] + y[0])


@np.errstate(all="ignore")
def multiply(x: Pair, y: Pair) -> Pair:
    """Return x y; relative error below 7 u^2 (algorithm 10, DWTimesDW1)."""
    c, c_low = two_product(x[0], y[0])
    low = x[0] * y[1] + x[1] * y[0]
    return _sound(*fast_two_sum(c, c_low + low), x[0] * y[0])


@np.errstate(all="ignore")
def divide(x: Pair, y: Pair) -> Pair:
    """Return x / y; relative error below 17 u^2.

    Algorithm 17, DWDivDW2 (15 u^2 + 56 u^3), with DWTimesFP2 (3 u^2) inside it instead of
    DWTimesFP1 (1.5 u^2).
    """
    quotient = x[0] / y[0]
    r, r_low = two_product(y[0], quotient)
    r, r_low = fast_two_sum(r, r_low + y[1] * quotient)
    rest = (x[0] - r) + (x[1] - r_low)
    return _sound(*fast_two_sum(quotient, rest / y[0]), quotient)


@np.errstate(all="ignore")
def root(x: Pair) -> Pair:
    """Return the square root of x; one Newton step from the double's (Karp & Markstein 1997)."""
    namespace = namespace_of(x[0] + x[1])
    plain = namespace.sqrt(x[0])
    square, square_low = two_product(plain, plain)
    rest = (x[0] - square) + (x[1] - square_low)
    safe = namespace.where(plain == 0, 1.0, plain)
    return _sound(*fast_two_sum(plain, rest / (2 * safe)), plain)
