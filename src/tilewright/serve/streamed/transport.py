"""What carries parts of matrices to a device and back, and lets it multiply: in order, one by one.

Devices that copy and compute at the same time have one of their own
(`tilewright.serve.streamed.overlapped`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from tilewright.backend import Event, LiveDevice, Operand
from tilewright.serve.calls import launch_gemm

if TYPE_CHECKING:
    from tilewright.serve.streamed.parts import Part, SplitOperand
    from tilewright.serve.streamed.tiling import Piece

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

    def part(self, memory: Any, offset: int) -> Any:
        """Return the memory so many bytes behind what `allocate` returned."""

    def words(self, shape: tuple[int, ...]) -> NDArray[np.int32]:
        """Return memory of the host that the device writes, until `close`."""

    def splits(self, request: Any) -> bool:
        """Whether it splits operands into parts, once for all products that they are in."""

    def split(
        self, to: SplitOperand, sides: Piece, number: int, steps: Piece, operand: Operand,
        after: Sequence[Event],
    ) -> Event:  # fmt: skip
        """Enqueue the passes over a part of an operand; see `SplitOperand.split`."""

    def upload(self, memory: Any, lines: Any, ld: int, after: Sequence[Event]) -> Event | None:
        """Enqueue a copy to the device, and return the event of its end, if it takes one."""

    def multiply(
        self, request: Any, operands: Any, after: Sequence[Event], lane: int,
        parts: Sequence[Part] = (),
    ) -> Event | None:  # fmt: skip
        """Enqueue a product of what is on the device; those of a lane follow one another.

        Where `parts` of A and B are given, and no other arithmetic is faster, these are multiplied.
        """

    def fetch(self, memory: Any, lines: Any, ld: int, after: Sequence[Event]) -> Event | None:
        """Begin a copy to where lines are, and return the event of its end, if it takes one."""

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
        return [(one, 0) for one in self._held[len(self._held) - len(sizes) :]]

    def part(self, memory: Any, offset: int) -> Any:
        """Return the memory so many bytes behind what `allocate` returned."""
        return memory[0], memory[1] + offset

    def upload(self, memory: Any, lines: NDArray[Any], ld: int, after: Sequence[Event]) -> None:
        """Copy to the device."""
        held, begins = memory
        if lines.shape[1] == ld:
            self._live.write(held, np.ascontiguousarray(lines), begins)
        else:
            self._live.write_lines(held, lines, ld * lines.itemsize, begins)

    def words(self, shape: tuple[int, ...]) -> NDArray[np.int32]:
        """Return no memory: the device writes none of the host's."""
        raise AssertionError(shape)

    def splits(self, request: Any) -> bool:
        """Return False: operands pass whole."""
        return False

    def split(self, *about: Any) -> Event:
        """Split no operand."""
        raise AssertionError(about)

    def multiply(
        self, request: Any, operands: Any, after: Sequence[Event], lane: int,
        parts: Sequence[Part] = (),
    ) -> None:  # fmt: skip
        """Multiply, and wait for it."""
        size = request.precision.element_bytes
        placed = tuple(
            (Operand(x.memory[0], x.memory[1] // size, x.ld), row_major)
            for x, row_major in operands
        )
        launch_gemm(self._live, request, placed).wait()  # type: ignore[arg-type]

    def fetch(self, memory: Any, lines: NDArray[Any], ld: int, after: Sequence[Event]) -> None:
        """Copy to the host."""
        held, begins = memory
        count, width = lines.shape
        there = np.empty((count - 1) * ld + width, lines.dtype)
        self._live.download(held, there, begins)
        step = lines.itemsize
        lines[...] = as_strided(there, lines.shape, (ld * step, step))

    def close(self) -> None:
        """Give the memory back."""
        while self._held:
            self._live.free(self._held.pop())
