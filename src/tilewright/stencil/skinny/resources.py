"""What a thread block of the skinny stencil computes and uses, for one point or for arrays of them.

Arguments are parameters by name; integers give integers, NumPy arrays arrays.  `k_fast`: whether
the long operand's memory runs along k.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.precision import Precision

__all__ = [
    "CHUNK_BYTES",
    "SUM_REGISTERS",
    "THREADS",
    "WARP_LANES_K",
    "Values",
    "block_k",
    "lanes",
    "long_side",
    "min_blocks",
    "on_tensor_cores",
    "registers",
    "rows",
    "shared_bytes",
    "short_side",
    "slab_steps",
    "sum_registers",
    "widths",
]

# An integer, or an array of them.
Values = Any

# The widest load there is.
CHUNK_BYTES = 16

# Two blocks of 256 threads with eight loads each have 64 KB on their way to a multiprocessor; at
# 3 TB/s and a latency of 800 ns each of an H100's needs 18 KB.
THREADS, _LOADS = 256, 8

# Threads of a warp along k, as tensor cores have them (PTX ISA, mma.m16n8): they share sums.
WARP_LANES_K = 4

# Columns of the short side in a block, at least and at most: with more, sums do not fit a thread
# beside its loads.  On tensor cores an instruction has eight, and from some 24 on copying both
# operands to shared memory is faster (H100, 2026-11-27).
_WIDTHS, _TENSOR_WIDTHS = (1, 16), (8, 16)

# 32-bit registers of a thread's sums: half of what each of two blocks' threads has.  With as many,
# four loads are what fits beside them.
SUM_REGISTERS = 64

# With so few of them three blocks fit: NVRTC 13.0 then spills nothing, or a word or two.
_FEW_SUMS = 16

# Slabs of the short operand: 16 KB are read in one go, four elements of 16 bytes a thread; 64 KB
# leave room for two blocks, or three, in a multiprocessor of compute capability 9.0.
_SLAB_BYTES, _MOST_SLAB_BYTES = 16 * 1024, 64 * 1024

# 32-bit registers besides loads and sums: addresses, counters, and elements of the short operand.
# NVRTC 13.0 takes 24 to 60 for sm_90a.
_OTHER_REGISTERS = 40


def short_side(short_m: Values, block_m: Values, block_n: Values) -> Values:
    """Return the block's columns of the short side."""
    return np.where(short_m == 1, block_m, block_n)


def long_side(short_m: Values, block_m: Values, block_n: Values) -> Values:
    """Return the block's rows of the long side."""
    return np.where(short_m == 1, block_n, block_m)


def on_tensor_cores(precision: Precision) -> bool:
    """Whether tensor cores multiply: operands of 16 and 8 bits.

    TF32 is multiplied as float32 is: memory limits both.
    """
    return precision.is_short and precision.element_bytes < 4


def widths(precision: Precision) -> tuple[int, int]:
    """Return the least and the most columns of the short side of a block."""
    return _TENSOR_WIDTHS if on_tensor_cores(precision) else _WIDTHS


def _slabs(precision: Precision) -> int:
    """Return how many slabs are in shared memory: one is multiplied, the other one arrives."""
    return 2 if on_tensor_cores(precision) else 1


def lanes(short: Values, k_fast: Values, precision: Precision) -> tuple[Values, Values, Values]:
    """Return the three numbers of threads along k that are worth trying, the fewest first.

    On tensor cores: two, four or all eight warps, which have four threads along k each.

    Else along rows: a warp reads whole lines of 128 bytes or more of a column, but for the most,
    where the long side is hardly longer than the short one.  Along k: 8 threads read a line; a
    whole block has one row, as long as the slab that it then needs of the short operand is small.
    """
    if on_tensor_cores(precision):
        return 8, 16, 32
    few = np.where(k_fast, 8, 2)
    some = np.where(k_fast, 32, 8)
    most = np.where(k_fast & (short <= 4), 256, 64)
    return few, some, most


