"""Operand fetch of stretches of instructions, and reuse flags, which make it shorter.

A slot keeps one copy a bank (`tilewright.sass.ports`) until the next read through that latch.  A
reuse flag is set where that read is of the same register and nothing writes the register in
between, which would leave the old value in the latch.

These are the flags that ptxas sets in all kernels looked at; memory instructions do not read
through these latches.  A flag whose copy is lost costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.reschedule.access import access
from tilewright.reschedule.values import is_plain_ffma
from tilewright.sass.edit import edit
from tilewright.sass.instruction import Instruction
from tilewright.sass.pipes import pipe_of
from tilewright.sass.ports import LATCHES, NO_REGISTER, NOTHING, Window, reads_of

__all__ = ["Flags", "Op", "cycles", "flagged", "op_of", "settable", "slow", "with_flags"]

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
    slots, registers, flags = reads_of(one)
    control = one.control
    return Op(
        slots, registers, one.dst, settable, flags, access(one).pure, one.guard.always,
        control.yields, max(1, control.stall), pipe_of(one, arch)[0] == "memory",
    )  # fmt: skip


def flagged(ops: Sequence[Op]) -> list[Flags]:
    """Return reuse flags: set where the next read through a latch is of the same register."""
    following = [NO_REGISTER] * LATCHES
    found: list[Flags] = [()] * len(ops)
    for index in range(len(ops) - 1, -1, -1):
        slots, registers, written, settable, flags, pure, always, yields, _, _ = ops[index]
        for register in written:
            for latch in (register & 1, 2 + (register & 1), 4 + (register & 1)):
                if following[latch] == register:
                    following[latch] = NO_REGISTER
        if yields:
            following = [NO_REGISTER] * LATCHES
        if settable:
            flags = tuple(
                following[2 * slot + (register & 1)] == register
                for slot, register in zip(slots, registers, strict=True)
            )
        found[index] = flags
        if pure:
            for slot, register in zip(slots, registers, strict=True):
                following[2 * slot + (register & 1)] = register if always else NO_REGISTER
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


def _run(ops: Sequence[Op], flags: Sequence[Flags], apart: bool) -> tuple[int, list[int]]:
    window, when = Window(), 0
    for op, keep in zip(ops, flags, strict=True):
        reads = NOTHING if apart and op.memory else (op.slots, op.registers, keep)
        when = window.issue(reads, op.written, when, False, op.yields) + op.stall
    return window.drained(), window.times


def settable(one: Instruction) -> bool:
    """Whether it is an FFMA of four registers that no condition and no barrier of its own binds."""
    return (
        is_plain_ffma(one)
        and one.guard.always
        and all(o.width == 1 for o in one.srcs)
        and bool(one.dst)
        and one.control.write_barrier is None
        and one.control.read_barrier is None
    )


def with_flags(body: Sequence[Instruction], arch: int) -> list[Instruction]:
    """Return a block's instructions with the flags of all that are `settable` set anew."""
    free = [settable(one) for one in body]
    meant = flagged([op_of(one, may, arch) for one, may in zip(body, free, strict=True)])
    return [
        edit(one, arch, reuse=(flags[0], flags[1], flags[2])) if may else one
        for one, may, flags in zip(body, free, meant, strict=True)
    ]
