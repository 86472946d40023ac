"""Whether rescheduled code computes what it did before: proved without a device, or refused.

`differences` compares two versions of a kernel that differ in the order, the operands' sides and
the control fields of instructions:

1. *Values.*  Each block of both is executed with symbols: a register's value is the instruction
   that made it with its operands' values, equal ones numbered alike.  At the block's end every
   resource holds the same value, and every access has had the same operands in the same order.
   A product's factors may change sides: that is IEEE, and NaNs are canonical on these devices.
2. *Waiting.*  Before each access and at the end no barrier is outstanding that was not before.
3. *Time.*  `tilewright.sass.hazards` finds nothing, in the whole kernel, that is read or
   overwritten too early, nor a reuse copy that has become stale.

It shares no code with `tilewright.sass.schedule`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from tilewright.sass.access import UNIFORM, Access, access, name_of
from tilewright.sass.dependencies import blocks
from tilewright.sass.edit import register_places
from tilewright.sass.hazards import hazards
from tilewright.sass.instruction import Instruction

__all__ = ["differences", "same_values"]

_CONTROL = ((1 << 20) - 1) << 105  # stall to reuse flags
_REGISTER = 0xFF
_FFMA = 0x223  # all operands in registers
_SIGNS = 1 << 63 | 1 << 62 | 1 << 73 | 1 << 72  # of a factor: then it is no plain product


@dataclass
class _Symbols:
    """Numbers of values: equal ones have equal numbers."""

    known: dict[Hashable, int] = field(default_factory=dict)

    def number(self, value: Hashable) -> int:
        return self.known.setdefault(value, len(self.known))


@dataclass
class _Outcome:
    """What a block leaves behind."""

    values: dict[int, int] = field(default_factory=dict)
    effects: list[tuple[int, frozenset[tuple[int, int]]]] = field(default_factory=list)
    outstanding: frozenset[tuple[int, int]] = frozenset()


def differences(
    before: Sequence[Instruction], after: Sequence[Instruction], arch: int
) -> list[str]:
    """Return why a rescheduled kernel may not replace another; nothing if it may.

    Parameters
    ----------
    before, after : sequence of Instruction
        Whole kernels.
    arch : int
        Architecture number.
    """
    if len(before) != len(after):
        return [f"there are {len(after)} instructions, not {len(before)}"]
    found: list[str] = []
    for block in blocks(before):
        old, new = before[block.start : block.stop], after[block.start : block.stop]
        if any(x.raw != y.raw or x.address != y.address for x, y in zip(old, new, strict=True)):
            found += same_values(old, new, arch)
    if found:
        return found
    unclear = hazards(before)
    if unclear:
        return [f"the kernel itself is not understood: {unclear[0]}"]
    return [str(hazard) for hazard in hazards(after)]


def same_values(
    before: Sequence[Instruction], after: Sequence[Instruction], arch: int
) -> list[str]:
    """Return how the results of two versions of a block differ; nothing if they do not."""
    for one in (*before, *after):
        if access(one).kind == "unknown":
            return [f"{one.name} at {one.address:#x} is not modelled"]
    if [one.address for one in before] != [one.address for one in after]:
        return ["the instructions do not stand at the same addresses"]
    branches = [(i, one.raw) for i, one in enumerate(before) if one.target is not None]
    if branches != [(i, one.raw) for i, one in enumerate(after) if one.target is not None]:
        return [f"a branch has moved or changed at {before[0].address:#x}"]
    symbols = _Symbols()
    old, new = _execute(before, arch, symbols), _execute(after, arch, symbols)
    return list(_compare(old, new, before[0].address))


def _compare(old: _Outcome, new: _Outcome, where: int) -> Iterator[str]:
    for resource in sorted(old.values.keys() | new.values.keys()):
        if old.values.get(resource) != new.values.get(resource):
            yield f"{name_of(resource)} has another value at the end of the block at {where:#x}"
    if [key for key, _ in old.effects] != [key for key, _ in new.effects]:
        yield f"accesses of the block at {where:#x} differ in order, operands or barriers"
        return
    for number, ((_, mine), (_, theirs)) in enumerate(zip(old.effects, new.effects, strict=True)):
        if theirs - mine:
            yield f"access {number} of the block at {where:#x} no longer follows a wait"
    if new.outstanding - old.outstanding:
        yield f"a barrier is no longer waited for in the block at {where:#x}"


def _execute(body: Sequence[Instruction], arch: int, symbols: _Symbols) -> _Outcome:
    """Execute a block with symbols."""
    made = _Outcome()
    # A barrier with whoever set it: an access of this block by its number, or -1 for before it.
    outstanding = {(barrier, -1) for barrier in range(6)}
    for one in body:
        use = access(one)
        waits = one.control.waits
        outstanding = {item for item in outstanding if item[0] not in waits}
        key = _key(one, use, arch, made.values, symbols)
        if not use.pure:
            control = one.control
            place = len(made.effects)
            key = symbols.number((key, place, control.write_barrier, control.read_barrier))
            made.effects.append((key, frozenset(outstanding)))
            for barrier in (control.write_barrier, control.read_barrier):
                if barrier is not None:
                    outstanding.add((barrier, place))
        if not one.guard.never:
            _write(one, use, key, made.values, symbols)
    made.outstanding = frozenset(outstanding)
    # What holds its first value again has not changed.
    made.values = {r: v for r, v in made.values.items() if v != symbols.number(("first", r))}
    return made


def _value(resource: int, values: dict[int, int], symbols: _Symbols) -> int:
    found = values.get(resource)
    return symbols.number(("first", resource)) if found is None else found


def _key(
    one: Instruction, use: Access, arch: int, values: dict[int, int], symbols: _Symbols
) -> int:
    """Return an instruction's number, by what it does and its operands' values."""
    raw = one.raw & ~_CONTROL
    for low in register_places(one, arch):
        raw &= ~(_REGISTER << low)
    read = [
        (o.slot, tuple(_value(r, values, symbols) for r in o.registers))
        for o in one.srcs
        if o.kind == "reg"
    ]
    if one.opcode == _FFMA and not one.raw & _SIGNS and len(read) == 3:
        factors = sorted((read[0][1], read[1][1]))
        read = [("A", factors[0]), ("B", factors[1]), read[2]]
    others = tuple((r, _value(r, values, symbols)) for r in sorted(use.reads) if r >= UNIFORM)
    return symbols.number((raw, tuple(read), others))


def _write(
    one: Instruction, use: Access, key: int, values: dict[int, int], symbols: _Symbols
) -> None:
    """Enter an instruction's results; one under a condition may leave the old value."""
    made = {}
    for resource in use.writes:
        # Registers are named by their place in the result, so that the numbers do not matter.
        place = one.dst.index(resource) if resource < UNIFORM else resource
        made[resource] = symbols.number(("result", key, place))
    if not one.guard.always:
        made = {
            r: symbols.number(("either", v, _value(r, values, symbols))) for r, v in made.items()
        }
    values.update(made)
