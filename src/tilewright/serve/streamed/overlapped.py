"""Copies in both directions and products at the same time: three streams of a CUDA device.

::

    pageable memory  --threads-->  pinned buffers  --upload stream-->    device
    pinned memory    ---------------upload stream------------------->    device

The device copies pinned memory (locked pages) by itself, at the rate of the link; NumPy's own is
pageable, of which the driver would copy one piece after the other while the caller waits.  So
threads copy it to pinned buffers, some of each direction in turns.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import Event
from tilewright.backend.cuda.functions import MEMORY_DEVICE, MEMORY_HOST, NON_BLOCKING, Copy2D
from tilewright.serve.calls import start
from tilewright.serve.gemm import Request, wanted_of
from tilewright.timeline import span

__all__ = ["Overlapped", "release_buffers"]

# Pinned buffers: while one is filled or emptied by the host, the link takes another, and the third
# makes up for unequal times.  At 50 GB/s, 16 MiB are a third of a millisecond, which is long beside
# what threads and Python take for it.
_BUFFERS, _BUFFER_BYTES = 3, 16 << 20
_LEAST_BUFFER_BYTES = 64 << 10

# One core copies some 10 GB/s; a link of 64 GB/s takes eight, and more are of no use.
_THREADS = 8


class Overlapped:
    """Copies and products of one call on a CUDA device.

    Parameters
    ----------
    live : CUDADevice
        Where the memory is.
    host_limit : int, optional
        Bytes of pinned memory at most.

    Raises
    ------
    ValueError
        If the limit leaves no room for buffers.
    """

    overlaps = True

    def __init__(self, live: Any, host_limit: int | None = None) -> None:
        self._live = live
        size = _BUFFER_BYTES
        if host_limit is not None:
            size = min(size, host_limit // (2 * _BUFFERS))
        if size < _LEAST_BUFFER_BYTES:
            least = 2 * _BUFFERS * _LEAST_BUFFER_BYTES
            raise ValueError(f"max_host_memory={host_limit} is too little; give at least {least}")
        self._streams = _streams(live)
        self._up, self._run, self._down = self._streams
        self._rings = [_Ring(live, size) for _ in range(2)]
        self._held: list[int] = []

    def allocate(self, size: int) -> int:
        """Return device memory, until `close`."""
        self._held.append(self._live.allocate(size))
        return self._held[-1]

    def upload(self, memory: int, lines: NDArray[Any], ld: int, after: Sequence[Event]) -> Event:
        """Enqueue a copy to the device, behind the threads' copies to pinned buffers."""
        pitch = ld * lines.itemsize
        if self._is_pinned(lines):
            plane = ctypes.byref(_plane(memory, pitch, lines, to_device=True))
            copy = partial(self._live.api.cuMemcpy2DAsync, plane)
            return self._enqueue(copy, self._up, after, lines, "copy to device")
        ended: Any = None
        for first, last in self._rings[0].cuts(len(lines), pitch):
            buffer, view = self._rings[0].take(last - first, ld, lines.dtype)
            _spread(view[:, : lines.shape[1]], lines[first:last])
            to, size = memory + first * pitch, (last - first) * pitch
            copy = partial(self._live.api.cuMemcpyHtoDAsync, to, buffer.address, size)
            ended = buffer.busy = self._enqueue(copy, self._up, after, buffer, "copy to device")
            after = ()
        event: Event = ended
        return event

    def multiply(self, request: Request, operands: Any, after: Sequence[Event]) -> Event:
        """Enqueue a product of what is on the device."""
        wanted, made = wanted_of(request, operands), []

        def begin() -> None:
            made.append(start(self._live, wanted, self._run))

        event: Event = self._live.between_events(begin, self._run, after, made, "gemm")
        return event

    def download(self, memory: int, lines: NDArray[Any], ld: int, after: Sequence[Event]) -> None:
        """Copy to the host, and wait for it; threads copy from pinned buffers."""
        pitch = ld * lines.itemsize
        if self._is_pinned(lines):
            plane = ctypes.byref(_plane(memory, pitch, lines, to_device=False))
            copy = partial(self._live.api.cuMemcpy2DAsync, plane)
            self._enqueue(copy, self._down, after, lines, "copy to host").wait()
            return
        waiting: list[tuple[Any, NDArray[Any], NDArray[Any]]] = []

        def put() -> None:
            buffer, view, part = waiting.pop(0)
            buffer.busy.wait()
            _spread(part, view[:, : lines.shape[1]])

        for first, last in self._rings[1].cuts(len(lines), pitch):
            if len(waiting) == _BUFFERS:
                put()
            buffer, view = self._rings[1].take(last - first, ld, lines.dtype)
            source, size = memory + first * pitch, (last - first) * pitch
            copy = partial(self._live.api.cuMemcpyDtoHAsync, buffer.address, source, size)
            buffer.busy = self._enqueue(copy, self._down, after, buffer, "copy to host")
            after = ()
            waiting.append((buffer, view, lines[first:last]))
        while waiting:
            put()

    def _enqueue(
        self, copy: Callable[[int], Any], stream: int, after: Sequence[Event], keep: Any, name: str
    ) -> Event:
        def begin() -> None:
            self._live.check(copy(stream), f"{self._live.id} could not copy")

        event: Event = self._live.between_events(begin, stream, after, keep, name)
        return event

    def _is_pinned(self, lines: NDArray[Any]) -> bool:
        """Whether the device copies these lines by itself: contiguous ones in locked pages."""
        if not lines.size or (lines.shape[1] > 1 and lines.strides[1] != lines.itemsize):
            return False
        if len(lines) > 1 and lines.strides[0] < lines.shape[1] * lines.itemsize:
            return False
        first = lines.ctypes.data
        last = first + (len(lines) - 1) * lines.strides[0] + lines.shape[1] * lines.itemsize - 1
        return all(self._live.is_pinned(address) for address in (first, last))

    def close(self) -> None:
        """Wait for all that was enqueued, and give back what is held."""
        live = self._live
        if live.lost is not None:
            return
        with live.current(), ExitStack() as rest:
            for ring in self._rings:
                rest.callback(ring.close)
            for memory in self._held:
                rest.callback(live.free, memory)
            for stream in self._streams:
                live.check(live.api.cuStreamSynchronize(stream), f"{live.id} failed")


