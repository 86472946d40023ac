"""NumPy arrays: in place where the device shares the host's memory, else by staging."""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import Event, LiveDevice, Operand
from tilewright.backend import device as find_device
from tilewright.serve.gemm import launch_gemm, strided
from tilewright.serve.host_blas import is_serving, serve
from tilewright.serve.overlap import overlaps_itself
from tilewright.serve.repeated import Known, find, may_be_known, remember
from tilewright.serve.warm import looks

if TYPE_CHECKING:
    from tilewright.serve.gemm import Request

__all__ = ["again", "empty_like", "is_shared", "result", "run", "view"]

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
    if not c.flags.forc and overlaps_itself(c.shape, c.strides):
        raise ValueError(f"c.strides={c.strides} overlap themselves; give c memory of its own")
    for name, x in (("a", request.a), ("b", request.b)):
        if np.shares_memory(x, c):
            raise ValueError(f"c overlaps {name}; give c memory of its own")
    live = find_device(device)
    if serve(live, request):
        return
    if not is_shared(live):
        from tilewright.serve.streamed.serve import is_wanted
        from tilewright.serve.streamed.serve import serve as serve_streamed

        if is_wanted(live, request):
            serve_streamed(live, request)
            return
    a, b, target = _taken(request.a), _taken(request.b), _matrix(c)
    if target is None:
        target = _taken(c if request.beta != 0 else np.empty(c.shape, c.dtype))
    if is_shared(live):
        _in_place(live, request, a, b, target)
    else:
        _staged(live, request, a, b, target)
    if target.array is not c:
        c[...] = target.array


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
        c = np.empty((a.shape[trans_a != "N"], b.shape[trans_b == "N"]), a.dtype)
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
    # NumPy's own memory is aligned to 16 bytes; what it calls aligned is so to a number's parts.
    aligned = own or (c.dtype.kind == "f" and x.aligned and y.aligned and z.aligned)
    # Memory that cannot be written makes no buffer by its array's leave.
    if known.whole and aligned and x.writeable and y.writeable:
        share = np.may_share_memory
        if c is a or c is b or (not own and (share(a, c) or share(b, c))):
            return []
        if a is b:
            return [a, c]
        return [] if not own and share(a, b) else [a, b, c]
    first, second, third = spans = [
        (low, low + size) for low, size in zip(map(_address, (a, b, c)), known.reach, strict=True)
    ]
    if any(low % min(c.itemsize, _WIDEST_LOAD) for low, _ in spans):
        return []
    pieces = [first, third] if first == second else spans
    return [_bytes(*one) for one in pieces] if _merged(pieces) == sorted(pieces) else []


def _address(x: NDArray[Any]) -> int:
    return int(x.__array_interface__["data"][0])


class _Matrix(NamedTuple):
    """An array that BLAS could take: its storage order, and where its memory begins and ends."""

    array: NDArray[Any]
    row_major: bool
    ld: int
    low: int
    high: int


def _matrix(x: NDArray[Any]) -> _Matrix | None:
    size = x.itemsize
    # Vector loads of complex elements want them aligned to their size, not to their parts'.
    low = _address(x)
    if low % min(size, _WIDEST_LOAD):
        return None
    layout = strided(x.shape, x.strides, size)
    if layout is None:
        return None
    (rows, columns), (down, right) = x.shape, x.strides
    reach = (rows - 1) * down + (columns - 1) * right + size if rows and columns else 0
    return _Matrix(x, *layout, low, low + reach)


def _taken(x: NDArray[Any]) -> _Matrix:
    """Return the array itself, or a copy where BLAS could not take it."""
    found = _matrix(x) or _matrix(np.array(x, order="C"))
    assert found is not None
    return found


def _in_place(live: Any, request: Request, a: _Matrix, b: _Matrix, c: _Matrix) -> None:
    """Let the device read and write the arrays where they are.

    Arrays whose spans overlap (blocks of one matrix, say) go into one buffer: OpenCL
    leaves kernels on two buffers over the same host memory undefined.
    """
    pieces = _merged([(x.low, x.high) for x in (a, b, c)])
    most = live.max_allocation
    if most is not None and any(high - low > most for low, high in pieces):
        for part, *arrays in _halves(request, a, b, c, most):
            _in_place(live, part, *map(_taken, arrays))
        return
    starts = [low for low, _ in pieces]
    at = [bisect_right(starts, x.low) - 1 for x in (a, b, c)]

    def begin(memory: list[Any]) -> Event:
        one, other, target = (
            (
                Operand(memory[piece], (x.low - starts[piece]) // x.array.itemsize, x.ld)
                if x.high > x.low
                else Operand(None, 0, x.ld),
                x.row_major,
            )
            for piece, x in zip(at, (a, b, c), strict=True)
        )
        event: Event = launch_gemm(live, request, (one, other, target))
        given = request.a, request.b, request.c
        whole = all(x.array is y for x, y in zip((a, b, c), given, strict=True))
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
            memory.append(live.wrap(buffer, writable=True))  # freed if one fails
        event = begin(memory)
        live.unwrap(memory[written], buffers[written])  # waits, for its queue is in order
        event.wait()
    finally:
        for mem in memory:
            live.free(mem)


def _halves(
    request: Request, a: _Matrix, b: _Matrix, c: _Matrix, most: int
) -> list[tuple[Request, NDArray[Any], NDArray[Any], NDArray[Any]]]:
    """Cut a product in two whose spans are shorter: devices limit a single buffer.

    The operand that spans more than `most` bytes is cut across its longer stride; where
    only a union of operands does, C is.
    """
    dimensions = {"a": "mk", "b": "kn", "c": "mn"}
    matrices = {"a": a, "b": b, "c": c}
    arrays = {name: x.array for name, x in matrices.items()}
    for name, trans in (("a", request.trans_a), ("b", request.trans_b)):
        if trans.transposed:
            dimensions[name] = dimensions[name][::-1]
    long = [n for n, x in matrices.items() if x.high - x.low > most]
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

    def upload(x: _Matrix, *, content: bool = True) -> tuple[Operand, bool]:
        dense = np.ascontiguousarray(x.array if x.row_major else x.array.T)
        mem = live.upload(dense) if content else live.allocate(dense.nbytes)
        memory.append(mem)
        return Operand(mem, 0, max(1, dense.shape[1])), x.row_major

    try:
        operands = upload(a), upload(b), upload(target, content=request.beta != 0)
        launch_gemm(live, request, operands).wait()
        row_major = operands[2][1]
        result = np.empty(c.shape if row_major else c.shape[::-1], c.dtype)
        live.download(operands[2][0].memory, result)
        c[...] = result if row_major else result.T
    finally:
        for mem in memory:
            live.free(mem)


looks[np.ndarray] = again
