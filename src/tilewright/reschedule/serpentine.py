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

from tilewright.reschedule.allocation import Allocator
from tilewright.reschedule.dependencies import Block
from tilewright.reschedule.fetch import cycles, flagged, op_of
from tilewright.reschedule.hazards import entry
from tilewright.reschedule.reuse import with_flags
from tilewright.reschedule.stall_counts import numbered, with_stalls
from tilewright.reschedule.tile import Tile
from tilewright.reschedule.wait_masks import with_waits
from tilewright.reschedule.webs import find_webs, registers_of
from tilewright.sass.instruction import Instruction

__all__ = ["fetch_cycles", "serpentine"]


def serpentine(
    kernel: Sequence[Instruction],
    block: Block,
    arch: int,
    apart: bool = False,
    ahead: int | None = None,
) -> tuple[list[Instruction], int, int]:
    """Return a block in serpentine order, and how many multiply-adds moved and webs were renamed.

    Parameters
    ----------
    kernel : sequence of Instruction
        The whole kernel.
    block : Block
        One of its blocks.
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
    webs = find_webs(kernel)
    best, found, seen = float("inf"), None, []
    for other in (False, True):
        tile = Tile(kernel[block.start : block.stop], webs, block.start, ahead)
        order = tile.merged(tile.backbone(other))
        if order in seen:  # only one side's factors may be held
            continue
        seen.append(order)
        made, moved, renamed = _written(kernel, block, tile, order, arch)
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
    kernel: Sequence[Instruction], block: Block, tile: Tile, order: Sequence[int], arch: int
) -> tuple[list[Instruction], int, int]:
    """Return the block in a new order, with registers and control fields for it."""
    body = kernel[block.start : block.stop]
    given = Allocator(tile, order, registers_of(kernel)).allocate()
    changed = [tile.written(at, given, arch) for at in order]
    before = entry(kernel, block.start)
    new = with_stalls(body, with_waits(body, changed, before, arch), before, arch)
    made = numbered(new, body[0].address, arch)
    moved = sum(at != place for place, at in enumerate(order) if at in tile.products)
    renamed = sum(tile.webs.register[web] != register for web, register in given.items())
    return with_flags(made, arch), moved, renamed
