"""Reuse flags: which operand stays in its latch for a later instruction.

A slot keeps one copy a bank (`tilewright.sass.ports`) until the next read through that latch.  A
flag is set where that read is of the same register and nothing writes the register in between,
which would leave the old value in the latch.

These are the flags that ptxas sets in all kernels looked at; memory instructions do not read
through these latches.  A flag whose copy is lost costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.reschedule.fetch import flagged, op_of
from tilewright.reschedule.values import is_plain_ffma
from tilewright.sass.edit import edit
from tilewright.sass.instruction import Instruction

__all__ = ["settable", "with_flags"]


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
