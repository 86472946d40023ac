"""Move a kernel's main loop within the machine code that a launch brings.

A launch on an H100 brings the first 64 KiB of a kernel's machine code to all multiprocessors.  The
rest comes at its first use, through instruction-cache misses, unless the same kernel ran last: 51
cycles for 128 bytes, eight instructions, which otherwise take 16 (docs/scheduling.md).  Compilers
place the epilogue of a persistent kernel before its main loop, so that the first pass through a
loop of 1658 instructions takes 10 us more.

`arrange` cuts a kernel where a branch ends or leads to, and moves the piece with the main loop
towards the front::

    before | entry, copies ... | epilogue .......... | main loop | rest ... | NOP ... |
    after  | entry, copies ... | main loop | epilogue .......... | rest ... | NOP .. |
                               ^ 64 KiB end somewhere behind the loop

Instructions keep all bits but the distances of branches.  Where control fell through from one piece
to the next, a new branch leads there, in place of one of the NOPs at the kernel's end: the kernel
is as long as before.  `moved_only` proves that both versions run the same instructions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.sass.decode import INSTRUCTION_BYTES
from tilewright.sass.edit import RefusedError, edit, with_target
from tilewright.sass.flow import goes_on
from tilewright.sass.instruction import Instruction
from tilewright.sass.loops import Loop, main_loop
from tilewright.sass.machine import FETCHED_BYTES

__all__ = ["arrange", "moved_only"]

# A loop's zeros and first fragments run with it: so many instructions before it may come along.
_LEAD = 256
# Anything with an address in it that is not among these is left alone: calls, and branches through
# a register or a table.
_JUMPS = frozenset(("BRA", "BSSY"))
_WITH_PLACE = frozenset(("CALL", "RET", "WARPSYNC"))
_WARPSYNC_OF_ALL = 0x948  # the other forms name a place to go on at
_ONWARD_STALL = 5  # what ptxas gives a branch that always leads away

Piece = tuple[int, int]


def arrange(instructions: Sequence[Instruction], arch: int) -> tuple[Instruction, ...] | None:
    """Return a kernel with its main loop within the code that a launch brings; None if it is.

    Parameters
    ----------
    instructions : sequence of Instruction
        The whole kernel.
    arch : int
        Architecture number.

    Returns
    -------
    tuple of Instruction or None
        As many, in the order of their addresses.  None, too, where nothing is known of the
        architecture, the kernel has no loop that multiplies, or the loop does not fit.

    Raises
    ------
    RefusedError
        If the kernel has instructions whose places matter and that cannot be moved.
    """
    room = FETCHED_BYTES.get(arch, 0) // INSTRUCTION_BYTES
    loop = main_loop(instructions) if room and len(instructions) > room else None
    if loop is None or loop.end // INSTRUCTION_BYTES < room:
        return None
    _check_movable(instructions)
    used = _without_padding(instructions)
    pieces = _pieces(instructions, used, loop, room)
    return None if pieces is None else _laid_out(instructions, pieces, used, arch)


def _check_movable(instructions: Sequence[Instruction]) -> None:
    """Refuse kernels with an instruction that may name a place in a way not known here."""
    used = _without_padding(instructions)
    if not used or goes_on(instructions[used - 1]):
        raise RefusedError("the text ends with an instruction that another follows")
    places = {one.address for one in instructions[:used]}
    for one in instructions:
        unclear = not one.known or (one.mnemonic in _JUMPS and one.target not in places)
        if one.mnemonic in _WITH_PLACE and one.opcode != _WARPSYNC_OF_ALL:
            unclear = True
        if unclear:
            raise RefusedError(f"{one} at {one.address:#x} may name a place in the text")


def _without_padding(instructions: Sequence[Instruction]) -> int:
    """Return how many instructions there are before those at the end that do nothing."""
    count = len(instructions)
    while count and instructions[count - 1].mnemonic == "NOP":
        count -= 1
    return count


def _pieces(
    instructions: Sequence[Instruction], used: int, loop: Loop, room: int
) -> list[Piece] | None:
    """Return the kernel's pieces in their new order, None where the loop finds no place."""
    head, tail = loop.start // INSTRUCTION_BYTES, loop.end // INSTRUCTION_BYTES
    targets = {one.target // INSTRUCTION_BYTES for one in instructions if one.target is not None}
    # Where a piece may begin without a branch of its own before it, and where it needs one.
    breaks = [index for index in range(1, used + 1) if not goes_on(instructions[index - 1])]
    cuts = sorted(targets.union(breaks) & set(range(1, used)))
    stop = next((index for index in breaks if index > tail), used)
    start = min((index for index in cuts if head - _LEAD <= index <= head), default=head)
    latest = room - (stop - start) - 1
    places = [index for index in breaks if index <= min(latest, start)]
    places = places or [index for index in cuts if index <= min(latest, start)]
    if not places or not start < stop:
        return None
    pieces = [(0, places[-1]), (start, stop), (places[-1], start), (stop, used)]
    return [(first, last) for first, last in pieces if first < last]


def _laid_out(
    instructions: Sequence[Instruction], pieces: Sequence[Piece], used: int, arch: int
) -> tuple[Instruction, ...] | None:
    """Return instructions piece by piece, with branches where control went on before."""
    # What leads to itself behind the end serves where no other branch always leads away.
    onward = next((x for x in instructions if x.mnemonic == "BRA" and not goes_on(x)), None)
    if onward is None:
        return None
    order: list[tuple[Instruction | None, int | None]] = []  # None: a branch to the other
    where: dict[int, int] = {}
    follow = [first for first, _ in pieces[1:]] + [used]
    for (first, last), following in zip(pieces, follow, strict=True):
        where |= {index: len(order) + index - first for index in range(first, last)}
        order += [(one, None) for one in instructions[first:last]]
        if goes_on(instructions[last - 1]) and following != last:
            order.append((None, last))
    free = len(instructions) - len(order)
    if free < 0:
        return None
    order += [(one, None) for one in instructions[len(instructions) - free :]]
    return tuple(
        _placed(one or onward, place * INSTRUCTION_BYTES, whereto, where, arch)
        for place, (one, whereto) in enumerate(order)
    )


def _placed(
    one: Instruction, address: int, whereto: int | None, where: Mapping[int, int], arch: int
) -> Instruction:
    """Return an instruction at its new place; a branch leads to where its target went."""
    if whereto is not None:
        return edit(
            one, arch, address=address, target=where[whereto] * INSTRUCTION_BYTES,
            stall=_ONWARD_STALL, wait_mask=0, write_barrier=None, read_barrier=None,
        )  # fmt: skip
    if one.target is None:
        return one if one.address == address else one.at(address)
    target = where[one.target // INSTRUCTION_BYTES] * INSTRUCTION_BYTES
    return edit(one, arch, address=address, target=target)


def moved_only(
    before: Sequence[Instruction], after: Sequence[Instruction], arch: int
) -> dict[int, int]:
    """Return where each instruction of a kernel that can run stands in a version of it.

    Both are followed from their first instructions on, side by side: what runs next must be the
    same instruction, by all its bits but a branch's distance, and always in the same place.  Only
    the version may have branches besides, that always lead on and wait for nothing.  It shares no
    code with what moved them but how a branch names its target.

    Parameters
    ----------
    before, after : sequence of Instruction
        Whole kernels.
    arch : int
        Architecture number.

    Returns
    -------
    dict of int
        Address in `after` by address in `before`.

    Raises
    ------
    RefusedError
        If they may run anything else, with the first place that does.
    """
    _check_movable(before)
    _check_movable(after)
    if len(before) != len(after):
        raise RefusedError(f"there are {len(after)} instructions, not {len(before)}")
    bits = [[_but_distance(one, arch) for one in code] for code in (before, after)]
    ways = [_ways(code) for code in (before, after)]
    place: dict[int, int] = {}
    waiting = [(0, 0)]
    while waiting:
        old, new = waiting.pop()
        away = ways[1][new][1]
        if bits[0][old] != bits[1][new] and away is not None and _leads_on(after[new]):
            new = away
        if bits[0][old] != bits[1][new] or place.get(old, new) != new:
            raise RefusedError(f"{before[old]} at {before[old].address:#x} is not what runs there")
        if old in place:
            continue
        place[old] = new
        pairs = list(zip(ways[0][old], ways[1][new], strict=True))
        if any((mine is None) != (theirs is None) for mine, theirs in pairs):
            raise RefusedError(f"{before[old]} at {before[old].address:#x} ends the text")
        waiting += [(mine, theirs) for mine, theirs in pairs if mine is not None is not theirs]
    return {old * INSTRUCTION_BYTES: new * INSTRUCTION_BYTES for old, new in place.items()}


def _but_distance(one: Instruction, arch: int) -> int:
    """Return an instruction's bits with a branch's distance left out."""
    return one.raw if one.target is None else with_target(one.raw, one, arch, 0, 0)


def _ways(instructions: Sequence[Instruction]) -> list[tuple[int | None, int | None]]:
    """Return the index of what runs behind each instruction, and of what it names as a target."""
    return [
        (
            index + 1 if goes_on(one) else None,
            None if one.target is None else one.target // INSTRUCTION_BYTES,
        )
        for index, one in enumerate(instructions)
    ]


def _leads_on(one: Instruction) -> bool:
    """Whether it does nothing but lead away: no condition, no barrier, nobody waits."""
    control = one.control
    quiet = control.write_barrier is None and control.read_barrier is None and not control.waits
    return one.mnemonic == "BRA" and quiet and not goes_on(one)
