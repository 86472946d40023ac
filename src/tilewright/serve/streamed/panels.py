"""Panels of an operand on a device: brought there, split, and kept as long as there is room."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.backend import Event, Operand
from tilewright.serve.streamed.host import HostMatrix
from tilewright.serve.streamed.parts import SplitPanel
from tilewright.serve.streamed.placed import PlacedMatrix
from tilewright.serve.streamed.tiling import Piece, aligned
from tilewright.serve.streamed.transport import Transport
from tilewright.stencil.split.sources import Stored

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
    rooms : object
        Memory for what a panel is split into.
    split : SplitPanel, optional
        What is there.
    """

    memory: Any
    arrival: list[Event] = field(default_factory=list)
    users: list[Event] = field(default_factory=list)
    ld: int = 1
    rooms: Any = None
    split: SplitPanel | None = None

    def operand(self) -> Operand:
        """Return it as a kernel's operand."""
        return Operand(self.memory, 0, self.ld)


class Panels:
    """Panels of an operand that are on the device.

    Parameters
    ----------
    matrix : HostMatrix
        Whose.
    transport : Transport
        What copies them.
    slots : list of Slot
        Room for them.
    own : sequence of (int, int)
        The panels whom these slots belong to, one by one; none where any may have any.
    rows_are_sides : bool, optional
        Of what is split: whether rows of op(A), or columns of op(B), are the array's rows.
    """

    def __init__(
        self, matrix: HostMatrix | PlacedMatrix, transport: Transport, slots: list[Slot],
        own: Sequence[tuple[int, int]], rows_are_sides: bool | None = None,
    ) -> None:  # fmt: skip
        self._rows_are_sides = rows_are_sides
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
            if self._is_here and self._rows_are_sides is None:
                operand = self._matrix.operand(*place)
                return Slot(operand.memory, ld=operand.ld)
            slot = self._own.get(number) or (
                self._free.pop() if self._free else self._kept.popitem(last=False)[1]
            )
            self._bring(slot, place)
        self._kept[number] = slot
        return slot

    def _bring(self, slot: Slot, place: tuple[Piece, Piece]) -> None:
        """Let a panel come to a slot, and be split."""
        if self._is_here:
            operand = self._matrix.operand(*place)
            slot.memory, slot.ld, after = operand.memory, operand.ld, slot.users
        else:
            lines = self._matrix.lines(*place)
            slot.ld = aligned(lines.shape[1], lines.itemsize)
            arrived = self._transport.upload(slot.memory, lines, slot.ld, slot.users)
            slot.arrival = after = [] if arrived is None else [arrived]
        slot.users = []
        if self._rows_are_sides is not None:
            (top, bottom), (left, right) = place
            sides, terms = bottom - top, right - left
            if not self._rows_are_sides:
                sides, terms = terms, sides
            stored = Stored(sides, terms, self._rows_are_sides is self.row_major)
            slot.split = self._transport.split(stored, slot.operand(), slot.rooms, after)
