"""Which accesses may still be in flight at each effect of a block, and at its end.

Two versions of a block have the same effects in the same order.  An access is identified by its
place among them, one of an earlier block by its barrier.  It is over once an instruction waits for
its barrier or for that of a later access of its class, since a class finishes in order.  No effect
may meet an access in flight that was over before; only shared loads may meet shared loads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tilewright.reschedule.access import Access
from tilewright.sass.instruction import Instruction

__all__ = ["Flight", "reads_shared", "still_under_way"]

BARRIERS = 6
Item = tuple[str, int]  # "write" or "read" and an access's place; "entry" and a barrier


@dataclass
class Flight:
    """What is under way: each item's class, and the barriers that say that it is over."""

    items: dict[Item, tuple[str, frozenset[int]]] = field(
        default_factory=lambda: {("entry", b): ("", frozenset((b,))) for b in range(BARRIERS)}
    )

    def wait(self, mask: frozenset[int]) -> None:
        """Drop what an instruction waits for."""
        if mask:
            self.items = {i: (k, clears) for i, (k, clears) in self.items.items()
                          if not clears & mask}  # fmt: skip

    def start(self, one: Instruction, use: Access, place: int) -> None:
        """Enter an access; its barriers cover earlier ones of its class too."""
        if not use.variable or one.guard.never:
            return
        control = one.control
        written = frozenset(b for b in (control.write_barrier,) if b is not None)
        released = frozenset(b for b in (control.read_barrier, *written) if b is not None)
        self.items["write", place] = self.items["read", place] = (use.kind, frozenset())
        for item, (kind, clears) in self.items.items():
            own = item[1] == place and item[0] != "entry"
            if own or (kind == use.kind and use.in_order):
                more = written if item[0] == "write" else released
                self.items[item] = (kind, clears | more)


def reads_shared(one: Instruction) -> bool:
    """Whether it is a load from shared memory, which no other such load can harm."""
    return one.mnemonic in ("LDS", "LDSM")


def _flights(
    body: Sequence[Instruction], uses: Sequence[Access], effects: Sequence[bool]
) -> tuple[list[tuple[Instruction, frozenset[Item]]], dict[Item, tuple[str, frozenset[int]]]]:
    """Return each effect with what is under way before it, and what is at the end."""
    flight, found = Flight(), []
    for one, use, effect in zip(body, uses, effects, strict=True):
        flight.wait(frozenset(one.control.waits))
        if effect:
            found.append((one, frozenset(flight.items)))
            flight.start(one, use, len(found) - 1)
    return found, flight.items


def still_under_way(
    before: tuple[Sequence[Instruction], Sequence[Access], Sequence[bool]],
    after: tuple[Sequence[Instruction], Sequence[Access], Sequence[bool]],
) -> Iterator[str]:
    """Yield what a new version of a block no longer waits for.

    Parameters
    ----------
    before, after : tuple
        Instructions, their accesses, and whether each is an effect; the
        effects of both are the same ones in the same order.
    """
    where = before[0][0].address
    old, old_end = _flights(*before)
    new, new_end = _flights(*after)
    loads = {place for place, (one, _) in enumerate(old) if reads_shared(one)}
    for number, ((one, mine), (_, theirs)) in enumerate(zip(old, new, strict=True)):
        more = theirs - mine
        if reads_shared(one):
            more = frozenset(i for i in more if i[0] == "entry" or i[1] not in loads)
        if more:
            yield f"access {number} of the block at {where:#x} no longer follows a wait"
    for item, (_, clears) in new_end.items():
        if item not in old_end or not old_end[item][1] <= clears:
            yield f"a barrier is no longer waited for in the block at {where:#x}"
            return