@lru_cache(maxsize=16)
def _streams(live: Any) -> tuple[int, ...]:
    """Return the three streams of a device; workspaces that products need stay with theirs."""
    with live.current():
        made = [live.check(live.api.cuStreamCreate(NON_BLOCKING), "making a stream") for _ in "123"]
    return tuple(map(int, made))


def _plane(memory: int, pitch: int, lines: NDArray[Any], *, to_device: bool) -> Copy2D:
    """Return what a copy of lines between the host's memory and the device's takes."""
    width = lines.shape[1] * lines.itemsize
    # A single line's stride may be anything, and is not taken.
    step = lines.strides[0] if len(lines) > 1 else width
    host, device = (MEMORY_HOST, lines.ctypes.data, 0, step), (MEMORY_DEVICE, 0, memory, pitch)
    source, to = (host, device) if to_device else (device, host)
    return Copy2D.of(source, to, width, len(lines))


# -- pinned buffers ------------------------------------------------------------------------

# To lock pages takes longer than to copy what they hold, so buffers are kept for the next call.
_kept: list[tuple[Any, int, Any, Any]] = []
_lock = threading.Lock()


class _Buffer:
    """Pinned memory, and what the device does with it at last."""

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self.memory, self.address = memory, int(memory.ctypes.data)
        self.busy: Any = None


class _Ring:
    """Some pinned buffers of one size, taken in turns.

    Parameters
    ----------
    live : CUDADevice
        Which copies.
    size : int
        Bytes of each, but where a line takes more.
    """

    def __init__(self, live: Any, size: int) -> None:
        self._live, self._size = live, size
        self._buffers: list[_Buffer] = []
        self._held: list[tuple[Any, int, Any, Any]] = []
        self._next = 0

    def cuts(self, count: int, pitch: int) -> list[tuple[int, int]]:
        """Return pieces of so many lines that a buffer holds."""
        most = max(1, self._size // pitch)
        return [(first, min(count, first + most)) for first in range(0, count, most)]

    def take(self, count: int, ld: int, dtype: np.dtype[Any]) -> tuple[_Buffer, NDArray[Any]]:
        """Return the next buffer, which the device no longer uses, and its view as lines."""
        size = max(self._size, count * ld * dtype.itemsize)
        at = self._next % _BUFFERS
        self._next += 1
        if at == len(self._buffers):
            self._buffers.append(self._pinned(size))
        buffer = self._buffers[at]
        if buffer.busy is not None:
            buffer.busy.wait()
        if buffer.memory.nbytes < size:
            buffer = self._buffers[at] = self._pinned(size)
        bytes_of = buffer.memory[: count * ld * dtype.itemsize]
        return buffer, bytes_of.view(dtype).reshape(count, ld)

    def _pinned(self, size: int) -> _Buffer:
        with _lock:
            for one in _kept:
                if one[0] is self._live and one[1] == size:
                    _kept.remove(one)
                    break
            else:
                holder = self._live.pinned(size)
                one = self._live, size, holder, holder.__enter__()
        self._held.append(one)
        return _Buffer(one[3])

    def close(self) -> None:
        """Keep the buffers for a later call; those of unusual sizes are given back."""
        for one in self._held:
            with _lock:
                keeps = one[1] == _BUFFER_BYTES and len(_kept) < 2 * _BUFFERS
                if keeps:
                    _kept.append(one)
            if not keeps:
                one[2].__exit__(None, None, None)
        self._held, self._buffers = [], []


def release_buffers() -> None:
    """Give pinned buffers back that no call uses."""
    with _lock:
        kept, _kept[:] = _kept[:], []
    for one in kept:
        one[2].__exit__(None, None, None)


# -- threads -------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_threads(), "tilewright-copy")


def _threads() -> int:
    return min(_THREADS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)


def _spread(to: NDArray[Any], source: NDArray[Any]) -> None:
    """Copy lines by several threads: NumPy lets others run meanwhile."""
    count = _threads()
    axis = int(len(to) < count)
    length = -(-to.shape[axis] // count)
    with span("copy", to.nbytes):
        if length == 0 or to.nbytes < _LEAST_BUFFER_BYTES:
            to[...] = source
            return
        cuts = [
            (slice(at, at + length), slice(None))[:: 1 - 2 * axis]
            for at in range(0, to.shape[axis], length)
        ]
        for _ in _pool().map(lambda cut: np.copyto(to[cut], source[cut]), cuts):
            pass
