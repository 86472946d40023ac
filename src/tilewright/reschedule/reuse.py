"""Reuse flags: which operand stays in its latch for a later instruction.

A slot keeps one copy a bank (`tilewright.sass.ports`) until the next read through that latch.  A
flag is set where that read is of the same register and nothing writes the register in between,
which would leave the old value in the latch.

`with_reuse` sets the flags that ptxas sets in all kernels looked at; memory instructions do not
read through these latches.  A flag whose copy is lost costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.reschedule.access import access
from tilewright.reschedule.values import is_plain_ffma
from tilewright.sass.edit import edit
from tilewright.sass.instruction import Instruction

__all__ = ["settable", "with_flags", "with_reuse"]


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


def with_reuse(body: Sequence[Instruction], settable: Sequence[bool]) -> list[Instruction]:
    """Return a block's instructions with the flags of some of them set anew.

    Parameters
    ----------
    body : sequence of Instruction
        In the order of execution.
    settable : sequence of bool
        Whose flags to set; the others' stay as they are.
    """
    following: dict[tuple[str, int], int | None] = {}  # the next read through each latch
    made = list(body)
    for index in range(len(body) - 1, -1, -1):
        one = body[index]
        for latch, register in following.items():
            if register in one.dst:
                following[latch] = None
        if one.control.yields:
            following.clear()  # turning to another warp loses every copy
        if settable[index]:
            srcs = tuple(
                replace(o, reuse=o.width == 1 and following.get((o.slot, o.value % 2)) == o.value)
                for o in one.srcs
            )
            made[index] = replace(one, srcs=srcs)
        for operand in one.srcs if access(one).pure else ():
            for register in operand.registers:
                # What may not be executed may not read: no flag counts on it.
                reads = register if one.guard.always else None
                following[operand.slot, register % 2] = reads
    return made


def with_flags(body: Sequence[Instruction], arch: int) -> list[Instruction]:
    """Return a block's instructions with the flags of all that are `settable` written anew."""
    meant = with_reuse(body, [settable(one) for one in body])
    return [
        one if not settable(one) else edit(one, arch, reuse=_flags(new))
        for one, new in zip(body, meant, strict=True)
    ]


def _flags(one: Instruction) -> tuple[bool, bool, bool]:
    return (one.srcs[0].reuse, one.srcs[1].reuse, one.srcs[2].reuse)
