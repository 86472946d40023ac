"""One number to a pair of doubles and back, correctly rounded, by exact rational numbers."""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation, localcontext
from fractions import Fraction
from typing import Any

__all__ = ["DIGITS", "pair_of", "rational_of", "text_of"]

# What repr shows: 2 * 53 bits are 31.9 decimal digits.
DIGITS = 32

# Beyond these powers of ten a number is infinite or zero as a double, and an exact rational
# number would only fill the memory.
_LARGEST, _SMALLEST = 400, -1200


def pair_of(value: Any) -> tuple[float, float]:
    """Return the pair nearest to a real number.

    Parameters
    ----------
    value : number or str
        int, float, Fraction, Decimal, NumPy's numbers (longdouble too), mpmath's ``mpf``,
        python-flint's ``fmpz``, ``fmpq`` and ``arb`` (its midpoint), or decimal text.

    Raises
    ------
    ValueError
        If it is not a real number.
    """
    if isinstance(value, float | int) and not isinstance(value, bool) and abs(value) < 2**53:
        return float(value), 0.0
    exact = _exact(value)
    if isinstance(exact, float):
        return exact, 0.0
    try:
        high = float(exact)
    except OverflowError:
        return (math.inf if exact > 0 else -math.inf), 0.0
    low = float(exact - Fraction(high))
    # Where `low` rounds up to half a unit of `high`, a tie, the sum is another double
    # (Fast2Sum: Dekker, Numer. Math. 18, 1971).
    total = high + low
    return (total, low - (total - high)) if math.isfinite(total) else (total, 0.0)


def _exact(value: Any) -> Fraction | float:
    """Return the exact value; a float only where it is not finite or beyond doubles."""
    try:
        if isinstance(value, str):
            return _of_decimal(Decimal(value.strip()))
        if isinstance(value, Decimal):
            return _of_decimal(value)
        if hasattr(value, "mid") and hasattr(value, "rad"):  # arb
            return _of_power(*map(int, value.mid().man_exp())) if value.is_finite() else (
                float(value.mid()))  # fmt: skip
        if hasattr(value, "_mpf_"):  # (sign, mantissa, exponent, bits)
            sign, mantissa, exponent, _ = value._mpf_
            if mantissa or not exponent:
                return _of_power(-int(mantissa) if sign else int(mantissa), int(exponent))
            return float(value)
        if hasattr(value, "p") and hasattr(value, "q"):  # fmpq
            return Fraction(int(value.p), int(value.q))
        if hasattr(value, "as_integer_ratio"):  # floats, Fraction, NumPy's floats, int
            if value - value != 0:
                return float(value)
            return Fraction(*map(int, value.as_integer_ratio()))
        return Fraction(int(value)) if not isinstance(value, complex) else _refuse(value)
    except (InvalidOperation, TypeError, ValueError):
        return _refuse(value)


def _refuse(value: Any) -> Fraction:
    raise ValueError(f"{value!r} is not a real number; give a number or decimal text") from None


def _of_decimal(value: Decimal) -> Fraction | float:
    if not value.is_finite() or not value:
        return float(value)
    if _SMALLEST < value.adjusted() < _LARGEST:
        return Fraction(value)
    return math.copysign(math.inf if value.adjusted() > 0 else 0.0, value)


def _of_power(mantissa: int, exponent: int) -> Fraction | float:
    """Return mantissa * 2^exponent."""
    if mantissa == 0:
        return 0.0
    top = mantissa.bit_length() + exponent
    if top > 1100:  # above every double
        return math.copysign(math.inf, mantissa)
    if top < -2300:  # below half of every double's and every low word's least unit
        return math.copysign(0.0, mantissa)
    return Fraction(mantissa) * Fraction(2) ** exponent


def rational_of(hi: float, lo: float) -> Fraction:
    """Return hi + lo exactly; both are finite."""
    return Fraction(float(hi)) + Fraction(float(lo))


def text_of(hi: float, lo: float, digits: int = DIGITS) -> str:
    """Return hi + lo with so many significant decimal digits."""
    if not math.isfinite(hi):
        return repr(float(hi))
    with localcontext() as context:
        # Both words exactly, unless they are more than 2^600 apart.
        context.prec = max(digits + 10, 400)
        return f"{Decimal(float(hi)) + Decimal(float(lo)):.{digits}g}"
