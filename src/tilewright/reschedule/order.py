"""Exchange a block's multiply-adds and the sides of their factors, so that fetch waits less.

    slot      0    1    2    3    4    5    6   ...    time and control fields stay with the slot
    before   FFMA FFMA LDS  FFMA FFMA LDS  FFMA        everything else stays in its slot
    after    FFMA'FFMA'LDS  FFMA'FFMA'LDS  FFMA'       multiply-adds change places

A slot keeps its stall, barriers and waits, so that its issue time is known and no wait is lost.  A
multiply-add may stand in a slot that is late enough after its operands' producers, early enough
before its readers, and behind the waits for what it reads (`dependencies`, `released_at`).  Each
accumulator keeps the order of its terms: it is a chain of register dependencies.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tilewright.reschedule.dependencies import Block, dependencies
from tilewright.reschedule.fetch import Flags, Op, cycles, flagged, op_of, settable, slow
from tilewright.reschedule.hazards import released_at
from tilewright.sass.edit import edit
from tilewright.sass.instruction import Instruction

__all__ = ["Order"]

# Slots before a change that set the latches, behind it until fetch is the same again, and behind
# that until reuse flags are.
_BEFORE, _BEHIND, _FLAGS = 8, 14, 12
_REACH = 24  # slots that a multiply-add moves at once
_TRIES = 48  # exchanges tried for one conflict


class Order:
    """One block: which multiply-add stands in which slot, and with its factors on which sides.

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

    Raises
    ------
    RefusedError
        If the block has an instruction that is not modelled.
    """

    def __init__(
        self, kernel: Sequence[Instruction], block: Block, arch: int, apart: bool = False
    ) -> None:
        self.body = kernel[block.start : block.stop]
        self.arch, self.apart = arch, apart
        self.before = dependencies(self.body, arch)
        self.behind: list[list[tuple[int, int]]] = [[] for _ in self.body]
        for index, found in enumerate(self.before):
            for needs in found:
                self.behind[needs.on].append((index, needs.cycles))
        self.free = [at - block.start for at in released_at(kernel, block.start, block.stop)]
        self.times = [0]
        for one in self.body:
            self.times.append(self.times[-1] + max(1, one.control.stall))
        self.order = list(range(len(self.body)))  # slot to instruction
        self.slot = list(range(len(self.body)))  # instruction to slot
        self.sides = [False] * len(self.body)
        self.movable = [settable(one) for one in self.body]
        self.ops = [op_of(one, settable(one), arch) for one in self.body]

    def improve(self, draw: random.Random, rounds: int) -> None:
        """Exchange what takes cycles away, conflict by conflict, until nothing does."""
        for _ in range(rounds):
            conflicts = self.conflicts()
            draw.shuffle(conflicts)
            if not sum(self.mend(at, draw) for at in conflicts):
                return

    def conflicts(self) -> list[int]:
        """Return the slots that dispatch later than a cycle after the one before."""
        ops = self.stretch(0, len(self.body))
        return slow(ops, flagged(ops), self.apart)

    def mend(self, at: int, draw: random.Random) -> int:
        """Try changes around a conflict; keep the first that takes cycles away."""
        lo, hi = max(0, at - 3), min(len(self.body), at + 3)
        places = [s for s in range(lo, hi) if self.movable[self.order[s]]]
        reach = range(max(0, at - _REACH), min(len(self.body), at + _REACH))
        others = [s for s in reach if self.movable[self.order[s]]]
        pairs = [(s, o) for s in places for o in others if s != o]
        draw.shuffle(pairs)
        moves = [(s, s) for s in places]
        moves += [pair for pair in pairs if self.allowed(*pair)][:_TRIES]
        for one, other in moves:
            cost = self.near(one, other)
            self.change(one, other)
            if self.near(one, other) < cost:
                return 1
            self.change(one, other)
        return 0

    def change(self, one: int, other: int) -> None:
        """Exchange two slots' multiply-adds, or one's factors; twice is nothing."""
        if one == other:
            self.sides[self.order[one]] ^= True
            return
        x, y = self.order[one], self.order[other]
        self.order[one], self.order[other] = y, x
        self.slot[x], self.slot[y] = other, one

    def allowed(self, one: int, other: int) -> bool:
        """Whether dependencies let two slots' multiply-adds change places."""
        if one == other:
            return True
        x, y = self.order[one], self.order[other]
        self.change(one, other)
        fits = self.fits(x) and self.fits(y)
        self.change(one, other)
        return fits

    def fits(self, x: int) -> bool:
        """Whether an instruction may stand where it is."""
        at, times, slot = self.slot[x], self.times, self.slot
        return (
            at >= self.free[x]
            and all(times[at] - times[slot[d.on]] >= d.cycles for d in self.before[x])
            and all(times[slot[y]] - times[at] >= cycles for y, cycles in self.behind[x])
        )

    def near(self, one: int, other: int) -> int:
        """Return the cycles that the neighbourhoods of two slots take to fetch their operands."""
        low, high = min(one, other), max(one, other)
        if high - low <= _BEFORE + _BEHIND:
            return self.cost(low - _BEFORE, high + _BEHIND)
        return self.cost(low - _BEFORE, low + _BEHIND) + self.cost(high - _BEFORE, high + _BEHIND)

    def cost(self, first: int, last: int) -> int:
        """Return the cycles that a part of the block takes to fetch its operands."""
        first, last = max(0, first), min(len(self.body), last)
        ops = self.stretch(first, min(len(self.body), last + _FLAGS))
        flags = flagged(ops)
        return cycles(ops[: last - first], flags[: last - first], self.apart)

    def stretch(self, first: int, last: int) -> list[Op]:
        """Return what stands in some slots, as operand fetch sees it."""
        found = []
        for at in range(first, last):
            index = self.order[at]
            op = self.ops[index]
            if index != at or self.sides[index]:
                place = self.ops[at]
                a, b, c = op.registers if self.movable[index] else (0, 0, 0)
                swapped = (b, a, c) if self.sides[index] else op.registers
                op = op._replace(registers=swapped, yields=place.yields, stall=place.stall)
            found.append(op)
        return found

    def code(self) -> list[Instruction]:
        """Return the block's instructions as they are to be written, with their reuse flags."""
        ops = self.stretch(0, len(self.body))
        return [self._written(at, ops[at], flags) for at, flags in enumerate(flagged(ops))]

    def _written(self, at: int, op: Op, flags: Flags) -> Instruction:
        one, control = self.body[self.order[at]], self.body[at].control
        if not op.settable:
            return one
        a, b, _ = op.registers
        return edit(
            one, self.arch, address=self.body[at].address, a=a, b=b,
            reuse=(flags[0], flags[1], flags[2]), stall=control.stall, yields=control.yields,
            wait_mask=control.wait_mask,
        )  # fmt: skip
