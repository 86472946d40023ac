"""Tensor maps as the copy engine reads them, made by the driver."""

from __future__ import annotations

import ctypes
from typing import Any

from tilewright.backend.base import LaunchError
from tilewright.backend.cuda.driver import check, driver
from tilewright.stencil import TensorMap

__all__ = ["SWIZZLES", "TYPES", "encoded"]

# CUtensorMap of cuda.h is so large.
_BYTES = 128

# CUDA driver API, cuTensorMapEncodeTiled: what addresses and strides are multiples of, the
# largest box, and the most elements of a dimension.
_ALIGNMENT = 16
_MOST_BOX = 256
_MOST_SIZE = 2**32
_MOST_STRIDE = 2**40

# CUtensorMapDataType of cuda.h.
TYPES = {
    "float16": 6,
    "bfloat16": 9,
    "float32": 7,
    "float64": 8,
    "int32": 3,
    "int8": 0,  # UINT8: the copy engine looks at no sign
    "uint8": 0,
}

# By bytes: CUtensorMapSwizzle.
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}

# CUtensorMapInterleave and CUtensorMapFloatOOBfill: none; any other fill is NaN.
_NO_INTERLEAVE, _FILL_ZERO = 0, 0

# CUtensorMapL2promotion: a row of a box is at most so long, and its neighbour in memory is soon
# wanted.
_PROMOTE_128_BYTES = 2


def encoded(tensor: TensorMap) -> ctypes.Array[Any]:
    """Return the bytes that a kernel takes as a ``__grid_constant__`` argument.

    Parameters
    ----------
    tensor : TensorMap
        Its memory is a device address.

    Raises
    ------
    ValueError
        If an address, a stride or a size is none that the copy engine takes.
    LaunchError
        If there is no driver, or it refuses the map for another reason.
    """
    _look_at(tensor)
    api = driver()
    if api is None:
        raise LaunchError("tensor maps are made by NVIDIA's driver, which is not here")
    rank = len(tensor.sizes)
    whole, word = ctypes.c_uint64 * rank, ctypes.c_uint32 * rank
    made = _aligned()
    check(
        api.cuTensorMapEncodeTiled(
            made,
            TYPES[tensor.element],
            rank,
            int(tensor.memory) + tensor.offset,
            whole(*map(int, tensor.sizes)),
            whole(*map(int, tensor.strides)),
            word(*map(int, tensor.box)),
            word(*(1,) * rank),
            _NO_INTERLEAVE,
            SWIZZLES[tensor.swizzle],
            _PROMOTE_128_BYTES,
            _FILL_ZERO,
        ),
        f"making a tensor map of {tensor.sizes} elements of {tensor.element}",
    )
    return made


def _aligned() -> ctypes.Array[Any]:
    """Return room for a map at a multiple of 64 bytes, as cuda.h wants it, which keeps itself."""
    memory = (ctypes.c_char * (_BYTES + 64))()
    return (ctypes.c_char * _BYTES).from_buffer(memory, -ctypes.addressof(memory) % 64)


def _look_at(tensor: TensorMap) -> None:
    """Refuse what the driver would refuse without saying why."""
    rank = len(tensor.sizes)
    if tensor.element not in TYPES:
        raise ValueError(f"element={tensor.element!r} is unknown; use {', '.join(TYPES)}")
    if not 1 <= rank <= 5 or (len(tensor.strides), len(tensor.box)) != (rank - 1, rank):
        raise ValueError(
            f"sizes={tensor.sizes} strides={tensor.strides} box={tensor.box}: give one to five"
            " sizes, as many sides of the box and one stride fewer"
        )
    address = int(tensor.memory) + tensor.offset
    strides = tensor.strides or (0,)
    ragged = any(x % _ALIGNMENT for x in strides)
    for name, numbers, good in (
        ("address", (address,), address % _ALIGNMENT == 0),
        ("sizes", tensor.sizes, 1 <= min(tensor.sizes) <= max(tensor.sizes) <= _MOST_SIZE),
        ("strides", strides, not ragged and 0 <= min(strides) <= max(strides) < _MOST_STRIDE),
        ("box", tensor.box, 1 <= min(tensor.box) <= max(tensor.box) <= _MOST_BOX),
    ):
        if not good:
            raise ValueError(
                f"{name}={numbers} is nothing for the copy engine: addresses and strides are"
                f" multiples of {_ALIGNMENT} bytes, boxes at most {_MOST_BOX} elements a side"
            )
    inner = tensor.box[0] * tensor.element_bytes
    if inner % _ALIGNMENT or (tensor.swizzle and inner > tensor.swizzle):
        raise ValueError(
            f"box={tensor.box} has rows of {inner} bytes; use a multiple of {_ALIGNMENT}"
            f" of at most {tensor.swizzle or 'any number of'} bytes"
        )
