"""Copies in both directions and products at the same time, on streams of a CUDA device.

::

    pinned memory    ---------------------------------->  device     by the device itself
    pageable memory  --threads-->  pinned buffers  ---->  device     staging.c

Pinned memory (its pages are locked) is copied at the rate of the link.  NumPy's own is pageable:
the driver would copy it piece by piece while the caller waits, so that threads of ours copy it to
pinned buffers, or from there.
"""

from __future__ import annotations

import ctypes
import math
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import lru_cache, partial
from itertools import accumulate, count
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import Event, Operand, OutOfMemoryError
from tilewright.backend.cuda.events import CUDAEvent
from tilewright.backend.cuda.functions import (
    MEMORY_DEVICE,
    MEMORY_HOST,
    NO_TIMING,
    NON_BLOCKING,
    Copy2D,
    CopyPeer,
)
from tilewright.backend.libcuda import library
from tilewright.portfolio.find import generation
from tilewright.serve.arenas import enqueue
from tilewright.serve.calls import keep, kept, planned, start, wanted_of
from tilewright.serve.plan import Plan, WorkspaceError, call_of, core
from tilewright.serve.request import Request, column_major_call
from tilewright.serve.streamed.placed import DeviceLines
from tilewright.serve.tensor_cores import has_wgmma
from tilewright.serve.unproved import unproved_are_served
from tilewright.timeline import is_recording

if TYPE_CHECKING:
    from tilewright.serve.streamed.parts import Part, SplitOperand
    from tilewright.serve.streamed.tiling import Piece

__all__ = ["Overlapped", "kept_bytes", "release_buffers"]

# Threads that copy in each direction: a core of an H100's host copies 10 GB/s, its link takes 50,
# and twelve reached 53 to 63.  Each has two buffers of 4 MiB, which take the link 0.1 ms.
_THREADS, _BUFFER_BYTES = 12, 4 << 20
_LEAST_BUFFER_BYTES = 64 << 10

_PAGE_BYTES = 4 << 10

# What is kept for later calls: buffers of both directions of two calls at once.
_MOST_KEPT_BYTES = 4 * 2 * _THREADS * _BUFFER_BYTES

# CU_DEVICE_ATTRIBUTE_MAX_PITCH of all devices: the copy engine counts steps between lines in 31
# bits.
_MOST_PITCH = 2**31 - 1

# Passes over panels go before the blocks of products that are enqueued: those wait for them.
_URGENT = -1

# What kernels take aligned at most, and the driver's own allocations are.
_PIECE_BYTES = 256


