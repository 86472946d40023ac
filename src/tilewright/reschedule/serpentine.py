"""A loop's multiply-adds walked there and back over the tile, sums in the banks that this wants.

A step along k multiplies each of some factors by each of some others.  With one of them held in a
latch, an FFMA reads the other and its sum: one read of each bank, if they lie in different ones::

             b0   b1   b2   b3        one row there, the next one back: at the turn the factor
    a0      ──────────────────>┐      that has moved so far is at hand, and the one that is held
    a1      <──────────────────┘      changes
    a2      ──────────────────>

The sum that meets b1 has to lie in the bank that b1 does not lie in.  Where it meets factors of
both banks in turns, as real parts of complex products do, it has to change its bank with each, and
so its register: a sum that is read leaves its register to the next one that is written.

Sums that live on beyond the block keep their registers, and so does all that is no sum.  Each sum
keeps the order of its terms.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.reschedule.dealing import Dealer
from tilewright.reschedule.dependencies import Block
from tilewright.reschedule.fetch import cycles, flagged, op_of
from tilewright.reschedule.hazards import entry
from tilewright.reschedule.reuse import with_flags
from tilewright.reschedule.stalls import numbered, restalled
from tilewright.reschedule.tile import Tile
from tilewright.reschedule.waits import rewaited
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
    """Return a block walked there and back, and how many multiply-adds moved and sums changed.

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
    given = Dealer(tile, order, registers_of(kernel)).deal()
    changed = [tile.written(at, given, arch) for at in order]
    before = entry(kernel, block.start)
    new = restalled(body, rewaited(body, changed, before, arch), before, arch)
    made = numbered(new, body[0].address, arch)
    moved = sum(at != place for place, at in enumerate(order) if at in tile.products)
    renamed = sum(tile.webs.register[web] != register for web, register in given.items())
    return with_flags(made, arch), moved, renamed
