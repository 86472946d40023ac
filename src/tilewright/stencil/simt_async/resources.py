"""What a thread block of this stencil uses, for one point or for arrays of them.

Arguments are parameters by name; integers give integers, NumPy arrays arrays.
"""

from __future__ import annotations

import numpy as np

from tilewright.precision import Precision
from tilewright.stencil.asynchronous.resources import Values

__all__ = [
    "LEAST_OTHER",
    "OTHER_REGISTERS",
    "longer",
    "registers",
    "threads",
]

# 32-bit registers besides tiles and fragments: addresses, steps and counters.  NVRTC 13.0
# takes 24 to 50 beyond them for sm_90a; with 16 it manages where it moves reads closer to
# their use.
OTHER_REGISTERS = 36
LEAST_OTHER = 16


def threads(*, block_m: Values, block_n: Values, tile_m: Values, tile_n: Values) -> Values:
    """Return the threads of a block."""
    return block_m * block_n // (tile_m * tile_n)


def longer(k_fast: tuple[bool, bool]) -> int:
    """Return by how much rows of both tiles exceed the block's sides, in elements.

    `k_fast`: whose memory runs along k.  Rows of an operand that is transposed on its way are
    4 elements longer.
    """
    return 4 * sum(k_fast)


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
