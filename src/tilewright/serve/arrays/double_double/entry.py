"""What a double-double array is made of: any numbers become words, correctly rounded."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.double_double import normalised
from tilewright.double_double.arithmetic import Pair, namespace_of
from tilewright.double_double.convert import pair_of
from tilewright.precision import DOUBLE_DOUBLE
from tilewright.serve.checks import refuse_masked

__all__ = ["Words", "floats", "of_pairs", "side_by_side", "words_of"]

# DLPack's kDLCPU.
_HOST = 1

# Words as they lie in memory, and whether elements are complex.
Words = tuple[Any, bool]


def side_by_side(parts: list[Pair]) -> Words:
    """Return words copied side by side: of the real part, and of the imaginary part if any."""
    namespace = namespace_of(parts[0][0])
    stacked = [namespace.stack(part, axis=-1) for part in parts]
    whole = stacked[0] if len(parts) == 1 else namespace.stack(stacked, axis=-2)
    return whole, len(parts) == 2


def of_pairs(high: Any, low: Any) -> Words:
    """Return the words of high + low, arrays of doubles that broadcast."""
    high, low = floats("value", high), floats("lo", low)
    try:
        both = np.broadcast_arrays(high, low)
    except ValueError:
        raise ValueError(f"lo.shape={low.shape} does not fit value.shape={high.shape}") from None
    is_complex = any(np.iscomplexobj(x) for x in both)
    high, low = (x.astype(np.complex128) if is_complex else x for x in both)
    return side_by_side([normalised(*one) for one in zip(_parts(high), _parts(low), strict=True)])


def floats(name: str, x: Any) -> NDArray[Any]:
    """Return float64 or complex128; refuse what would lose digits."""
    refuse_masked(**{name: x})
    array = _unrounded(x)
    if array.dtype.kind not in "biufc" or array.dtype.itemsize > 8 * (
        1 + (array.dtype.kind == "c")
    ):
        raise ValueError(f"{name} has dtype {array.dtype}; give float64 or complex128")
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        raise ValueError(f"{name} has dtype {array.dtype}, which float64 rounds; give it alone")
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _parts(x: NDArray[Any]) -> list[NDArray[Any]]:
    return [x.real, x.imag] if np.iscomplexobj(x) else [x]


def words_of(value: Any) -> Words:
    """Return what `DoubleDouble(value)` says."""
    refuse_masked(value=value)
    if hasattr(value, "__dlpack_device__") and not isinstance(value, np.ndarray | np.generic):
        if value.__dlpack_device__()[0] == _HOST:  # PyTorch's and JAX's
            return words_of(np.from_dlpack(value))
        if value.dtype != np.float64:  # CuPy's, say
            raise ValueError(f"value has dtype {value.dtype}; give float64")
        return side_by_side([(value, namespace_of(value).zeros_like(value))])
    if hasattr(value, "tolist") and not isinstance(value, np.ndarray | np.generic):
        value = value.tolist()  # mpmath's and python-flint's matrices
    elif hasattr(value, "table"):
        value = value.table()
    array = _unrounded(value)
    if array.dtype in (DOUBLE_DOUBLE["e"].dtype, DOUBLE_DOUBLE["w"].dtype):
        return _of_structured(array)
    if array.dtype.kind in "OUS":
        return _of_objects(np.asarray(value, dtype=object))
    wide = array.dtype.kind in "iu" or array.dtype in (np.longdouble, np.clongdouble)
    parts = []
    for one in _parts(array if wide else floats("value", array)):
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            high = one.astype(np.float64)
            rest = one.astype(np.longdouble) - high if wide else 0 * high
        low = np.where(np.isfinite(high), rest, 0).astype(np.float64)
        parts.append(normalised(high, low))
    return side_by_side(parts)


def _unrounded(value: Any) -> NDArray[Any]:
    """Return an array of the numbers; of objects where NumPy's common type rounds integers."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError("value is no array; give lists of equal lengths") from None
    if isinstance(value, list | tuple) and array.dtype in (np.float64, np.complex128):
        objects = np.asarray(value, dtype=object)
        if any(isinstance(x, int | np.integer) and abs(int(x)) > 2**53 for x in objects.flat):
            return objects
    return array


def _of_structured(array: NDArray[Any]) -> Words:
    flat = np.ascontiguousarray(array).view(np.float64)
    is_complex = array.dtype == DOUBLE_DOUBLE["w"].dtype
    tail = (2, 2) if is_complex else (2,)
    return flat.reshape(*array.shape, *tail).copy(), is_complex


def _of_objects(array: NDArray[Any]) -> Words:
    """Return the pairs nearest to numbers or texts in an object array."""
    parts = [_parts_of_object(x) for x in array.flat]
    is_complex = any(len(one) == 2 for one in parts)
    words = np.zeros((*array.shape, 2, 2) if is_complex else (*array.shape, 2))
    for at, one in zip(np.ndindex(array.shape), parts, strict=True):
        pairs = [_pair_of(x) for x in one]
        if is_complex:
            words[at][: len(pairs)] = pairs
        else:
            words[at] = pairs[0]
    return words, is_complex


# The text of a complex number: a sign that is no exponent's parts it.
_COMPLEX_TEXT = re.compile(r"(.*[^eE])([+-].*)[jJ]")


def _parts_of_object(x: Any) -> tuple[Any, ...]:
    """Return the real part of a number or a text, and the imaginary one if it has one."""
    if isinstance(x, bytes):
        x = x.decode()
    if isinstance(x, str) and x.strip()[-1:] in ("j", "J"):
        found = _COMPLEX_TEXT.fullmatch(x.strip())
        return found.groups() if found else ("0", x.strip()[:-1])
    if type(x).__name__ == "DoubleDouble":
        return (x.real, x.imag) if x.is_complex else (x,)
    if isinstance(x, complex | np.complexfloating) or type(x).__name__ in ("mpc", "acb"):
        return tuple(part() if callable(part) else part for part in (x.real, x.imag))
    return (x,)


def _pair_of(x: Any) -> Any:
    return x.on_host().words if type(x).__name__ == "DoubleDouble" else pair_of(x)
