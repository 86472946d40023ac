"""Live ranges of a kernel's registers, the units that another register can be given to.

A *web* is all that one value passes through: the instructions that may write it and those that may
read it, wherever ways meet.  Each register that an instruction names belongs to one web there.

    LDS.128 R4  ──┐  webs of R4, R5, R6, R7: named together, so they stay side by side and aligned
    FFMA R9 R5 .. │  web of R9 before and after are two, if nothing else joins them
    CS2R R8       │  two webs, R8 and R9, that are zero: whichever register is zeroed here will do

Webs that an instruction names as one operand form a *body*, which moves as a whole by a multiple
of its alignment.  A body is *pinned*, so that it keeps its registers, if it is read without having
been written, or is the stack pointer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tilewright.reschedule.access import Access, access
from tilewright.reschedule.dependencies import blocks
from tilewright.reschedule.values import writes_zeros
from tilewright.sass.edit import RefusedError
from tilewright.sass.flow import live_before, successors
from tilewright.sass.instruction import Instruction

__all__ = ["Sets", "Webs", "bits_between", "find_webs", "registers_of"]

_STACK = 1  # R1 by the calling convention
Names = dict[int, int]  # register to web


@dataclass
class Webs:
    """A kernel's live ranges.

    Parameters
    ----------
    register : list of int
        Each web's register as compiled.
    reads, writes : list of dict
        Of each instruction, register to web.
    live : list of int
        Each web's life, a bit for each instruction behind which it is held.
    body : list of int
        The body that each web belongs to.
    members : dict
        Webs of each body.
    pinned : set of int
        Bodies that stay.
    """

    register: list[int]
    reads: list[Names]
    writes: list[Names]
    live: list[int]
    body: list[int]
    members: dict[int, list[int]]
    pinned: set[int]


class Sets:
    """Disjoint sets of numbers."""

    def __init__(self) -> None:
        self.parent: list[int] = []

    def new(self) -> int:
        """Return the number of a new set of one."""
        self.parent.append(len(self.parent))
        return len(self.parent) - 1

    def find(self, x: int) -> int:
        """Return the number that stands for a number's set."""
        while self.parent[x] != x:
            self.parent[x] = self.parent[self.parent[x]]
            x = self.parent[x]
        return x

    def join(self, x: int, y: int) -> None:
        """Make one set of two numbers' sets."""
        x, y = self.find(x), self.find(y)
        self.parent[max(x, y)] = min(x, y)


def find_webs(instructions: Sequence[Instruction]) -> Webs:
    """Return the live ranges of a kernel's registers.

    Raises
    ------
    RefusedError
        If the kernel has an instruction that is not modelled: it may name any register.
    """
    uses = [access(one) for one in instructions]
    for one, use in zip(instructions, uses, strict=True):
        if use.kind == "unknown":
            raise RefusedError(f"{one.name} at {one.address:#x} is not modelled: no renaming")
    builder = _Builder(instructions)
    builder.number()
    made = builder.collected()
    for web, mask in _ranges(instructions, builder, made):
        made.live[web] |= mask
    for web, mask in _under_way(instructions, uses, made):
        made.live[web] |= mask
    return made


