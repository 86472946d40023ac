"""What is known of every lane's registers before each block of a kernel.

The kernel is run from its entry with sets of values for numbers (`tilewright.sass.lane_values`),
joined where ways meet until nothing changes.  Blocks that run for a part of a warp change what is
known of registers, but give no result.  Of a register that nothing asked for depends on, such as
the sums of a main loop, nothing is known once it is written: that is most of a kernel's work.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet

from tilewright.sass.divergence import Block, basic_blocks, influenced, jumping_calls
from tilewright.sass.flow import register_bits
from tilewright.sass.instruction import Instruction
from tilewright.sass.lane_ops import (
    State,
    Threads,
    execute,
    forget,
    guarded_keys,
    is_kept,
    predicate,
)
from tilewright.sass.lane_values import UNWRITTEN, LaneValue, join, same

__all__ = ["Walk"]

Value = LaneValue | None
_PT = 7
_RZ = 255
_BRANCH_BY_UNIFORM = 0x547  # BRA.U: the condition is a uniform predicate


class Walk:
    """The fixed point of what is known before each block.

    Parameters
    ----------
    instructions : sequence of Instruction
        The whole kernel.
    threads : dict
        Special registers that are known.
    asked : set of int
        Instructions, by index, before which the registers that they read are asked for.
    not_taken : collection of (int, int)
        Ways from a block to another that are left out.
    """

    def __init__(
        self,
        instructions: Sequence[Instruction],
        threads: Threads,
        asked: AbstractSet[int],
        not_taken: Collection[tuple[int, int]] = (),
    ) -> None:
        self.instructions, self.threads, self.asked = instructions, threads, asked
        self.not_taken = not_taken
        self.blocks = basic_blocks(instructions)
        self.wanted = _wanted(instructions, self.blocks, asked)
        self.guarded = guarded_keys(instructions[index] for index in self.wanted)
        self.jumps = jumping_calls(instructions)
        self.partial: set[int] = set()  # blocks that run for a part of a warp
        self.before: dict[int, State] = {}
        self.behind: dict[int, State] = {}

    def run(self) -> None:
        """Repeat with more divergent branches until there are no new ones."""
        while True:
            self._spread()
            divergent = [
                number
                for number, block in enumerate(self.blocks)
                if number in self.before and not self._ends_together(number, block)
            ]
            partial = influenced(self.blocks, divergent) | self.partial
            if partial == self.partial:
                return
            self.partial = partial

    def _spread(self) -> None:
        # Compilers keep predicates in bits of a register that nothing sets beforehand.
        keys = [("R", register) for register in range(_RZ)]
        spills = [i for i in self.instructions if i.mnemonic in ("LDL", "STL")]
        keys += [("L", (i.offset or 0) + word) for i in spills for word in range(0, 16, 4)]
        self.before = {0: dict.fromkeys(keys, UNWRITTEN)}
        todo = [0]
        while todo:
            number = min(todo)  # in address order, which is nearly that of execution
            todo.remove(number)
            state = self.behind[number] = self._after(number)
            for following in self.blocks[number].following:
                if (number, following) in self.not_taken:
                    continue
                if following not in self.before:
                    self.before[following] = dict(state)
                elif not _join_into(self.before[following], state):
                    continue
                if following not in todo:
                    todo.append(following)

    def _after(self, number: int) -> State:
        """Return what is known behind a block, given what is before it."""
        state, block = dict(self.before[number]), self.blocks[number]
        for index in range(block.first, block.last + 1):
            self._step(index, state, partial=number in self.partial)
        return state

    def _step(self, index: int, state: State, *, partial: bool) -> None:
        """Change what is known as one instruction does."""
        if index in self.jumps:  # who goes on did not take it
            return
        instruction = self.instructions[index]
        if index not in self.wanted:
            for register in instruction.dst:
                forget(("R", register), state, self.guarded)
            return
        written = execute(instruction, state, self.threads, self.guarded)
        if partial:  # other lanes keep what they had
            for key in written:
                if key[0] != "U":
                    forget(key, state, self.guarded)

    def _ends_together(self, number: int, block: Block) -> bool:
        """Whether all lanes of a warp leave a block the same way."""
        last = self.instructions[block.last]
        if last.mnemonic not in ("BRA", "EXIT", "RET", "CALL"):
            return True
        state = self.behind[number]
        values: list[Value] = []
        if not last.guard.always and not last.guard.uniform:
            values.append(predicate(state, last.guard.index, last.guard.negated))
        condition = last.raw >> 87 & _PT
        if last.mnemonic == "BRA" and last.opcode != _BRANCH_BY_UNIFORM and condition != _PT:
            values.append(predicate(state, condition, False))
        return all(value is not None and value.uniform for value in values)

    def by_whole_warps(self) -> Iterator[tuple[Instruction, State]]:
        """Yield of what is asked for what whole warps come to, with what is known before each."""
        for number, block in enumerate(self.blocks):
            if number not in self.before or number in self.partial:
                continue
            here = range(block.first, block.last + 1)
            if self.asked.isdisjoint(here):
                continue
            state = dict(self.before[number])
            for index in here:
                if index in self.asked:
                    yield self.instructions[index], state
                self._step(index, state, partial=False)


def _wanted(
    instructions: Sequence[Instruction], blocks: Sequence[Block], asked: AbstractSet[int]
) -> AbstractSet[int]:
    """Return, by index, what has to be run for what is asked for to be known.

    An instruction is wanted for itself, or as it writes a register that a wanted one reads later.
    A write under a guard leaves the old value to lanes that it does not hold for.
    """
    writes = [register_bits(one.dst) for one in instructions]
    reads = {  # of those that are wanted
        index: register_bits(one.reads)
        for index, one in enumerate(instructions)
        if index in asked or is_kept(one)
    }
    before = [0] * len(blocks)  # bits of the registers that are wanted there
    changed = True
    while changed:
        changed = False
        for number in range(len(blocks) - 1, -1, -1):
            block, wanted = blocks[number], 0
            for following in block.following:
                wanted |= before[following]
            for index in range(block.last, block.first - 1, -1):
                if writes[index] & wanted and index not in reads:
                    reads[index] = register_bits(instructions[index].reads)
                if index in reads:
                    if instructions[index].guard.always:
                        wanted &= ~writes[index]
                    wanted |= reads[index]
            changed |= wanted != before[number]
            before[number] = wanted
    return reads.keys()


def _join_into(known: State, other: State) -> bool:
    """Keep of `known` what holds of `other` too; return whether that was less."""
    less = False
    for key, value in list(known.items()):
        if (found := other.get(key)) is value:
            continue
        joined = join(value, found)
        if joined is None:
            del known[key]
            less = True
        elif not same(joined, value):
            known[key] = joined
            less = True
    return less
