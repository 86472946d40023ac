"""Copies in both directions and products at the same time, on streams of a CUDA device.

::

    pageable memory  --threads-->  pinned buffers  --upload stream-->    device
    pinned memory    ---------------upload stream------------------->    device

The device copies pinned memory (locked pages) by itself, at the rate of the link; NumPy's own is
pageable, of which the driver would copy one piece after the other while the caller waits.  So
threads copy it to pinned buffers, each to one of its own.
"""

from __future__ import annotations

import ctypes
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import Event
from tilewright.backend.cuda.functions import MEMORY_DEVICE, MEMORY_HOST, NON_BLOCKING, Copy2D
from tilewright.serve.calls import start
from tilewright.serve.gemm import Request, wanted_of
from tilewright.serve.streamed.transport import Arrival, Arrived
from tilewright.timeline import span

__all__ = ["Overlapped", "release_buffers"]

# Pinned buffers of each direction, which as many threads fill or empty: a core copies some 10 GB/s,
# a link of 64 GB/s takes several.  At 50 GB/s, 8 MiB take the link 0.17 ms, and Python's share of a
# copy is a third of that.
_BUFFERS, _BUFFER_BYTES = 8, 8 << 20
_LEAST_BUFFER_BYTES = 64 << 10

# What kernels take aligned at most, and the driver's own allocations are.
_PIECE_BYTES = 256

