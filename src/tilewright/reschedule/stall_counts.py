"""Stall counts of a block in a new order, as short as the latency model allows.

An instruction issues when its producers' results have arrived (`latency`) and no sooner after the
previous one than in any code of ptxas.  The block is long enough for results that the code behind
it reads.  Instructions with effects beside their result registers keep their stall counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.reschedule.access import access
from tilewright.reschedule.dependencies import dependencies
from tilewright.reschedule.hazards import Entry, how_read
from tilewright.reschedule.latency import BARRIER, after, needed
from tilewright.sass.decode import INSTRUCTION_BYTES
from tilewright.sass.edit import RefusedError, edit
from tilewright.sass.instruction import Instruction

__all__ = ["numbered", "with_stalls"]

_SETTLED = 16  # cycles after which no result of fixed latency is waited for
_LONGEST = 15


def with_stalls(
    old: Sequence[Instruction], new: Sequence[Instruction], before: Entry, arch: int
) -> list[Instruction]:
    """Return a block's instructions in a new order, with the stall counts that it needs.

    Parameters
    ----------
    old : sequence of Instruction
        The block as it was.
    new : sequence of Instruction
        The same instructions, each with its old address.
    before : Entry
        What was under way where the block begins.
    arch : int
        Architecture number.

    Raises
    ------
    RefusedError
        If an instruction is not modelled, or would have to wait for longer than a stall can.
    """
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


def numbered(body: Sequence[Instruction], first: int, arch: int) -> list[Instruction]:
    """Return instructions with the addresses of their places; branches keep their targets."""
    return [
        edit(one, arch, address=first + INSTRUCTION_BYTES * place)
        if one.address != first + INSTRUCTION_BYTES * place
        else one
        for place, one in enumerate(body)
    ]
