"""Wavefronts of a loop's shared accesses, from the instructions that compute their addresses.

The kernel is run from its entry with sets of values for numbers: what every lane of every warp
holds in each register, exactly or up to a number that the warp shares (see
`tilewright.sass.lane_values`), joined where ways meet until nothing changes.  A shift of all
lanes' addresses by the same number of words turns the banks but leaves their conflicts as they
are, so that unknown bases, kernel parameters, buffers that take turns and steps of a loop do no
harm.

What is not known gives no entry, never a guess.  Taken for granted: lanes that part meet again
where their ways do (`tilewright.sass.divergence`), and a kernel that asks only for ``threadIdx.x``
is launched with blocks of one dimension, unless the caller says what shape they have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.sass.divergence import Block, basic_blocks, influenced, jumping_calls
from tilewright.sass.instruction import Instruction
from tilewright.sass.lane_ops import State, Threads, execute, forget, predicate, under
from tilewright.sass.lane_values import UNIFORM, LaneValue, add, join, literal, multiply, same
from tilewright.sass.loops import Loop
from tilewright.sass.shared import WARP, wavefronts

__all__ = ["lane_offsets", "shared_wavefronts"]

Value = LaneValue | None
Offsets = np.ndarray[tuple[int, int], np.dtype[np.int64]]  # bytes, one row a warp
# Special registers by number (S2R, [79:72]; compared with nvdisasm's names).
_LANE, _TID_X, _CTAID_X = 0x00, 0x21, 0x25
_DIMENSIONS = 3
_SCALES = (1, 4, 8, 16)  # of an address register: none, .X4, .X8, .X16 at [79:78]
_SHARED = frozenset(("LDS", "STS", "LDSM", "LDGSTS"))
_MATRIX_ROWS = 8  # addresses that LDSM reads for each matrix
_PT = 7
_RZ = 255
_BRANCH_BY_UNIFORM = 0x547  # BRA.U: the condition is a uniform predicate


def shared_wavefronts(
    instructions: Sequence[Instruction],
    loop: Loop,
    threads: int,
    block: tuple[int, int, int] | None = None,
) -> dict[int, int]:
    """Return the wavefronts of a loop's shared accesses, where the code gives them away.

    Parameters
    ----------
    instructions : sequence of Instruction
        The whole kernel.
    loop : Loop
        One of its loops.
    threads : int
        Threads a block.
    block : tuple of int, optional
        Threads a block by dimension; ``(threads, 1, 1)`` for kernels that use
        ``threadIdx.x`` alone.

    Returns
    -------
    dict
        Wavefronts of one warp's access, by the address of the instruction in
        the kernel.  Accesses are left out whose addresses depend on data, or
        for which the block's warps differ.

    Raises
    ------
    ValueError
        If `threads` is below 1, or is not the number of threads in `block`.
    """
    found = {}
    by_address = {i.address: i for i in loop.instructions}
    for address, offsets in lane_offsets(instructions, loop, threads, block).items():
        counts = {_passes(by_address[address], row) for row in offsets.tolist()}
        count = counts.pop()
        if not counts and count is not None:
            found[address] = count
    return found


def lane_offsets(
    instructions: Sequence[Instruction],
    loop: Loop,
    threads: int,
    block: tuple[int, int, int] | None = None,
) -> dict[int, Offsets]:
    """Return the addresses of a loop's shared accesses, from the lowest of each warp's lanes on.

    Parameters and errors are those of `shared_wavefronts`.

    Returns
    -------
    dict
        Bytes, one row a warp and one column a lane, by the instruction's
        address in the kernel; accesses that run for a part of a warp, or whose
        addresses are not known, are left out.
    """
    if threads < 1:
        raise ValueError(f"threads={threads} is no block size; give 1 or more")
    if block is not None and int(np.prod(block)) != threads:
        raise ValueError(f"block={block} is not {threads} threads; give one shape of so many")
    jumps = any(not i.known and 0x140 <= i.opcode & 0x1FF <= 0x15F for i in instructions)
    if threads % WARP or jumps:  # a warp with lanes missing, or a branch that is not known here
        return {}
    walk = _Walk(instructions, _special(instructions, threads, block))
    walk.run()

    def wanted(instruction: Instruction) -> bool:
        inside = loop.start <= instruction.address <= loop.end
        return inside and instruction.mnemonic in _SHARED and not instruction.guard.never

    return walk.offsets(wanted, threads // WARP)


def _special(
    instructions: Sequence[Instruction], threads: int, block: tuple[int, int, int] | None
) -> Threads:
    """Return the special registers whose values are known, by number."""
    asked = {i.raw >> 72 & 0xFF for i in instructions if i.mnemonic == "S2R"}
    number = np.arange(threads, dtype=np.uint64).reshape(-1, WARP)
    found = {_LANE: LaneValue(number % np.uint64(WARP), True)}
    found |= {_CTAID_X + d: UNIFORM for d in range(_DIMENSIONS)}
    if block is None:
        if asked & {_TID_X + 1, _TID_X + 2}:
            return found
        block = (threads, 1, 1)
    for dimension, length in enumerate(block):
        size = np.uint64(length)
        found[_TID_X + dimension] = LaneValue(number % size, True)
        number = number // size
    return found


class _Walk:
    """The fixed point of what is known before each block."""

    def __init__(self, instructions: Sequence[Instruction], threads: Threads) -> None:
        self.instructions, self.threads = instructions, threads
        self.blocks = basic_blocks(instructions)
        self.jumps = jumping_calls(instructions)
        self.partial: set[int] = set()  # blocks that run for a part of a warp
        self.before: dict[int, State] = {}

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
        # No result depends on what a register holds before it is written, so that any value
        # will do: compilers keep predicates in bits of a register that nothing sets beforehand.
        self.before = {0: {("R", register): literal(0) for register in range(_RZ)}}
        todo = [0]
        while todo:
            number = min(todo)  # in address order, which is nearly that of execution
            todo.remove(number)
            state = self._after(number, self.blocks[number].last)
            for following in self.blocks[number].following:
                if following not in self.before:
                    self.before[following] = dict(state)
                elif not _join_into(self.before[following], state):
                    continue
                if following not in todo:
                    todo.append(following)

    def _after(self, number: int, last: int) -> State:
        """Return what is known after an instruction of a block, given what is before the block."""
        state = dict(self.before[number])
        for index in range(self.blocks[number].first, last + 1):
            self._step(index, state, partial=number in self.partial)
        return state

    def _step(self, index: int, state: State, *, partial: bool) -> None:
        """Change what is known as one instruction does."""
        if index in self.jumps:  # who goes on did not take it
            return
        instruction = self.instructions[index]
        execute(instruction, state, self.threads)
        if partial:  # other lanes keep what they had
            for register in instruction.dst:
                forget(("R", register), state)
            for p in instruction.dst_predicates:
                forget(("P", p), state)

    def _ends_together(self, number: int, block: Block) -> bool:
        """Whether all lanes of a warp leave a block the same way."""
        last = self.instructions[block.last]
        if last.mnemonic not in ("BRA", "EXIT", "RET", "CALL"):
            return True
        state = self._after(number, block.last)
        values: list[Value] = []
        if not last.guard.always and not last.guard.uniform:
            values.append(predicate(state, last.guard.index, last.guard.negated))
        condition = last.raw >> 87 & _PT
        if last.mnemonic == "BRA" and last.opcode != _BRANCH_BY_UNIFORM and condition != _PT:
            values.append(predicate(state, condition, False))
        return all(value is not None and value.uniform for value in values)

    def offsets(self, wanted: Callable[[Instruction], bool], warps: int) -> dict[int, Offsets]:
        """Return the wanted accesses' addresses from each warp's lowest on, where known."""
        found: dict[int, Offsets] = {}
        for number, block in enumerate(self.blocks):
            if number not in self.before or number in self.partial:
                continue
            state = dict(self.before[number])
            for index in range(block.first, block.last + 1):
                instruction = self.instructions[index]
                if wanted(instruction):
                    offsets = _offsets(instruction, state, warps)
                    if offsets is not None:
                        found[instruction.address] = offsets
                self._step(index, state, partial=False)
        return found


def _offsets(instruction: Instruction, state: State, warps: int) -> Offsets | None:
    guard = instruction.guard
    if not guard.always and not guard.uniform:
        runs = predicate(state, guard.index, guard.negated)
        if runs is None or not runs.uniform:
            return None
    address = _address(instruction, under(guard, state))
    if address is None:
        return None
    lanes = np.broadcast_to(address.lanes, (warps, WARP))
    # As signed numbers from lane 0 on: a warp's addresses lie closer than 2^31 bytes.
    offsets = (lanes - lanes[:, :1]).astype(np.uint32).view(np.int32).astype(np.int64)
    least: Offsets = offsets - offsets.min(axis=1, keepdims=True)
    return least


def _join_into(known: State, other: State) -> bool:
    """Keep of `known` what holds of `other` too; return whether that was less."""
    less = False
    for key, value in list(known.items()):
        joined = join(value, other.get(key))
        if joined is None:
            del known[key]
            less = True
        elif not same(joined, value):
            known[key] = joined
            less = True
    return less


def _address(instruction: Instruction, state: State) -> Value:
    """Return a shared address without its constant and uniform parts, which all lanes share."""
    slot = "C" if instruction.mnemonic == "LDGSTS" else "A"
    total: Value = literal(0)
    for operand in instruction.srcs:
        if operand.slot == slot and operand.kind == "reg" and operand.width:
            total = add(total, state.get(("R", operand.value)))
    if instruction.mnemonic in ("LDS", "STS"):
        total = multiply(total, literal(_SCALES[instruction.raw >> 78 & 3]))
    return total


def _passes(instruction: Instruction, offsets: Sequence[int]) -> int | None:
    """Return the wavefronts of one warp's access; None where the addresses cannot be right."""
    if instruction.mnemonic == "LDSM":
        rows = _MATRIX_ROWS * len(instruction.dst)
        parts = [offsets[row : row + _MATRIX_ROWS] for row in range(0, rows, _MATRIX_ROWS)]
        bits = 128  # a row of eight 16-bit elements
    else:
        parts, bits = [list(offsets)], instruction.access_bits or 32
    if bits < 32 or any(offset % (bits // 8) for part in parts for offset in part):
        return None
    return sum(wavefronts([o - min(part) for o in part], bits) for part in parts)