# Products whose panels are on their way before the first of them is enqueued.
_AHEAD = 8


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

    ahead = _AHEAD

    def __init__(self, live: Any, host_limit: int | None = None) -> None:
        self._live = live
        size = _BUFFER_BYTES
        if host_limit is not None:
            size = min(size, host_limit // (2 * _BUFFERS))
        if size < _LEAST_BUFFER_BYTES:
            least = 2 * _BUFFERS * _LEAST_BUFFER_BYTES
            raise ValueError(f"max_host_memory={host_limit} is too little; give at least {least}")
        self._up, self._down, *self._lanes = _streams(live)
        self._coming, self._going = _Buffers(live, size), _Buffers(live, size)
        self._held: list[int] = []
        self._copies: list[Future[Any]] = []

    def allocate(self, sizes: Sequence[int]) -> list[int]:
        """Return pieces of device memory of so many bytes, until `close`."""
        ends = list(accumulate(-(-size // _PIECE_BYTES) * _PIECE_BYTES for size in sizes))
        self._held.append(self._live.allocate(ends[-1]))  # once: each time takes 0.1 ms
        return [self._held[-1] + start for start in (0, *ends[:-1])]

    def upload(self, memory: int, lines: NDArray[Any], ld: int, after: Sequence[Event]) -> Arrival:
        """Begin a copy to the device, by threads where the memory is pageable."""
        pitch = ld * lines.itemsize
        if self._is_pinned(lines):
            plane = ctypes.byref(_plane(memory, pitch, lines, to_device=True))
            copy = partial(self._live.api.cuMemcpy2DAsync, plane)
            return Arrived(self._enqueue(copy, self._up, after, lines, "copy to device"))

        def carry(cut: slice) -> Event:
            buffer = self._coming.take(lines[cut], ld)
            try:
                with span("copy", lines[cut].nbytes):
                    buffer.view[:, : lines.shape[1]] = lines[cut]
                to, size = memory + cut.start * pitch, buffer.view.nbytes
                copy = partial(self._live.api.cuMemcpyHtoDAsync, to, buffer.address, size)
                event = self._enqueue(copy, self._up, after, buffer, "copy to device")
                buffer.busy = event
                return event
            finally:
                self._coming.give_back(buffer)

        return self._spread(carry, _threads("to-device"), self._coming.cuts(len(lines), pitch))

    def multiply(self, request: Request, operands: Any, after: Sequence[Event], lane: int) -> Event:
        """Enqueue a product of what is on the device; two lanes fill the device's last waves."""
        wanted, made = wanted_of(request, operands), []
        stream = self._lanes[lane % len(self._lanes)]

        def begin() -> None:
            made.append(start(self._live, wanted, stream))

        event: Event = self._live.between_events(begin, stream, after, made, "gemm")
        return event

    def download(self, memory: int, lines: NDArray[Any], ld: int, after: Sequence[Event]) -> None:
        """Copy to the host, and wait for it; by threads where the memory is pageable."""
        pitch = ld * lines.itemsize
        if self._is_pinned(lines):
            plane = ctypes.byref(_plane(memory, pitch, lines, to_device=False))
            copy = partial(self._live.api.cuMemcpy2DAsync, plane)
            self._enqueue(copy, self._down, after, lines, "copy to host").wait()
            return

        def carry(cut: slice) -> None:
            buffer = self._going.take(lines[cut], ld)
            try:
                source, size = memory + cut.start * pitch, buffer.view.nbytes
                copy = partial(self._live.api.cuMemcpyDtoHAsync, buffer.address, source, size)
                self._enqueue(copy, self._down, after, buffer, "copy to host").wait()
                with span("copy", lines[cut].nbytes):
                    lines[cut] = buffer.view[:, : lines.shape[1]]
            finally:
                self._going.give_back(buffer)

        self._spread(carry, _threads("to-host"), self._going.cuts(len(lines), pitch)).result()

    def _spread(
        self, carry: Callable[[slice], Any], threads: ThreadPoolExecutor, cuts: list[slice]
    ) -> _All:
        copies = [threads.submit(carry, cut) for cut in cuts]
        self._copies += copies
        return _All(copies)

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
        for one in self._copies:
            one.cancel()
        wait(self._copies)
        if live.lost is not None:
            return
        with live.current(), ExitStack() as rest:
            for buffers in (self._coming, self._going):
                rest.callback(buffers.close)
            for memory in self._held:
                rest.callback(live.free, memory)
            for stream in (self._up, self._down, *self._lanes):
                live.check(live.api.cuStreamSynchronize(stream), f"{live.id} failed")


class _All:
    """Copies of which the last one to be enqueued is not known before all are."""

    def __init__(self, copies: list[Future[Any]]) -> None:
        self._copies = copies

    def result(self) -> Event:
        """Wait until all are enqueued; return an event behind all of them."""
        wait(self._copies)  # whichever failed, the others use the caller's memory
        ends = [one.result() for one in self._copies]
        return _Ends(ends)


class _Ends(Event):
    """Some events as one."""

    def __init__(self, events: list[Any]) -> None:
        self._events = events

    def before(self, stream: int) -> None:
        """Let what is enqueued on a stream from now on wait; the context is current."""
        for one in self._events:
            one.before(stream)

    def wait(self) -> None:
        """Block until all have ended."""
        for one in self._events:
            one.wait()

    def nanoseconds(self) -> int:
        """Return the longest."""
        return max(int(one.nanoseconds()) for one in self._events)


@lru_cache(maxsize=16)
def _streams(live: Any) -> tuple[int, ...]:
    """Return a device's streams for copies there, copies back, and two lanes of products.

    They stay, and so do workspaces that products have on them.
    """
    with live.current():
        made = [
            live.check(live.api.cuStreamCreate(NON_BLOCKING), "making a stream") for _ in "1234"
        ]
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
_kept: list[_Buffer] = []
_lock = threading.Lock()


class _Buffer:
    """Pinned memory.

    Parameters
    ----------
    live : CUDADevice
        Which copies.
    size : int
        Bytes.
    """

    def __init__(self, live: Any, size: int) -> None:
        self.live, self.size = live, size
        self._holder = live.pinned(size)
        self.memory: NDArray[np.uint8] = self._holder.__enter__()
        self.address = int(self.memory.ctypes.data)
        self.view: NDArray[Any] = self.memory
        self.busy: Any = None  # the device's last copy from here

    def free(self) -> None:
        """Give the memory back."""
        self._holder.__exit__(None, None, None)


class _Buffers:
    """Pinned buffers of one direction of one call.

    Parameters
    ----------
    live : CUDADevice
        Which copies.
    size : int
        Bytes of each, but where a line takes more.
    """

    def __init__(self, live: Any, size: int) -> None:
        self._live, self._size = live, size
        self._free: queue.LifoQueue[_Buffer | None] = queue.LifoQueue()
        for _ in range(_BUFFERS):
            self._free.put(None)

    def cuts(self, count: int, pitch: int) -> list[slice]:
        """Return pieces of so many lines that a buffer holds."""
        most = max(1, self._size // pitch)
        return [slice(first, min(count, first + most)) for first in range(0, count, most)]

    def take(self, lines: NDArray[Any], ld: int) -> _Buffer:
        """Return a buffer that the device no longer uses, whose view is lines of such a length."""
        buffer, size = self._free.get(), len(lines) * ld * lines.itemsize
        try:
            if buffer is not None and buffer.busy is not None:
                buffer.busy.wait()
            if buffer is None or buffer.size < size:
                buffer = _pinned(self._live, max(self._size, size), buffer)
        except BaseException:
            self._free.put(buffer)
            raise
        buffer.busy = None
        buffer.view = buffer.memory[:size].view(lines.dtype).reshape(len(lines), ld)
        return buffer

    def give_back(self, buffer: _Buffer) -> None:
        """Let another thread have a buffer."""
        self._free.put(buffer)

    def close(self) -> None:
        """Keep the buffers for a later call; those of unusual sizes are given back."""
        for _ in range(_BUFFERS):
            buffer = self._free.get()
            if buffer is not None:
                _keep(buffer)


def _pinned(live: Any, size: int, instead: _Buffer | None) -> _Buffer:
    if instead is not None:
        _keep(instead)
    with _lock:
        for one in _kept:
            if one.live is live and one.size == size:
                _kept.remove(one)
                return one
    return _Buffer(live, size)


def _keep(buffer: _Buffer) -> None:
    with _lock:
        keeps = buffer.size == _BUFFER_BYTES and len(_kept) < 2 * _BUFFERS
        if keeps:
            _kept.append(buffer)
    if not keeps:
        buffer.free()


def release_buffers() -> None:
    """Give pinned buffers back that no call uses."""
    with _lock:
        kept, _kept[:] = _kept[:], []
    for one in kept:
        one.free()


@lru_cache(maxsize=2)
def _threads(direction: str) -> ThreadPoolExecutor:
    """Return the threads that copy in a direction, as many as there are buffers.

    The other direction has its own: finished tiles wait for kernels, which wait for panels.
    """
    return ThreadPoolExecutor(_BUFFERS, f"tilewright-{direction}")
