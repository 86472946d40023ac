"""What a thread block of this stencil uses, for one point or for arrays of them.

Arguments are parameters by name; integers give integers, NumPy arrays arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.stencil.wgmma.arithmetic import Arithmetic

__all__ = [
    "GROUP",
    "OTHER_REGISTERS",
    "Values",
    "compensates",
    "consumer_registers",
    "producer_registers",
    "shared_bytes",
    "sharers",
    "staged_bytes",
    "starting_registers",
    "sums",
    "threads",
]

# An integer, or an array of them.
Values = Any

# Threads of a warpgroup.
GROUP = 128

# Rows of an instruction's result.
_INSTRUCTION_ROWS = 64

# 32-bit registers of a consumer besides its sums: places, counters, and what the epilogue
# holds of C.  NVRTC 13 needs more than 24 and fits into 40.
OTHER_REGISTERS = 40

# Registers of a multiprocessor, and the most that a thread can have and `setmaxnreg` takes:
# CUDA C++ Programming Guide, compute capability 9.0.
_FILE = 65536
_MOST = 240

# Barriers of a stage and of three consumers, and what beginning at a multiple of 1024 bytes takes.
_STAGE_BARRIERS = 16
_TURN_BARRIERS = 24
_ROUNDING = 1024

# A multiprocessor's shared memory, and what it keeps of each block's: CUDA C++ Programming Guide,
# compute capability 9.0.
_MEMORY, _KEPT = 228 * 1024, 1024

# Lines of a consumer's four warps, 2048 bytes each (staged.cuh), and what beginning at a multiple
# of 128 bytes takes.
_LINES, _LINES_ROUNDING = 4 * 2048, 128


def threads(*, consumers: Values) -> Values:
    """Return the threads of a block: the consumers and one warpgroup that copies."""
    return GROUP * (consumers + 1)


def sharers(*, consumers: Values, pingpong: Values) -> Values:
    """Return the consumers that share a tile of C: one where they ping-pong."""
    return np.where(np.asarray(pingpong) == 1, 1, consumers)


def sums(
    *,
    block_m: Values,
    block_n: Values,
    block_k: Values,
    instruction_m: Values,
    consumers: Values,
    pingpong: Values,
    promote_k: Values,
    partials: Values,
) -> Values:
    """Return the sums that a consumer's thread holds, those on their way included."""
    own = block_m * block_n // (GROUP * sharers(consumers=consumers, pingpong=pingpong))
    short = np.where(np.asarray(promote_k) <= block_k, partials * instruction_m // 2, own)
    return own + np.where(np.asarray(promote_k) == 0, 0, short)


def compensates(
    *,
    block_m: int,
    block_n: int,
    block_k: int,
    instruction_m: int,
    consumers: int,
    pingpong: int,
    promote_k: int,
    partials: int,
) -> bool:
    """Whether every piece of a consumer's sums has a set of partial sums of its own.

    What rounding loses of a promotion then waits there for the next one, in no register more.
    """
    own = block_n // int(sharers(consumers=consumers, pingpong=pingpong))
    pieces = block_m // instruction_m * (own // _INSTRUCTION_ROWS)
    return 0 < promote_k <= block_k and partials == pieces


def starting_registers(*, consumers: Values, min_blocks: Values) -> Values:
    """Return what every thread starts with: the file's share, in steps of 8, at most 255."""
    return np.minimum(_FILE // (min_blocks * threads(consumers=consumers)) // 8 * 8, 255)


def producer_registers(*, consumers: Values, min_blocks: Values, tma: Values) -> Values:
    """Return what the producer keeps; 0 where nobody gives or takes any.

    Two consumers can then have 240 each, three 160; one, of two resident blocks, 216.  A producer
    whose threads copy keeps what it started with: of 16 bits it has tiles in its registers.
    """
    kept = np.choose(np.asarray(consumers) - 1, (40, 24, 32))
    return np.where((np.asarray(consumers) * min_blocks == 1) | (np.asarray(tma) == 0), 0, kept)


def consumer_registers(*, consumers: Values, min_blocks: Values, tma: Values) -> Values:
    """Return a consumer's registers after the producer has given up its own.

    What all take together is what the block started with: a warpgroup that asks for more
    waits for ever.  0 where nobody gives or takes any.
    """
    kept = producer_registers(consumers=consumers, min_blocks=min_blocks, tma=tma)
    all_started_with = starting_registers(consumers=consumers, min_blocks=min_blocks) * (
        consumers + 1
    )
    found = (all_started_with - kept) // consumers // 8 * 8
    return np.where(kept == 0, 0, np.minimum(found, _MOST))


def shared_bytes(
    *, block_m: Values, block_n: Values, block_k: Values, stages: Values, arithmetic: Arithmetic
) -> Values:
    """Return the shared memory of a block, with what aligns its stages."""
    stage = arithmetic.parts * (block_m + block_n) * block_k * arithmetic.element_bytes
    return stages * (stage + _STAGE_BARRIERS) + _TURN_BARRIERS + _ROUNDING


def staged_bytes(*, used: int, consumers: int, min_blocks: int) -> int:
    """Return the shared memory that results pass through (staged.cuh), where there is room for it.

    `used` is what a block has besides; 0 where that leaves too little.
    """
    found = consumers * _LINES + _LINES_ROUNDING
    return found if min_blocks * (used + found + _KEPT) <= _MEMORY else 0
