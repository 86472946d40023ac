"""NumPy arrays: in place where the device shares the host's memory, else by staging."""

from __future__ import annotations

import ctypes
import math
from bisect import bisect_right
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tilewright.backend import Event, LiveDevice, Operand
from tilewright.backend import device as find_device
from tilewright.serve.arrays.divided import parts_of, products_of
from tilewright.serve.calls import launch_gemm
from tilewright.serve.host_blas import is_serving, serve
from tilewright.serve.host_triangles import fill
from tilewright.serve.overlap import (
    address_of,
    in_one_file,
    overlaps_itself,
    refuse_overlap,
    share,
    span,
)
from tilewright.serve.repeated import Known, find, may_be_known, remember
from tilewright.serve.request import strided
from tilewright.serve.warm import looks

if TYPE_CHECKING:
    from tilewright.serve.request import Device, Request

__all__ = [
    "again",
    "check_result",
    "empty_like",
    "is_shared",
    "new_result",
    "result",
    "run",
    "view",
]

# Whether calls may bound the memory that they take.
IS_OF_HOST = True

Span = tuple[int, int]
"""Addresses of the first byte and of the one behind the last."""

Buffer = NDArray[Any] | memoryview

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
        native = x.dtype.newbyteorder("=").name
        give = f"an array of {native}" if name == "c" else f"{name}.astype({native!r})"
        raise ValueError(f"{name}.dtype={x.dtype.str!r} is byte-swapped; give {give}")
    return x


def result(x: Any) -> Any:
    """Return the array itself."""
    return x


def empty_like(like: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return a new row-major array of the same dtype."""
    return new_result(shape, like.dtype)


def new_result(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return a new row-major array.

    Raises
    ------
    MemoryError
        If the host has no room for it.
    """
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError):  # the latter beyond 2^63 bytes
        sizes, kind = " x ".join(map(str, shape)), np.dtype(dtype)
        raise MemoryError(
            f"c would be {sizes} of {kind}, {math.prod(shape) * kind.itemsize / 2**30:.0f} GiB,"
            " and the host has less memory; give c, such as a numpy.memmap, or multiply parts"
        ) from None


def run(request: Request, device: Device) -> None:
    """Compute into ``request.c`` and wait for it."""
    c = request.c
    check_result(c)
    refuse_overlap(share, c, a=request.a, b=request.b)
    if isinstance(device, list | tuple):
        _streamed(device, request)
        return
    live = find_device(device)
    if serve(live, request):
        return
    if not is_shared(live) and request.triangle is None:
        from tilewright.serve.streamed.serve import is_wanted

        if is_wanted(live, request):
            _streamed([live], request)
            return
    request, (a, b, target) = _arrays_taken(request)
    if is_shared(live):
        _in_place(live, request, a, b, target)
    else:
        _staged(live, request, a, b, target)
    if target.array is not c:
        c[...] = target.array


def _streamed(device: Device, request: Request) -> None:
    """Let one or more devices compute tile by tile."""
    from tilewright.serve.streamed.serve import devices_of
    from tilewright.serve.streamed.serve import serve as serve_streamed

    devices = devices_of(device)
    for part in products_of(request):
        serve_streamed(devices, part)


def check_result(c: NDArray[Any]) -> None:
    """Refuse a C that cannot be written, or of which two elements are one place in memory."""
    if not c.flags.writeable:
        raise ValueError("c is read-only; give a writeable array")
    if not c.flags.forc and overlaps_itself(c.shape, c.strides):
        raise ValueError(f"c.strides={c.strides} overlap themselves; give c memory of its own")


def again(
    a: NDArray[Any], b: Any, c: Any, alpha: Any, beta: Any, trans_a: Any, trans_b: Any,
    accuracy: str, out_dtype: Any, device: str | LiveDevice | None,
) -> NDArray[Any] | None:  # fmt: skip
    """Return the product of arrays as of a call made before, in `c` if given; None of any other."""
    if not may_be_known(alpha, beta, trans_a, trans_b, accuracy, out_dtype):
        return None
    if type(b) is not np.ndarray:
        return None
    if c is None:
        if beta != 0 or not a.ndim == b.ndim == 2:
            return None
        try:
            c = np.empty((a.shape[trans_a != "N"], b.shape[trans_b == "N"]), a.dtype)
        except (MemoryError, ValueError):  # the closer look knows its dtype, and says so
            return None
    elif type(c) is not np.ndarray or not c.flags.writeable:
        return None
    live: Any = find_device(device)
    known = find(a, b, c, trans_a, trans_b, _where(live))
    if known is None:
        return None
    buffers = _apart(a, b, c, known)
    if not buffers:
        return None

    def begin(memory: list[Any]) -> Event:
        # Of two, the first is A's and B's.
        places = (memory[0], 0), (memory[-2], 0), (memory[-1], 0)
        return known.start(places, alpha, beta, None, ())

    _wrapped(live, buffers, -1, begin)
    made: NDArray[Any] = c
    return made


