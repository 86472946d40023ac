"""Which arrays hold numbers of 8 or 16 bits, by their type's name in any library."""

from __future__ import annotations

from typing import Any

__all__ = ["NARROW", "is_narrow", "type_name"]

NARROW = ("float16", "bfloat16", "int8")


def type_name(dtype: Any) -> str:
    """Return the name of an element type: ``"bfloat16"`` of ml_dtypes' and PyTorch's."""
    return str(dtype).rpartition(".")[2]


def is_narrow(x: Any) -> bool:
    """Whether an array's elements are float16, bfloat16 or int8."""
    dtype = getattr(x, "dtype", "")
    if getattr(dtype, "itemsize", 0) > 2:  # NumPy takes 8 us to name a type
        return False
    return type_name(dtype) in NARROW
