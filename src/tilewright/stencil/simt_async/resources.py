"""What a thread block of this stencil uses, for one point or for arrays of them.

Arguments are parameters by name; integers give integers, NumPy arrays arrays.
"""

from __future__ import annotations

import numpy as np

from tilewright.precision import Precision
from tilewright.stencil.asynchronous.resources import CHUNK_BYTES, Values

__all__ = [
    "LEAST_OTHER",
    "OTHER_REGISTERS",
    "SECTOR_BYTES",
    "lanes_k",
    "longer",
    "registers",
    "threads",
]

# 32-bit registers besides tiles and fragments: addresses, steps and counters.  NVRTC 13.0
# takes 24 to 50 beyond them for sm_90a; with 16 it manages where it moves reads closer to
# their use.
OTHER_REGISTERS = 36
LEAST_OTHER = 16

# The same where the copy engine brings both operands, so that no thread has addresses in device
# memory, and counters are uniform: with 248 for tiles and fragments NVRTC 13.0 takes 251 to 255.
_OTHER_IN_BOXES = 3

# The least that device memory gives at a time.
SECTOR_BYTES = 32

# What shared memory's 32 banks take at once.
BANK_BYTES = 128


def threads(
    *, block_m: Values, block_n: Values, tile_m: Values, tile_n: Values, warps_k: Values
) -> Values:
    """Return the threads of a block."""
    return block_m * block_n // (tile_m * tile_n) * warps_k


def lanes_k(block_k: Values, run_bytes: Values, precision: Precision) -> Values:
    """Return the threads side by side along k that transpose an operand (tiles.cuh).

    Together they read `run_bytes`, where these divide a tile along k, else half of them.
    """
    whole = run_bytes // precision.element_bytes
    return np.where(block_k % whole, np.maximum(whole // 2, 1), whole)


def longer(
    block_k: Values, run_bytes: Values, precision: Precision, k_fast: tuple[bool, bool]
) -> Values:
    """Return by how much rows of both tiles exceed the block's sides, in elements.

    `k_fast`: whose memory runs along k.  Rows of an operand that is transposed on its way are so
    much longer that what is written at once, as many bytes as there are banks, meets each once,
    but by a chunk of 16 bytes at least, for which reads are aligned: long runs of floats meet
    each twice.
    """
    at_once = BANK_BYTES // precision.element_bytes
    chunk = CHUNK_BYTES // precision.element_bytes
    return np.maximum(at_once // lanes_k(block_k, run_bytes, precision), chunk) * sum(k_fast)


def registers(
    *,
    tile_m: Values,
    tile_n: Values,
    tma: Values,
    precision: Precision,
    k_fast: tuple[bool, bool],
    other: int = OTHER_REGISTERS,
) -> Values:
    """Return the estimated 32-bit registers of a thread.

    Its tile of C and the fragments of two steps; `other` are those for everything else where
    threads copy.
    """
    held = tile_m * tile_n + 2 * (tile_m + tile_n)
    boxed = (np.asarray(tma) > 0) & (not any(k_fast))
    return held * precision.element_bytes // 4 + np.where(boxed, _OTHER_IN_BOXES, other)
