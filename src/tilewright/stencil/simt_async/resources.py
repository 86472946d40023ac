"""What a thread block of this stencil uses, for one point or for arrays of them.

Arguments are parameters by name; integers give integers, NumPy arrays arrays.
"""

from __future__ import annotations

import numpy as np

from tilewright.precision import Precision
from tilewright.stencil.asynchronous.resources import CHUNK_BYTES, Values, shared_bytes

__all__ = [
    "LEAST_OTHER",
    "MOST_KEPT",
    "OTHER_REGISTERS",
    "kept",
    "registers",
    "shared",
    "threads",
]

# 32-bit registers besides tiles and fragments: addresses, steps and counters.  NVRTC 13.0
# takes 24 to 50 beyond them for sm_90a; with 16 it manages where it moves reads closer to
# their use.
OTHER_REGISTERS = 36
LEAST_OTHER = 16

# Lines of an operand that a thread keeps, 4 registers each (simt.cuh).
MOST_KEPT = 8


def threads(*, block_m: Values, block_n: Values, tile_m: Values, tile_n: Values) -> Values:
    """Return the threads of a block."""
    return block_m * block_n // (tile_m * tile_n)


def kept(
    *, tile_m: Values, tile_n: Values, k_vectors: Values, k_fast: tuple[bool, bool]
) -> tuple[Values, Values]:
    """Return whether A, and whether B, stays as it is in memory on its way (simt.cuh)."""
    b = (k_vectors == 2) & (tile_n <= MOST_KEPT) & k_fast[1]
    a = (k_vectors == 2) & (tile_m <= MOST_KEPT) & k_fast[0] & (b == 0)
    return a, b


def shared(
    *,
    block_m: Values,
    block_n: Values,
    block_k: Values,
    tile_m: Values,
    tile_n: Values,
    k_vectors: Values,
    stages: Values,
    split_k: Values,
    stream_k: Values,
    precision: Precision,
    k_fast: tuple[bool, bool],
) -> Values:
    """Return the shared memory of a block in bytes, exact.

    `k_fast`: whose memory runs along k.  Rows of an operand that is transposed on its way are
    4 elements longer, those of one that is kept 16 bytes.
    """
    a, b = kept(tile_m=tile_m, tile_n=tile_n, k_vectors=k_vectors, k_fast=k_fast)
    return shared_bytes(
        block_m=block_m,
        block_n=block_n,
        block_k=block_k,
        stages=stages,
        split_k=split_k,
        stream_k=stream_k,
        precision=precision,
        longer=4 * (sum(k_fast) - 1 * (a | b)),
        apart=(a * block_m + b * block_n) * (CHUNK_BYTES // precision.element_bytes),
    )


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

    Its tile of C, the fragments of two steps (of as many as it keeps), and its share of the
    tiles that pass through registers; `other` are those for everything else.
    """
    number = threads(block_m=block_m, block_n=block_n, tile_m=tile_m, tile_n=tile_n)
    passing = (k_vectors == 1) * (block_m * k_fast[0] + block_n * k_fast[1]) * block_k
    a, b = kept(tile_m=tile_m, tile_n=tile_n, k_vectors=k_vectors, k_fast=k_fast)
    more = CHUNK_BYTES // precision.element_bytes - 2
    steps = (2 + a * more) * tile_m + (2 + b * more) * tile_n
    held = tile_m * tile_n + steps + passing // np.maximum(number, 1)
    return held * precision.element_bytes // 4 + other
