"""Reschedule the main loop of a compiled kernel.

Three changes, one after the other, in each block of the loop that is worth it:

1. *Serpentine order* (`serpentine`): multiply-adds there and back over the register tile, with
   accumulators in the banks that this order leaves free.  ``ahead`` also moves shared loads ahead
   of their readers, to registers of their own, where the cycle model prefers that.
2. *Order* (`order`): near a conflict of operand fetch, exchange multiply-adds, or the factors of
   one, if that takes cycles away.
3. *Reuse flags*: set where the next read through a latch is of the same register.

A change that the cycle model sees no gain in is not made.  The search is local, by
`tilewright.sass.Ports`, and gives the same code each time.  Whoever uses it has `differences`
decide whether it computes the same (`cubin`); what that cannot prove is refused.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tilewright.reschedule.dependencies import Block, blocks, dependencies
from tilewright.reschedule.order import Order
from tilewright.reschedule.serpentine import Surroundings, serpentine
from tilewright.sass.edit import RefusedError
from tilewright.sass.instruction import Instruction
from tilewright.sass.loops import Loop, is_useful
from tilewright.sass.machine import Machine, machine_of
from tilewright.sass.simulate import simulate
from tilewright.sass.trace import k_loop, steady_trace

__all__ = ["Scheduled", "schedule"]

_FFMA = 0x223  # all operands in registers
_LEAST = 32  # FFMAs of a block worth a search for their order and registers
_FEW = 8  # multiply-adds of a block worth anything
# Products by which loads come ahead of their readers: they take some 30 cycles, and two warps of a
# scheduler alternate; farther ahead they need more registers.
_AHEAD = (8, 24)
# Blocks and warps of each: how warps meet moves the simulation by a per cent either way, so that
# one of them alone would be chance.
_RESIDENT = ((1, 4), (1, 8), (2, 4))
_SEED = 0  # of the search; proofs and kept code are of this one


@dataclass(frozen=True)
class Scheduled:
    """A rescheduled kernel.

    Parameters
    ----------
    instructions : tuple of Instruction
        The whole kernel, as long as before.
    moved, swapped : int
        Multiply-adds in another place, and with their factors exchanged.
    renamed : int
        Live ranges in another register.
    refused : dict
        Start address of each block of the loop that was left alone, and why.
    """

    instructions: tuple[Instruction, ...]
    moved: int
    swapped: int
    renamed: int
    refused: dict[int, str] = field(default_factory=dict)


def schedule(
    instructions: Sequence[Instruction],
    loop: Loop,
    arch: int,
    *,
    ahead: bool = False,
    rounds: int = 3,
) -> Scheduled:
    """Return a kernel whose main loop is rescheduled, not yet proved to be the same.

    Parameters
    ----------
    instructions : sequence of Instruction
        The whole kernel.
    loop : Loop
        Its main loop.
    arch : int
        Architecture number; 90 is the only one whose latencies are known.
    ahead : bool
        Whether shared loads may move ahead of their readers.
    rounds : int
        How often the search goes over all conflicts.

    Raises
    ------
    RefusedError
        If the architecture is another one, or no block can be rescheduled.
    """
    made = _Made(list(instructions), loop, arch, machine_of(arch))
    if not made.blocks:
        why = next(iter(made.refused.values()), f"no block has {_FEW} multiply-adds")
        raise RefusedError(f"nothing was rescheduled: {why}")
    if made.searched:
        made.walk((None, *_AHEAD) if ahead else (None,))
    made.reorder(random.Random(_SEED), rounds)  # noqa: S311
    return Scheduled(tuple(made.code), made.moved, made.swapped, made.renamed, made.refused)


class _Made:
    """A kernel while it is rescheduled."""

    def __init__(self, code: list[Instruction], loop: Loop, arch: int, machine: Machine) -> None:
        self.code, self.loop, self.arch = code, loop, arch
        # Every order of the same instructions has as many wide reads, so their cost is left out:
        # that it was found (after version 5) changes no kernel, and proofs of them hold.
        self.machine = replace(machine, wide_read=0.0)
        self.apart = machine.memory_apart
        self.refused: dict[int, str] = {}
        self.blocks: list[Block] = []
        self.searched = False
        self.moved = self.swapped = self.renamed = 0
        for block in blocks(code):
            body = code[block.start : block.stop]
            if not loop.start <= body[0].address <= loop.end:
                continue
            if sum(is_useful(one) for one in body) < _FEW:
                continue
            try:
                dependencies(body, arch)
            except RefusedError as error:
                self.refused[body[0].address] = str(error)
                continue
            self.blocks.append(block)
            self.searched |= sum(one.opcode == _FFMA for one in body) >= _LEAST

    def walk(self, distances: Sequence[int | None]) -> None:
        """Take serpentine order where the simulation is faster with it.

        Parameters
        ----------
        distances : sequence of int or None
            Products by which loads come ahead of their readers, each tried; None: loads stay.
        """
        least = self.cycles(self.code)
        for block in self.blocks:
            around = Surroundings(self.code, block)
            found: tuple[list[Instruction], int, int] | None = None
            reasons: list[str] = []
            for ahead in distances:
                code = list(self.code)
                try:
                    body, moved, renamed = serpentine(around, self.arch, self.apart, ahead)
                except RefusedError as error:
                    reasons.append(str(error))
                    continue
                code[block.start : block.stop] = body
                now = self.cycles(code)
                if now < least:
                    least, found = now, (code, moved, renamed)
            if found is not None:
                self.code = found[0]
                self.moved += found[1]
                self.renamed += found[2]
            elif len(reasons) == len(distances):
                self.refused[self.code[block.start].address] = reasons[0]

    def cycles(self, code: Sequence[Instruction]) -> float:
        """Return the cycles of a trip over k, summed over `_RESIDENT`."""
        first, last = self.loop.start // 16, self.loop.end // 16
        trace = steady_trace(code, k_loop(code, Loop(tuple(code[first : last + 1]))))
        return sum(
            simulate(trace, self.arch, resident, warps, machine=self.machine)
            for resident, warps in _RESIDENT
        )

    def reorder(self, draw: random.Random, rounds: int) -> None:
        """Exchange multiply-adds and their factors, and set reuse flags."""
        for block in self.blocks:
            search = Order(self.code, block, self.arch, self.apart)
            search.improve(draw, rounds)
            self.code[block.start : block.stop] = search.code()
            self.moved += sum(now != was for was, now in enumerate(search.order))
            self.swapped += sum(search.sides)
