"""Reorder the multiply-adds of a main loop, so that their operands are fetched without waiting.

    slot      0    1    2    3    4    5    6   ...    time and control fields stay with the slot
    before   FFMA FFMA LDS  FFMA FFMA LDS  FFMA        everything else stays in its slot
    after    FFMA'FFMA'LDS  FFMA'FFMA'LDS  FFMA'       multiply-adds change places

A slot keeps its stall, barriers and waits, so that a slot's time is known and no wait is lost; what
a multiply-add needs is that its operands' producers are early enough, its readers late enough, and
that it stays behind the waits for what it reads (`tilewright.sass.dependencies`, `released_at`).
Sums keep the order in which they are added up: each is a chain of register dependencies.

The steps, each for itself or together:

reuse      set the reuse flags anew: where the next read through a latch is of the same register
operands   exchange the factors of a product, so that the latch holds what comes again
order      exchange multiply-adds near a conflict of operand fetch, if that takes cycles away

The search is local, by `tilewright.sass.Ports`, and the same for the same seed.  Whether the code
got faster is asked of `tilewright.sass.simulate`, whether it is still right of
`tilewright.sass.equivalence`, which refuses what it cannot prove.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tilewright.sass.dependencies import Block, RefusedError, blocks, dependencies
from tilewright.sass.edit import edit
from tilewright.sass.equivalence import differences
from tilewright.sass.hazards import released_at
from tilewright.sass.instruction import Instruction, Operand
from tilewright.sass.loops import Loop
from tilewright.sass.ports import Ports
from tilewright.sass.reuse import with_reuse

__all__ = ["STEPS", "Scheduled", "schedule"]

STEPS = ("reuse", "operands", "order")
_FFMA = 0x223  # all operands in registers
_SIGNS = 1 << 63 | 1 << 62 | 1 << 73 | 1 << 72
_LEAST = 32  # multiply-adds of a block worth the search
# Slots before a change that set the latches, and behind it until fetch is the same again.
_BEFORE, _BEHIND = 10, 20
_REACH = 24  # slots that a multiply-add moves at once


@dataclass(frozen=True)
class Scheduled:
    """A rescheduled kernel.

    Parameters
    ----------
    instructions : tuple of Instruction
        The whole kernel, as long as before.
    moved, swapped : int
        Multiply-adds in another place, and with their factors exchanged.
    refused : dict
        Start address of each block of the loop that was left alone, and why.
    """

    instructions: tuple[Instruction, ...]
    moved: int
    swapped: int
    refused: dict[int, str] = field(default_factory=dict)


def schedule(
    instructions: Sequence[Instruction],
    loop: Loop,
    arch: int,
    *,
    steps: Iterable[str] = STEPS,
    seed: int = 0,
    rounds: int = 3,
) -> Scheduled:
    """Return a kernel whose main loop is rescheduled.

    Parameters
    ----------
    instructions : sequence of Instruction
        The whole kernel.
    loop : Loop
        Its main loop.
    arch : int
        Architecture number; 90 is the only one whose latencies are known.
    steps : iterable of str
        Some of `STEPS`.
    seed : int
        Of the search; the same one gives the same code.
    rounds : int
        How often the search goes over all conflicts.

    Raises
    ------
    ValueError
        If a step is unknown.
    RefusedError
        If the architecture is another one, no block can be rescheduled, or the
        result could not be proved to be the same.
    """
    wanted = frozenset(steps)
    if unknown := wanted - set(STEPS):
        raise ValueError(f"steps={sorted(unknown)[0]!r} is no step; give some of {STEPS}")
    made = list(instructions)
    refused: dict[int, str] = {}
    moved = swapped = worked = 0
    for block in blocks(instructions):
        body = instructions[block.start : block.stop]
        inside = loop.start <= body[0].address <= loop.end
        if not inside or sum(one.opcode == _FFMA for one in body) < _LEAST:
            continue
        try:
            search = _Search(instructions, block, arch)
        except RefusedError as error:
            refused[body[0].address] = str(error)
            continue
        search.improve(wanted, random.Random(seed), rounds)  # noqa: S311
        made[block.start : block.stop] = search.code()
        moved += sum(now != was for was, now in enumerate(search.order))
        swapped += sum(search.sides)
        worked += 1
    if not worked:
        why = next(iter(refused.values()), f"no block has {_LEAST} multiply-adds")
        raise RefusedError(f"nothing was rescheduled: {why}")
    if wrong := differences(instructions, made, arch):
        raise RefusedError(f"the rescheduled loop is not proved to be the same: {wrong[0]}")
    return Scheduled(tuple(made), moved, swapped, refused)


class _Search:
    """One block: which multiply-add stands in which slot, and with its factors on which sides."""

    def __init__(self, kernel: Sequence[Instruction], block: Block, arch: int) -> None:
        self.body = kernel[block.start : block.stop]
        self.arch = arch
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
        self.movable = [_is_plain(one) for one in self.body]
        self.keep_flags = True

    def improve(self, steps: frozenset[str], draw: random.Random, rounds: int) -> None:
        """Take the steps; each change that costs no cycle less is taken back."""
        self.keep_flags = not steps
        if "operands" not in steps and "order" not in steps:
            return
        for _ in range(rounds):
            conflicts = self.conflicts()
            draw.shuffle(conflicts)
            gained = sum(self.mend(at, steps, draw) for at in conflicts)
            if not gained:
                return

    def conflicts(self) -> list[int]:
        """Return the slots that dispatch later than a cycle after the one before."""
        ports, last, found, dispatched = Ports(), -1, [], -1
        fetches = []
        for at, one in enumerate(self.light(0, len(self.body))):
            last = ports.issue(one, last + 1)
            fetches.append((at, ports.newest))
        ports.drained()
        for at, fetch in fetches:
            if fetch.dispatched - dispatched > 1 and at:
                found.append(at)
            dispatched = fetch.dispatched
        return found

    def mend(self, at: int, steps: frozenset[str], draw: random.Random) -> int:
        """Try changes around a conflict; keep the first that takes cycles away."""
        lo, hi = max(0, at - 3), min(len(self.body), at + 3)
        places = [s for s in range(lo, hi) if self.movable[self.order[s]]]
        moves: list[tuple[int, int]] = []
        if "operands" in steps:
            moves += [(s, s) for s in places]
        if "order" in steps:
            reach = range(max(0, at - _REACH), min(len(self.body), at + _REACH))
            others = [s for s in reach if self.movable[self.order[s]]]
            pairs = [(s, o) for s in places for o in others if s != o]
            draw.shuffle(pairs)
            moves += pairs
        for one, other in moves:
            if not self.allowed(one, other):
                continue
            first, last = min(one, other) - _BEFORE, max(one, other) + _BEHIND
            cost = self.cost(first, last)
            self.change(one, other)
            if self.cost(first, last) < cost:
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

    def cost(self, first: int, last: int) -> int:
        """Return the cycles that a part of the block takes to fetch its operands."""
        ports, now = Ports(), 0
        for one in self.light(max(0, first), min(len(self.body), last)):
            now = ports.issue(one, now) + max(1, one.control.stall)
        return ports.drained()

    def light(self, first: int, last: int) -> list[Instruction]:
        """Return what stands in some slots, good for `Ports`: operands and flags, not bits."""
        found = []
        for at in range(first, last):
            index = self.order[at]
            one, place = self.body[index], self.body[at]
            srcs = _exchanged(one.srcs) if self.sides[index] else one.srcs
            found.append(replace(one, srcs=srcs, control=place.control))
        return found if self.keep_flags else with_reuse(found, self.movable_slots(first, last))

    def movable_slots(self, first: int, last: int) -> list[bool]:
        """Whether each of some slots holds a multiply-add whose flags may be set."""
        return [self.movable[self.order[at]] for at in range(first, last)]

    def code(self) -> list[Instruction]:
        """Return the block's instructions as they are to be written."""
        made = []
        for at, meant in enumerate(self.light(0, len(self.body))):
            index = self.order[at]
            one, control = self.body[index], self.body[at].control
            if not self.movable[index]:
                made.append(one)
                continue
            values = {o.slot.lower(): o.value for o in meant.srcs}
            made.append(
                edit(
                    one, self.arch, address=self.body[at].address, a=values["a"], b=values["b"],
                    reuse=_flags(meant), stall=control.stall, yields=control.yields,
                    wait_mask=control.wait_mask,
                )
            )  # fmt: skip
        return made


def _is_plain(one: Instruction) -> bool:
    """Whether it is an FFMA of four registers that no condition and no barrier of its own binds."""
    return (
        one.opcode == _FFMA
        and one.guard.always
        and not one.raw & _SIGNS
        and len(one.srcs) == 3
        and all(o.width == 1 for o in one.srcs)
        and bool(one.dst)
        and one.control.write_barrier is None
        and one.control.read_barrier is None
    )


def _exchanged(srcs: tuple[Operand, ...]) -> tuple[Operand, ...]:
    a, b, c = srcs
    return replace(b, slot="A"), replace(a, slot="B"), c


def _flags(one: Instruction) -> tuple[bool, bool, bool]:
    return (one.srcs[0].reuse, one.srcs[1].reuse, one.srcs[2].reuse)
