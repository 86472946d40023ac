"""NumPy arrays: in place where the device shares the host's memory, else by staging."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import LiveDevice, Operand
from tilewright.library.gemm import launch_gemm, live_device, strided
from tilewright.library.overlap import overlaps_itself

if TYPE_CHECKING:
    from tilewright.library.gemm import Request

__all__ = ["empty_like", "result", "run", "view"]

# Bytes: an element that takes more is loaded in pieces.
_WIDEST_LOAD = 16


def view(name: str, x: Any) -> Any:
    """Return the array itself: it has all that is looked at.

    Raises
    ------
    ValueError
        If its bytes are in another machine's order.
    """
    if not x.dtype.isnative:
        raise ValueError(
            f"{name}.dtype={x.dtype.str!r} is byte-swapped;"
            f" give {name}.astype({x.dtype.newbyteorder('=').name!r})"
        )
    return x


def result(x: Any) -> Any:
    """Return the array itself."""
    return x


def empty_like(like: NDArray[Any], shape: tuple[int, int]) -> NDArray[Any]:
    """Return a new row-major array of the same dtype."""
    return np.empty(shape, like.dtype)


def run(request: Request, device: str | LiveDevice | None) -> None:
    """Compute into ``request.c`` and wait for it."""
    c = request.c
    if not c.flags.writeable:
        raise ValueError("c is read-only; give a writeable array")
    if overlaps_itself(c.shape, c.strides):
        raise ValueError(f"c.strides={c.strides} overlap themselves; give c memory of its own")
    for name, x in (("a", request.a), ("b", request.b)):
        if np.shares_memory(x, c):
            raise ValueError(f"c overlaps {name}; give c memory of its own")
    live = live_device(device)
    a, b = _takeable(request.a), _takeable(request.b)
    target = c
    if _layout(c) is None:
        target = np.array(c, order="C") if request.beta != 0 else np.empty(c.shape, c.dtype)
    if live.spec.unified_memory and hasattr(live, "wrap"):
        _in_place(live, request, a, b, target)
    else:
        _staged(live, request, a, b, target)
    if target is not c:
        c[...] = target


def _layout(x: NDArray[Any]) -> tuple[bool, int] | None:
    # Vector loads of complex elements want them aligned to their size, not to their parts'.
    if not x.flags.aligned or x.ctypes.data % min(x.itemsize, _WIDEST_LOAD):
        return None
    return strided(x.shape, x.strides, x.itemsize)


def _takeable(x: NDArray[Any]) -> NDArray[Any]:
    """Return the array itself, or a copy where BLAS could not take it."""
    return x if _layout(x) is not None else np.array(x, order="C")


def _span(x: NDArray[Any]) -> tuple[int, int]:
    """Return the addresses of an array's first byte and of the one after its last."""
    return np.lib.array_utils.byte_bounds(x)


def _in_place(
    live: Any, request: Request, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]
) -> None:
    """Let the device read and write the arrays where they are.

    Arrays whose spans overlap (blocks of one matrix, say) go into one buffer: OpenCL
    leaves kernels on two buffers over the same host memory undefined.
    """
    pieces = _merged([_span(x) for x in (a, b, c) if x.size])
    most = live.max_allocation
    if most is not None and any(high - low > most for low, high in pieces):
        for part in _halves(request, a, b, c, most):
            _in_place(live, *part)
        return
    buffers = [(low, _bytes(low, high)) for low, high in pieces]
    memory = [live.wrap(view, writable=True) for _, view in buffers]
    nothing = None

    def operand(x: NDArray[Any]) -> tuple[Operand, bool]:
        layout = _layout(x)
        assert layout is not None
        row_major, ld = layout
        if not x.size:
            return Operand(nothing, 0, ld), row_major
        low = _span(x)[0]
        at = next(i for i, (start, end) in enumerate(pieces) if start <= low < end)
        return Operand(memory[at], (low - pieces[at][0]) // x.itemsize, ld), row_major

    try:
        event = launch_gemm(live, request, (operand(a), operand(b), operand(c)))
        event.wait()
        written = next(i for i, (low, high) in enumerate(pieces) if low <= _span(c)[0] < high)
        live.unwrap(memory[written], buffers[written][1])
    finally:
        for mem in memory:
            live.free(mem)


def _halves(
    request: Request, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any], most: int
) -> list[tuple[Request, NDArray[Any], NDArray[Any], NDArray[Any]]]:
    """Cut a product in two whose spans are shorter: devices limit a single buffer.

    The operand that spans more than `most` bytes is cut across its longer stride; where
    only a union of operands does, C is.
    """
    dimensions = {"a": "mk", "b": "kn", "c": "mn"}
    arrays = {"a": a, "b": b, "c": c}
    for name, trans in (("a", request.trans_a), ("b", request.trans_b)):
        if trans.transposed:
            dimensions[name] = dimensions[name][::-1]
    long = [n for n, x in arrays.items() if x.size and _span(x)[1] - _span(x)[0] > most]
    name = long[0] if long else "c"
    x = arrays[name]
    reach = [abs(step) * (n - 1) for step, n in zip(x.strides, x.shape, strict=True)]
    cut = dimensions[name][int(np.argmax(reach))]
    size = getattr(request, cut)
    if size < 2:
        raise ValueError(f"{name} spans more bytes than the device's {most} in one element")
    parts = []
    for start, stop in ((0, size // 2), (size // 2, size)):
        pieces = [
            arrays[x][tuple(slice(start, stop) if d == cut else slice(None) for d in axes)]
            for x, axes in dimensions.items()
        ]
        # The second half of a sum adds to the first.
        changes: dict[str, Any] = {cut: stop - start}
        if cut == "k" and start:
            changes["beta"] = 1
        part = replace(request, **changes)
        parts.append((part, pieces[0], pieces[1], pieces[2]))
    return parts


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the unions of overlapping spans."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if merged and low < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged


def _bytes(low: int, high: int) -> NDArray[np.uint8]:
    """Return the memory between two addresses; the caller keeps its owner alive."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low))


def _staged(
    live: LiveDevice, request: Request, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]
) -> None:
    """Copy the operands to the device, multiply, and copy C back."""
    memory = []

    def upload(x: NDArray[Any], *, content: bool = True) -> tuple[Operand, bool]:
        layout = _layout(x)
        assert layout is not None
        dense = np.ascontiguousarray(x.T if not layout[0] else x)
        mem = live.upload(dense) if content else live.allocate(dense.nbytes)
        memory.append(mem)
        return Operand(mem, 0, max(1, dense.shape[1])), layout[0]

    try:
        operands = upload(a), upload(b), upload(c, content=request.beta != 0)
        launch_gemm(live, request, operands).wait()
        row_major = operands[2][1]
        result = np.empty(c.shape if row_major else c.shape[::-1], c.dtype)
        live.download(operands[2][0].memory, result)
        c[...] = result if row_major else result.T
    finally:
        for mem in memory:
            live.free(mem)
