"""Parts of an operand on a device: brought there when they are first needed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilewright.backend import Event, Operand
from tilewright.serve.streamed.host import HostMatrix
from tilewright.serve.streamed.placed import PlacedMatrix
from tilewright.serve.streamed.tiling import Piece, Tiling, aligned, span
from tilewright.serve.streamed.transport import Transport

if TYPE_CHECKING:
    from tilewright.serve.streamed.parts import Part, SplitOperand

__all__ = ["Panels", "Slot"]


@dataclass
class Slot:
    """Device memory for a panel, or for a tile.

    Parameters
    ----------
    memory : object
        What the transport calls it.
    arrival : list of Event
        Of what is there, or on its way.
    users : list of Event
        Of the products that read or write it.
    ld : int
        Elements from a line to the next.
    lane : int
        Of a tile: its products follow one another there.
    part : Part, optional
        Where a panel is in parts.
    """

    memory: Any
    arrival: list[Event] = field(default_factory=list)
    users: list[Event] = field(default_factory=list)
    ld: int = 1
    lane: int = 0
    part: Part | None = None

    def operand(self) -> Operand:
        """Return it as a kernel's operand."""
        return Operand(self.memory, 0, self.ld)


class Panels:
    """An operand on the device: all of it, or the panels that were used last.

    Parameters
    ----------
    matrix : HostMatrix or PlacedMatrix
        Whose.
    transport : Transport
        What copies them.
    memory : list
        Room for the whole matrix, or for panels, as the tiling has it.
    tiling : Tiling
        How the product is cut.
    sides : sequence of (int, int)
        Pieces of m or n.
    rows_are_k : bool
        Whether the array's rows run along k.
    split : SplitOperand, optional
        Where the whole is in parts.
    """

    def __init__(
        self, matrix: HostMatrix | PlacedMatrix, transport: Transport, memory: list[Any],
        tiling: Tiling, sides: Sequence[Piece], rows_are_k: bool,
        split: SplitOperand | None = None,
    ) -> None:  # fmt: skip
        self.split = split
        self.row_major = matrix.row_major
        self._matrix, self._transport, self._tiling = matrix, transport, tiling
        self._sides, self._rows_are_k = sides, rows_are_k
        self._is_here = matrix.is_on(transport.live)
        self._whole = memory[0] if memory and not tiling.panels else None
        self._free = [Slot(one) for one in memory] if tiling.panels else []
        self._kept: OrderedDict[tuple[int, int], Slot] = OrderedDict()
        self._parts: dict[tuple[int, Piece], Slot] = {}  # of the whole, as products take them

    def take(self, number: int, steps: Piece) -> Slot:
        """Return pieces of k of a piece of the side, on their way if they were not there.

        Where the device holds panels, they are one piece of k.
        """
        if self._is_here and self.split is None:
            return self._part(number, steps)
        if self._tiling.panels:
            return self._panel(number, steps)
        slot = self._parts.get((number, steps))
        if slot is None:
            slot = self._parts[number, steps] = self._taken(number, steps)
        return slot

    def _taken(self, number: int, steps: Piece) -> Slot:
        """Return a part of the whole, on its way."""
        arrival: list[Event] = []
        for p in range(*steps):
            if (number, p) not in self._kept:
                self._bring(number, p)
            arrival += self._kept[number, p].arrival
        slot = self._part(number, steps)
        slot.arrival = list(dict.fromkeys(arrival))
        if self.split is not None:
            first = self.unit(number, steps[0])[0]
            slot.part = self.split.part(self._sides[number][0], steps[0], first)
        return slot

    def unit(self, number: int, p: int) -> Piece:
        """Return the pieces of k that come at once with one."""
        is_cut = len(self._sides) > 1 or not self._tiling.early
        return self._tiling.unit(number, p) if is_cut else (p, p + 1)

    def counts(self, number: int, p: int) -> list[int]:
        """Return what the guard found; see `SplitOperand.counts`."""
        assert self.split is not None
        return self.split.counts(number, p, self.unit(number, p))

    def _panel(self, number: int, steps: Piece) -> Slot:
        """Return a panel; the one that was used longest ago makes room."""
        key = number, steps[0]
        slot = self._kept.pop(key, None)
        if slot is None:
            slot = self._free.pop() if self._free else self._kept.popitem(last=False)[1]
            lines = self._matrix.lines(*self._place(number, steps))
            slot.ld = aligned(lines.shape[1], lines.itemsize)
            self._upload(slot, lines)
        self._kept[key] = slot
        return slot

    def _bring(self, number: int, p: int) -> None:
        """Enqueue what brings a part of the whole operand, and its passes."""
        unit = self.unit(number, p)
        slot = self._part(number, unit)
        if not self._is_here:
            self._upload(slot, self._matrix.lines(*self._place(number, unit)))
        if self.split is not None:
            ready = self._transport.split(
                self.split, self._sides[number], number, unit, slot.operand(), slot.arrival
            )
            slot.arrival = [ready]  # behind the copy
        self._kept.update(((number, one), slot) for one in range(*unit))

    def _part(self, number: int, steps: Piece) -> Slot:
        """Return where a part of the whole operand is."""
        if self._is_here:
            operand = self._matrix.operand(*self._place(number, steps))
            return Slot(operand.memory, ld=operand.ld)
        size = self._matrix.itemsize
        sides, k = self._sides[-1][1], self._tiling.k[-1][1]
        ld = aligned(sides if self._rows_are_k == self.row_major else k, size)
        rows, columns = self._place(number, steps)
        line, within = (rows, columns) if self.row_major else (columns, rows)
        offset = (line[0] * ld + within[0]) * size
        return Slot(self._transport.part(self._whole, offset), ld=ld)

    def _place(self, number: int, steps: Piece) -> tuple[Piece, Piece]:
        """Return the rows and columns of the array."""
        side, k = self._sides[number], span(self._tiling.k, steps)
        return (k, side) if self._rows_are_k else (side, k)

    def _upload(self, slot: Slot, lines: Any) -> None:
        arrived = self._transport.upload(slot.memory, lines, slot.ld, slot.users)
        slot.arrival, slot.users = [] if arrived is None else [arrived], []
