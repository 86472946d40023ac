"""Panels of an operand on a device: brought there, and kept as long as there is room."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.backend import Event, Operand
from tilewright.serve.streamed.host import HostMatrix
from tilewright.serve.streamed.placed import PlacedMatrix
from tilewright.serve.streamed.tiling import Piece, aligned
from tilewright.serve.streamed.transport import Transport

__all__ = ["Panels", "Slot"]


@dataclass
class Slot:
    """Device memory for a panel or a tile.

    Parameters
    ----------
    memory : object
        The device's handle.
    arrival : list of Event
        Of what is there, or on its way.
    users : list of Event
        Of the products that read or write it.
    ld : int
        Elements from a line to the next.
    """

    memory: Any
    arrival: list[Event] = field(default_factory=list)
    users: list[Event] = field(default_factory=list)
    ld: int = 1

    def operand(self) -> Operand:
        """Return it as a kernel's operand."""
        return Operand(self.memory, 0, self.ld)


class Panels:
    """Panels of an operand that are on the device.

    Parameters
    ----------
    matrix : HostMatrix or PlacedMatrix
        Whose.
    transport : Transport
        What copies them.
    slots : list of Slot
        Room for them.
    own : sequence of (int, int)
        The panels whom these slots belong to, one by one; none where any may have any.
    """

    def __init__(
        self, matrix: HostMatrix | PlacedMatrix, transport: Transport, slots: list[Slot],
        own: Sequence[tuple[int, int]],
    ) -> None:  # fmt: skip
        self.row_major = matrix.row_major
        self._matrix, self._transport = matrix, transport
        self._is_here = matrix.is_on(transport.live)
        self._own = dict(zip(own, slots, strict=True)) if own else {}
        self._free = [] if own else slots
        self._kept: OrderedDict[tuple[int, int], Slot] = OrderedDict()

    def take(self, number: tuple[int, int], place: tuple[Piece, Piece]) -> Slot:
        """Return a panel of a number, on its way from its place if it was not there."""
        slot = self._kept.pop(number, None)
        if slot is None:
            if self._is_here:
                operand = self._matrix.operand(*place)
                return Slot(operand.memory, ld=operand.ld)
            slot = self._own.get(number) or (
                self._free.pop() if self._free else self._kept.popitem(last=False)[1]
            )
            lines = self._matrix.lines(*place)
            slot.ld = aligned(lines.shape[1], lines.itemsize)
            arrived = self._transport.upload(slot.memory, lines, slot.ld, slot.users)
            slot.arrival, slot.users = [] if arrived is None else [arrived], []
        self._kept[number] = slot
        return slot
