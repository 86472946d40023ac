"""The steady state of a kernel's loop over k, instruction by instruction.

A GEMM's loop over k holds the main loop (`tilewright.sass.main_loop`) or is that loop itself;
around it lie the fetch of the next tiles, barriers, and branches for tiles at a matrix's edge.
What a warp executes in an interior tile is one path through all this.  Where a branch leaves a
choice, the shortest path is taken that puts a whole step's tiles into shared memory and fetches no
less from device memory: a step that skips the fetch happens once, at the end, one that checks every
element only at the edges.  Of a loop that puts nothing there, the path that fetches most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.sass.decode import INSTRUCTION_BYTES
from tilewright.sass.divergence import basic_blocks
from tilewright.sass.flow import successors
from tilewright.sass.instruction import Instruction
from tilewright.sass.loops import Loop, find_loops

__all__ = ["k_loop", "steady_trace", "trip_count", "ways_around_copies"]

_Moved = tuple[int, int]  # bits fetched from device memory, and put into shared memory

_COPIES = frozenset(("LDGSTS", "UTMALDG", "UBLKCP"))
_FETCHES = _COPIES | {"LDG"}
# Instructions of a trace: four times the longest trip of the measured kernels.  A loop whose
# constant bound would make more is no loop over a tile's depth.
_MOST = 20_000


@dataclass(frozen=True)
class _Way:
    """From an instruction to the end of the loop: its length, and how it goes on."""

    count: int
    following: int | None
    behind: _Moved


def k_loop(instructions: Sequence[Instruction], inner: Loop) -> Loop:
    """Return the loop over k: the smallest one around `inner` that reads device memory.

    It is `inner` itself where that one does, or where no loop around it does.
    """
    around = [
        loop
        for loop in find_loops(instructions)
        if loop.start <= inner.start
        and inner.end <= loop.end
        and any(i.mnemonic in _FETCHES for i in loop.instructions)
    ]
    return min(around, key=lambda loop: len(loop.instructions), default=inner)


def steady_trace(instructions: Sequence[Instruction], loop: Loop) -> tuple[Instruction, ...]:
    """Return what one warp executes in one trip of a loop, inner loops repeated.

    Parameters
    ----------
    instructions : sequence of Instruction
        The whole kernel: code of the loop may lie behind its end.
    loop : Loop
        As `k_loop` gives it.
    """
    head = loop.start // INSTRUCTION_BYTES
    latch = loop.end // INSTRUCTION_BYTES
    after = successors(instructions)
    body = _natural_loop(after, head, latch)
    order, back = _depth_first(after, body, head)
    ways: dict[int, dict[_Moved, _Way]] = {}
    for index in order:  # every node behind those that follow it
        found: dict[_Moved, _Way] = {(0, 0): _Way(0, None, (0, 0))} if index == latch else {}
        for following in after[index] if index != latch else ():
            if (index, following) not in back:
                for moved, way in ways.get(following, {}).items():
                    if moved not in found or way.count < found[moved].count:
                        found[moved] = _Way(way.count, following, moved)
        mine = _moved(instructions[index])
        ways[index] = _best(
            {
                (fetched + mine[0], put + mine[1]): _Way(way.count + 1, way.following, way.behind)
                for (fetched, put), way in found.items()
            }
        )
    if not ways[head]:  # a loop entered in its middle: no path from its head to its end
        return loop.instructions
    return _walk(instructions, after, ways, back, head)


def ways_around_copies(
    instructions: Sequence[Instruction], loop: Loop
) -> frozenset[tuple[int, int]]:
    """Return the ways to a loop that no interior tile takes, as pairs of basic blocks.

    Such a tile's first stages are filled by the widest asynchronous copies, before the loop.  Left
    out is what comes from elsewhere to where these lead: tiles at an edge, or none to copy.

    Parameters
    ----------
    instructions : sequence of Instruction
        The whole kernel.
    loop : Loop
        As `k_loop` gives it.
    """
    blocks = basic_blocks(instructions)
    inside, copying = set(), set()
    for number, block in enumerate(blocks):
        own = instructions[block.first : block.last + 1]
        if (
            loop.start <= own[0].address <= loop.end
            or own[0].address <= loop.start <= own[-1].address
        ):
            inside.add(number)
        elif any(i.mnemonic == "LDGSTS" and i.access_bits == 128 for i in own):
            copying.add(number)
    following = [block.following for block in blocks]
    _, back = _depth_first(following, frozenset(range(len(blocks))), 0)
    behind, todo = set(copying), [*copying]
    while todo:
        number = todo.pop()
        for other in following[number] if number not in inside else ():
            if other not in behind and (number, other) not in back:
                behind.add(other)
                todo.append(other)
    known = behind | inside
    return frozenset(
        (number, other)
        for number, others in enumerate(following)
        for other in others
        if other in behind - copying and number not in known
    )


def trip_count(inner: Sequence[Instruction]) -> int:
    """Return how often a loop with constant bounds runs; 1 where that cannot be read off.

    A counter starts at zero, or behind it by a step's rest, takes a constant
    step and is compared with a constant: the quotient of the two.
    """
    bounds = [i for i in inner if i.mnemonic in ("ISETP", "UISETP")]
    for compare in reversed(bounds):
        limits = [o.value for o in compare.srcs if o.kind == "imm"]
        counters = [(o.kind, o.value) for o in compare.srcs if o.kind in ("reg", "ureg")]
        for add in inner:
            written = [("reg", r) for r in add.dst] + [("ureg", r) for r in add.udst]
            steps = [o.value for o in add.srcs if o.kind == "imm"]
            same = add.mnemonic in ("IADD3", "VIADD", "UIADD3") and counters[:1] == written[:1]
            if same and limits and steps and 0 < steps[0] <= limits[0]:
                return max(1, round(limits[0] / steps[0]))
    return 1


def _moved(instruction: Instruction) -> _Moved:
    """Return the bits that an instruction fetches for a thread, and puts into shared memory."""
    bits = instruction.access_bits or 32
    if instruction.mnemonic in _COPIES:
        return bits, bits
    return bits * (instruction.mnemonic == "LDG"), bits * (instruction.mnemonic == "STS")


def _best(ways: dict[_Moved, _Way]) -> dict[_Moved, _Way]:
    """Leave out a way where another one puts as much, fetches no less and is no longer."""
    kept: dict[_Moved, _Way] = {}
    for moved, way in sorted(ways.items(), key=lambda item: (-item[0][0], item[1].count)):
        fetched, put = moved
        if not any(
            put == other and fetched <= more and way.count >= known.count
            for (more, other), known in kept.items()
        ):
            kept[moved] = way
    return kept


def _chosen(ways: dict[_Moved, _Way]) -> _Moved:
    """Return the way that is taken in an interior tile."""
    most = max(put for _, put in ways)
    enough = [moved for moved in ways if moved[1] == most and moved[0] >= most > 0]
    if enough:
        return min(enough, key=lambda moved: ways[moved].count)
    return max(ways, key=lambda moved: (moved[1], moved[0], -ways[moved].count))


def _natural_loop(after: Sequence[tuple[int, ...]], head: int, latch: int) -> frozenset[int]:
    """Return the instructions from which the latch is reached without passing the head."""
    before: list[list[int]] = [[] for _ in after]
    for index, following in enumerate(after):
        for node in following:
            before[node].append(index)
    body, waiting = {head, latch}, [latch]
    while waiting:
        node = waiting.pop()
        if node == head:
            continue
        for earlier in before[node]:
            if earlier not in body:
                body.add(earlier)
                waiting.append(earlier)
    return frozenset(body)


def _depth_first(
    after: Sequence[tuple[int, ...]], body: frozenset[int], head: int
) -> tuple[list[int], set[tuple[int, int]]]:
    """Return the post-order of a loop's instructions, and the edges that go back."""
    order: list[int] = []
    back: set[tuple[int, int]] = set()
    active, done = {head}, set()
    stack = [(head, iter(after[head]))]
    while stack:
        node, ways = stack[-1]
        for following in ways:
            if following in active:
                back.add((node, following))
            elif following in body and following not in done:
                active.add(following)
                stack.append((following, iter(after[following])))
                break
        else:
            stack.pop()
            active.discard(node)
            done.add(node)
            order.append(node)
    return order, back


def _walk(
    instructions: Sequence[Instruction],
    after: Sequence[tuple[int, ...]],
    ways: dict[int, dict[_Moved, _Way]],
    back: set[tuple[int, int]],
    head: int,
) -> tuple[Instruction, ...]:
    """Follow the chosen way from the head; repeat an inner loop where its branch lies."""
    trace: list[Instruction] = []
    place: dict[int, int] = {}
    node, moved = head, _chosen(ways[head])
    while True:
        place[node] = len(trace)
        trace.append(instructions[node])
        inner = [n for n in after[node] if (node, n) in back and n != head]
        if inner and inner[0] in place:
            once = trace[place[inner[0]] :]
            trace += once * (min(trip_count(once), max(1, _MOST // len(once))) - 1)
        way = ways[node][moved]
        if way.following is None:
            return tuple(trace)
        node, moved = way.following, way.behind
