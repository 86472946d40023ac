"""CUDA events around a launch: that it has ended, how long it ran; streams held meanwhile."""

from __future__ import annotations

import threading
import time
from typing import Any, NamedTuple

import numpy as np

from tilewright.backend.base import Event
from tilewright.stencil import Launch, Source
from tilewright.stencil.source_files import read_source
from tilewright.timeline import device_span, is_recording, span

__all__ = ["CUDAEvent", "DeviceClock", "EventPool", "Hold", "Zero"]

# Distances between events are floats of milliseconds: after 8 s they are exact to 0.5 us,
# which is the resolution of the events themselves.
_RENEW_SECONDS = 8.0


class EventPool:
    """Pairs of events that are used again: making one costs as much as a launch.

    Parameters
    ----------
    device : CUDADevice
        Where they are recorded.

    Attributes
    ----------
    clock : DeviceClock
        Of timelines.
    hold : Hold
        What keeps streams busy.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._free: list[tuple[Any, Any]] = []
        self.clock, self.hold = DeviceClock(device), Hold(device)

    def take(self) -> tuple[Any, Any]:
        """Return a pair; the device's context is current."""
        try:
            return self._free.pop()
        except IndexError:
            make = self._device.api.cuEventCreate
            first, second = (self._device.check(make(0), "making an event") for _ in range(2))
            return first, second

    def give_back(self, pair: tuple[Any, Any]) -> None:
        """Keep a pair for later; one may be recorded anew before it has happened."""
        self._free.append(pair)


class Zero(NamedTuple):
    """An event, and its nanoseconds on the device's clock."""

    event: Any
    nanoseconds: int


class DeviceClock:
    """A clock for timelines: CUDA tells distances between events, never a time.

    Parameters
    ----------
    device : CUDADevice
        Whose stream the events are recorded on.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._zero: Zero | None = None
        self._renew = 0.0

    def zero(self) -> Zero:
        """Return an event that has happened lately; the device's context is current."""
        if self._zero is None or time.monotonic() > self._renew:
            api, check = self._device.api, self._device.check
            event = check(api.cuEventCreate(0), "making an event")
            check(api.cuEventRecord(event, self._device.stream), "recording an event")
            check(api.cuEventSynchronize(event), "waiting for an event")
            since = 0 if self._zero is None else self.at(self._zero, event)
            self._zero = Zero(event, since)
            self._renew = time.monotonic() + _RENEW_SECONDS
        return self._zero

    def at(self, zero: Zero, event: Any) -> int:
        """Return when an event happened; the device's context is current."""
        took = self._device.api.cuEventElapsedTime(zero.event, event)
        since = float(self._device.check(took, "reading an event"))
        return zero.nanoseconds + round(since * 1e6)


class CUDAEvent(Event):
    """A pair of events around a launch.

    Parameters
    ----------
    device : CUDADevice
        Where they were recorded.
    pair : tuple
        Start and end.
    keep : object
        What was launched: its code must stay loaded while it runs.
    name : str
        What a timeline calls it.
    zero : Zero, optional
        An earlier event, where a timeline is recorded.
    stream : int
        Where they were recorded: a row of a timeline.
    """

    number = 0  # its place among the numbered events of a call; 0 where none are numbered

    def __init__(
        self,
        device: Any,
        pair: tuple[Any, Any],
        keep: Any,
        name: str = "kernel",
        zero: Zero | None = None,
        stream: int = 0,
    ) -> None:
        self._device, self._pair, self._keep = device, pair, keep
        self._name, self._zero, self.stream = name, zero, stream
        self._has_happened = False

    def before(self, stream: int, *, ours: bool = False) -> None:
        """Let what is enqueued on a stream from now on wait; the context is current."""
        api = self._device.api
        wait = api.cuStreamWaitEventOnOurs if ours else api.cuStreamWaitEvent
        self._device.check(wait(stream, self._pair[1], 0), "waiting for an event")

    def wait(self) -> None:
        """Block until it has ended."""
        if not self._has_happened:
            with span("wait"), self._device.current():
                done = self._device.api.cuEventQuery(self._pair[1])
                if done[0]:  # not yet, or it failed
                    done = self._device.api.cuEventSynchronize(self._pair[1])
            self._device.check(done, "the kernel failed on the device")
            self._has_happened = True
        if self._zero is not None and is_recording():
            self._tell(self._zero)

    def nanoseconds(self) -> int:
        """Return the time between start and end, by the device's clock."""
        self.wait()
        return self._elapsed(self._pair[0])

    def _elapsed(self, since: Any) -> int:
        with self._device.current():
            took = self._device.api.cuEventElapsedTime(since, self._pair[1])
        return round(float(self._device.check(took, "reading an event")) * 1e6)

    def _tell(self, zero: Zero) -> None:
        """Give the timeline what ran; once."""
        self._zero = None
        ended = zero.nanoseconds + self._elapsed(zero.event)
        begun = ended - self._elapsed(self._pair[0])
        device_span(self._device.id, self._name, begun, ended, {"stream": self.stream})

    def __del__(self) -> None:
        self._device.events.give_back(self._pair)


# At an H100's 1.98 GHz 50 us, and 8 for each launch: two events and a launch take Python some 10, a
# product of cuBLAS's some 20, a guarded product's ten launches some 40.
_CYCLES, _CYCLES_OF_A_LAUNCH = 100_000, 16_000


class Hold:
    """A kernel that keeps streams busy while launches are enqueued; compiled with the first use.

    Parameters
    ----------
    device : CUDADevice
        Whose streams are held.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._kernel: Any = None
        self._prepared: dict[int, Any] = {}

    def enqueue(self, stream: int, launches: int) -> None:
        """Keep a stream busy while so many launches are enqueued."""
        with self._lock:
            if self._kernel is None:
                text = read_source("hold.cuh", "tilewright.backend.cuda")
                self._kernel = self._device.compile(Source(text, {}, "hold"))
            if launches not in self._prepared:
                cycles = np.int64(_CYCLES + launches * _CYCLES_OF_A_LAUNCH)
                once = Launch((1, 1), (1, 1))
                made = self._device.prepare(self._kernel, once, (cycles,))
                self._prepared[launches] = made
            self._prepared[launches].enqueue(stream)
