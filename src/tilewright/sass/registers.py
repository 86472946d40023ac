"""What each register is for in the main loop: the list of Lai & Seznec's section 4.1.

Their SGEMM spends 36 registers on C, 12 on prefetched A and B, 8 on fragments from shared memory,
7 on addresses and the end of the loop.  `register_map` recovers such a list from machine code.
It looks at values, not registers: a compiler gives one register several jobs over an iteration and
moves an accumulator from one register to another.  A value's role follows from the instruction
that makes it and those that read it; a register counts, at each point of the loop, for the role
of the value it holds there.  Forward branches inside the loop are read as straight code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.sass.flow import live_before
from tilewright.sass.instruction import Instruction
from tilewright.sass.loops import Loop, is_useful

__all__ = ["ROLES", "RegisterMap", "register_map"]

ROLES = (
    "accumulator",  # what a multiply-add adds to
    "fragment",  # a factor of a multiply-add
    "prefetch",  # loaded from global memory, to be stored to shared memory
    "shared address",
    "global address",
    "loop counter",  # decides the branch back, or feeds what does
    "other",  # used in the loop, none of these
    "held",  # not used in the loop, needed after it
)
_SHARED = frozenset(("LDS", "LDSM", "STS"))
_GLOBAL = frozenset(("LDG", "STG"))
_BY_FEEDING = ("shared address", "global address", "loop counter")


@dataclass(frozen=True)
class RegisterMap:
    """Registers of a loop by role.

    Parameters
    ----------
    most : dict
        Role to the largest number of registers that hold such values at one
        point of the loop: the paper's list.
    registers : dict
        Role to the registers that hold such a value for longer than any
        other; each register is listed once.
    also : dict
        Register to the other roles it has over an iteration.
    peak_live : int
        Most registers that hold a needed value at one point of the loop.
    """

    most: dict[str, int]
    registers: dict[str, tuple[int, ...]]
    also: dict[int, tuple[str, ...]]
    peak_live: int


@dataclass
class _Value:
    """One value that a register holds: made at `made` (None: before the loop), read at `reads`."""

    register: int
    made: int | None
    reads: list[tuple[int, str]] = field(default_factory=list)
    role: str = "other"

    def span(self, length: int) -> range:
        """Points of the loop, counted from its start and past its end, where it is held."""
        if self.made is None:
            return range(length)
        last = max((at if at > self.made else at + length for at, _ in self.reads), default=None)
        return range(self.made + 1, (self.made if last is None else last) + 1)


def register_map(kernel: Sequence[Instruction], loop: Loop) -> RegisterMap:
    """Return what each register is for in a loop.

    Parameters
    ----------
    kernel : sequence of Instruction
        The whole kernel, for what is needed after the loop.
    loop : Loop
        One of its loops.
    """
    body = loop.instructions
    values = _values(body)
    _assign_roles(body, values)
    held_at: list[dict[str, int]] = [{} for _ in body]
    time: dict[int, dict[str, int]] = {}
    for value in values:
        span = value.span(len(body))
        for point in span:
            counts = held_at[point % len(body)]
            counts[value.role] = counts.get(value.role, 0) + 1
        mine = time.setdefault(value.register, {})
        mine[value.role] = mine.get(value.role, 0) + len(span)
    live = [
        found
        for found, instruction in zip(live_before(kernel), kernel, strict=True)
        if loop.start <= instruction.address <= loop.end
    ]
    for register in frozenset().union(*live) - time.keys():
        time[register] = {"held": len(body)}
    most = {role: max((c.get(role, 0) for c in held_at), default=0) for role in ROLES}
    most["held"] = sum("held" in roles for roles in time.values())
    return _summary(most, time, max((len(found) for found in live), default=0))


def _summary(most: dict[str, int], time: dict[int, dict[str, int]], peak_live: int) -> RegisterMap:
    listed: dict[str, list[int]] = {role: [] for role in ROLES}
    also = {}
    for register, roles in sorted(time.items()):
        ranked = sorted(roles, key=lambda role: (-roles[role], ROLES.index(role)))
        listed[ranked[0]].append(register)
        if len(ranked) > 1:
            also[register] = tuple(ranked[1:])
    return RegisterMap(
        {role: count for role, count in most.items() if count},
        {role: tuple(found) for role, found in listed.items() if found},
        also,
        peak_live,
    )


def _values(body: Sequence[Instruction]) -> list[_Value]:
    """Split what each register holds into values, following the loop around once."""
    finished: list[_Value] = []
    current: dict[int, _Value] = {}
    early: dict[int, _Value] = {}  # read before the loop wrote them: made by the last iteration
    for index, instruction in enumerate(body):
        if instruction.guard.never:
            continue
        for operand in instruction.srcs:
            for register in operand.registers:
                if register not in current:
                    current[register] = early[register] = _Value(register, None)
                current[register].reads.append((index, operand.slot))
        for register in instruction.dst:
            if register in current and not instruction.guard.always:
                continue  # a write that may not happen goes on with the value
            # A value that entered the loop is joined to the last write, below.
            if register in current and current[register] is not early.get(register):
                finished.append(current[register])
            current[register] = _Value(register, index)
    for register, value in current.items():
        if register in early and value is not early[register]:
            value.reads += early[register].reads
        finished.append(value)
    return finished


def _assign_roles(body: Sequence[Instruction], values: list[_Value]) -> None:
    counter_predicate = body[-1].guard.index
    made: dict[tuple[int, int], _Value] = {}
    read: dict[tuple[int, int], _Value] = {}
    for value in values:
        if value.made is not None:
            made[value.made, value.register] = value
        for at, _ in value.reads:
            read[at, value.register] = value
        value.role = _own_role(body, value, counter_predicate)
    # Arithmetic in the loop that makes an address or the counter belongs to it.
    growing = True
    while growing:
        growing = False
        for value in values:
            if value.made is None or value.role not in _BY_FEEDING:
                continue
            maker = body[value.made]
            if maker.offset is not None or is_useful(maker):
                continue
            for register in maker.reads:
                source = read.get((value.made, register))
                if source is not None and source.role == "other":
                    source.role = value.role
                    growing = True


def _own_role(body: Sequence[Instruction], value: _Value, counter_predicate: int) -> str:
    """Return the role that a value's maker and readers give away."""
    maker = body[value.made] if value.made is not None else None
    readers = [(body[at], slot) for at, slot in value.reads]
    if any(is_useful(x) and slot == "C" for x, slot in readers):
        return "accumulator"
    if any(is_useful(x) for x, _ in readers):
        return "fragment"
    if maker is not None and is_useful(maker):
        return "accumulator"
    loaded = maker is not None and maker.mnemonic == "LDG"
    if loaded and any(x.mnemonic == "STS" and slot == "B" for x, slot in readers):
        return "prefetch"
    for instruction, slot in readers:
        copies = instruction.mnemonic == "LDGSTS"
        if (instruction.mnemonic in _SHARED and slot == "A") or (copies and slot == "C"):
            return "shared address"
        if (instruction.mnemonic in _GLOBAL or copies) and slot == "A":
            return "global address"
    if any(counter_predicate in x.dst_predicates for x, _ in readers):
        return "loop counter"
    return "other"
