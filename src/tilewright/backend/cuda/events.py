"""CUDA events around a launch: they say that it has ended, and how long it ran."""

from __future__ import annotations

from typing import Any

from tilewright.backend.base import Event

__all__ = ["CUDAEvent", "EventPool"]


class EventPool:
    """Pairs of events that are used again: making one costs as much as a launch.

    Parameters
    ----------
    device : CUDADevice
        Where they are recorded.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._free: list[tuple[Any, Any]] = []

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
    """

    def __init__(self, device: Any, pair: tuple[Any, Any], keep: Any) -> None:
        self._device, self._pair, self._keep = device, pair, keep

    def before(self, stream: int) -> None:
        """Let what is enqueued on a stream from now on wait; the context is current."""
        waiting = self._device.api.cuStreamWaitEvent(stream, self._pair[1], 0)
        self._device.check(waiting, "waiting for an event")

    def wait(self) -> None:
        """Block until it has ended."""
        with self._device.current():
            done = self._device.api.cuEventSynchronize(self._pair[1])
        self._device.check(done, "the kernel failed on the device")

    def nanoseconds(self) -> int:
        """Return the time between start and end, by the device's clock."""
        self.wait()
        with self._device.current():
            took = self._device.api.cuEventElapsedTime(*self._pair)
        return round(float(self._device.check(took, "reading an event")) * 1e6)

    def __del__(self) -> None:
        self._device.events.give_back(self._pair)
