"""What instructions compute, with symbols for values: a register's value is a number.

Equal numbers mean equal values within one execution of a block: a value is an instruction with its
operands' values.  Register numbers are no part of it, so that versions of a kernel with renamed
registers can be compared.  The factors of a product commute (IEEE 754; NaNs are canonical on these
devices).  Zeros are one value, whichever instruction wrote them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from tilewright.reschedule.access import UNIFORM, Access, access
from tilewright.sass.edit import register_places
from tilewright.sass.instruction import Instruction

__all__ = ["Meaning", "Symbols", "execute", "is_plain_ffma", "meaning", "writes_zeros"]

_CONTROL = ((1 << 20) - 1) << 105  # stall to reuse flags
_REGISTER = 0xFF
_FFMA = 0x223  # all operands in registers
# Of either factor: a product that is not of the two but of an absolute value.  A sign of either
# (bits 63 and 72) is the product's, whichever factor stands where.
_ABSOLUTE = 1 << 62 | 1 << 73
_NOTHING_SPECIAL = 0xFF  # CS2R of register 255 reads zero; [79:72]


@dataclass
class Symbols:
    """Numbers of values: equal ones have equal numbers."""

    known: dict[Hashable, int] = field(default_factory=dict)

    def number(self, value: Hashable) -> int:
        """Return a value's number, a new one where it was not met before."""
        return self.known.setdefault(value, len(self.known))


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an instruction does, whatever registers it names.

    Parameters
    ----------
    what : tuple
        Its bits without register numbers and control fields.
    reads : tuple of int
        Registers in the order of operand slots, then other resources.
    commutes : bool
        Whether the first two of `reads` may be exchanged.
    writes : tuple of (int, int)
        Resources, each with its place in the result.
    conditional, never : bool
        Whether it may, or will, do nothing.
    effect : bool
        Whether it does more than to compute registers from registers.
    zero : bool
        Whether all that it writes is zero.
    """

    what: tuple[int, ...]
    reads: tuple[int, ...]
    commutes: bool
    writes: tuple[tuple[int, int], ...]
    conditional: bool
    never: bool
    effect: bool
    zero: bool


def writes_zeros(one: Instruction) -> bool:
    """Whether it is CS2R of no special register: it writes zeros, into a pair if it is wide."""
    return one.mnemonic == "CS2R" and one.raw >> 72 & 0xFF == _NOTHING_SPECIAL


def is_plain_ffma(one: Instruction) -> bool:
    """Whether it is FFMA of three operands in registers, and of no absolute value."""
    return one.opcode == _FFMA and not one.raw & _ABSOLUTE and len(one.srcs) == 3


def meaning(
    one: Instruction, arch: int, barriers: frozenset[int] = frozenset(), use: Access | None = None
) -> Meaning:
    """Return what an instruction does.

    Parameters
    ----------
    one : Instruction
        Any that `access` knows.
    arch : int
        Architecture number.
    barriers : frozenset of int
        Numbers that mean something themselves, since DEPBAR counts them.
    use : Access, optional
        What `access` returns for it.
    """
    use = use or access(one)
    raw = one.raw & ~_CONTROL
    for low in register_places(one, arch):
        raw &= ~(_REGISTER << low)
    named = [o for o in one.srcs if o.kind == "reg"]
    others = tuple(sorted(r for r in use.reads if r >= UNIFORM))
    counted = (one.control.write_barrier, one.control.read_barrier)
    zero = writes_zeros(one)
    return Meaning(
        (raw, *(o.width for o in named), *others, *(b for b in counted if b in barriers)),
        (*(r for o in named for r in o.registers), *others),
        is_plain_ffma(one) and all(o.width for o in named),
        tuple((r, one.dst.index(r) if r < UNIFORM else r) for r in sorted(use.writes)),
        not one.guard.always,
        one.guard.never,
        not use.pure and not zero,
        zero,
    )


def execute(
    body: Sequence[Meaning], values: dict[int, int], symbols: Symbols, where: int
) -> list[int]:
    """Execute a block; change `values` and return the numbers of its effects, in order.

    Parameters
    ----------
    body : sequence of Meaning
        The block.
    values : dict
        Resource to number, for all that the kernel names.
    symbols : Symbols
        Shared by what is to be compared.
    where : int
        Which block: the same effect elsewhere is another one.
    """
    number = symbols.number
    effects: list[int] = []
    for one in body:
        read = [values[r] for r in one.reads]
        if one.commutes and read[1] < read[0]:
            read[0], read[1] = read[1], read[0]
        if one.effect:
            key = number((one.what, *read, "effect", where, len(effects)))
            effects.append(key)
        else:
            key = number((one.what, *read))
        if one.never:
            continue
        for resource, place in one.writes:
            made = number("zero") if one.zero else number((key, place))
            if one.conditional:
                made = number((key, place, values[resource]))
            values[resource] = made
    return effects