def _where(live: LiveDevice) -> Hashable:
    """Return what serves arrays that are alike."""
    return live, is_serving()


def _apart(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any], known: Known) -> list[Buffer]:
    """Return the memory of A, B and C, or of A and C where B is A.

    Empty where they overlap otherwise, or begin where kernels cannot load from.
    """
    x, y, z = a.flags, b.flags, c.flags
    own = x.owndata and y.owndata and z.owndata
    if not own and (in_one_file(a, c) or in_one_file(b, c)):  # which the closer look refuses
        return []
    # NumPy's own memory is aligned to 16 bytes; what it calls aligned is so to a number's parts.
    aligned = own or (c.dtype.kind == "f" and x.aligned and y.aligned and z.aligned)
    # Memory that cannot be written makes no buffer by its array's leave.
    if known.whole and aligned and x.writeable and y.writeable:
        meet = np.may_share_memory
        if c is a or c is b or (not own and (meet(a, c) or meet(b, c))):
            return []
        if a is b:
            return [a, c]
        return [] if not own and meet(a, b) else [a, b, c]
    first, second, third = spans = [
        (low, low + size) for low, size in zip(map(address_of, (a, b, c)), known.reach, strict=True)
    ]
    if any(low % min(c.itemsize, _WIDEST_LOAD) for low, _ in spans):
        return []
    pieces = [first, third] if first == second else spans
    return [_bytes(*one) for one in pieces] if _merged(pieces) == sorted(pieces) else []


class _Matrix(NamedTuple):
    """An array that BLAS could take: its storage order, and where its memory begins and ends."""

    array: NDArray[Any]
    row_major: bool
    ld: int
    low: int
    high: int
    first: int  # where its first element is


def _matrix(x: NDArray[Any], matrix: Any) -> _Matrix | None:
    """Return an array whose first product's matrix has `matrix`'s shape and strides."""
    size = x.itemsize
    # Vector loads of complex elements want them aligned to their size, not to their parts'.
    first = address_of(x)
    if first % min(size, _WIDEST_LOAD) or any(step % size for step in x.strides):
        return None
    layout = strided(matrix.shape, matrix.strides, size)
    if layout is None:
        return None
    low, high = span(first, x.shape, x.strides, x.dtype)
    return _Matrix(x, *layout, low, high if x.size else low, first)


def _arrays_taken(request: Request) -> tuple[Request, tuple[_Matrix, _Matrix, _Matrix]]:
    """Return a request with its arrays, and copies of those that BLAS could not take."""
    copies: dict[str, Any] = {}
    for name in "abc":
        x = getattr(request, name)
        if _matrix(x, request.matrix(name)) is None:
            keep = name != "c" or request.keeps_c
            copies[name] = np.array(x, order="C") if keep else np.empty(x.shape, x.dtype)
    if copies:
        request = replace(request, batch=None, **copies)
        if request.c.ndim > 2:
            request = request.arranged()
    a, b, c = (_matrix(getattr(request, name), request.matrix(name)) for name in "abc")
    assert a is not None
    assert b is not None
    assert c is not None
    return request, (a, b, c)


