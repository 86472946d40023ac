"""Find values that a kernel reads or overwrites too early, by latencies and barriers.

A multiprocessor of sm_90 does not check dependencies of machine code: an instruction that issues
too early reads the old register.  The compiler keeps a reader behind its producer by stall counts
where a result takes a fixed number of cycles, and by barriers elsewhere.  `hazards` follows both
along every path of a kernel, loops included, until nothing changes, and keeps for each point:

- *age*: cycles since a register was written by an instruction of fixed latency, or read by one
  that reads after its issue;
- *pending*: registers that a load still writes, or a store still reads, with the barriers whose
  release says that it is done;
- *kept*: copies in the operands' reuse latches, and whether the register has changed since.

Instructions of one class finish in order, so that the barrier of a later one covers earlier ones,
which the compiler leaves without.  The distances of `latency` are the least that ptxas leaves in
any kernel here; the hardware needs no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tilewright.reschedule.access import PREDICATE, UNIFORM, Access, access, name_of
from tilewright.reschedule.latency import BARRIER, after, needed, pace
from tilewright.sass.flow import successors
from tilewright.sass.instruction import Guard, Instruction

__all__ = ["MEMORY", "Entry", "Hazard", "entry", "hazards", "how_read", "released_at"]

_NOTHING: frozenset[frozenset[int]] = frozenset((frozenset(),))
MEMORY = frozenset(("shared", "global"))
_BARRIERS = 1024  # barrier 0 among the resources, behind all that `access` numbers
_PACED = _BARRIERS + 6  # the pipe of DMMA
_READ = _PACED + 1  # reads of resource 0, by those classes that read after their issue
_READS_LATE = "uniform"
_OLDEST = 64  # cycles after which no result of fixed latency is under way
_OVERTAKES = 9  # cycles after which no later write could arrive first: the most of latency.py
# SYNCS.EXCH and UTMALDG, whose operands stay in uniform registers; other forms of SYNCS read theirs
# at issue: ptxas overwrites them two cycles later.
_FROM_UNIFORM = frozenset((0x5B2, 0x5B4))
Latch = tuple[str, int]
Observer = Callable[[str, str, str, int], None]
Pending = tuple[int, str, str]  # resource, "write", "read" or "spill" (read by STL), class
# One set for each way the instruction can be reached: any barrier of it says that all is done.
Clears = frozenset[frozenset[int]]


@dataclass(frozen=True)
class Hazard:
    """A value that is used too early.

    Parameters
    ----------
    address : int
        Of the instruction that comes too early.
    reason : str
        What it does too early, and what it lacks.
    copy : bool
        Whether it is about a copy in a latch that is perhaps no longer true.
    """

    address: int
    reason: str
    copy: bool = False

    def __str__(self) -> str:
        return f"{self.address:#x}: {self.reason}"


@dataclass
class _State:
    """What is under way before an instruction.

    ``set_at`` is when each resource was written by each class, on the clock ``now``; ``only_if``
    under which condition alone that was, of those that have not changed since.
    """

    now: int = 0
    set_at: dict[int, dict[str, int]] = field(default_factory=dict)
    only_if: dict[tuple[int, str], Guard] = field(default_factory=dict)
    pending: dict[Pending, Clears] = field(default_factory=dict)
    kept: dict[Latch, frozenset[tuple[int, bool]]] = field(default_factory=dict)

    def copy(self) -> _State:
        recent = self.now - _OLDEST
        set_at = {
            resource: {kind: when for kind, when in times.items() if when > recent}
            for resource, times in self.set_at.items()
            if max(times.values()) > recent
        }
        only_if = {
            (resource, kind): guard
            for (resource, kind), guard in self.only_if.items()
            if kind in set_at.get(resource, ())
        }
        return _State(self.now, set_at, only_if, dict(self.pending), dict(self.kept))

    def ages(self, resource: int) -> Iterator[tuple[str, int]]:
        """Yield the classes that wrote a resource lately, and how many cycles ago."""
        for kind, when in self.set_at.get(resource, {}).items():
            if self.now - when < _OLDEST:
                yield kind, self.now - when

    def join(self, other: _State) -> bool:
        """Take in what another path brings; return whether that changed anything."""
        changed = False
        for write, guard in list(self.only_if.items()):
            if other.only_if.get(write) != guard:
                del self.only_if[write]
                changed = True
        for resource in other.set_at:
            for kind, age in other.ages(resource):
                mine = self.set_at.setdefault(resource, {})
                if age < self.now - mine.get(kind, self.now - _OLDEST):
                    mine[kind], changed = self.now - age, True
        for key, clears in other.pending.items():
            every = clears | self.pending.get(key, frozenset())
            if self.pending.get(key) != every:
                self.pending[key], changed = every, True
        for latch, copies in other.kept.items():
            all_copies = copies | self.kept.get(latch, frozenset())
            if all_copies != self.kept.get(latch):
                self.kept[latch], changed = all_copies, True
        return changed


def hazards(instructions: Sequence[Instruction], observe: Observer | None = None) -> list[Hazard]:
    """Return everything that a kernel of sm_90 reads or overwrites too early.

    Parameters
    ----------
    instructions : sequence of Instruction
        The whole kernel, by address.
    observe : callable, optional
        Called with the producer's class, the consumer's class, "read",
        "guard", "write" or "overwrite", and the cycles between their issues, for
        every dependency of fixed latency: what `latency` was found with.
    """
    uses, starts, states = _states(instructions)
    found: dict[Hazard, None] = {}
    for start, state in states.items():
        _run(instructions, uses, start, starts, state, found, observe)
    return sorted(found, key=lambda hazard: hazard.address)


def released_at(instructions: Sequence[Instruction], start: int, stop: int) -> list[int]:
    """Return, for each instruction of a run, the first index at which its registers are released.

    That is where the last wait lies for an access that wrote what it reads, or
    still read or wrote what it writes; `start` where there is none.  Indices
    count from the kernel's start.
    """
    uses, _, states = _states(instructions)
    first = max(index for index in states if index <= start)
    state = states[first].copy()
    free: dict[tuple[int, str], int] = {}
    found = []
    for index in range(first, stop):
        pending = {key[:2] for key in state.pending}
        _wait(state, instructions[index])
        for key in pending - {key[:2] for key in state.pending}:
            free[key] = index
        use = uses[index]
        needs = [(r, "write") for r in use.reads | use.writes]
        needs += [(r, mode) for r in use.writes for mode in ("read", "spill")]
        found.append(max((free[key] for key in needs if key in free), default=start))
        _issue(state, instructions[index], use)
    return [max(start, at) for at in found[start - first :]]


@dataclass(frozen=True)
class Entry:
    """What is under way before an instruction, whatever way leads there.

    Parameters
    ----------
    ages : dict
        Resource to the classes that wrote it lately, and how many cycles ago.
    set_ago : dict
        Barrier to the cycles since it was set, where that is not long ago.
    pending : dict
        Resource, "write", "read" or "spill", and class, to sets of barriers:
        one of each set has to be waited for.
    read_ago : dict
        Resource to the classes that read it lately, after their issue, and how many cycles ago.
    """

    ages: dict[int, tuple[tuple[str, int], ...]]
    set_ago: dict[int, int]
    pending: dict[Pending, Clears]
    read_ago: dict[int, tuple[tuple[str, int], ...]]


def entry(instructions: Sequence[Instruction], start: int) -> Entry:
    """Return what is under way where a block of a kernel starts."""
    _, _, states = _states(instructions)
    first = max(index for index in states if index <= start)
    state, uses = states[first].copy(), [access(one) for one in instructions[first:start]]
    for one, use in zip(instructions[first:start], uses, strict=True):
        _wait(state, one)
        _issue(state, one, use)
    lately = {r: tuple(state.ages(r)) for r in state.set_at}
    return Entry(
        {r: ages for r, ages in lately.items() if r < _BARRIERS and ages},
        {r - _BARRIERS: min(a for _, a in ages) for r, ages in lately.items()
         if _BARRIERS <= r < _PACED and ages},
        state.pending,
        {r - _READ: ages for r, ages in lately.items() if r >= _READ and ages},
    )  # fmt: skip


def _states(
    instructions: Sequence[Instruction],
) -> tuple[list[Access], frozenset[int], dict[int, _State]]:
    """Return what is under way where each straight run starts, whatever way leads there."""
    uses = [access(i) for i in instructions]
    starts, after = _blocks(instructions)
    states: dict[int, _State] = {}
    for entry in sorted(starts):
        if entry in states:
            continue
        # The kernel's first instruction, or one that only a call leads to: nothing is under way.
        states[entry] = _State()
        waiting = [entry]
        while waiting:
            start = waiting.pop()
            state = states[start].copy()
            end = _run(instructions, uses, start, starts, state, None, None)
            for following in after[end]:
                if following not in states:
                    states[following] = state.copy()
                elif not states[following].join(state):
                    continue
                waiting.append(following)
    return uses, starts, states


def _blocks(instructions: Sequence[Instruction]) -> tuple[frozenset[int], list[tuple[int, ...]]]:
    """Return where straight runs of instructions start, and the successors of each one."""
    after = successors(instructions)
    starts = {0}
    for index, following in enumerate(after):
        if following != (index + 1,):
            starts.update((*following, *((index + 1,) if index + 1 < len(after) else ())))
    return frozenset(starts), after


def _run(
    instructions: Sequence[Instruction],
    uses: Sequence[Access],
    start: int,
    starts: frozenset[int],
    state: _State,
    found: dict[Hazard, None] | None,
    observe: Observer | None,
) -> int:
    """Follow a straight run; return the index of its last instruction."""
    index = start
    while True:
        one, use = instructions[index], uses[index]
        if found is not None:
            for reason in _soon(state, one):
                found[Hazard(one.address, reason)] = None
        _wait(state, one)
        if found is not None:
            for reason in _early(state, one, use, observe):
                found[Hazard(one.address, reason)] = None
            for reason in _stale(state, one) if use.pure else ():
                found[Hazard(one.address, reason, copy=True)] = None
        _issue(state, one, use)
        leaves = one.mnemonic in ("BRA", "EXIT", "RET")
        if leaves or index + 1 == len(instructions) or index + 1 in starts:
            return index
        least = after(one, use.kind, instructions[index + 1], uses[index + 1].kind)
        if found is not None and one.control.stall < least and least > 1:
            found[Hazard(one.address, f"{one.mnemonic} stalls for less than {least} cycles")] = None
        index += 1


def _wait(state: _State, one: Instruction) -> None:
    """Drop what the barriers that an instruction waits for say is done."""
    mask = frozenset(one.control.waits)
    if mask:
        left = {
            key: frozenset(barriers for barriers in clears if not barriers & mask)
            for key, clears in state.pending.items()
        }
        state.pending = {key: clears for key, clears in left.items() if clears}


def _soon(state: _State, one: Instruction) -> Iterator[str]:
    """Yield the barriers that an instruction waits for before they can have been set."""
    for barrier in one.control.waits:
        for _, age in state.ages(_BARRIERS + barrier):
            if age < BARRIER:
                yield f"{one.mnemonic} waits for barrier {barrier} {age} cycles after it was set"
    for cycles, age in state.ages(_PACED) if pace(one) else ():
        if age < int(cycles):
            yield f"{one.mnemonic} follows another after {age} cycles, not {cycles}"


def _early(state: _State, one: Instruction, use: Access, observe: Observer | None) -> Iterator[str]:
    """Yield what an instruction reads or writes before it may."""
    pending: dict[tuple[int, str], str] = {(r, mode): k for r, mode, k in state.pending}
    for resource in sorted(use.reads):
        if (kind := pending.get((resource, "write"))) is not None:
            yield f"{one.mnemonic} reads {name_of(resource)} before a {kind} access wrote it"
        how = how_read(one, resource)
        for kind, age in state.ages(resource):
            if observe is not None:
                observe(kind, use.kind, how, age)
            if age < needed(kind, use.kind, how):
                yield (f"{one.mnemonic} reads {name_of(resource)} {age} cycles after it was set,"
                       f" not {needed(kind, use.kind, how)}")  # fmt: skip
    for resource in sorted(use.writes):
        for mode, what in (("write", "wrote"), ("read", "read"), ("spill", "read")):
            if mode == "spill" and use.kind in MEMORY:
                continue  # an access reads its sources before a later one writes
            if (kind := pending.get((resource, mode))) not in (None, use.kind):
                yield (f"{one.mnemonic} overwrites {name_of(resource)} before a {kind} access"
                       f" {what} it")  # fmt: skip
        for kind, age in state.ages(resource):
            if observe is not None:
                observe(kind, use.kind, "write", age)
            if age < needed(kind, use.kind, "write") and not _never_both(
                state.only_if.get((resource, kind)), one.guard
            ):
                yield f"{one.mnemonic} overwrites {name_of(resource)} {age} cycles after it was set"
        for kind, age in state.ages(_READ + resource):
            if observe is not None:
                observe(kind, use.kind, "overwrite", age)
            if age < needed(kind, use.kind, "overwrite"):
                yield (f"{one.mnemonic} overwrites {name_of(resource)} {age} cycles after it was"
                       " read")  # fmt: skip


def _never_both(first: Guard | None, second: Guard) -> bool:
    """Whether one of two instructions does nothing, as a condition and its opposite have it."""
    if first is None or first.always or second.always:
        return False
    return second == replace(first, negated=not first.negated)


def how_read(one: Instruction, resource: int) -> str:
    """Return in which way an instruction reads a resource: "guard" or "read"."""
    if resource >= PREDICATE and one.guard.index == resource % 8 and not one.guard.always:
        return "guard"
    return "read"


def _stale(state: _State, one: Instruction) -> Iterator[str]:
    for operand in one.srcs:
        for register in operand.registers:
            copies = state.kept.get((operand.slot, register % 2), frozenset())
            if (register, True) in copies:
                yield f"slot {operand.slot} may still keep R{register}'s old value"


def _issue(state: _State, one: Instruction, use: Access) -> None:
    """Enter what an instruction starts, and let its stall pass."""
    certain = one.guard.always
    if one.guard.never:
        use = Access(frozenset(), frozenset(), use.kind)
    _keep(state, one, use.pure)
    _overwrite(state.kept, use.writes)
    _forget(state, use.writes, use.kind == "unknown")
    for resource in use.writes:
        if certain:
            state.set_at.pop(resource, None)
        if use.fixed:
            _set(state, resource, use.kind, one.guard)
    for resource in use.reads if use.kind == _READS_LATE else ():
        state.set_at[_READ + resource] = {use.kind: state.now}
    if use.in_order:
        _start(state, one, use)
    elif (use.variable or use.kind == "unknown") and not one.guard.never:
        _start_apart(state, one, use.kind)
    for barrier in (one.control.write_barrier, one.control.read_barrier):
        if barrier is not None:
            state.set_at[_BARRIERS + barrier] = {"barrier": state.now}
    if cycles := pace(one):
        state.set_at[_PACED] = {str(cycles): state.now}
    state.now += max(1, one.control.stall)


def _set(state: _State, resource: int, kind: str, guard: Guard) -> None:
    """Enter a write of fixed latency; its condition, too, if those it may overtake share it."""
    times, key = state.set_at.setdefault(resource, {}), (resource, kind)
    alone = state.now - times.get(kind, state.now - _OLDEST) >= _OVERTAKES
    if not guard.always and (alone or state.only_if.get(key) == guard):
        state.only_if[key] = guard
    else:
        state.only_if.pop(key, None)
    times[kind] = state.now


def _forget(state: _State, written: frozenset[int], unknown: bool) -> None:
    """Forget conditions that change: what was written under one is no longer known by it."""
    changed = {resource % 8 for resource in written if resource >= PREDICATE}
    for key, guard in list(state.only_if.items()):
        if unknown or guard.index in changed:
            del state.only_if[key]


def _start(state: _State, one: Instruction, use: Access) -> None:
    """Enter an access of variable latency; its barriers cover earlier ones of its class."""
    control = one.control
    written = frozenset(b for b in (control.write_barrier,) if b is not None)
    released = frozenset(b for b in (control.read_barrier, *written) if b is not None)
    for resource in use.writes:
        state.pending[resource, "write", use.kind] = _NOTHING
    for resource in use.reads - use.writes:
        if resource >= UNIFORM:
            continue  # conditions and uniform registers are read at issue
        # ptxas loads into what it spills right behind the spill.
        mode = "spill" if one.mnemonic == "STL" else "read"
        state.pending[resource, mode, use.kind] = _NOTHING
    if not released:
        return
    for (resource, mode, kind), clears in state.pending.items():
        if kind == use.kind or (mode == "spill" and use.kind in MEMORY):
            more = written if mode == "write" else released
            state.pending[resource, mode, kind] = frozenset(barriers | more for barriers in clears)


def _start_apart(state: _State, one: Instruction, kind: str) -> None:
    """Enter an access that follows no other in order: it holds what it names for its own barriers.

    So does an instruction that is not modelled; without a barrier it claims nothing.
    """
    written = frozenset(b for b in (one.control.write_barrier,) if b is not None)
    released = frozenset(b for b in (one.control.read_barrier, *written) if b is not None)
    writes = {*one.dst, *(UNIFORM + r for r in one.udst)}
    writes |= {PREDICATE + p for p in one.dst_predicates}
    reads: set[int] = set(one.reads)
    if one.opcode in _FROM_UNIFORM or kind == "unknown":
        reads |= {UNIFORM + r for r in one.ureads}
    for mode, resources, barriers in (("write", writes, written), ("read", reads, released)):
        for resource in resources if barriers else ():
            key = (resource, mode, kind)
            state.pending[key] = state.pending.get(key, frozenset()) | {barriers}


def _keep(state: _State, one: Instruction, certain: bool) -> None:
    """Enter copies that reuse flags keep; a read without one forgets the copy if it is certain."""
    for operand in one.srcs:
        for register in operand.registers:
            latch = (operand.slot, register % 2)
            before = frozenset() if certain else state.kept.get(latch, frozenset())
            copies = before | ({(register, False)} if operand.reuse else frozenset())
            state.kept[latch] = copies
            if not copies:
                del state.kept[latch]


def _overwrite(kept: dict[Latch, frozenset[tuple[int, bool]]], writes: frozenset[int]) -> None:
    for latch, copies in kept.items():
        if any(register in writes for register, _ in copies):
            kept[latch] = frozenset((r, stale or r in writes) for r, stale in copies)
