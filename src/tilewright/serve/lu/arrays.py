"""Factors and solutions of CuPy's and PyTorch's arrays, and of NumPy's on a CUDA device."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import LiveDevice
from tilewright.backend.cuda.device import device_at
from tilewright.precision import precision_of
from tilewright.problem import Trans
from tilewright.serve.checks import zero_pivot
from tilewright.serve.lu.factor import factorisation
from tilewright.serve.lu.solve import solution
from tilewright.stencil.lu import SHARED_BYTES, LUKernels

__all__ = ["check_able", "factor", "factor_numpy", "is_able", "solve", "solve_numpy", "takes"]

# What carries NumPy's matrices is imported where they are: arrays on a device have no use for it.

# Matrices of so many bytes are copied to a device through pinned buffers, by threads, which are
# worth a millisecond.
_LARGE_BYTES = 32 << 20

# Of panels whose rows fit a device's blocks in every precision (`LUKernels.panel_launch`).
_MOST_ROWS = 1 << 16


def is_able(live: LiveDevice) -> bool:
    """Whether a device's blocks have the shared memory that a panel's kernel takes."""
    return live.spec.shared_bytes_per_block >= SHARED_BYTES


def _free_memory(live: Any) -> int:
    """Return what is free, and what is kept for calls like this one."""
    from tilewright.serve.streamed.buffers import kept_bytes

    return int(live.free_memory) + sum(kept_bytes(live))


def takes(live: Any, a: NDArray[Any]) -> bool:
    """Whether a device factors a NumPy matrix whole, with as much memory for its workspaces.

    Others are factored by products, which pass through the device tile by tile.
    """
    return is_able(live) and len(a) <= _MOST_ROWS and 2 * a.nbytes <= _free_memory(live)


def check_able(ordinal: int) -> None:
    """Refuse arrays on a device that factors none."""
    live = device_at(ordinal)
    if not is_able(live):
        least = SHARED_BYTES >> 10
        raise ValueError(
            f"{live.id} has no {least} KiB of shared memory a block, which factoring arrays on a"
            " device takes; give NumPy's"
        )


def _padded(columns: int, dtype: np.dtype[Any]) -> int:
    """Return a leading dimension for rows that begin at multiples of 16 bytes."""
    unit = LUKernels(precision_of(dtype)).unit
    return -(-max(1, columns) // unit) * unit


def _is_placed(x: Any) -> bool:
    """Whether rows of a matrix on a device lie as kernels take them."""
    (rows, columns), (down, right) = x.shape, x.strides
    dense = right == x.dtype.itemsize and down >= columns * right and not x.conjugated
    return dense and x.address % 16 == down % 16 == 0 and rows > 0


def _copied(adapter: Any, x: Any) -> Any:
    """Return a view of a copy whose rows lie as kernels take them."""
    rows, columns = x.shape
    made = adapter.new(x, (rows, _padded(columns, x.dtype)), x.array.dtype)
    part = made.array if made.shape[1] == columns else made.array[:, :columns]
    _put(adapter, x.ordinal, part, x.array)
    return adapter.view("a", part)


def _put(adapter: Any, ordinal: int, target: Any, values: Any) -> None:
    """Copy on the current stream of the arrays' device, whatever device is current."""
    with adapter.current(ordinal):
        target[...] = values


