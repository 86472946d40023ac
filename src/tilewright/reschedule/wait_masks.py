"""Wait masks of a block whose instructions stand in another order.

An instruction waits for each access that writes a register it names, or reads one it overwrites,
unless an earlier instruction has waited for it.  An effect keeps its own waits, and waits for
whatever was over before it in the old order (`in_flight` checks the same).  Accesses keep their
barriers and their order; only wait masks change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.reschedule.access import Access, access
from tilewright.reschedule.hazards import MEMORY, Entry
from tilewright.reschedule.in_flight import Flight, Item, reads_shared
from tilewright.sass.edit import RefusedError, edit
from tilewright.sass.instruction import Instruction

__all__ = ["with_waits"]


def with_waits(
    old: Sequence[Instruction], new: Sequence[Instruction], before: Entry, arch: int
) -> list[Instruction]:
    """Return a block's instructions in a new order, with the waits that it needs.

    Parameters
    ----------
    old : sequence of Instruction
        The block as it was.
    new : sequence of Instruction
        The same instructions; effects in the same order.
    before : Entry
        What is under way where the block begins.
    arch : int
        Architecture number.

    Raises
    ------
    RefusedError
        If something would have to be waited for before its barrier is set.
    """
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
