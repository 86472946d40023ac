"""What a thread block of this stencil uses, for one point or for arrays of them.

Arguments are parameters by name; integers give integers, NumPy arrays arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.precision import Precision

__all__ = [
    "CHUNK_BYTES",
    "LEAST_OTHER",
    "OTHER_REGISTERS",
    "Values",
    "registers",
    "shared_bytes",
    "threads",
]

# An integer, or an array of them.
Values = Any

# The widest access to memory of either kind.
CHUNK_BYTES = 16

# What a block that shares tiles with all others keeps behind its stages, aligned as these are.
NUMBER_BYTES = 16

# 32-bit registers besides tiles and fragments: addresses, steps and counters.  NVRTC 13.0
# takes 24 to 50 beyond them for sm_90a; with 16 it manages where it moves reads closer to
# their use.
OTHER_REGISTERS = 36
LEAST_OTHER = 16


def threads(*, block_m: Values, block_n: Values, tile_m: Values, tile_n: Values) -> Values:
    """Return the threads of a block."""
    return block_m * block_n // (tile_m * tile_n)


def shared_bytes(
    *,
    block_m: Values,
    block_n: Values,
    block_k: Values,
    stages: Values,
    split_k: Values,
    precision: Precision,
    k_fast: tuple[bool, bool],
    stream_k: Values = 0,
) -> Values:
    """Return the shared memory of a block, exact; `k_fast`: whose memory runs along k.

    Rows of an operand that is transposed on its way are 4 elements longer.  Where blocks
    of a cluster add up their parts, a part takes the place of the stages.  Blocks that share
    tiles with all others keep the number that they drew behind the stages.
    """
    rows = block_m + 4 * k_fast[0] + block_n + 4 * k_fast[1]
    ring = stages * block_k * rows
    part = np.where(np.asarray(split_k) > 1, block_m * block_n, 0)
    number = np.where(np.asarray(stream_k) > 0, NUMBER_BYTES, 0)
    return np.maximum(ring, part) * precision.element_bytes + number


def registers(
    *,
    block_m: Values,
    block_n: Values,
    block_k: Values,
    tile_m: Values,
    tile_n: Values,
    k_vectors: Values,
    precision: Precision,
    k_fast: tuple[bool, bool],
    other: int = OTHER_REGISTERS,
) -> Values:
    """Return the estimated 32-bit registers of a thread.

    Its tile of C, the fragments of two steps, and its share of the tiles that pass through
    registers; `other` are those for everything else.
    """
    number = threads(block_m=block_m, block_n=block_n, tile_m=tile_m, tile_n=tile_n)
    passing = k_vectors * (block_m * k_fast[0] + block_n * k_fast[1]) * block_k
    held = tile_m * tile_n + 2 * (tile_m + tile_n) + passing // np.maximum(number, 1)
    return held * precision.element_bytes // 4 + other
