"""Wait masks and stall counts of a block whose instructions stand in another order.

*Waits.*  An instruction waits for each access that writes a register it names, or reads one it
overwrites, unless an earlier instruction has waited for it.  An effect keeps its own waits, and
waits for whatever was over before it in the old order (`in_flight` checks the same).  Accesses keep
their barriers and their order; only wait masks change.

*Stalls* are as short as the latency model allows.  An instruction issues when its producers'
results have arrived (`latency`) and no sooner after the previous one than in any code of ptxas.
The block is long enough for results that the code behind it reads.  Instructions with effects
beside their result registers keep their stall counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.reschedule.access import Access, access
from tilewright.reschedule.dependencies import dependencies
from tilewright.reschedule.hazards import MEMORY, Entry, how_read
from tilewright.reschedule.in_flight import Flight, Item, reads_shared
from tilewright.reschedule.latency import BARRIER, after, needed
from tilewright.sass.decode import INSTRUCTION_BYTES
from tilewright.sass.edit import RefusedError, edit
from tilewright.sass.instruction import Instruction

__all__ = ["with_control_fields", "with_stalls", "with_waits"]

_SETTLED = 16  # cycles after which no result of fixed latency is waited for
_LONGEST = 15


def with_control_fields(
    old: Sequence[Instruction], new: Sequence[Instruction], before: Entry, arch: int
) -> list[Instruction]:
    """Return a block's instructions in a new order, with the control fields that it needs.

    Parameters
    ----------
    old : sequence of Instruction
        The block as it was.
    new : sequence of Instruction
        The same instructions, each with its old address; effects in the same order.
    before : Entry
        What is under way where the block begins.
    arch : int
        Architecture number.

    Returns
    -------
    list of Instruction
        With the addresses of their places; branches keep their targets.

    Raises
    ------
    RefusedError
        If an instruction is not modelled, would have to wait for longer than a stall can, or for
        what its barrier is not set for yet.
    """
    made = with_stalls(old, with_waits(old, new, before, arch), before, arch)
    places = (old[0].address + INSTRUCTION_BYTES * place for place in range(len(made)))
    return [
        one if one.address == address else edit(one, arch, address=address)
        for address, one in zip(places, made, strict=True)
    ]


def with_waits(
    old: Sequence[Instruction], new: Sequence[Instruction], before: Entry, arch: int
) -> list[Instruction]:
    """Return the instructions with wait masks for their order."""
    over, end = _over(old)
    walk = _Walk(before)
    made = []
    for index, one in enumerate(new):
        use = access(one)
        mask = set(one.control.waits) if not use.pure else set()
        walk.flight.wait(frozenset(mask))
        for wanted in walk.needs(use):
            mask |= walk.wait_for(wanted, one)
        if not use.pure:
            for item in over[walk.place]:
                if item in walk.flight.items and not walk.harmless(one, item):
                    mask |= walk.wait_for(walk.flight.items[item][1], one)
        if index + 1 == len(new):
            for item in [i for i in walk.flight.items if i not in end]:
                mask |= walk.wait_for(walk.flight.items[item][1], one)
        bits = sum(1 << b for b in mask)
        made.append(one if bits == one.control.wait_mask else edit(one, arch, wait_mask=bits))
        walk.issue(one, use)
    return made


def _over(old: Sequence[Instruction]) -> tuple[list[list[Item]], frozenset[Item]]:
    """Return what is over before each effect of the block as it was, and what is not at its end."""
    flight, every, found = Flight(), [("entry", b) for b in range(6)], []
    for one in old:
        use = access(one)
        flight.wait(frozenset(one.control.waits))
        if not use.pure:
            found.append([item for item in every if item not in flight.items])
            flight.start(one, use, len(found) - 1)
            every += [("write", len(found) - 1), ("read", len(found) - 1)]
    return found, frozenset(flight.items)


class _Walk:
    """The new order, as far as it is written."""

    def __init__(self, before: Entry) -> None:
        self.before = before
        self.flight = Flight()
        self.place = 0
        self.accesses: dict[int, tuple[Instruction, Access]] = {}

    def needs(self, use: Access) -> Iterator[frozenset[int]]:
        """Yield sets of barriers of which an access has to wait for one each."""
        for (resource, mode, kind), clears in self.before.pending.items():
            touched = use.writes if mode != "write" else use.reads | use.writes
            ordered = kind == use.kind or (mode == "spill" and use.kind in MEMORY)
            if resource in touched and not (ordered and resource not in use.reads):
                for barriers in clears:
                    if all(("entry", b) in self.flight.items for b in barriers):
                        yield barriers
        for item, (kind, barriers) in list(self.flight.items.items()):
            if item[0] == "entry" or item not in self.flight.items:
                continue
            earlier, its = self.accesses[item[1]]
            if item[0] == "write":
                clash = its.writes & use.reads or (its.writes & use.writes and kind != use.kind)
            else:
                spilled = earlier.mnemonic == "STL" and use.kind in MEMORY
                clash = (its.reads & use.writes) and kind != use.kind and not spilled
            if clash:
                yield barriers

    def wait_for(self, barriers: frozenset[int], one: Instruction) -> set[int]:
        """Wait for one of some barriers; return it."""
        if not barriers:
            raise RefusedError(f"{one.name} would have to wait for an access without a barrier")
        chosen = {min(barriers)}
        self.flight.wait(frozenset(chosen))
        return chosen

    def harmless(self, one: Instruction, item: Item) -> bool:
        """Whether a shared load may begin while an earlier one is under way."""
        return item[0] != "entry" and reads_shared(one) and reads_shared(self.accesses[item[1]][0])

    def issue(self, one: Instruction, use: Access) -> None:
        """Enter an instruction's access."""
        if not use.pure:
            self.accesses[self.place] = (one, use)
            self.flight.start(one, use, self.place)
            self.place += 1


