"""Operand fetch on tuples of numbers, fast enough for tens of thousands of calls a search.

`cycles` is `tilewright.sass.Ports` for one warp on tuples instead of decoded instructions; a test
holds both against each other.  Latches are numbered 2 * slot + bank.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from tilewright.reschedule.access import access
from tilewright.sass.instruction import Instruction
from tilewright.sass.pipes import pipe_of
from tilewright.sass.ports import WINDOW, WRITES

__all__ = ["Flags", "Op", "cycles", "flagged", "op_of", "slow"]

LATCHES = 6
_NONE = -1
Flags = tuple[bool, ...]


class Op(NamedTuple):
    """What operand fetch needs to know of an instruction.

    Parameters
    ----------
    slots, registers : tuple of int
        Each register read, and the slot it is read through.
    written : tuple of int
        Registers written.
    settable : bool
        Whether its reuse flags may be set anew.
    flags : tuple of bool
        Its reuse flags, one for each of `registers`.
    pure, always, yields : bool
        Whether reuse may count on its reads, whether it is without condition,
        and whether it advises the scheduler to turn to another warp.
    stall : int
        Cycles until the next one, at least 1.
    memory : bool
        Whether it goes to the memory pipe.
    """

    slots: tuple[int, ...]
    registers: tuple[int, ...]
    written: tuple[int, ...]
    settable: bool
    flags: Flags
    pure: bool
    always: bool
    yields: bool
    stall: int
    memory: bool


def op_of(one: Instruction, settable: bool, arch: int = 90) -> Op:
    """Return an instruction as operand fetch sees it."""
    slots = tuple("ABC".index(o.slot) for o in one.srcs for _ in o.registers)
    registers = tuple(r for o in one.srcs for r in o.registers)
    flags = tuple(o.reuse for o in one.srcs for _ in o.registers)
    control = one.control
    return Op(
        slots, registers, one.dst, settable, flags, access(one).pure, one.guard.always,
        control.yields, max(1, control.stall), pipe_of(one, arch)[0] == "memory",
    )  # fmt: skip


def flagged(ops: Sequence[Op]) -> list[Flags]:
    """Return reuse flags: set where the next read through a latch is of the same register."""
    following = [_NONE] * LATCHES
    found: list[Flags] = [()] * len(ops)
    for index in range(len(ops) - 1, -1, -1):
        slots, registers, written, settable, flags, pure, always, yields, _, _ = ops[index]
        for register in written:
            for latch in (register & 1, 2 + (register & 1), 4 + (register & 1)):
                if following[latch] == register:
                    following[latch] = _NONE
        if yields:
            following = [_NONE] * LATCHES
        if settable:
            flags = tuple(
                following[2 * slot + (register & 1)] == register
                for slot, register in zip(slots, registers, strict=True)
            )
        found[index] = flags
        if pure:
            for slot, register in zip(slots, registers, strict=True):
                following[2 * slot + (register & 1)] = register if always else _NONE
    return found


def cycles(ops: Sequence[Op], flags: Sequence[Flags], apart: bool = False) -> int:
    """Return the cycles that a stretch takes to issue and to fetch its operands.

    Parameters
    ----------
    ops : sequence of Op
        In order.
    flags : sequence of tuple of bool
        Of each of them.
    apart : bool
        Whether memory instructions leave the operands' latches alone.
    """
    return _run(ops, flags, apart)[0]


def slow(ops: Sequence[Op], flags: Sequence[Flags], apart: bool = False) -> list[int]:
    """Return which instructions dispatch later than a cycle after the one before."""
    times = _run(ops, flags, apart)[1]
    return [i for i in range(1, len(times)) if times[i] - times[i - 1] > 1]


class _Window:
    """The instructions that read their operands, and what their dispatch will drop."""

    def __init__(self) -> None:
        self.waiting: list[tuple[tuple[list[int], list[int]], int, tuple[int, ...]]] = []
        self.cycle = 0
        self.written: deque[tuple[int, tuple[int, ...]]] = deque()
        self.times: list[int] = []

    def tick(self) -> None:
        """Serve each bank once, then dispatch the oldest instruction if it has all it needs."""
        waiting = self.waiting
        for bank in (0, 1):
            taken = 0
            for pending, latches, _ in waiting:
                mine = pending[bank]
                served = False
                for place, through in enumerate(mine):
                    if not through & taken:
                        del mine[place]
                        served = True
                        break
                if served:
                    break
                taken |= latches
        (even, odd), _, written = waiting[0]
        if not even and not odd:
            self.times.append(self.cycle)
            if written:
                self.written.append((self.cycle, written))
            del waiting[0]
        self.cycle += 1

    def drop_written(self, kept: list[int]) -> None:
        """Forget kept copies of registers whose new value has arrived by now."""
        written = self.written
        while written and written[0][0] + WRITES[0] <= self.cycle:
            when, registers = written[0]
            for latch in range(LATCHES):
                if kept[latch] in registers:
                    kept[latch] = _NONE
            if self.cycle < when + WRITES[1]:
                return
            written.popleft()


def _run(ops: Sequence[Op], flags: Sequence[Flags], apart: bool) -> tuple[int, list[int]]:
    window, kept, when = _Window(), [_NONE] * LATCHES, 0
    waiting = window.waiting
    for op, keep in zip(ops, flags, strict=True):
        while window.cycle < when and waiting:
            window.tick()
        if window.cycle < when:
            window.cycle = when
        while len(waiting) >= WINDOW:
            window.tick()
        if window.written:
            window.drop_written(kept)
        reads = not (apart and op.memory)
        waiting.append(_looked_up(op, keep, kept) if reads else (([], []), 0, op.written))
        if op.yields:
            kept[:] = [_NONE] * LATCHES
        when = window.cycle + op.stall
    while waiting:
        window.tick()
    return window.cycle, window.times


def _looked_up(
    op: Op, flags: Flags, kept: list[int]
) -> tuple[tuple[list[int], list[int]], int, tuple[int, ...]]:
    """Look operands up in the latches; keep what is flagged, forget what is read over."""
    wanted: dict[int, int] = {}
    latches, missing = 0, set()
    for slot, register in zip(op.slots, op.registers, strict=True):
        latch = 2 * slot + (register & 1)
        latches |= 1 << latch
        wanted[register] = wanted.get(register, 0) | 1 << latch
        if kept[latch] != register:
            missing.add(register)
    for slot, register, keep in zip(op.slots, op.registers, flags, strict=True):
        kept[2 * slot + (register & 1)] = register if keep else _NONE
    pending: tuple[list[int], list[int]] = ([], [])
    for register, through in wanted.items():
        if register in missing:
            pending[register & 1].append(through)
    return pending, latches, op.written
