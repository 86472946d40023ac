"""Tensor maps as the copy engine reads them, made by the driver."""

from __future__ import annotations

import ctypes
from typing import Any

from tilewright.backend.base import LaunchError
from tilewright.backend.cuda.driver import check, driver
from tilewright.stencil import TensorMap

__all__ = ["encoded"]

# CUtensorMap of cuda.h is so large.
_BYTES = 128

# CUDA driver API, cuTensorMapEncodeTiled: what addresses and strides are multiples of, the
# largest box, and the most elements of a dimension.
_ALIGNMENT = 16
_MOST_BOX = 256
_MOST_SIZE = 2**32
_MOST_STRIDE = 2**40

_TYPES = {
    "float16": "FLOAT16",
    "bfloat16": "BFLOAT16",
    "float32": "FLOAT32",
    "float64": "FLOAT64",
    "int32": "INT32",
    "int8": "UINT8",  # the copy engine looks at no sign
    "uint8": "UINT8",
}


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
    whole, word = api.cuuint64_t, api.cuuint32_t
    kind = getattr(api.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_TYPES[tensor.element]}")
    span = f"{tensor.swizzle}B" if tensor.swizzle else "NONE"
    made = check(
        api.cuTensorMapEncodeTiled(
            kind,
            rank,
            int(tensor.memory) + tensor.offset,
            [whole(size) for size in tensor.sizes],
            [whole(stride) for stride in tensor.strides],
            [word(side) for side in tensor.box],
            [word(1)] * rank,
            api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            getattr(api.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{span}"),
            # A row of a box is at most so long, and its neighbour in memory is soon wanted.
            api.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        ),
        f"making a tensor map of {tensor.sizes} elements of {tensor.element}",
    )
    # Its own object need not lie where a kernel's argument may: a multiple of 64 bytes.
    return _aligned(ctypes.string_at(int(made.getPtr()), _BYTES))


def _aligned(raw: bytes) -> ctypes.Array[Any]:
    """Return a copy of some bytes at a multiple of 64, which keeps its memory alive."""
    memory = (ctypes.c_char * (len(raw) + 64))()
    offset = -ctypes.addressof(memory) % 64
    found = (ctypes.c_char * len(raw)).from_buffer(memory, offset)
    found.raw = raw
    return found


def _look_at(tensor: TensorMap) -> None:
    """Refuse what the driver would refuse without saying why."""
    rank = len(tensor.sizes)
    if tensor.element not in _TYPES:
        raise ValueError(f"element={tensor.element!r} is unknown; use {', '.join(_TYPES)}")
    if not 1 <= rank <= 5 or (len(tensor.strides), len(tensor.box)) != (rank - 1, rank):
        raise ValueError(
            f"sizes={tensor.sizes} strides={tensor.strides} box={tensor.box}: give one to five"
            " sizes, as many sides of the box and one stride fewer"
        )
    address = int(tensor.memory) + tensor.offset
    for name, numbers, good in (
        ("address", (address,), lambda x: x % _ALIGNMENT == 0),
        ("sizes", tensor.sizes, lambda x: 1 <= x <= _MOST_SIZE),
        ("strides", tensor.strides, lambda x: x % _ALIGNMENT == 0 and 0 <= x < _MOST_STRIDE),
        ("box", tensor.box, lambda x: 1 <= x <= _MOST_BOX),
    ):
        if not all(map(good, numbers)):
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