def factor(adapter: Any, a: Any, overwrite: bool) -> tuple[Any, Any, int]:
    """Return factors and pivots of an array on a device, and the first pivot that is zero.

    Counted from 1; 0 if there is none.  Waits for the caller's stream.
    """
    view = adapter.view("a", a)
    n = view.shape[0]
    live: Any = device_at(view.ordinal)
    made = view if overwrite and _is_placed(view) else _copied(adapter, view)
    pivots = adapter.new(view, (n,), _int32(adapter))
    found = factorisation(live, precision_of(view.dtype), n, made.strides[0] // view.dtype.itemsize)
    memory, owner = adapter.memory(view.ordinal, found.bytes)
    stream = adapter.stream_of(view.ordinal)
    found.start(made.address, pivots.address, memory, stream)
    zero = _first_zero(live, memory, stream)
    if zero:
        with adapter.current(view.ordinal):
            zero = zero_pivot(made.array, zero)
    del owner
    return made.array, pivots.array, zero


def _first_zero(live: Any, memory: int, stream: int) -> int:
    with live.current():
        live.check(live.api.cuStreamSynchronize(stream), f"{live.id} failed")
    zero = np.zeros(1, np.int32)
    live.download(memory, zero)
    return int(zero[0])


def solve(adapter: Any, lu: Any, pivots: Any, b: Any, trans: Trans) -> Any:
    """Return X of op(A) X = B for arrays on a device, on the caller's stream."""
    factors, x = adapter.view("lu", lu), adapter.view("b", b)
    if not _is_placed(factors):
        factors = _copied(adapter, factors)
    columns = x.shape[1] if len(x.shape) > 1 else 1
    made = adapter.new(factors, x.shape, factors.array.dtype)
    _put(adapter, factors.ordinal, made.array, b)
    places = adapter.new(factors, (len(pivots),), _int32(adapter))
    _put(adapter, factors.ordinal, places.array, pivots)
    of = factors.dtype
    n, ld = factors.shape[0], factors.strides[0] // of.itemsize
    live: Any = device_at(factors.ordinal)
    found = solution(live, precision_of(of), n, ld, columns, trans)
    stream = adapter.stream_of(factors.ordinal)
    found.start(factors.address, made.address, places.address, stream, adapter.memory)
    return made.array


def _int32(adapter: Any) -> Any:
    """Return the type of pivots as the arrays' library names it."""
    return sys.modules["torch"].int32 if adapter.__name__.endswith("torch") else np.int32


@contextmanager
def _transport(live: Any, size: int) -> Iterator[Any]:
    """Return what carries matrices of so many bytes there and back."""
    if size >= _LARGE_BYTES:
        from tilewright.serve.streamed.overlapped import Overlapped

        made: Any = Overlapped(live)
    else:
        from tilewright.serve.streamed.transport import InOrder

        made = InOrder(live)
    try:
        yield made
    finally:
        made.close()


def _address(memory: Any) -> int:
    """Return where memory of a transport begins: a number, or that and bytes behind."""
    return memory if isinstance(memory, int) else sum(memory)


def _upload(way: Any, memory: Any, lines: NDArray[Any], ld: int) -> Any:
    """Enqueue a copy to the device, and return the event of its end, if it takes one."""
    if not way.overlaps and lines.shape[1] < ld:  # at once, with zeros that fill lines up
        lines = np.pad(lines, ((0, 0), (0, ld - lines.shape[1])))
    return way.upload(memory, lines, ld, ())


def _fetch(way: Any, memory: Any, lines: NDArray[Any], ld: int) -> None:
    """Copy to the host, and wait for it."""
    copied = way.fetch(memory, lines, ld, ())
    if copied is not None:
        copied.wait()


def factor_numpy(live: Any, a: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int32], int]:
    """Return factors and pivots of an array in the host's memory, and the first zero pivot."""
    n, ld = len(a), _padded(len(a), a.dtype)
    found = factorisation(live, precision_of(a.dtype), n, ld)
    lu, pivots = np.empty((n, n), a.dtype), np.empty(n, np.int32)
    with _transport(live, a.nbytes) as way:
        held = way.allocate((n * ld * a.itemsize, pivots.nbytes, found.bytes))
        matrix, places, memory = map(_address, held)
        _begin(live, _upload(way, held[0], a, ld))
        found.start(matrix, places, memory, live.stream)
        zero = _first_zero(live, memory, live.stream)
        _fetch(way, held[0], lu, ld)
        live.download(places, pivots)
    return lu, pivots, zero_pivot(lu, zero)


def _begin(live: Any, *events: Any) -> None:
    """Let the device's own stream wait for copies."""
    with live.current():
        for event in events:
            if event is not None:
                event.before(live.stream)


def solve_numpy(
    live: Any, lu: NDArray[Any], pivots: NDArray[Any], b: NDArray[Any], trans: Trans
) -> None:
    """Solve op(A) X = B, matrices in the host's memory, in place of b."""
    n, ld = len(lu), _padded(len(lu), lu.dtype)
    sides = b.shape[1]
    found = solution(live, precision_of(lu.dtype), n, ld, sides, trans)
    with _transport(live, lu.nbytes) as way:
        places = pivots.astype(np.int32)
        held = way.allocate((n * ld * lu.itemsize, b.nbytes, places.nbytes))
        matrix, sides_there, pivots_there = map(_address, held)
        _begin(live, _upload(way, held[0], lu, ld), _upload(way, held[1], b, sides))
        live.write(pivots_there, places)
        found.start(matrix, sides_there, pivots_there, live.stream)
        with live.current():
            live.check(live.api.cuStreamSynchronize(live.stream), f"{live.id} failed")
        _fetch(way, held[1], b, sides)