class _Builder:
    """Names first each write, and each register at each block's start; then joins what meets."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self.code = instructions
        self.sets = Sets()
        self.registers: list[int] = []
        self.reads: list[Names] = [{} for _ in instructions]
        self.writes: list[Names] = [{} for _ in instructions]
        self.outside: set[int] = set()
        self.blocks = blocks(instructions)
        after = successors(instructions)
        self.at = {b.start: n for n, b in enumerate(self.blocks)}
        self.following = [[self.at[i] for i in after[b.stop - 1]] for b in self.blocks]
        live = live_before(instructions)
        self.enters: list[Names] = [
            {r: self.new(r) for r in sorted(live[b.start])} for b in self.blocks
        ]
        self.leaves: list[Names] = []

    def new(self, register: int) -> int:
        self.registers.append(register)
        return self.sets.new()

    def number(self) -> None:
        """Give every name its set."""
        led_to = {n for following in self.following for n in following}
        for number, block in enumerate(self.blocks):
            now = dict(self.enters[number])
            if number not in led_to or not number:
                self.outside.update(now.values())
            for index in range(block.start, block.stop):
                self._step(index, now)
            self.leaves.append(now)
        for number, following in enumerate(self.following):
            for other in following:
                for register, entered in self.enters[other].items():
                    self.sets.join(entered, self.leaves[number][register])

    def _step(self, index: int, now: Names) -> None:
        one = self.code[index]
        if one.guard.never:
            return
        for register in one.reads:
            if register not in now:  # not live, as a dead instruction's operand may be
                now[register] = self.new(register)
                self.outside.add(now[register])
            self.reads[index][register] = now[register]
        for register in one.dst:
            made = self.new(register)
            if not one.guard.always and register in now:
                self.sets.join(made, now[register])
            self.writes[index][register] = now[register] = made

    def collected(self) -> Webs:
        """Return webs numbered through, with their bodies."""
        roots = sorted({self.sets.find(x) for x in range(len(self.registers))})
        number = {root: n for n, root in enumerate(roots)}
        web = [number[self.sets.find(x)] for x in range(len(self.registers))]
        for names in (*self.reads, *self.writes, *self.enters, *self.leaves):
            for register, name in names.items():
                names[register] = web[name]
        registers = [self.registers[root] for root in roots]
        bodies = Sets()
        for _ in roots:
            bodies.new()
        for webs in self._operands():
            for other in webs[1:]:
                bodies.join(webs[0], other)
        body = [bodies.find(n) for n in range(len(roots))]
        members: dict[int, list[int]] = {}
        for n, root in enumerate(body):
            members.setdefault(root, []).append(n)
        pinned = {body[web[x]] for x in self.outside}
        pinned |= {body[n] for n, r in enumerate(registers) if r == _STACK}
        return Webs(registers, self.reads, self.writes, [0] * len(roots), body, members, pinned)

    def _operands(self) -> Iterator[list[int]]:
        """Yield the webs that each operand of several registers names."""
        for index, one in enumerate(self.code):
            if one.guard.never:
                continue
            for operand in one.srcs:
                if len(operand.registers) > 1:
                    yield [self.reads[index][r] for r in operand.registers]
            # Two registers that are cleared need not stay together.
            clears = writes_zeros(one) and len(one.dst) == 2 and one.guard.always
            if len(one.dst) > 1 and not clears:
                yield [self.writes[index][r] for r in one.dst]


def _ranges(
    instructions: Sequence[Instruction], builder: _Builder, made: Webs
) -> Iterator[tuple[int, int]]:
    """Yield webs with stretches of instructions behind which they are held."""
    for number, block in enumerate(builder.blocks):
        held: dict[int, int] = {}  # web to the last instruction behind which it is held
        for following in builder.following[number]:
            for web in builder.enters[following].values():
                held[web] = block.stop - 1
        for index in range(block.stop - 1, block.start - 1, -1):
            one = instructions[index]
            for web in made.writes[index].values():
                last = held.pop(web, index) if one.guard.always else index
                yield web, bits_between(index, last)
            for web in made.reads[index].values():
                held.setdefault(web, index - 1)
        for web, last in held.items():
            yield web, bits_between(block.start, last)


def bits_between(first: int, last: int) -> int:
    """Return a number with the bits from `first` to `last` set; none where `last` is less."""
    return ((1 << last - first + 1) - 1) << first if last >= first else 0


def _under_way(
    instructions: Sequence[Instruction], uses: Sequence[Access], made: Webs
) -> Iterator[tuple[int, int]]:
    """Yield webs with instructions before which an access still reads or writes them."""
    after = successors(instructions)
    for index, (one, use) in enumerate(zip(instructions, uses, strict=True)):
        names = {*made.reads[index].values(), *made.writes[index].values()}
        if not use.variable or not names or one.guard.never:
            continue
        for mode, webs in (("write", made.writes[index]), ("read", made.reads[index])):
            mask = _until_waited(instructions, uses, after, index, mode) if webs else 0
            for web in webs.values():
                yield web, mask


def _until_waited(
    instructions: Sequence[Instruction],
    uses: Sequence[Access],
    after: Sequence[tuple[int, ...]],
    start: int,
    mode: str,
) -> int:
    """Return the instructions before which an access is not known to be over.

    It has a barrier, or the next of its class that has one covers it.
    """
    mask = 1 << start
    waiting = [(n, _says(instructions[start], mode)) for n in after[start]]
    seen: set[tuple[int, frozenset[int]]] = set()
    while waiting:
        index, barriers = waiting.pop()
        one = instructions[index]
        if (index, barriers) in seen or barriers & frozenset(one.control.waits):
            continue
        seen.add((index, barriers))
        mask |= 1 << index
        if not barriers and uses[start].in_order and uses[index].kind == uses[start].kind:
            barriers = _says(one, mode)
        waiting += [(n, barriers) for n in after[index]]
    return mask


def _says(one: Instruction, mode: str) -> frozenset[int]:
    """Return the barriers that say that an access has written, or read, its registers."""
    control = one.control
    both = (control.write_barrier, control.read_barrier if mode == "read" else None)
    return frozenset(b for b in both if b is not None)


def registers_of(instructions: Iterable[Instruction]) -> int:
    """Return how many registers a kernel names: one more than the highest."""
    return 1 + max((r for one in instructions for r in (*one.dst, *one.reads)), default=0)
