"""pyopencl arrays: in place, on the array's own queue, without waiting."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import pyopencl.array

from tilewright.backend import LiveDevice, Operand, OutOfMemoryError
from tilewright.backend.opencl.device import OpenCLDevice
from tilewright.serve.calls import launch_gemm
from tilewright.serve.overlap import overlap, overlaps_itself, refuse_overlap
from tilewright.serve.repeated import find, may_be_known, remember
from tilewright.serve.request import strided
from tilewright.serve.warm import looks
from tilewright.stencil.asynchronous.resources import CHUNK_BYTES

if TYPE_CHECKING:
    from tilewright.serve.request import Device, Request

__all__ = ["again", "empty_like", "result", "run", "view"]

_live: dict[tuple[int, int], OpenCLDevice] = {}


def view(name: str, x: Any) -> Any:
    """Return the array itself: it has all that is looked at."""
    return x


def result(x: Any) -> Any:
    """Return the array itself."""
    return x


def empty_like(like: Any, shape: tuple[int, ...]) -> Any:
    """Return a new row-major array on the same queue.

    Raises
    ------
    OutOfMemoryError
        If the device has no room for it.
    """
    queue, detail = _queue(like), ""
    # NVIDIA's buffers take memory when they are used first, however large they are.
    if math.prod(shape) * like.dtype.itemsize <= queue.device.global_mem_size:
        try:
            return pyopencl.array.empty(queue, shape, like.dtype)
        except pyopencl.Error as problem:
            too_large = problem.code == pyopencl.status_code.INVALID_BUFFER_SIZE
            if not too_large and not isinstance(problem, pyopencl.MemoryError):
                raise
            detail = str(problem)
    sizes = " x ".join(map(str, shape))
    raise OutOfMemoryError(
        f"c would be {sizes} of {like.dtype}, more than {queue.device.name.strip()} gives at"
        " once; multiply parts, or give NumPy arrays",
        detail,
    )


def _queue(x: Any) -> Any:
    if x.queue is None:
        raise ValueError("a has no queue; give it one with a.with_queue(queue)")
    return x.queue


def _device(queue: Any) -> OpenCLDevice:
    """Return the live device of a caller's context."""
    key = (queue.context.int_ptr, queue.device.int_ptr)
    if key not in _live:
        _live[key] = OpenCLDevice(queue.device, "opencl", queue.context)
    return _live[key]


def run(request: Request, device: Device) -> None:
    """Enqueue the product on c's queue, after whatever the arrays wait for."""
    if device is not None:
        raise ValueError(f"device={device!r} has no say: pyopencl arrays stay where they are")
    arrays = {"a": request.a, "b": request.b, "c": request.c}
    queue = _queue(request.c)
    if len({_queue(x).context.int_ptr for x in arrays.values()}) > 1:
        raise ValueError("a, b and c belong to different contexts; move them to one")
    refuse_overlap(_overlap, request.c, a=request.a, b=request.b)
    if request.c.ndim > 2 and overlaps_itself(request.c.shape, request.c.strides):
        raise ValueError(f"c.strides={request.c.strides} overlap themselves; give c its own memory")
    a, b, c = (_operand(name, x, request.matrix(name)) for name, x in arrays.items())
    given = request.a, request.b, request.c
    live = _device(queue)
    event = launch_gemm(live, request, (a, b, c), queue, _events(*given))
    _wait_for(event, *given)
    remember(live, request, (a, b, c), _where(live, *given))


def again(
    a: Any, b: Any, c: Any, alpha: Any, beta: Any, trans_a: Any, trans_b: Any,
    accuracy: str, out_dtype: Any, device: str | LiveDevice | None,
) -> Any:  # fmt: skip
    """Enqueue a product as of a call made before, into `c` if given; return None of any other."""
    if not may_be_known(alpha, beta, trans_a, trans_b, accuracy, out_dtype):
        return None
    if device is not None or type(b) is not type(a):
        return None
    if c is None:
        if beta != 0 or not a.ndim == b.ndim == 2 or a.queue is None:
            return None
        try:
            c = empty_like(a, (a.shape[trans_a != "N"], b.shape[trans_b == "N"]))
        except OutOfMemoryError:  # the closer look says so, if this is a product
            return None
    queue = c.queue if type(c) is type(a) else None
    if queue is None or a.queue is not queue or b.queue is not queue:
        return None
    live = _device(queue)
    known = find(a, b, c, trans_a, trans_b, _where(live, a, b, c))
    if known is None or _overlap(a, c) or _overlap(b, c):
        return None
    size = c.dtype.itemsize
    first, second, third = ((x.base_data, x.offset // size) for x in (a, b, c))
    event = known.start((first, second, third), alpha, beta, queue, _events(a, b, c))
    _wait_for(event, a, b, c)
    return c


def _where(live: OpenCLDevice, a: Any, b: Any, c: Any) -> Hashable:
    """Return where such arrays are, and how they are aligned there."""
    return live, a.offset % CHUNK_BYTES, b.offset % CHUNK_BYTES, c.offset % CHUNK_BYTES


def _events(a: Any, b: Any, c: Any) -> tuple[Any, ...]:
    """Return what arrays wait for; calls one after the other wait for the same."""
    if a.events == c.events and b.events == c.events:
        return tuple(c.events)
    return tuple(dict.fromkeys((*a.events, *b.events, *c.events)))


def _wait_for(event: Any, *arrays: Any) -> None:
    """Let arrays wait for an event that waited for all that they waited for."""
    for x in arrays:
        x.events[:] = [event.raw]


def _operand(name: str, x: Any, matrix: Any) -> tuple[Operand, bool]:
    """Return an operand whose first product's matrix has `matrix`'s shape and strides."""
    size = x.dtype.itemsize
    layout = strided(matrix.shape, matrix.strides, size)
    if layout is None or x.offset % size or any(step % size for step in x.strides):
        raise ValueError(
            f"{name}.strides={x.strides} is not a BLAS matrix; give whole rows or columns, as"
            " pyopencl.array.to_device puts them there"
        )
    return Operand(x.base_data, x.offset // x.dtype.itemsize, layout[1]), layout[0]


def _overlap(x: Any, y: Any) -> bool:
    """Whether two device arrays share an element; different buffers never do."""
    if not x.size or not y.size:
        return False
    (one, first), (other, second) = _whole(x.base_data), _whole(y.base_data)
    if one != other:
        return False
    return overlap(
        (first + x.offset, x.shape, x.strides, x.dtype),
        (second + y.offset, y.shape, y.strides, y.dtype),
    )


def _whole(buffer: Any) -> tuple[int, int]:
    """Return the buffer that a part is of, itself mostly, and where in it the part begins."""
    if not isinstance(buffer, pyopencl.Buffer):
        return buffer.int_ptr, 0
    parent = buffer.get_info(pyopencl.mem_info.ASSOCIATED_MEMOBJECT)
    if parent is None:
        return buffer.int_ptr, 0
    return parent.int_ptr, buffer.get_info(pyopencl.mem_info.OFFSET)


looks[pyopencl.array.Array] = again
