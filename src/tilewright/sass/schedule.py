"""Reschedule the main loop of a compiled kernel, and prove that it still computes the same.

The steps, each for itself or together, in this order:

banks      give sums other registers, in the banks that are free when they are read (`banks`)
loads      move shared loads and copies apart and ahead of their readers (`placement`)
stalls     let every instruction wait no longer than the next ones need (`stalls`)
reuse      set the reuse flags anew: where the next read through a latch is of the same register
operands   exchange the factors of a product, so that the latch holds what comes again
walk       walk them there and back over the tile, with sums in the banks that this wants (`walk`)
ahead      the same, with reads of shared memory ahead of that order, to registers of their own
order      exchange multiply-adds near a conflict of operand fetch, if that takes cycles away
spread     move shared loads and copies apart even where the model sees no gain in it
yields     let no instruction of the loop advise the scheduler to turn to another warp

The search is local, by `tilewright.sass.Ports`, and the same for the same seed.  A step that the
cycle model sees no gain in changes nothing.  Whether the code is still right is asked of
`tilewright.sass.equivalence`, which refuses what it cannot prove.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tilewright.sass.banks import with_banks
from tilewright.sass.dependencies import Block, RefusedError, blocks, dependencies
from tilewright.sass.equivalence import differences
from tilewright.sass.instruction import Instruction
from tilewright.sass.loops import Loop, is_useful
from tilewright.sass.machine import Machine, machine_of
from tilewright.sass.order import Order
from tilewright.sass.placement import loop_cycles, with_loads
from tilewright.sass.stalls import with_stalls, without_yields
from tilewright.sass.walk import walked

__all__ = ["EVERY_STEP", "STEPS", "Scheduled", "schedule"]

STEPS = ("reuse", "operands", "order", "banks", "loads", "stalls")
"""The steps that are taken unless others are asked for."""
# What the model cannot judge, to be measured: how loads wait, and several warps that yield.  And
# what takes the place of `banks`.
EVERY_STEP = (*STEPS, "spread", "yields", "walk", "ahead")
_FFMA = 0x223  # all operands in registers
_LEAST = 32  # FFMAs of a block worth a search for their order and registers
_FEW = 8  # multiply-adds of a block worth anything
# Products by which loads come ahead of their readers: they take some 30 cycles, and two warps of a
# scheduler take turns; farther ahead they need more registers.
_AHEAD = (8, 24)


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
    renamed, placed, restalled : int
        Live ranges in another register, accesses in another place, and
        instructions with another stall count.
    """

    instructions: tuple[Instruction, ...]
    moved: int
    swapped: int
    refused: dict[int, str] = field(default_factory=dict)
    renamed: int = 0
    placed: int = 0
    restalled: int = 0


