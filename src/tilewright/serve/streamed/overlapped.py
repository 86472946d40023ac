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
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import lru_cache, partial
from itertools import accumulate, count
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import Event, Operand
from tilewright.backend.cuda.events import CUDAEvent
from tilewright.backend.cuda.functions import (
    MEMORY_DEVICE,
    MEMORY_HOST,
    NON_BLOCKING,
    Copy2D,
    CopyPeer,
)
from tilewright.portfolio.find import generation
from tilewright.serve.arenas import enqueue
from tilewright.serve.calls import keep, kept, planned, start, wanted_of
from tilewright.serve.plan import Plan, WorkspaceError, call_of, core
from tilewright.serve.request import Request, column_major_call
from tilewright.serve.streamed import buffers
from tilewright.serve.streamed.placed import DeviceLines
from tilewright.serve.tensor_cores import has_wgmma
from tilewright.serve.unproved import unproved_are_served
from tilewright.timeline import is_recording

if TYPE_CHECKING:
    from tilewright.serve.streamed.parts import Part, SplitOperand
    from tilewright.serve.streamed.tiling import Piece

__all__ = ["Overlapped"]

_LEAST_BUFFER_BYTES = 64 << 10

_PAGE_BYTES = 4 << 10

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
        threads, size = buffers.THREADS, buffers.BUFFER_BYTES
        if host_limit is not None:  # two directions
            threads = max(1, min(threads, host_limit // (4 * _LEAST_BUFFER_BYTES)))
            size = min(size, host_limit // (4 * threads))
        if size < _LEAST_BUFFER_BYTES:
            least = 4 * _LEAST_BUFFER_BYTES
            raise ValueError(f"max_host_memory={host_limit} is too little; give at least {least}")
        self._buffers = threads, size
        self._up, self._down, self._passes, *self._lanes = _streams(live)
        self._rings: dict[int, tuple[buffers.Ring, buffers.Staging]] = {}
        # Copies of a direction share its buffers, and events of a stream are numbered in its order.
        streams = self._up, self._down, self._passes, *self._lanes
        self._order = {stream: threading.Lock() for stream in streams}
        self._numbers = count(1)
        self._awaited: dict[tuple[int, int], int] = {}
        self._held: list[tuple[int, int]] = []
        self._lent: dict[int, tuple[int, int]] = {}
        self._shown: list[Event] = []
        self._pages: list[buffers.Ring] = []

    def allocate(self, sizes: Sequence[int]) -> list[int]:
        """Return pieces of device memory of so many bytes, until `close`."""
        if not sizes:
            return []
        ends = list(accumulate(-(-size // _PIECE_BYTES) * _PIECE_BYTES for size in sizes))
        first = self._take(ends[-1])  # once: each time takes 0.1 ms
        return [first + start for start in (0, *ends[:-1])]

    def _take(self, size: int) -> int:
        """Return so many bytes of device memory, until `close`."""
        held = buffers.take(self._live, size) if self._keeps else (self._live.allocate(size), size)
        self._held.append(held)
        return held[0]

    def words(self, shape: tuple[int, ...]) -> NDArray[np.int32]:
        """Return memory of the host that the device writes, until `close`."""
        size = 4 * math.prod(shape)
        page = buffers.ring(self._live, 1, max(_PAGE_BYTES, 1 << size.bit_length()))
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
            enqueue(self._live, plan, call, self._passes)

        # The copies' events hold what is copied.
        return self._enqueue(begin, self._passes, after, (plan, after), plan.name)

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
            event = live.between_events(begin, stream, last, keep, name, ours=True)
            event.number = next(self._numbers)
            self._awaited.update(((stream, one.stream), one.number) for one in last)
        if is_recording():
            self._shown.append(event)
        return event  # type: ignore[no-any-return]

    def _last(self, stream: int, after: Sequence[Any]) -> list[Any]:
        """Return those events that a stream does not wait for already, the last of each other."""
        last = {one.stream: one for one in sorted(after, key=lambda one: one.number)}
        last.pop(stream, None)
        return [one for at, one in last.items() if one.number > self._awaited.get((stream, at), 0)]

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
        what = buffers.Lines(
            memory, pitch, lines.ctypes.data, lines.strides[0], lines.shape[1] * lines.itemsize,
            len(lines),
        )  # fmt: skip

        def copy(stream: int) -> tuple[int]:
            if stream not in self._rings:
                ring = buffers.ring(self._live, *self._buffers)
                self._rings[stream] = ring, ring.staging(stream)
            _, staging = self._rings[stream]
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
            for ring in (*(ring for ring, _ in self._rings.values()), *self._pages):
                rest.callback(buffers.keep, ring)
            for memory, size in self._held:
                rest.callback(buffers.leave, live, memory, size if self._keeps else None)
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
