"""What must stay before what in a straight run of instructions.

`dependencies` returns for each instruction of a block the earlier ones that it depends on, with the
least cycles between their issues, and refuses a block with an instruction that is not modelled.

- *After a write*: the result's latency; 1 after an access of variable latency, whose reader
  follows the wait for its barrier (`released_at`, `control_fields`).
- *After a read*: 1, since operands are read at issue; 3 for a move that overwrites what the uniform
  pipe reads.  Sources of an access are free after a wait.
- *Among accesses*: memory, barriers, copies and branches keep their order.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.reschedule.access import FIXED, Access, access
from tilewright.reschedule.hazards import how_read
from tilewright.reschedule.latency import needed, pace
from tilewright.sass.decode import INSTRUCTION_BYTES
from tilewright.sass.edit import RefusedError
from tilewright.sass.flow import successors
from tilewright.sass.instruction import Instruction

__all__ = ["Block", "Dependency", "blocks", "dependencies"]

PROVED_ON = 90  # the latencies and the order of barriers are this architecture's


@dataclass(frozen=True)
class Block:
    """A straight run of a kernel's instructions, entered at its start only.

    Parameters
    ----------
    start, stop : int
        Indices into the kernel's instructions.
    """

    start: int
    stop: int


@dataclass(frozen=True)
class Dependency:
    """An earlier instruction of the block, by its index there, and the least cycles from it."""

    on: int
    cycles: int


def blocks(instructions: Sequence[Instruction]) -> list[Block]:
    """Return a kernel's straight runs.

    Besides the targets of branches, points of reconvergence start one.
    """
    count = len(instructions)
    starts = {0, count}
    for index, following in enumerate(successors(instructions)):
        one = instructions[index]
        if following != (index + 1,):
            starts.update((*following, index + 1))
        if one.target is not None:
            starts.add(one.target // INSTRUCTION_BYTES)
        if one.mnemonic in ("BSYNC", "CALL", "RET", "WARPSYNC", "BREAK"):
            starts.add(index + 1)
    ordered = sorted(s for s in starts if 0 <= s <= count)
    return [Block(a, b) for a, b in itertools.pairwise(ordered)]


def dependencies(body: Sequence[Instruction], arch: int) -> list[list[Dependency]]:
    """Return what each instruction of a block depends on within it.

    Parameters
    ----------
    body : sequence of Instruction
        One of `blocks`.
    arch : int
        Architecture number.

    Raises
    ------
    RefusedError
        If the architecture is another than the one whose latencies are known,
        or an instruction is not modelled.
    """
    if arch != PROVED_ON:
        raise RefusedError(f"arch=sm_{arch} has latencies not known here; give a cubin for sm_90a")
    uses = [access(one) for one in body]
    for one, use in zip(body, uses, strict=True):
        if use.kind == "unknown":
            raise RefusedError(f"{one.name} at {one.address:#x} is not modelled; left alone")
    found: list[dict[int, int]] = [{} for _ in body]
    writer: dict[int, list[int]] = {}
    readers: dict[int, list[int]] = {}
    last_effect: int | None = None
    last_paced: int | None = None
    for index, (one, use) in enumerate(zip(body, uses, strict=True)):
        mine = found[index]
        for resource in use.reads:
            for earlier in writer.get(resource, ()):
                _need(mine, earlier, _cycles(uses[earlier], one, use, resource))
            readers.setdefault(resource, []).append(index)
        for resource in use.writes:
            for earlier in writer.get(resource, ()):
                _need(mine, earlier, max(1, needed(uses[earlier].kind, use.kind, "write")))
            for earlier in readers.get(resource, ()):
                if earlier != index:
                    _need(mine, earlier, needed(uses[earlier].kind, use.kind, "overwrite"))
            # A write that may not happen leaves the earlier one standing.
            writer[resource] = [*(() if one.guard.always else writer.get(resource, ())), index]
            readers[resource] = [index] if resource in use.reads else []
        if not use.pure:
            if last_effect is not None:
                _need(mine, last_effect, 1)
            last_effect = index
        if pace(one):
            if last_paced is not None:
                _need(mine, last_paced, pace(body[last_paced]))
            last_paced = index
    return [[Dependency(on, c) for on, c in sorted(mine.items())] for mine in found]


def _need(mine: dict[int, int], earlier: int, cycles: int) -> None:
    mine[earlier] = max(cycles, mine.get(earlier, 0))


def _cycles(earlier: Access, one: Instruction, use: Access, resource: int) -> int:
    """Return the cycles from a write to a read of the same resource."""
    if earlier.kind not in FIXED:
        return 1
    return max(1, needed(earlier.kind, use.kind, how_read(one, resource)))
