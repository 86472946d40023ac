"""What a thread block of this stencil uses, for one point or for arrays of them.

Arguments are parameters by name; integers give integers, NumPy arrays arrays.
"""

from __future__ import annotations

import numpy as np

from tilewright.precision import Precision
from tilewright.stencil.asynchronous.resources import WARP, Values

__all__ = [
    "LEAST_OTHER",
    "LINE_BYTES",
    "OTHER_REGISTERS",
    "plane_row_bytes",
    "registers",
    "threads",
]

# A line of the caches and of shared memory's banks.
LINE_BYTES = 128

# The longest row of a plane along k of single elements: half a line, so that few threads copy eight
# rows at once (tiles.cuh).
_ROW_BYTES_SCALAR = 64

# 32-bit registers besides sums and fragments: addresses, steps and counters.  For sm_90a NVRTC
# 13.5 takes 22 to 62 beyond them; where the reads of a step of 8 interleave, whose fragments are
# never all there at once, it manages with up to 6 fewer than they are.
OTHER_REGISTERS = 40
LEAST_OTHER = 16


def threads(
    *, block_m: Values, block_n: Values, warp_m: Values, warp_n: Values, warps_k: Values
) -> Values:
    """Return the threads of a block."""
    return WARP * (block_m * block_n // (warp_m * warp_n)) * warps_k


def plane_row_bytes(*, block_k: Values, warps_k: Values, scalar: bool, size: int) -> Values:
    """Return the bytes of a plane's row, which copies take at once; `size` is an element's."""
    most = _ROW_BYTES_SCALAR if scalar else LINE_BYTES
    return np.minimum(block_k // np.maximum(warps_k, 1) * size, most)


def registers(
    *,
    warp_m: Values,
    warp_n: Values,
    mma_k: Values,
    precision: Precision,
    other: int = OTHER_REGISTERS,
) -> Values:
    """Return the estimated 32-bit registers of a thread.

    Its sums, and the fragments of two steps; `other` are those for everything else.
    """
    held = warp_m * warp_n + 2 * mma_k * (warp_m + warp_n)
    return held * precision.element_bytes // (4 * WARP) + other
