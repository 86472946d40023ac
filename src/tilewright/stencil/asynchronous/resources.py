"""What a thread block keeps in shared memory, for one point or for arrays of them.

Arguments are parameters by name; integers give integers, NumPy arrays arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.precision import Precision
from tilewright.stencil.geometry import STAGED_BYTES

__all__ = [
    "BARRIER_BYTES",
    "CHUNK_BYTES",
    "NUMBER_BYTES",
    "SWIZZLED_BARRIER_BYTES",
    "WARP",
    "Values",
    "room_to_stage",
    "shared_bytes",
]

# An integer, or an array of them.
Values = Any

WARP = 32

# The widest access to memory of either kind.
CHUNK_BYTES = 16

# What a block that shares tiles with all others keeps behind its stages, aligned as these are.
NUMBER_BYTES = 16

# What a stage's barriers take: the copy engine writes at multiples of so many bytes.
BARRIER_BYTES = 128

# The same where it swizzles lines of 128 bytes, which it counts by eights by their addresses.
SWIZZLED_BARRIER_BYTES = 8 * 128


def room_to_stage(
    *, block_m: Values, block_n: Values, block_k: Values, threads: Values, precision: Precision
) -> Values:
    """Return whether one stage, its rows no longer than the block's sides, has room for results."""
    stage = block_k * (block_m + block_n) * precision.element_bytes
    return threads * STAGED_BYTES <= stage


def shared_bytes(
    *,
    block_m: Values,
    block_n: Values,
    block_k: Values,
    stages: Values,
    cluster_k: Values,
    stream_k: Values,
    warps_k: Values,
    precision: Precision,
    longer: Values,
    tma: Values,
    barrier_bytes: int = BARRIER_BYTES,
) -> Values:
    """Return the shared memory of a block, exact.

    `longer` is by how many elements a row of A's tile and one of B's together exceed the
    block's sides.  Where blocks of a cluster, or warps of sliced-K, add up their parts, these take
    the place of the stages.  Blocks that share tiles with all others keep the number that they
    drew behind the stages.  With `tma` each stage ends with `barrier_bytes` for its barriers.
    """
    stage = block_k * (block_m + block_n + longer) * precision.element_bytes
    ring = stages * (stage + np.where(np.asarray(tma) > 0, barrier_bytes, 0))
    parts = block_m * block_n * precision.element_bytes * warps_k
    part = np.where(np.asarray(cluster_k) * warps_k > 1, parts, 0)
    number = np.where(np.asarray(stream_k) > 0, NUMBER_BYTES, 0)
    return np.maximum(ring, part) + number
