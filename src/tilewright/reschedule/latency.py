"""Cycles that an instruction of sm_90 needs between its issue and its result's use.

Each is the least distance that ptxas left between such a pair, followed along every path of the
project's kernels compiled for sm_90a (`hazards` with an observer; its test repeats it): what the
compiler relies on, the hardware keeps.  A pair that was never seen takes the
largest that its producer needs anywhere.  None is a documented number.
"""

from __future__ import annotations

from tilewright.sass.instruction import Instruction

__all__ = ["BARRIER", "GUARD", "after", "needed", "pace"]

UNIFORM_GUARD = 11  # the same for uniform predicates
BARRIER = 2  # from an access that sets a barrier to an instruction that waits for it
GUARD = 13  # from what sets a predicate to an instruction that it guards, or a branch on it

# Producer's class to consumer's class to cycles; "" is any other.
_READ: dict[str, dict[str, int]] = {
    # A pipe's result reaches the next instruction there after four cycles, the other pipe's and
    # memory instructions a cycle later.  IMAD.WIDE reads what it adds to later than the rest.
    "fma": {"fma": 4, "other": 4, "wide": 2, "": 5},
    "alu": {"alu": 4, "engine": 4, "other": 4, "packed": 4, "to uniform": 4, "wide": 3, "": 5},
    "packed": {"": 5},
    "wide": {"alu": 3, "fma": 4, "wide": 4, "": 5},
    "fp64": {"global": 7, "other": 6, "": 8},
    "fp64 set": {"": 6},
    # What the uniform pipe computes; a rescheduled kernel that read it two cycles later, as moves
    # and constants may be, was wrong on an H100.
    "uniform": {
        "uniform": 4,
        "uniform move": 7,
        "alu": 6,
        "fma": 6,
        "engine": 9,
        "other": 9,
        "": 12,
    },
    "uniform move": {"": 2},
    "to uniform": {"": 13},
    "vote": {"uniform": 1, "alu": 1, "": 12},
    "special": {"fma": 8, "fp64": 9, "": 13},
    "elect": {"": 13},
}
# Results must arrive in order.  The low ones are pairs under a predicate and its opposite.
_WRITE: dict[str, dict[str, int]] = {
    "fma": {"fma": 1, "alu": 1, "wide": 2, "": 5},
    "alu": {"alu": 1, "fma": 3, "packed": 1, "wide": 3, "": 5},
    "packed": {"": 1},
    "wide": {"alu": 3, "fma": 4, "wide": 4, "": 5},
    "fp64": {"": 8},
    "fp64 set": {"": 6},
    "uniform": {"uniform": 2, "": 4},
    "uniform move": {"": 2},
    "to uniform": {"": 9},
    "vote": {"": 1},
    "special": {"": 6},
    "elect": {"": 1},
}
# From a reader's issue to that of what overwrites the register: uniform instructions read after
# their issue, and moves and constants write soon after theirs.  ptxas leaves three cycles in many
# kernels and less in none; a rescheduled one with two between USEL and UMOV was wrong on an H100.
# What takes longer to write may follow at once: in the uniform pipe itself, as in two places of
# rescheduled kernels that gave their baselines' bits (ptxas leaves two cycles, its pace);
# R2UR, S2UR and, after two cycles, VOTEU, as ptxas has them.  Everything else reads before any
# result could arrive.
_OVERWRITE = {"uniform": {"uniform": 1, "to uniform": 1, "other": 1, "vote": 2, "": 3}}


def needed(producer: str, consumer: str, how: str) -> int:
    """Return the least cycles from a producer's issue to a consumer's.

    Parameters
    ----------
    producer, consumer : str
        Classes of `tilewright.reschedule.access.CLASSES`.
    how : {"read", "guard", "write", "overwrite"}
        What the consumer does with the result; "overwrite": with what the producer reads.
    """
    if producer == "barrier":
        return BARRIER
    if how == "overwrite":
        after_reads = _OVERWRITE.get(producer, {})
        return after_reads.get(consumer, after_reads.get("", 1))
    if how == "guard" or (consumer == "order" and producer == "alu"):
        return UNIFORM_GUARD if producer == "uniform" else GUARD
    table = (_WRITE if how == "write" else _READ).get(producer, {})
    return table.get(consumer, table.get("", 0))


# Cycles from an instruction to the very next one, where ptxas never leaves just one: by classes,
# and by what it is whatever follows.  Two accesses that are executed are four cycles apart, which
# is how often the memory pipe takes one.
_MEMORY = frozenset(("shared", "global", "generic"))
_ACCESSES = 4
_NEXT = {
    **{(x, y): 2 for x in ("fp64", "fp64 set") for y in ("fp64", "fp64 set")},
    ("special", "special"): 2, ("constant", "constant"): 8,
}  # fmt: skip
_ALWAYS = {
    "DEPBAR": 4, "BSYNC": 5, "BRA": 5, "EXIT": 5, "RET": 5, "CALL": 5, "BREAK": 5, "WARPSYNC": 5,
    "MEMBAR": 6,
}  # fmt: skip


def after(one: Instruction, kind: str, following: Instruction, its: str) -> int:
    """Return the least stall count of an instruction.

    Parameters
    ----------
    one, following : Instruction
        Whose, and the next one.
    kind, its : str
        Their classes.
    """
    if one.guard.never or following.guard.never:
        return 1
    if kind in _MEMORY and its in _MEMORY:
        return _ACCESSES
    return max(_NEXT.get((kind, its), 1), _ALWAYS.get(one.mnemonic, 1))


# From one DMMA to the next: ptxas fills these cycles even where there is nothing to wait for.
_PACE = {"8x8x4": 16, "16x8x4": 16, "16x8x8": 32, "16x8x16": 64}


def pace(one: Instruction) -> int:
    """Return the cycles from an instruction to the next one of its pipe; 0 where none matter."""
    if one.mnemonic != "DMMA" or one.guard.never:
        return 0
    return _PACE.get(one.modifiers[0], max(_PACE.values()))
