"""Basic blocks, and what runs for a part of a warp only.

A branch that lanes of one warp decide differently is divergent: until they meet again, at its
nearest postdominator, each instruction runs for some of them.  That lanes do meet there is the
rule by which compilers place BSSY and BSYNC; the hardware alone does not promise it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.sass.decode import INSTRUCTION_BYTES
from tilewright.sass.flow import successors
from tilewright.sass.instruction import Instruction

__all__ = ["Block", "basic_blocks", "influenced", "jumping_calls"]

_LEAVES = frozenset(("EXIT", "RET", "CALL"))
_ENDS = _LEAVES | {"BRA"}


@dataclass(frozen=True)
class Block:
    """Instructions `first` to `last` by index, and the blocks that may follow.

    ``leaves`` tells that a lane may end the kernel, or return, after `last`.
    """

    first: int
    last: int
    following: tuple[int, ...]
    leaves: bool


def basic_blocks(instructions: Sequence[Instruction]) -> list[Block]:
    """Return the blocks in address order; a call that never returns is a branch."""
    after: list[tuple[int, ...]] = list(successors(instructions))
    jumps = jumping_calls(instructions)
    for index in jumps:
        target = (instructions[index].target or 0) // INSTRUCTION_BYTES
        if 0 <= target < len(instructions):
            after[index] = (*after[index], target)
    heads = {0} if instructions else set()
    for index, instruction in enumerate(instructions):
        if instruction.mnemonic in _ENDS:
            heads.update(after[index])
            if index + 1 < len(instructions):
                heads.add(index + 1)
    starts = sorted(heads)
    number = {start: block for block, start in enumerate(starts)}
    blocks = []
    for start, stop in zip(starts, [*starts[1:], len(instructions)], strict=True):
        last = instructions[stop - 1]
        leaves = not after[stop - 1] or (last.mnemonic in _LEAVES and stop - 1 not in jumps)
        following = tuple(dict.fromkeys(number[i] for i in after[stop - 1]))
        blocks.append(Block(start, stop - 1, following, leaves))
    return blocks


def jumping_calls(instructions: Sequence[Instruction]) -> frozenset[int]:
    """Return the calls, by index, of what never returns: for sm_80 ptxas leaves loops so."""
    after = successors(instructions)
    found = set()
    for index, instruction in enumerate(instructions):
        if instruction.mnemonic != "CALL" or instruction.target is None:
            continue
        todo, seen = [instruction.target // INSTRUCTION_BYTES], set[int]()
        while todo:
            at = todo.pop()
            if at in seen or not 0 <= at < len(instructions):
                continue
            seen.add(at)
            todo += after[at]
            target = instructions[at].target
            if instructions[at].mnemonic == "CALL" and target is not None:
                todo.append(target // INSTRUCTION_BYTES)
        if not any(instructions[at].mnemonic == "RET" for at in seen):
            found.add(index)
    return frozenset(found)


def influenced(blocks: Sequence[Block], divergent: Sequence[int]) -> set[int]:
    """Return the blocks that run for a part of a warp if these blocks end divergently."""
    postdominators = _postdominators(blocks)
    found: set[int] = set()
    for start in divergent:
        meeting = postdominators[start] & ~(1 << start)
        todo, seen = list(blocks[start].following), set[int]()
        while todo:
            block = todo.pop()
            if block in seen or meeting >> block & 1:
                continue
            seen.add(block)
            todo += blocks[block].following
        found |= seen
    return found


def _postdominators(blocks: Sequence[Block]) -> list[int]:
    """Return, as bits, the blocks that every way from each block to the end passes."""
    everything = (1 << len(blocks)) - 1
    found = [everything] * len(blocks)
    changed = True
    while changed:
        changed = False
        for index in range(len(blocks) - 1, -1, -1):
            block = blocks[index]
            common = 0 if block.leaves else everything
            for following in block.following:
                common &= found[following]
            value = common | 1 << index
            if value != found[index]:
                found[index] = value
                changed = True
    return found
