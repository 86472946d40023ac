"""Wavefronts of a loop's shared accesses, and lines of its copies, from the code itself.

What every lane of every warp holds in each register is derived from the kernel's entry on
(`tilewright.sass.lane_walk`), exactly or up to a number that lanes share.  A shift of all lanes'
addresses by the same number of words turns the banks but leaves their conflicts as they are, so
that unknown bases, kernel parameters, buffers that alternate and steps of a loop do no harm.

What is not known gives no entry, never a guess.  Taken for granted: lanes that part meet again
where their ways do (`tilewright.sass.divergence`); a kernel that asks only for ``threadIdx.x``
is launched with blocks of one dimension; and a loop is that of an interior tile, reached by way
of the copies that begin one (`tilewright.sass.trace`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.sass.instruction import Instruction
from tilewright.sass.lane_ops import State, Threads, predicate, under
from tilewright.sass.lane_values import EXACT, UNIFORM, LaneValue, add, literal, multiply
from tilewright.sass.lane_walk import Walk
from tilewright.sass.lines import PIECE_BYTES, LinePairs, line_pairs
from tilewright.sass.loops import Loop
from tilewright.sass.shared import WARP, wavefronts
from tilewright.sass.trace import ways_around_copies

__all__ = ["Accesses", "loop_accesses"]

Value = LaneValue | None
Offsets = np.ndarray[tuple[int, int], np.dtype[np.int64]]  # bytes, one row a warp
# Special registers by number (S2R, [79:72]; compared with nvdisasm's names).
_LANE, _TID_X, _CTAID_X = 0x00, 0x21, 0x25
# The same for all of a block: its threads, the windows of shared memory, the block of the cluster.
_BLOCKS_OWN = (0x28, 0x2F, 0x30, 0x88)
_DIMENSIONS = 3
_SCALES = (1, 4, 8, 16)  # of an address register: none, .X4, .X8, .X16 at [79:78]
_SHARED = frozenset(("LDS", "STS", "LDSM", "LDGSTS"))
_COPIED_OFFSET = (32, 1 << 11)  # of LDGSTS's device address, 12 bits and the sign among them
_CACHED = 81  # of an LDGSTS of 16 bytes: through the first cache
_COPIES_IF = 87  # [90:87] of LDGSTS: a predicate, negated by the last bit
_MATRIX_ROWS = 8  # addresses that LDSM reads for each matrix
_PT = 7


@dataclass(frozen=True)
class Accesses:
    """What a loop's accesses take, by the address of the instruction in the kernel.

    Parameters
    ----------
    wavefronts : dict
        Of one warp's access to shared memory.
    lines : dict
        Pairs of lines that a warp's asynchronous copy of 16 bytes a lane meets.
    """

    wavefronts: dict[int, int] = field(default_factory=dict)
    lines: dict[int, LinePairs] = field(default_factory=dict)


def loop_accesses(instructions: Sequence[Instruction], loop: Loop, threads: int) -> Accesses:
    """Return what a loop's accesses take, where the code gives it away.

    Parameters
    ----------
    instructions : sequence of Instruction
        The whole kernel.
    loop : Loop
        One of its loops.
    threads : int
        Threads a block, along x.

    Returns
    -------
    Accesses
        Without accesses whose addresses depend on data, or run for a part of a
        warp; and without wavefronts for which the block's warps differ.

    Raises
    ------
    ValueError
        If `threads` is below 1.
    """
    found, warps = Accesses(), threads // WARP
    for instruction, state in _accesses(instructions, loop, threads):
        offsets = _offsets(instruction, state, warps)
        if offsets is not None:
            counts = {_passes(instruction, row) for row in offsets.tolist()}
            count = counts.pop()
            if not counts and count is not None:
                found.wavefronts[instruction.address] = count
        pairs = _line_pairs(instruction, state, warps)
        if pairs is not None:
            found.lines[instruction.address] = pairs
    return found


def _accesses(
    instructions: Sequence[Instruction], loop: Loop, threads: int
) -> Iterator[tuple[Instruction, State]]:
    """Yield a loop's shared accesses by whole warps, with what is known where they run.

    There are none if lanes of a warp are missing, or a branch is not known here.
    """
    jumps = any(not i.known and 0x140 <= i.opcode & 0x1FF <= 0x15F for i in instructions)
    if threads % WARP or jumps:
        return
    not_taken = ways_around_copies(instructions, loop)
    asked = {
        index
        for index, one in enumerate(instructions)
        if one.mnemonic in _SHARED and loop.start <= one.address <= loop.end
    }
    walk = Walk(instructions, _special(instructions, threads), asked, not_taken)
    walk.run()
    for instruction, state in walk.by_whole_warps():
        if _by_all(instruction, state):
            yield instruction, under(instruction.guard, state)


def _special(instructions: Sequence[Instruction], threads: int) -> Threads:
    """Return the special registers whose values are known, by number."""
    asked = {i.raw >> 72 & 0xFF for i in instructions if i.mnemonic == "S2R"}
    number = np.arange(threads, dtype=np.uint64).reshape(-1, WARP)
    found = {_LANE: LaneValue(number % np.uint64(WARP), EXACT)}
    found |= dict.fromkeys((*range(_CTAID_X, _CTAID_X + _DIMENSIONS), *_BLOCKS_OWN), UNIFORM)
    if not asked & {_TID_X + 1, _TID_X + 2}:  # else the block's shape is not known
        found[_TID_X] = LaneValue(number, EXACT)
    return found


def _by_all(instruction: Instruction, state: State) -> bool:
    """Whether all lanes of a warp run an instruction, or none."""
    guard = instruction.guard
    if guard.never:
        return False
    if guard.always or guard.uniform:
        return True
    runs = predicate(state, guard.index, guard.negated)
    return runs is not None and runs.uniform


def _offsets(instruction: Instruction, state: State, warps: int) -> Offsets | None:
    address = _address(instruction, state)
    if address is None or not address.shared:
        return None
    lanes = np.broadcast_to(address.lanes, (warps, WARP))
    # As signed numbers from lane 0 on: a warp's addresses lie closer than 2^31 bytes.
    offsets = (lanes - lanes[:, :1]).astype(np.uint32).view(np.int32).astype(np.int64)
    least: Offsets = offsets - offsets.min(axis=1, keepdims=True)
    return least


def _line_pairs(instruction: Instruction, state: State, warps: int) -> LinePairs | None:
    """Return the lines of a copy that passes the first cache by; None of others."""
    raw = instruction.raw
    copies = instruction.mnemonic == "LDGSTS" and instruction.access_bits == 8 * PIECE_BYTES
    if not copies or raw >> _CACHED & 1 or raw >> _COPIES_IF & 15 != _PT:
        return None
    low, sign = _COPIED_OFFSET
    further = literal((raw >> low & 2 * sign - 1) - 2 * (raw >> low & sign))
    device = add(_registers(instruction, "A", state), further)
    shared = _address(instruction, state)
    return None if device is None or shared is None else line_pairs(device, shared, warps)


def _address(instruction: Instruction, state: State) -> Value:
    copies = instruction.mnemonic == "LDGSTS"
    total = _registers(instruction, "C" if copies else "A", state)
    if instruction.mnemonic in ("LDS", "STS"):
        total = multiply(total, literal(_SCALES[instruction.raw >> 78 & 3]))
    if not copies:  # of which a uniform register is the device address's
        for operand in instruction.srcs:
            if operand.kind == "ureg" and operand.width:
                total = add(total, state.get(("U", operand.value), UNIFORM))
    return add(total, literal(instruction.offset or 0))


def _registers(instruction: Instruction, slot: str, state: State) -> Value:
    """Return the sum of what a slot's registers hold."""
    total: Value = literal(0)
    for operand in instruction.srcs:
        if operand.slot == slot and operand.kind == "reg" and operand.width:
            total = add(total, state.get(("R", operand.value)))
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
