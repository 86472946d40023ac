"""Where control goes: successors of each instruction, and registers live before it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.sass.decode import INSTRUCTION_BYTES
from tilewright.sass.instruction import Instruction

__all__ = ["goes_on", "live_before", "register_bits", "successors"]

# Behind these, without a condition, no instruction follows.
_LEAVE = frozenset(("EXIT", "RET", "BRA"))


def successors(instructions: Sequence[Instruction]) -> list[tuple[int, ...]]:
    """Return, for each instruction, the indices of those that may follow it.

    Calls are taken to come back; a branch through a register has no known
    successor.  Targets outside the kernel are dropped.
    """
    count = len(instructions)
    found: list[tuple[int, ...]] = [(following,) for following in range(1, count + 1)]
    found[-1:] = [()] * bool(count)
    for index, instruction in enumerate(instructions):
        if instruction.mnemonic not in _LEAVE:
            continue
        after = [index + 1] if goes_on(instruction) else []
        if instruction.mnemonic == "BRA" and instruction.target is not None:
            after.append(instruction.target // INSTRUCTION_BYTES)
        found[index] = tuple(i for i in after if 0 <= i < count)
    return found


def goes_on(instruction: Instruction) -> bool:
    """Whether the next instruction may run behind it."""
    if instruction.mnemonic not in _LEAVE:
        return True
    # BRA.U takes its condition from a source operand, not from the guard.
    return not instruction.guard.always or _has_condition(instruction)


def _has_condition(instruction: Instruction) -> bool:
    """Whether a branch has a condition besides its guard: [89:87] other than PT, or !PT.

    BRA.U (opcode 0x547) keeps a uniform predicate at [26:24] with its negation at [27]; BRA.DIV and
    BRA.CONV, whose [91] is set, ask whether the warp's lanes are together.
    """
    if instruction.mnemonic != "BRA":
        return False
    raw = instruction.raw
    if instruction.opcode == 0x547 or raw >> 91 & 1:
        return True
    return (raw >> 87 & 0xF) != 7


def live_before(instructions: Sequence[Instruction]) -> list[frozenset[int]]:
    """Return the registers whose value is still needed just before each instruction.

    The usual backward fixed point over `successors`.  A write under a
    predicate does not end the old value's life, because it may not happen.
    """
    after = successors(instructions)
    reads = [register_bits(i.reads) if not i.guard.never else 0 for i in instructions]
    kills = [register_bits(i.dst) if i.guard.always else 0 for i in instructions]
    live = [0] * len(instructions)
    changed = True
    while changed:
        changed = False
        for index in range(len(instructions) - 1, -1, -1):
            out = 0
            for following in after[index]:
                out |= live[following]
            value = reads[index] | (out & ~kills[index])
            if value != live[index]:
                live[index] = value
                changed = True
    return [frozenset(i for i in range(one.bit_length()) if one >> i & 1) for one in live]


def register_bits(registers: Iterable[int]) -> int:
    """Return registers as bits of a number."""
    mask = 0
    for register in registers:
        mask |= 1 << register
    return mask