def _in_place(live: Any, request: Request, a: _Matrix, b: _Matrix, c: _Matrix) -> None:
    """Let the device read and write the arrays where they are.

    Arrays whose spans overlap (blocks of one matrix, say) go into one buffer: OpenCL
    leaves kernels on two buffers over the same host memory undefined.
    """
    pieces = _merged([(x.low, x.high) for x in (a, b, c)])
    most = live.max_allocation
    if most is not None and any(high - low > most for low, high in pieces):
        for part in parts_of(request, most):
            part, arrays = _arrays_taken(part)
            _in_place(live, part, *arrays)
        if request.triangle is not None and request.triangle.filled:
            fill(c.array, request.triangle)
        return
    starts = [low for low, _ in pieces]
    given = request.a, request.b, request.c
    at = [bisect_right(starts, x.low) - 1 for x in (a, b, c)]

    def begin(memory: list[Any]) -> Event:
        one, other, target = (
            (
                Operand(memory[piece], (x.first - starts[piece]) // x.array.itemsize, x.ld)
                if x.high > x.low
                else Operand(None, 0, x.ld),
                x.row_major,
            )
            for piece, x in zip(at, (a, b, c), strict=True)
        )
        event: Event = launch_gemm(live, request, (one, other, target))
        whole = all(
            x.array is y and x.low == x.first for x, y in zip((a, b, c), given, strict=True)
        )
        if whole and one[0].offset == other[0].offset == target[0].offset == 0:
            remember(live, request, (one, other, target), _where(live))
        return event

    _wrapped(live, [_bytes(*one) for one in pieces], at[2], begin)


def is_shared(live: LiveDevice) -> bool:
    """Whether a device reads and writes the host's memory where it is."""
    return live.spec.unified_memory and hasattr(live, "wrap")


def _wrapped(
    live: Any, buffers: list[Buffer], written: int, begin: Callable[[list[Any]], Event]
) -> None:
    """Let a product run on the host's memory, and wait for it.

    Parameters
    ----------
    live : LiveDevice
        Where it runs.
    buffers : list of Buffer
        Memory, none of it twice.
    written : int
        In which of them C is.
    begin : callable
        Enqueues the product, given the handles of these.
    """
    memory: list[Any] = []
    try:
        for buffer in buffers:
            memory.append(live.wrap(buffer))  # freed if one fails
        event = begin(memory)
        live.unwrap(memory[written], buffers[written])  # waits, for its queue is in order
        event.wait()
    except BaseException:  # Ctrl-C, say: what is enqueued still writes to the caller's memory
        live.finish()
        raise
    finally:
        for mem in memory:
            live.free(mem)


def _merged(spans: list[Span]) -> list[Span]:
    """Return the unions of overlapping spans, without empty ones."""
    merged: list[Span] = []
    for low, high in sorted(spans):
        if low == high:
            continue
        if merged and low < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged


def _bytes(low: int, high: int) -> memoryview:
    """Return the memory between two addresses; the caller keeps its owner alive."""
    return memoryview((ctypes.c_uint8 * (high - low)).from_address(low))


def _staged(live: LiveDevice, request: Request, a: _Matrix, b: _Matrix, target: _Matrix) -> None:
    """Copy the operands to the device, multiply, and copy C back."""
    memory, c = [], target.array
    if c.ndim > 2:
        _staged_batch(live, request, target.array)
        return

    def upload(x: _Matrix, *, content: bool = True) -> tuple[Operand, bool]:
        dense = np.ascontiguousarray(x.array if x.row_major else x.array.T)
        mem = live.upload(dense) if content else live.allocate(dense.nbytes)
        memory.append(mem)
        return Operand(mem, 0, max(1, dense.shape[1])), x.row_major

    try:
        operands = upload(a), upload(b), upload(target, content=request.keeps_c)
        launch_gemm(live, request, operands).wait()
        row_major = operands[2][1]
        result = np.empty(c.shape if row_major else c.shape[::-1], c.dtype)
        live.download(operands[2][0].memory, result)
        c[...] = result if row_major else result.T
    finally:
        for mem in memory:
            live.free(mem)


def _staged_batch(live: LiveDevice, request: Request, c: NDArray[Any]) -> None:
    """Do so with a batch, whose arrays travel row-major."""
    result = np.array(c, order="C")
    dense = {
        "a": np.ascontiguousarray(request.a),
        "b": np.ascontiguousarray(request.b),
        "c": result,
    }
    there = replace(request, batch=None, a=dense["a"], b=dense["b"], c=result).arranged()
    memory: list[Any] = []
    try:
        for x in dense.values():
            memory.append(live.upload(x))
        placed = [_matrix(x, there.matrix(name)) for name, x in dense.items()]
        one, other, target = (
            (Operand(where, 0, x.ld), x.row_major)
            for where, x in zip(memory, placed, strict=True)
            if x is not None
        )
        launch_gemm(live, there, (one, other, target)).wait()
        live.download(memory[2], result)
        c[...] = result
    finally:
        for mem in memory:
            live.free(mem)


looks[np.ndarray] = again