def with_stalls(
    old: Sequence[Instruction], new: Sequence[Instruction], before: Entry, arch: int
) -> list[Instruction]:
    """Return the instructions with stall counts for their order."""
    behind = _behind(old)
    times, uses = [0], [access(one) for one in new]
    found = dependencies(new, arch)
    set_at: dict[int, int] = {}
    for index, (one, use) in enumerate(zip(new, uses, strict=True)):
        soonest = 0
        if index:
            last, kind = new[index - 1], uses[index - 1].kind
            kept = 1 if uses[index - 1].pure else last.control.stall
            soonest = times[-1] + max(kept, after(last, kind, one, use.kind))
        soonest = max([soonest, *(times[d.on] + d.cycles for d in found[index])])
        for resource in use.reads | use.writes:
            how = how_read(one, resource) if resource in use.reads else "write"
            for kind, age in before.ages.get(resource, ()):
                soonest = max(soonest, needed(kind, use.kind, how) - age)
        for resource in use.writes:
            for kind, age in before.read_ago.get(resource, ()):
                soonest = max(soonest, needed(kind, use.kind, "overwrite") - age)
        for barrier in one.control.waits:
            soonest = max(soonest, set_at.get(barrier, -BARRIER) + BARRIER)
            soonest = max(soonest, BARRIER - before.set_ago.get(barrier, BARRIER))
        if index:
            times.append(soonest)
        for given in (one.control.write_barrier, one.control.read_barrier):
            if given is not None:
                set_at[given] = times[index]
    least = new[-1].control.stall if not uses[-1].pure else 1
    end = max(times[-1] + max(1, least), *(
        when + behind[one.address] for when, one in zip(times, new, strict=True)
    ))  # fmt: skip
    stalls = [then - now for now, then in zip(times, [*times[1:], end], strict=True)]
    if max(stalls) > _LONGEST:
        raise RefusedError(f"a stall of {max(stalls)} cycles does not fit; left alone")
    # What stalls for no cycle is the end of a kernel: it is not reached.
    return [
        one if one.control.stall in (0, stall) else edit(one, arch, stall=stall)
        for one, stall in zip(new, stalls, strict=True)
    ]


def _behind(old: Sequence[Instruction]) -> dict[int, int]:
    """Return the cycles that each instruction leaves to the block's end, as far as they matter."""
    end = 0
    found = {}
    for one in reversed(old):
        end += max(1, one.control.stall)
        found[one.address] = min(end, _SETTLED)
    return found
