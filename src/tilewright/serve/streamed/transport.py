"""What carries parts of matrices to a device and back, and lets it multiply: in order, one by one.

Devices that copy and compute at the same time have one of their own
(`tilewright.serve.streamed.overlapped`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import Event, LiveDevice

__all__ = ["InOrder", "Transport"]


class Transport(Protocol):
    """Copies and products of one call.

    Lines are a NumPy array's, or a CUDA device's `DeviceLines`; on the device they are `ld`
    elements apart.  What is enqueued waits for the events `after`.

    Attributes
    ----------
    overlaps : bool
        Whether the device copies and computes at the same time.
    live : LiveDevice
        The device.
    """

    overlaps: bool
    live: LiveDevice

    def allocate(self, sizes: Sequence[int]) -> list[Any]:
        """Return pieces of device memory of so many bytes, until `close`."""

    def upload(self, memory: Any, lines: Any, ld: int, after: Sequence[Event]) -> Event | None:
        """Enqueue a copy to the device, and return the event of its end, if it takes one."""

    def multiply(
        self, request: Any, operands: Any, after: Sequence[Event], lane: int
    ) -> Event | None:
        """Enqueue a product of what is on the device; those of a lane follow one another."""

    def download(self, memory: Any, lines: Any, ld: int, after: Sequence[Event]) -> None:
        """Copy to where lines are, and wait for it."""

    def close(self) -> None:
        """Wait for all that was enqueued, and give back what is held."""


class InOrder:
    """Each copy and each product waits for the one before.

    Parameters
    ----------
    live : LiveDevice
        Where the memory is.
    """

    overlaps = False

    def __init__(self, live: LiveDevice) -> None:
        self.live = self._live = live
        self._held: list[Any] = []

    def allocate(self, sizes: Sequence[int]) -> list[Any]:
        """Return pieces of device memory of so many bytes, until `close`."""
        for size in sizes:
            self._held.append(self._live.allocate(size))
        return self._held[len(self._held) - len(sizes) :]

    def upload(self, memory: Any, lines: NDArray[Any], ld: int, after: Sequence[Event]) -> None:
        """Copy to the device."""
        dense = np.zeros((len(lines), ld), lines.dtype)
        dense[:, : lines.shape[1]] = lines
        self._live.write(memory, dense)

    def multiply(self, request: Any, operands: Any, after: Sequence[Event], lane: int) -> None:
        """Multiply, and wait for it."""
        from tilewright.serve.request import launch_gemm

        launch_gemm(self._live, request, operands).wait()

    def download(self, memory: Any, lines: NDArray[Any], ld: int, after: Sequence[Event]) -> None:
        """Copy to the host."""
        dense = np.empty((len(lines), ld), lines.dtype)
        self._live.download(memory, dense)
        lines[...] = dense[:, : lines.shape[1]]

    def close(self) -> None:
        """Give the memory back."""
        while self._held:
            self._live.free(self._held.pop())
