"""Which arrays hold numbers of 8 or 16 bits, by their type's name in any library."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.precision import SHORT, Precision

__all__ = ["NARROW", "is_narrow", "results_of", "short_precision", "type_name"]

NARROW = tuple(dict.fromkeys(one.dtype_name for one in SHORT.values() if one.element_bytes <= 2))


def type_name(dtype: Any) -> str:
    """Return the name of an element type: ``"bfloat16"`` of ml_dtypes' and PyTorch's."""
    if isinstance(dtype, np.dtype) and dtype.isnative:
        return dtype.type.__name__  # NumPy takes 8 us to say it
    return str(dtype).rpartition(".")[2]


def is_narrow(x: Any) -> bool:
    """Whether an array's elements are of one of `NARROW`."""
    return type_name(getattr(x, "dtype", "")) in NARROW


def results_of(kind: str) -> tuple[str, ...]:
    """Return the types that products of a type have, the usual one first."""
    return tuple(one.result_name for one in SHORT.values() if one.dtype_name == kind)


def short_precision(kind: str, result: str) -> Precision:
    """Return the precision of operands of a type and of a result that it has."""
    types = kind, result
    return next(one for one in SHORT.values() if (one.dtype_name, one.result_name) == types)
