"""What a thread block of the portable stencil uses, for one point or for arrays of them.

Arguments are the stencil's parameters by name; integers give integers, NumPy arrays
that broadcast give arrays, so that constraints and `Portable.resources` share them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.hardware import DeviceSpec
from tilewright.precision import Precision

__all__ = [
    "LEAST_OTHER_REGISTERS",
    "Values",
    "registers",
    "resident_blocks",
    "reuse",
    "shared_bytes",
]

# An integer, or an array of them.
Values = Any

# 32-bit registers for pointers, leading dimensions, loop counters and addresses in
# shared memory.  nvcc 13 takes 32 beyond the tiles in the middle of a sample of configs
# for sm_90, give or take 16.  Where it has too few it manages with less: ASTRA's
# fastest kernel on a GTX 680, 192 x 160 x 32, left 11 of 63 registers for all this.
OTHER_REGISTERS = 32
LEAST_OTHER_REGISTERS = 10


def shared_bytes(
    *,
    block_m: Values,
    block_n: Values,
    block_k: Values,
    fragment_vector: Values,
    read_a_m: Values,
    read_b_n: Values,
    pad: Values,
    shared_buffers: Values,
    precision: Precision,
) -> Values:
    """Return the shared memory of a thread block in bytes, exact."""
    rows = (read_a_m > 0) * (block_m + pad * fragment_vector)
    rows = rows + (read_b_n > 0) * (block_n + pad * fragment_vector)
    return rows * block_k * shared_buffers * precision.element_bytes


def registers(
    *,
    block_m: Values,
    block_n: Values,
    block_k: Values,
    threads_m: Values,
    threads_n: Values,
    read_a_m: Values,
    read_b_n: Values,
    prefetch: Values,
    precision: Precision,
    other: int = OTHER_REGISTERS,
) -> Values:
    """Return the estimated 32-bit registers of a thread.

    A thread holds its tile of C, one column of A and one row of B, and its share
    of the tiles on their way to shared memory: beside the fragments if it fetches
    ahead, in their place if not.  `other` are those for everything else.
    """
    tile_m, tile_n = block_m // threads_m, block_n // threads_n
    side = (read_a_m > 0) * block_m + (read_b_n > 0) * block_n
    held = -(-side * block_k // (threads_m * threads_n))
    fragments = tile_m + tile_n
    moving = np.where(prefetch == 1, fragments + held, np.maximum(fragments, held))
    return (tile_m * tile_n + moving) * precision.element_bytes // 4 + other


def reuse(
    *, block_m: Values, block_n: Values, threads_m: Values, threads_n: Values, precision: Precision
) -> Values:
    """Return the multiply-adds of reals for a real read in the inner loop.

    A complex multiply-add is four of reals on two words from each side.
    """
    tile_m, tile_n = block_m // threads_m, block_n // threads_n
    words = precision.words * (tile_m + tile_n)
    return precision.flops // 2 * tile_m * tile_n / np.maximum(words, 1)


def resident_blocks(device: DeviceSpec, threads: Values, used: Values, shared: Values) -> Values:
    """Return the thread blocks that a multiprocessor holds, by the limits it knows.

    Blocks are of so many threads with `used` registers each, and of `shared` bytes of shared
    memory.  Granularities of allocation are left out: this prunes what cannot reach an occupancy,
    it does not predict one.
    """
    limits = (
        (device.max_threads_per_multiprocessor, threads),
        (device.registers_per_multiprocessor, threads * used),
        (device.shared_bytes_per_multiprocessor, np.maximum(shared, 1)),
        (device.max_blocks_per_multiprocessor, 1),
    )
    # More than any hardware has, where a limit is unknown.
    blocks: Values = np.int64(2**31)
    for limit, each in limits:
        if limit is not None:
            blocks = np.minimum(blocks, limit // each)
    return blocks