def _held(short: Values, lanes_k: Values, k_fast: Values, precision: Precision) -> Values:
    """Return the chunks of a thread along the rows.

    More of them use each element of the short operand more often; and leave fewer blocks.
    """
    if on_tensor_cores(precision):  # an instruction has two rows of a thread
        return np.where(k_fast, 2, 1)
    along_k = np.where(lanes_k == 256, np.minimum(short, 4), np.where(lanes_k == 8, 2, 4))
    wanted = np.where(k_fast, along_k, np.where(lanes_k == 2, 2, 1))
    elements = np.where(k_fast, 1, CHUNK_BYTES // precision.element_bytes)
    fits = SUM_REGISTERS * 4 // (np.maximum(short, 1) * elements * precision.sum_bytes)
    return np.maximum(1, np.minimum(wanted, fits))


def rows(short: Values, lanes_k: Values, k_fast: Values, precision: Precision) -> Values:
    """Return the rows of the long side that a block computes."""
    chunk = np.where(k_fast, 1, CHUNK_BYTES // precision.element_bytes)
    return _held(short, lanes_k, k_fast, precision) * (THREADS // np.maximum(lanes_k, 1)) * chunk


def block_k(short: Values, lanes_k: Values, k_fast: Values, precision: Precision) -> Values:
    """Return the steps along k for which a thread has eight loads on their way.

    Four where sums take its registers; and fewer where so many steps of the short operand are too
    large for shared memory.  On tensor cores steps across the rows make pairs of four.
    """
    size = precision.element_bytes
    chunk = np.where(k_fast, CHUNK_BYTES // size, 1)
    together = np.where(k_fast, 1, 4) if on_tensor_cores(precision) else 1
    along = lanes_k * chunk * together
    slabs = _slabs(precision)
    fits = _MOST_SLAB_BYTES // np.maximum(1, short * size * along * slabs)
    held = _held(short, lanes_k, k_fast, precision)
    sums = sum_registers(short, rows(short, lanes_k, k_fast, precision), lanes_k, precision)
    loads = np.where(sums < SUM_REGISTERS, _LOADS, _LOADS // 2)
    return along * np.maximum(1, np.minimum(loads // held // together, fits))


def slab_steps(short: Values, depth: Values, precision: Precision) -> Values:
    """Return the steps of `depth` along k whose part of the short operand is read at once."""
    return np.maximum(1, _SLAB_BYTES // np.maximum(1, short * depth * precision.element_bytes))


def shared_bytes(
    short: Values, side: Values, lanes_k: Values, depth: Values, precision: Precision
) -> Values:
    """Return the shared memory of a block: a slab, and then the parts of all threads along k."""
    size, tensor = precision.element_bytes, on_tensor_cores(precision)
    # Rows along k are padded; where there are none, that much is left over.
    pad = 4 * CHUNK_BYTES if tensor else CHUNK_BYTES
    slab = short * (slab_steps(short, depth, precision) * depth * size + pad) * _slabs(precision)
    parts = lanes_k // WARP_LANES_K if tensor else lanes_k
    return np.maximum(slab, parts * side * short * precision.sum_bytes)


def sum_registers(short: Values, side: Values, lanes_k: Values, precision: Precision) -> Values:
    """Return the 32-bit registers of a thread's sums."""
    shared = WARP_LANES_K if on_tensor_cores(precision) else 1
    return short * side * lanes_k // (THREADS * shared) * precision.sum_bytes // 4


def min_blocks(short: Values, side: Values, lanes_k: Values, precision: Precision) -> Values:
    """Return the blocks that shall fit a multiprocessor together.

    On tensor cores two: unaligned chunks take the registers of two each.
    """
    if on_tensor_cores(precision):
        return 2
    return np.where(sum_registers(short, side, lanes_k, precision) <= _FEW_SUMS, 3, 2)


def registers(short: Values, side: Values, lanes_k: Values, precision: Precision) -> Values:
    """Return the estimated registers of a thread: eight loads, its sums, and all else."""
    return (
        sum_registers(short, side, lanes_k, precision)
        + _LOADS * CHUNK_BYTES // 4
        + _OTHER_REGISTERS
    )
