"""CuPy arrays: in place, on CuPy's current stream."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np

from tilewright.backend import OutOfMemoryError
from tilewright.serve import warm
from tilewright.serve.arrays import device as on_device
from tilewright.serve.arrays.device import View
from tilewright.serve.arrays.inside import of_cupy
from tilewright.stencil.asynchronous.resources import CHUNK_BYTES

if TYPE_CHECKING:
    from tilewright.serve.request import Device, Request

__all__ = [
    "current",
    "empty_like",
    "memory",
    "new",
    "new_arrays",
    "result",
    "run",
    "stream_of",
    "view",
]

_empty = cupy.empty
_current_stream = cupy.cuda.get_current_stream


def view(name: str, x: Any) -> View:
    """Return what there is to know of an array."""
    return View(x, x.data.ptr, x.shape, x.strides, x.dtype, x.data.device_id)


def result(x: View) -> Any:
    """Return the caller's array."""
    return x.array


def empty_like(like: View, shape: tuple[int, ...]) -> View:
    """Return a new row-major array on the same device."""
    return new(like, shape, like.dtype)


def new(like: View, shape: tuple[int, ...], dtype: Any) -> View:
    """Return a new row-major array of a type on the same device."""
    with cupy.cuda.Device(like.ordinal):
        made = _empty(shape, dtype)
    return View(
        made, made.data.ptr, made.shape, made.strides, made.dtype, like.ordinal, made_here=True
    )


def new_arrays(like: Any, shapes: Iterable[tuple[int, int]], dtype: Any) -> list[Any]:
    """Return new row-major matrices of a type on an array's device.

    They lie one behind the other in memory that is allocated once: CuPy takes microseconds for each
    allocation.
    """
    sizes, element = list(shapes), np.dtype(dtype).itemsize
    ends = [*accumulate(-(-m * n * element // CHUNK_BYTES) * CHUNK_BYTES for m, n in sizes)]
    with like.device:
        memory = cupy.cuda.alloc(ends[-1])
        return [
            cupy.ndarray(shape, dtype, memory + at)
            for shape, at in zip(sizes, (0, *ends), strict=False)
        ]


def run(request: Request, device: Device) -> None:
    """Enqueue the product on the current stream of the arrays' device."""
    on_device.run(request, device, stream_of, memory, request.a.ordinal)


def stream_of(ordinal: int) -> int:
    """Return the address of the stream that is current on a device."""
    return int(_current_stream(ordinal).ptr)


def current(ordinal: int) -> Any:
    """Return a context in which a device is the current one."""
    return cupy.cuda.Device(ordinal)


def memory(ordinal: int, size: int) -> tuple[int, Any]:
    """Return memory of CuPy's allocator: its address, and what keeps it."""
    with cupy.cuda.Device(ordinal):
        try:
            made = cupy.cuda.alloc(size)
        except cupy.cuda.memory.OutOfMemoryError as problem:
            raise OutOfMemoryError(
                f"cuda:{ordinal} has no {size} bytes left", str(problem)
            ) from None
    return int(made.ptr), made


def _empty_on(shape: tuple[int, ...], dtype: Any, _: int) -> Any:
    """Return a new array of the current device; what cupy.empty calls, without the call around."""
    return cupy.ndarray(shape, dtype)


warm.know(
    warm.CUPY, cupy.ndarray, stream_of, _empty_on, memory,
    part=cupy.cuda.MemoryPointer, inside=of_cupy(cupy),
)  # fmt: skip