def schedule(
    instructions: Sequence[Instruction],
    loop: Loop,
    arch: int,
    *,
    steps: Iterable[str] = STEPS,
    seed: int = 0,
    rounds: int = 3,
    machine: Machine | None = None,
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
        Some of `EVERY_STEP`.
    seed : int
        Of the search; the same one gives the same code.
    rounds : int
        How often the search goes over all conflicts.
    machine : Machine, optional
        The model's constants.

    Raises
    ------
    ValueError
        If a step is unknown.
    RefusedError
        If the architecture is another one, no block can be rescheduled, or the
        result could not be proved to be the same.
    """
    wanted = frozenset(steps)
    if unknown := wanted - set(EVERY_STEP):
        raise ValueError(f"steps={sorted(unknown)[0]!r} is no step; give some of {EVERY_STEP}")
    made = _Made(list(instructions), loop, arch, machine or machine_of(arch))
    if not made.blocks:
        why = next(iter(made.refused.values()), f"no block has {_FEW} multiply-adds")
        raise RefusedError(f"nothing was rescheduled: {why}")
    made.take(wanted, random.Random(seed), rounds)  # noqa: S311
    if wrong := differences(instructions, made.code, arch):
        raise RefusedError(f"the rescheduled loop is not proved to be the same: {wrong[0]}")
    return Scheduled(
        tuple(made.code), made.moved, made.swapped, made.refused, made.renamed, made.placed,
        made.restalled,
    )  # fmt: skip


class _Made:
    """A kernel on its way through the steps."""

    def __init__(self, code: list[Instruction], loop: Loop, arch: int, machine: Machine) -> None:
        self.code, self.loop, self.arch = code, loop, arch
        # Every order of the same instructions has as many wide reads, so their cost is left out:
        # that it was found (after version 5) changes no kernel, and proofs of them hold.
        self.machine = replace(machine, wide_read=0.0)
        self.apart = machine.memory_apart
        self.refused: dict[int, str] = {}
        self.blocks: list[Block] = []
        self.spans: list[Block] = []
        self.searched = False
        self.moved = self.swapped = self.renamed = self.placed = self.restalled = 0
        for block in blocks(code):
            body = code[block.start : block.stop]
            if not loop.start <= body[0].address <= loop.end:
                continue
            self.spans.append(block)
            if sum(is_useful(one) for one in body) < _FEW:
                continue
            try:
                dependencies(body, arch)
            except RefusedError as error:
                self.refused[body[0].address] = str(error)
                continue
            self.blocks.append(block)
            self.searched |= sum(one.opcode == _FFMA for one in body) >= _LEAST

    def take(self, steps: frozenset[str], draw: random.Random, rounds: int) -> None:
        """Take the steps, one behind the other."""
        if "banks" in steps and self.searched:
            self.rename(draw, rounds)
        if "walk" in steps and self.searched:
            self.walk((None,))
        elif "ahead" in steps and self.searched:
            self.walk((None, *_AHEAD))
        if steps & {"loads", "spread"}:
            self.place("spread" in steps)
        if "stalls" in steps:
            self.restall()
        if "yields" in steps:
            self.code = without_yields(self.code, self.spans, self.arch)
        if steps & {"reuse", "operands", "order"}:
            self.reorder(steps, draw, rounds)

    def rename(self, draw: random.Random, rounds: int) -> None:
        """Give sums other registers, where nothing in the kernel stands against it."""
        try:
            self.code, self.renamed = with_banks(
                self.code, self.spans, self.arch, draw, rounds, self.apart
            )
        except RefusedError as error:
            self.refused[self.code[self.spans[0].start].address] = str(error)

    def walk(self, ways: Sequence[int | None]) -> None:
        """Walk multiply-adds there and back, the way that the simulation finds fastest, if any."""
        for block in self.blocks:
            least = loop_cycles(self.code, self.loop, self.arch, self.machine)
            found: tuple[list[Instruction], int, int] | None = None
            reasons: list[str] = []
            for ahead in ways:
                code = list(self.code)
                try:
                    body, moved, renamed = walked(self.code, block, self.arch, self.apart, ahead)
                except RefusedError as error:
                    reasons.append(str(error))
                    continue
                code[block.start : block.stop] = body
                now = loop_cycles(code, self.loop, self.arch, self.machine)
                if now < least:
                    least, found = now, (code, moved, renamed)
            if found is not None:
                self.code = found[0]
                self.moved += found[1]
                self.renamed += found[2]
            elif len(reasons) == len(ways):
                self.refused[self.code[block.start].address] = reasons[0]

    def place(self, whatever: bool) -> None:
        """Move loads and copies; whatever the model says of it if so asked."""
        for block in self.blocks:
            body, count = with_loads(self.code, block, self.loop, self.arch, self.machine, whatever)
            self.code[block.start : block.stop] = body
            self.placed += count

    def restall(self) -> None:
        """Set stall counts anew."""
        for block in self.blocks:
            body, count = with_stalls(self.code, block, self.arch)
            self.code[block.start : block.stop] = body
            self.restalled += count

    def reorder(self, steps: frozenset[str], draw: random.Random, rounds: int) -> None:
        """Exchange multiply-adds and their factors, and set reuse flags."""
        for block in self.blocks:
            search = Order(self.code, block, self.arch, self.apart)
            search.improve(steps, draw, rounds)
            self.code[block.start : block.stop] = search.code()
            self.moved += sum(now != was for was, now in enumerate(search.order))
            self.swapped += sum(search.sides)
