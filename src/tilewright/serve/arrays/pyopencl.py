"""pyopencl arrays: in place, on the array's own queue, without waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.backend import LiveDevice, Operand
from tilewright.backend.opencl.device import OpenCLDevice
from tilewright.serve.gemm import launch_gemm, strided
from tilewright.serve.overlap import overlap

if TYPE_CHECKING:
    from tilewright.serve.gemm import Request

__all__ = ["empty_like", "result", "run", "view"]

_live: dict[tuple[int, int], OpenCLDevice] = {}


def view(name: str, x: Any) -> Any:
    """Return the array itself: it has all that is looked at."""
    return x


def result(x: Any) -> Any:
    """Return the array itself."""
    return x


def empty_like(like: Any, shape: tuple[int, int]) -> Any:
    """Return a new row-major array on the same queue."""
    import pyopencl.array

    return pyopencl.array.empty(_queue(like), shape, like.dtype)


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


def run(request: Request, device: str | LiveDevice | None) -> None:
    """Enqueue the product on c's queue, after whatever the arrays wait for."""
    if device is not None:
        raise ValueError(f"device={device!r} has no say: pyopencl arrays stay where they are")
    arrays = {"a": request.a, "b": request.b, "c": request.c}
    queue = _queue(request.c)
    if len({_queue(x).context.int_ptr for x in arrays.values()}) > 1:
        raise ValueError("a, b and c belong to different contexts; move them to one")
    for name in ("a", "b"):
        if _overlap(arrays[name], request.c):
            raise ValueError(f"c overlaps {name}; give c memory of its own")
    a, b, c = (_operand(name, x) for name, x in arrays.items())
    after = tuple(event for x in arrays.values() for event in x.events)
    event: Any = launch_gemm(_device(queue), request, (a, b, c), queue, after)
    for x in arrays.values():
        x.add_event(event.raw)


def _operand(name: str, x: Any) -> tuple[Operand, bool]:
    layout = strided(x.shape, x.strides, x.dtype.itemsize)
    if layout is None or x.offset % x.dtype.itemsize:
        raise ValueError(
            f"{name}.strides={x.strides} is not a BLAS matrix; copy it first ({name}.copy())"
        )
    return Operand(x.base_data, x.offset // x.dtype.itemsize, layout[1]), layout[0]


def _overlap(x: Any, y: Any) -> bool:
    """Whether two device arrays share an element; different buffers never do."""
    if not x.size or not y.size:
        return False
    (one, first), (other, second) = (_whole(z.base_data) for z in (x, y))
    if one != other:
        return False
    begins = first + x.offset, second + y.offset
    return overlap(
        *((at, z.shape, z.strides, z.dtype) for at, z in zip(begins, (x, y), strict=True))
    )


def _whole(buffer: Any) -> tuple[int, int]:
    """Return the buffer that a part is of, itself mostly, and where in it the part begins."""
    import pyopencl as cl

    if not isinstance(buffer, cl.Buffer):
        return buffer.int_ptr, 0
    parent = buffer.get_info(cl.mem_info.ASSOCIATED_MEMOBJECT)
    if parent is None:
        return buffer.int_ptr, 0
    return parent.int_ptr, buffer.get_info(cl.mem_info.OFFSET)