class Overlapped:
    """Copies and products of one call on a CUDA device.

    Parameters
    ----------
    live : CUDADevice
        Where the memory is.
    host_limit : int, optional
        Bytes of pinned memory at most.
    keeps : bool
        Whether device memory stays for the next call.

    Raises
    ------
    ValueError
        If the limit leaves no room for buffers.
    """

    overlaps = True

    def __init__(self, live: Any, host_limit: int | None = None, *, keeps: bool = True) -> None:
        self._keeps = keeps
        self.live = self._live = live
        threads = min(_THREADS, os.cpu_count() or 1)
        size = _BUFFER_BYTES
        if host_limit is not None:  # two directions
            threads = max(1, min(threads, host_limit // (4 * _LEAST_BUFFER_BYTES)))
            size = min(size, host_limit // (4 * threads))
        if size < _LEAST_BUFFER_BYTES:
            least = 4 * _LEAST_BUFFER_BYTES
            raise ValueError(f"max_host_memory={host_limit} is too little; give at least {least}")
        self._buffers = threads, size
        self._up, self._down, self._passes, *self._lanes = _streams(live)
        self._rings: dict[int, _Ring] = {}
        # Copies of a direction share its buffers, and events of a stream are numbered in its order.
        streams = self._up, self._down, self._passes, *self._lanes
        self._order = {stream: threading.Lock() for stream in streams}
        self._numbers = count(1)
        self._awaited: dict[tuple[int, int], int] = {}
        self._held: list[tuple[int, int]] = []
        self._lent: dict[int, tuple[int, int]] = {}
        self._shown: list[Event] = []
        self._pages: list[_Ring] = []

    def allocate(self, sizes: Sequence[int]) -> list[int]:
        """Return pieces of device memory of so many bytes, until `close`."""
        if not sizes:
            return []
        ends = list(accumulate(-(-size // _PIECE_BYTES) * _PIECE_BYTES for size in sizes))
        first = self._take(ends[-1])  # once: each time takes 0.1 ms
        return [first + start for start in (0, *ends[:-1])]

    def _take(self, size: int) -> int:
        """Return so many bytes of device memory, until `close`."""
        held = _take(self._live, size) if self._keeps else (self._live.allocate(size), size)
        self._held.append(held)
        return held[0]

    def words(self, shape: tuple[int, ...]) -> NDArray[np.int32]:
        """Return memory of the host that the device writes, until `close`."""
        size = 4 * math.prod(shape)
        page = _ring(self._live, 1, max(_PAGE_BYTES, 1 << size.bit_length()))
        self._pages.append(page)
        return page.memory[:size].view(np.int32).reshape(shape)

    def part(self, memory: int, offset: int) -> int:
        """Return the memory so many bytes behind what `allocate` returned."""
        return memory + offset

    def follow(self, events: Sequence[CUDAEvent]) -> None:
        """Let all that is enqueued later wait for events, of other devices as well."""
        with self._live.current():
            for stream in (self._up, self._down, self._passes, *self._lanes):
                for event in events:
                    event.before(stream)

    def upload(
        self, memory: int, lines: NDArray[Any] | DeviceLines, ld: int, after: Sequence[Event]
    ) -> Event:
        """Copy to the device; pageable memory has been read when this returns."""
        pitch = ld * lines.itemsize
        if isinstance(lines, DeviceLines):
            copy = self._between(memory, pitch, lines, to_us=True)
        elif self._is_plane(lines, pitch):
            copy = self._plane(memory, pitch, lines, to_device=True)
        else:
            lines = lines if _is_dense(lines) else np.ascontiguousarray(lines)
            copy = self._staged("tilewright_stage_to_device", memory, pitch, lines)
        return self._copied(copy, self._up, after, lines, "copy to device")

    def splits(self, request: Request) -> bool:
        """Whether operands are split into parts once: those of "fp32", on tensor cores."""
        real = request.arithmetic == "fp32" and request.precision.letter == "s"
        plain = not (complex(request.alpha).imag or complex(request.beta).imag)
        if not (real and plain and has_wgmma(self._live)):
            return False
        return not unproved_are_served()

    def split(
        self, to: SplitOperand, sides: Piece, number: int, steps: Piece, operand: Operand,
        after: Sequence[Event],
    ) -> Event:  # fmt: skip
        """Enqueue the passes over a part of an operand; see `SplitOperand.split`."""
        plan, call = to.split(self._live, self._passes, sides, number, steps, operand)

        def begin() -> None:
            if not plan.start(call):
                enqueue(self._live, plan, call, self._passes)

        return self._enqueue(begin, self._passes, after, plan, plan.name)

    def multiply(
        self, request: Request, operands: Any, after: Sequence[Event], lane: int,
        parts: Sequence[Part] = (),
    ) -> Event:  # fmt: skip
        """Enqueue a product of what is on the device; two lanes fill the device's last waves."""
        stream = self._lanes[lane % len(self._lanes)]
        (a, _), (b, _), (c, exchanged) = operands
        plan, of_parts, lends = self._planned(request, operands, parts)
        x, y = (one.address for one in parts) if of_parts else (a.memory, b.memory)
        vectors = [one.exponents for one in parts] if of_parts else []
        if exchanged:  # the kernels' A is the caller's b
            x, y, vectors = y, x, vectors[::-1]
        alpha, beta = request.alpha, request.beta
        call: Any = call_of(x, y, c.memory, alpha, beta, stream, vectors=vectors)
        memory, made = partial(self._lend, stream) if lends else None, [plan]

        def begin() -> None:
            try:
                if lends or not plan.start(call):
                    enqueue(self._live, plan, call, stream, memory)
            except WorkspaceError:  # nothing was enqueued, and there are plans that take less
                wanted = wanted_of(request, operands)
                made.append(start(self._live, wanted, stream, None, memory).plan)

        return self._enqueue(begin, stream, after, made, "gemm")

    def _planned(
        self, request: Request, operands: Any, parts: Sequence[Part]
    ) -> tuple[Plan, bool, bool]:
        """Return a product's plan, whether it is of parts, and whether it takes lent memory.

        It is looked up by all that a request differs in from tile to tile, and from call to call.
        """
        alpha, beta = complex(request.alpha), complex(request.beta)
        key = (
            "tile", self._live, generation(), unproved_are_served(), request.precision.letter,
            request.arithmetic, request.residues, request.trans_a, request.trans_b,
            request.m, request.n, request.k, not alpha, not beta, not (alpha.imag or beta.imag),
            *((x.ld, by_rows, x.memory % _PIECE_BYTES) for x, by_rows in operands),
            *((one.k_fast, one.stride, one.ld) for one in parts),
        )  # fmt: skip
        found: tuple[Plan, bool, bool] | None = kept(key)
        if found is None:
            plan = None
            if parts:
                from tilewright.serve.streamed.parts import plan_of

                plan = plan_of(self._live, *column_major_call(request, operands), parts)
            if plan is not None:
                found = plan, True, False
            else:
                plan = planned(self._live, wanted_of(request, operands)).plan
                found = plan, False, not plan.shares
            keep(key, found)
        return found

    def _enqueue(
        self, begin: Callable[[], None], stream: int, after: Sequence[Any], keep: Any, name: str
    ) -> Event:
        """Enqueue something behind events that were returned here."""
        live = self._live
        with self._order[stream]:
            last = self._last(stream, after)
            event = live.between_events(begin, stream, last, keep, name, timed=False)
            event.number = next(self._numbers)
        if is_recording():
            self._shown.append(event)
        return event  # type: ignore[no-any-return]

    def _last(self, stream: int, after: Sequence[Any]) -> list[Any]:
        """Return those events that a stream does not wait for already, the last of each other."""
        last = {}
        for event in after:
            pair = stream, event.stream
            if event.stream != stream and event.number > self._awaited.get(pair, 0):
                self._awaited[pair] = event.number
                last[event.stream] = event
        return list(last.values())

    def _lend(self, stream: int, _: int, size: int) -> tuple[int, None]:
        """Return a lane's workspace, kept for its next product, as taking one each time is slow."""
        address, room = self._lent.get(stream, (0, 0))
        if room < size:
            address = self._take(size)
            self._lent[stream] = address, size
        return address, None

    def fetch(
        self, memory: int, lines: NDArray[Any] | DeviceLines, ld: int, after: Sequence[Event]
    ) -> Event | None:
        """Begin a copy to the host, or to another device; pageable memory has it on return."""
        pitch = ld * lines.itemsize
        if isinstance(lines, DeviceLines):
            copy = self._between(memory, pitch, lines, to_us=False)
            return self._copied(copy, self._down, after, lines, "copy to device")
        if self._is_plane(lines, pitch):
            copy = self._plane(memory, pitch, lines, to_device=False)
            return self._copied(copy, self._down, after, lines, "copy to host")
        dense = lines if _is_dense(lines) else np.empty_like(lines, order="C")
        for event in after:  # in one thread: each that waits keeps a core busy
            event.wait()
        copy = self._staged("tilewright_stage_to_host", memory, pitch, dense)
        self._copied(copy, self._down, (), dense, "copy to host").wait()
        if dense is not lines:
            lines[...] = dense
        return None

    def _copied(
        self, copy: Callable[[int], Any], stream: int, after: Sequence[Event], keep: Any, name: str
    ) -> Event:
        def begin() -> None:
            self._live.check(copy(stream), f"{self._live.id} could not copy")

        return self._enqueue(begin, stream, after, keep, name)

    def _plane(
        self, memory: int, pitch: int, lines: NDArray[Any], *, to_device: bool
    ) -> Callable[[int], Any]:
        """Return what lets the device copy lines by itself."""
        width = lines.shape[1] * lines.itemsize
        # A single line's stride may be anything, and is not taken.
        step = lines.strides[0] if len(lines) > 1 else width
        host, device = (MEMORY_HOST, lines.ctypes.data, 0, step), (MEMORY_DEVICE, 0, memory, pitch)
        source, to = (host, device) if to_device else (device, host)
        plane = Copy2D.of(source, to, width, len(lines))
        return partial(self._live.api.cuMemcpy2DAsync, ctypes.byref(plane))

    def _between(
        self, memory: int, pitch: int, lines: DeviceLines, *, to_us: bool
    ) -> Callable[[int], Any]:
        """Return what copies lines of another device from there, or to there."""
        _let_reach(self._live, lines.live)
        there = lines.live.context, lines.address, lines.step
        here = self._live.context, memory, pitch
        source, to = (there, here) if to_us else (here, there)
        plane = CopyPeer.of(source, to, lines.shape[1] * lines.itemsize, lines.shape[0])
        return partial(self._live.api.cuMemcpy3DPeerAsync, ctypes.byref(plane))

    def _staged(
        self, function: str, memory: int, pitch: int, lines: NDArray[Any]
    ) -> Callable[[int], Any]:
        """Return what copies lines through pinned buffers, given a stream."""
        what = _Lines(
            memory, pitch, lines.ctypes.data, lines.strides[0], lines.shape[1] * lines.itemsize,
            len(lines),
        )  # fmt: skip

        def copy(stream: int) -> tuple[int]:
            if stream not in self._rings:
                self._rings[stream] = _ring(self._live, *self._buffers)
            staging = self._rings[stream].staging(stream)
            return (getattr(core(), function)(ctypes.byref(staging), ctypes.byref(what)),)

        return copy

    def _is_plane(self, lines: NDArray[Any], pitch: int) -> bool:
        """Whether the device copies these lines by itself: in locked pages, one after another."""
        if not lines.size or not _is_dense(lines) or pitch > _MOST_PITCH:
            return False
        least = lines.shape[1] * lines.itemsize
        if len(lines) > 1 and not least <= lines.strides[0] <= _MOST_PITCH:
            return False
        first = lines.ctypes.data
        last = first + (len(lines) - 1) * lines.strides[0] + lines.shape[1] * lines.itemsize - 1
        return all(self._live.is_pinned(address) for address in (first, last))

    def close(self) -> None:
        """Wait for all that was enqueued, and give back what is held."""
        live = self._live
        if live.lost is not None:
            return
        for event in self._shown:  # timelines tell of what was waited for
            event.wait()
        with live.current(), ExitStack() as rest:
            for ring in (*self._rings.values(), *self._pages):
                rest.callback(_keep, ring)
            for memory, size in self._held:
                rest.callback(_leave, live, memory, size if self._keeps else None)
            # What factors matrices is on the device's own, and may have been interrupted.
            for stream in (self._up, self._down, self._passes, *self._lanes, live.stream):
                live.check(live.api.cuStreamSynchronize(stream), f"{live.id} failed")


def _is_dense(lines: NDArray[Any]) -> bool:
    """Whether each line's elements lie side by side."""
    return lines.shape[1] < 2 or lines.strides[1] == lines.itemsize


@lru_cache(maxsize=256)
def _let_reach(live: Any, other: Any) -> None:
    """Let a device copy from and to another one without the host, where the two are linked."""
    status, reaches = live.api.cuDeviceCanAccessPeer(live.raw, other.raw)
    if status == 0 and reaches:
        with live.current():  # an error says that it may already, or never will
            live.api.cuCtxEnablePeerAccess(other.context, 0)


@lru_cache(maxsize=16)
def _streams(live: Any) -> tuple[int, ...]:
    """Return a device's streams for copies there, copies back, passes, and two lanes of products.

    They stay, and so do workspaces that products have on them.
    """
    make = live.api.cuStreamCreateWithPriority
    with live.current():
        made = [
            live.check(make(NON_BLOCKING, urgency), "making a stream")
            for urgency in (0, 0, _URGENT, 0, 0)
        ]
    return tuple(map(int, made))


# -- pinned buffers ------------------------------------------------------------------------


class _Lines(ctypes.Structure):
    """tilewright_lines of staging.h."""

    _fields_ = [
        ("device", ctypes.c_uint64), ("pitch", ctypes.c_uint64), ("host", ctypes.c_void_p),
        ("step", ctypes.c_int64), ("width", ctypes.c_uint64), ("lines", ctypes.c_uint64),
    ]  # fmt: skip


# The driver's functions that staging.c calls, in the order of tilewright_staging.
_CALLED = (
    "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuMemcpy2DAsync_v2", "cuEventRecord",
    "cuEventSynchronize",
)  # fmt: skip


class _Staging(ctypes.Structure):
    """tilewright_staging of staging.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in _CALLED),
        ("context", ctypes.c_void_p), ("stream", ctypes.c_void_p), ("buffers", ctypes.c_void_p),
        ("events", ctypes.c_void_p), ("buffer_bytes", ctypes.c_uint64),
        ("threads", ctypes.c_uint64),
    ]  # fmt: skip


class _Ring:
    """Pinned buffers of one direction, two for each thread, and events of the device's copies.

    Parameters
    ----------
    live : CUDADevice
        Which copies.
    threads, size : int
        Of threads, and bytes of a buffer.
    """

    def __init__(self, live: Any, threads: int, size: int) -> None:
        self.of = live, threads, size
        self._holder = live.pinned(2 * threads * size)
        self.memory: NDArray[np.uint8] = self._holder.__enter__()
        make = live.api.cuEventCreate
        with live.current():
            made = [live.check(make(NO_TIMING), "making an event") for _ in range(2 * threads)]
        self._events = (ctypes.c_void_p * len(made))(*made)

    def staging(self, stream: int) -> _Staging:
        """Return it as C takes it."""
        (live, threads, size), found = self.of, library()
        functions = [ctypes.cast(found[name], ctypes.c_void_p).value for name in _CALLED]  # type: ignore[index]
        return _Staging(
            *functions, live.context, stream, self.memory.ctypes.data,
            ctypes.addressof(self._events), size, threads,
        )  # fmt: skip

    def free(self) -> None:
        """Give the memory back; the device no longer uses it."""
        live = self.of[0]
        with live.current():
            for event in self._events:
                live.api.cuEventDestroy(event)
        self._holder.__exit__(None, None, None)


# To lock pages takes longer than to copy what they hold, so buffers are kept for the next call.
_kept: list[_Ring] = []
_lock = threading.Lock()


def _ring(live: Any, threads: int, size: int) -> _Ring:
    with _lock:
        for one in _kept:
            if one.of == (live, threads, size):
                _kept.remove(one)
                return one
    return _Ring(live, threads, size)


def _keep(ring: _Ring) -> None:
    """Keep buffers for the next call; those kept longest make room."""
    gone = []
    with _lock:
        _kept.append(ring)
        while sum(2 * math.prod(one.of[1:]) for one in _kept) > _MOST_KEPT_BYTES:
            gone.append(_kept.pop(0))
    for one in gone:
        one.free()


def release_buffers() -> None:
    """Give pinned buffers and device memory back that no call uses."""
    with _lock:
        kept, _kept[:] = _kept[:], []
        left, _left[:] = _left[:], []
    for one in kept:
        one.free()
    for live, memory, _ in left:
        live.free(memory)


# -- device memory -------------------------------------------------------------------------

# Of a device's memory, the part that is kept for the next call.  Copies right after memory was
# given back were slower; presumably the driver clears it with the engines that copy.
_PART_KEPT = 1 / 8

_left: list[tuple[Any, int, int]] = []  # by age: device, address and bytes


def kept_bytes(live: Any) -> list[int]:
    """Return the bytes of each piece of a device's memory that is kept for the next call."""
    with _lock:
        return [size for other, _, size in _left if other is live]


def _take(live: Any, size: int) -> tuple[int, int]:
    """Return memory of so many bytes, or not many more, and how many."""
    with _lock:
        fit = [one for one in _left if one[0] is live and size <= one[2] <= 2 * size]
        if fit:
            found = min(fit, key=lambda one: one[2])
            _left.remove(found)
            return found[1:]
    try:
        return live.allocate(size), size
    except OutOfMemoryError:
        release_buffers()
        return live.allocate(size), size


def _leave(live: Any, memory: int, size: int | None) -> None:
    """Keep memory of so many bytes for the next call; what was kept longest makes room."""
    if size is None or live.spec.memory_bytes is None:
        live.free(memory)
        return
    gone = []
    with _lock:
        _left.append((live, memory, size))
        here = [one for one in _left if one[0] is live]
        total = sum(one[2] for one in here)
        while total > _PART_KEPT * live.spec.memory_bytes:
            gone.append(here.pop(0))
            _left.remove(gone[-1])
            total -= gone[-1][2]
    for _, address, _ in gone:
        live.free(address)
