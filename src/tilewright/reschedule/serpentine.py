"""Serpentine order: multiply-adds there and back over the tile, accumulators in the free banks.

A step along k multiplies each element of a column of A by each of a row of B.  While slot A's latch
holds one factor, an FFMA reads the other and its accumulator, which takes one cycle if they lie in
different banks::

             b0   b1   b2   b3        at each turn the moving factor stays in its latch and the
    a0      ──────────────────>┐      held one changes
    a1      <──────────────────┘
    a2      ──────────────────>

The accumulator that meets b1 must lie in the bank that b1 leaves free.  Real parts of complex
products meet factors of both banks in turn, so that they change banks, and therefore registers,
with each term: an accumulator that is read leaves its register to the next one that is written.

Accumulators that live beyond the block keep their registers, and so do all other values.  Each
accumulator keeps the order of its terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from tilewright.reschedule.allocation import Allocator
from tilewright.reschedule.control_fields import with_control_fields
from tilewright.reschedule.dependencies import Block
from tilewright.reschedule.fetch import cycles, flagged, op_of, with_flags
from tilewright.reschedule.hazards import Entry, entry
from tilewright.reschedule.tile import Tile
from tilewright.reschedule.webs import Webs, find_webs, registers_of
from tilewright.sass.instruction import Instruction

__all__ = ["Surroundings", "fetch_cycles", "serpentine"]


class Surroundings:
    """A block of a kernel with what is found out about the kernel once, however often it is asked.

    Parameters
    ----------
    kernel : sequence of Instruction
        The whole kernel.
    block : Block
        One of its blocks.
    """

    def __init__(self, kernel: Sequence[Instruction], block: Block) -> None:
        self.kernel, self.block = kernel, block

    @cached_property
    def webs(self) -> Webs:
        """The live ranges of the kernel's registers."""
        return find_webs(self.kernel)

    @cached_property
    def before(self) -> Entry:
        """What is under way where the block starts."""
        return entry(self.kernel, self.block.start)


def serpentine(
    around: Surroundings, arch: int, apart: bool = False, ahead: int | None = None
) -> tuple[list[Instruction], int, int]:
    """Return a block in serpentine order, and how many multiply-adds moved and webs were renamed.

    Parameters
    ----------
    around : Surroundings
        The block.
    arch : int
        Architecture number.
    apart : bool
        Whether memory instructions leave the operands' latches alone.
    ahead : int, optional
        How many multiply-adds shared loads come ahead of their first reader, to registers of their
        own; they stay where they are if it is left out.

    Raises
    ------
    RefusedError
        If something is not modelled, there is no such tile, or there are no registers left.
    """
    block, webs = around.block, around.webs
    best, found, seen = float("inf"), None, []
    for other in (False, True):
        tile = Tile(around.kernel[block.start : block.stop], webs, block.start, ahead)
        order = tile.merged(tile.backbone(other))
        if order in seen:  # only one side's factors may be held
            continue
        seen.append(order)
        made, moved, renamed = _written(around, tile, order, arch)
        cost = fetch_cycles(made, arch, apart)
        if cost < best:
            best, found = cost, (made, moved, renamed)
    assert found is not None
    return found


def fetch_cycles(body: Sequence[Instruction], arch: int, apart: bool) -> int:
    """Return the cycles that a block takes to fetch its operands."""
    ops = [op_of(one, False, arch) for one in body]
    return cycles(ops, flagged(ops), apart)


def _written(
    around: Surroundings, tile: Tile, order: Sequence[int], arch: int
) -> tuple[list[Instruction], int, int]:
    """Return the block in a new order, with registers and control fields for it."""
    body = around.kernel[around.block.start : around.block.stop]
    given = Allocator(tile, order, registers_of(around.kernel)).allocate()
    changed = [tile.written(at, given, arch) for at in order]
    made = with_control_fields(body, changed, around.before, arch)
    moved = sum(at != place for place, at in enumerate(order) if at in tile.products)
    renamed = sum(tile.webs.register[web] != register for web, register in given.items())
    return with_flags(made, arch), moved, renamed
