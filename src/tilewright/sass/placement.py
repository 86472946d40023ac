"""Where a block's shared loads and copies stand among its multiply-adds.

    before   L1 L2 L3 f f f f f f f f f f f f      f: what computes, in its order
    after    L1 f f f f L2 f f f f L3 f f f f      L: accesses, in theirs

Accesses keep their order among themselves, and with all else that has an effect, so that memory
and barriers are seen as before; those that follow each other directly stay together.  An access
comes as early as what it overwrites, or its address, lets it, a number of instructions behind the
one before; a reader behind it stays behind it, and waits where it has to (`waits`).  Of a few such
numbers the one is taken that the simulation finds fastest, and none if all are slower than before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.sass.access import Access, access
from tilewright.sass.dependencies import Block, RefusedError, dependencies
from tilewright.sass.hazards import Entry, entry
from tilewright.sass.instruction import Instruction
from tilewright.sass.loops import Loop
from tilewright.sass.machine import Machine
from tilewright.sass.simulate import simulate
from tilewright.sass.stalls import numbered, restalled
from tilewright.sass.trace import k_loop, steady_trace
from tilewright.sass.waits import rewaited

__all__ = ["loop_cycles", "spaced", "with_loads"]

_APART = (6, 8, 12)  # instructions between accesses that are tried
_FORCED = 8
# Blocks and warps of each: how warps meet moves the simulation by a per cent either way, so that
# one of them alone would be chance.
_RESIDENT = ((1, 4), (1, 8), (2, 4))
_PLACED = frozenset(("shared", "global"))


@dataclass
class _Group:
    """Instructions with effects that follow each other directly.

    Parameters
    ----------
    members : list of int
        Indices into the block.
    at, low, high : int
        Computing instructions before it: now, at least, and at most.
    placed : bool
        Whether it may stand elsewhere.
    """

    members: list[int]
    at: int
    low: int
    high: int
    placed: bool


def with_loads(
    kernel: Sequence[Instruction],
    block: Block,
    loop: Loop,
    arch: int,
    machine: Machine,
    whatever: bool = False,
) -> tuple[list[Instruction], int]:
    """Return a block with its accesses placed anew, and how many stand elsewhere.

    Parameters
    ----------
    kernel : sequence of Instruction
        The whole kernel.
    block : Block
        One of its blocks.
    loop : Loop
        The main loop that the block belongs to.
    arch : int
        Architecture number.
    machine : Machine
        The simulation's constants.
    whatever : bool
        Whether to place them `_FORCED` apart, whatever the simulation says.

    Raises
    ------
    RefusedError
        If the block has an instruction that is not modelled.
    """
    body = list(kernel[block.start : block.stop])
    before = entry(kernel, block.start)
    best, moved = body, 0
    least = float("inf") if whatever else loop_cycles(kernel, loop, arch, machine)
    for apart in (_FORCED,) if whatever else _APART:
        try:
            made = spaced(body, before, apart, arch)
        except RefusedError:
            continue
        whole = [*kernel[: block.start], *made, *kernel[block.stop :]]
        now = loop_cycles(whole, loop, arch, machine)
        if now < least:
            best, least = made, now
            moved = sum(
                x.raw & 0xFFF != y.raw & 0xFFF and access(y).kind in _PLACED
                for x, y in zip(body, made, strict=True)
            )
    return best, moved


def loop_cycles(kernel: Sequence[Instruction], loop: Loop, arch: int, machine: Machine) -> float:
    """Return the cycles of the loop over k, summed over three ways that warps may be resident."""
    first, last = loop.start // 16, loop.end // 16
    inner = Loop(tuple(kernel[first : last + 1]))
    trace = steady_trace(kernel, k_loop(kernel, inner))
    return sum(simulate(trace, arch, blocks, warps, machine=machine) for blocks, warps in _RESIDENT)


def spaced(body: Sequence[Instruction], before: Entry, apart: int, arch: int) -> list[Instruction]:
    """Return a block whose accesses stand at least `apart` instructions behind each other.

    Parameters
    ----------
    body : sequence of Instruction
        The block.
    before : Entry
        What is under way where it begins.
    apart : int
        Instructions that compute, between two accesses.
    arch : int
        Architecture number.

    Raises
    ------
    RefusedError
        If an instruction is not modelled, or waits and stalls cannot be set for the new order.
    """
    uses = [access(one) for one in body]
    groups = _groups(body, uses, arch)
    order: list[int] = []
    computing = [i for i, use in enumerate(uses) if use.pure]
    done = 0
    for group, at in zip(groups, _places(groups, apart), strict=True):
        order += computing[done:at] + group.members
        done = at
    order += computing[done:]
    new = rewaited(body, [body[i] for i in order], before, arch)
    return numbered(restalled(body, new, before, arch), body[0].address, arch)


def _places(groups: Sequence[_Group], apart: int) -> Iterator[int]:
    """Yield where each group goes: as early as it may, but apart from the one before."""
    latest: list[int] = []
    bound = None
    for group in reversed(groups):
        own = group.high if group.placed else group.at
        bound = own if bound is None else min(bound, own)
        latest.append(bound)
    last = -apart
    for group, most in zip(groups, reversed(latest), strict=True):
        wanted = max(group.low, last + apart) if group.placed else group.at
        last = max(0, last, min(wanted, most))
        yield last


def _groups(body: Sequence[Instruction], uses: Sequence[Access], arch: int) -> list[_Group]:
    """Return the groups of a block with their bounds."""
    found = dependencies(body, arch)
    rank: list[int] = []
    groups: list[_Group] = []
    group_of: dict[int, _Group] = {}
    count, every = 0, sum(use.pure for use in uses)
    for index, use in enumerate(uses):
        rank.append(count)
        if use.pure:
            count += 1
        elif groups and groups[-1].members[-1] == index - 1:
            groups[-1].members.append(index)
        else:
            groups.append(_Group([index], count, 0, every, True))
        if not use.pure:
            group_of[index] = groups[-1]
            kept = use.kind not in _PLACED or body[index].target is not None
            groups[-1].placed = groups[-1].placed and not kept
    for index, mine in enumerate(found):
        for needs in mine:
            if uses[needs.on].pure and not uses[index].pure:
                group = group_of[index]
                # As far behind as its latency, if it was: nothing is to wait for longer.
                behind = min(group.at, rank[needs.on] + needs.cycles)
                group.low = max(group.low, behind)
            elif uses[index].pure and not uses[needs.on].pure:
                said = _carrier(body, uses, needs.on)
                for on in (needs.on, said):
                    group_of[on].high = min(group_of[on].high, rank[index])
    return groups


def _carrier(body: Sequence[Instruction], uses: Sequence[Access], index: int) -> int:
    """Return the access whose barrier says that one is over: itself, or the next of its class."""
    for later in range(index, len(body)):
        control = body[later].control
        if uses[later].kind == uses[index].kind and control.write_barrier is not None:
            return later
    return index
