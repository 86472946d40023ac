"""What a call is refused for before anything is computed."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from tilewright.precision import DOUBLE_DOUBLE, PRECISIONS, Precision, precision_of
from tilewright.text import shown

__all__ = [
    "check_given",
    "check_scalars",
    "first_limit",
    "kinds_of",
    "limits_of",
    "loaded",
    "one_precision",
    "refuse_masked",
    "scalars_of",
    "zero_pivot",
]

# Element types of double-double, real and complex.
_PAIRS = {DOUBLE_DOUBLE["e"].dtype, DOUBLE_DOUBLE["w"].dtype}


def check_given(a: Any, b: Any) -> None:
    """Refuse a product of nothing."""
    for name, x in (("a", a), ("b", b)):
        if x is None:
            raise TypeError(f"{name} is None; give an array")


def loaded(name: str) -> Any:
    """Return a module whose import has ended; None of any other.

    Whoever has an array of a library has imported it: what another thread is importing meanwhile
    has none yet, nor all of its names.
    """
    found = sys.modules.get(name)
    is_begun = getattr(getattr(found, "__spec__", None), "_initializing", False)
    return None if is_begun else found


def refuse_masked(**given: Any) -> None:
    """Refuse NumPy's masked arrays, Dask's of such and lists of them: no mask is looked at."""
    for name, x in given.items():
        if _is_masked(x):
            raise TypeError(f"{name} is masked; masked arrays are not taken: give .filled(value)")


def _is_masked(x: Any) -> bool:
    masked = loaded("numpy.ma")
    return masked is not None and _holds(masked.MaskedArray, x)


def _holds(kind: type, x: Any) -> bool:
    if isinstance(x, list | tuple):
        return any(_holds(kind, one) for one in x)
    return isinstance(x, kind) or isinstance(getattr(x, "_meta", None), kind)  # of Dask's blocks


def zero_pivot(lu: Any, zero: int) -> int:
    """Return the first pivot that is exactly zero, counted from 1, or 0 if NaN is beside it.

    LAPACK and the kernels pass over NaN where they look for the largest element of a column: a zero
    there is no sign of a singular matrix, and the factors hold NaN.
    """
    if not zero:
        return 0
    column = lu[zero - 1 :, zero - 1]
    return 0 if bool((column != column).any()) else zero


def one_precision(a: Any, b: Any, c: Any) -> Precision:
    """Return the precision of matrices of one type."""
    for name, x in (("b", b), ("c", c)):
        if x is not None and x.dtype != a.dtype:
            if {a.dtype, x.dtype} == _PAIRS:  # which have no astype
                real, other = ("a", name) if "re" in x.dtype.names else (name, "a")
                raise ValueError(
                    f"{real} is real but {other} is complex;"
                    f" give DoubleDouble({real}.hi + 0j, {real}.lo)"
                )
            raise ValueError(
                f"{name}.dtype={x.dtype} but a.dtype={a.dtype}; convert one with astype"
            )
    try:
        return precision_of(a.dtype)
    except ValueError as error:
        raise ValueError(f"a.{error}, or to float16, bfloat16, FP8 or int8") from None


def check_scalars(alpha: complex, beta: complex, precision: Precision, c: Any) -> None:
    """Refuse scalars that are no numbers of a precision, and a beta without its C."""
    for name, value in (("alpha", alpha), ("beta", beta)):
        if type(value) is int and -1 <= value <= 1:  # as nearly all are
            continue
        if isinstance(value, str):
            raise ValueError(f"{name}={shown(value)} is text; give a number")
        if _is_masked(value):
            raise TypeError(f"{name} is masked; give a number")
        try:
            number = complex(value)
        except OverflowError:  # an integer beyond any floating-point number
            raise ValueError(
                f"{name}={shown(value)} is beyond {precision.real_name}; scale the arrays instead"
            ) from None
        except (TypeError, ValueError):
            raise ValueError(f"{name}={shown(value)} is not a number; give one") from None
        size = max(abs(number.real), abs(number.imag))
        # A longer format's number may have become infinite just now.
        beyond = math.isinf(size) and not isinstance(value, float | complex) and value != number
        if beyond or precision.largest < size < math.inf:
            raise ValueError(
                f"{name}={value!r} is beyond {precision.real_name}; scale the arrays instead"
            )
        if number.imag != 0 and not precision.is_complex:
            raise ValueError(f"{name}={shown(value)} is complex but the arrays are real")
    if c is None and beta != 0:
        raise ValueError(f"beta={shown(beta)} needs c to scale; give c, or leave beta at 0")


def scalars_of(alpha: Any, beta: Any, c: Any, *, whole: bool) -> tuple[Any, Any]:
    """Return alpha and beta as floats, or as integers of 32 bits.

    Raises
    ------
    ValueError
        If one is neither, or beta has no c to scale; the message names it.
    """
    if whole:
        alpha, beta = _integer("alpha", alpha), _integer("beta", beta)
        if c is None and beta != 0:
            raise ValueError(f"beta={beta!r} needs c to scale; give c, or leave beta at 0")
        return alpha, beta
    check_scalars(alpha, beta, PRECISIONS["s"], c)
    return complex(alpha).real, complex(beta).real


def _integer(name: str, value: Any) -> int:
    """Return a scalar as an int of 32 bits."""
    if _is_masked(value):
        raise TypeError(f"{name} is masked; give an int of 32 bits")
    try:
        number = None if isinstance(value, complex | np.complexfloating) else int(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or number != value or not -(2**31) <= number < 2**31:
        raise ValueError(f"{name}={shown(value)} is not for integers; give an int of 32 bits")
    return number


def limits_of(device: Any, host: Any) -> tuple[int | None, int | None] | None:
    """Return limits of memory; None where there are none."""
    if device is None and host is None:
        return None
    for name, value in (("max_device_memory", device), ("max_host_memory", host)):
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if value is not None and (not whole or value <= 0):
            raise ValueError(f"{name}={shown(value)} is not a number of bytes; give one above 0")
    return device, host


def first_limit(limits: tuple[int | None, int | None]) -> str:
    """Return a limit that a caller gave."""
    name, value = ("max_host_memory", limits[1])
    if limits[0] is not None:
        name, value = ("max_device_memory", limits[0])
    return f"{name}={value}"


def kinds_of(a: Any, b: Any, c: Any) -> str:
    """Return the types of what is given, as an error names them, with their libraries."""
    return ", ".join(
        f"{name} is {type(x).__module__.split('.')[0]}.{type(x).__name__}"
        for name, x in (("a", a), ("b", b), ("c", c))
        if x is not None
    )
