"""What a thread block of this stencil uses, for one point or for arrays of them.

Arguments are parameters by name; integers give integers, NumPy arrays arrays.
"""

from __future__ import annotations

import numpy as np

from tilewright.precision import Precision
from tilewright.stencil.asynchronous.resources import WARP, Values

__all__ = [
    "LEAST_OTHER",
    "OTHER_REGISTERS",
    "RUN_BYTES",
    "longer",
    "registers",
    "step_k",
    "threads",
]

# What copies take at a time along k: two of the pieces that device memory gives.
RUN_BYTES = 64

# 32-bit registers besides sums and fragments: addresses, steps and counters.  For sm_90a NVRTC
# 13.5 takes 22 to 62 beyond them; where a step of 8 is read in turns, whose fragments are never
# all there at once, it manages with up to 6 fewer than they are.
OTHER_REGISTERS = 40
LEAST_OTHER = 16


def threads(
    *, block_m: Values, block_n: Values, warp_m: Values, warp_n: Values, warps_k: Values
) -> Values:
    """Return the threads of a block."""
    return WARP * (block_m * block_n // (warp_m * warp_n)) * warps_k


def paired_k(precision: Precision, k_fast: tuple[bool, bool]) -> bool:
    """Return whether neighbours along k are read at once: doubles, B alone running along k."""
    return not precision.is_complex and k_fast == (False, True)


def step_k(*, mma_k: Values, precision: Precision, k_fast: tuple[bool, bool]) -> Values:
    """Return the steps along k that fragments hold: an instruction's, and a plane's at least."""
    return np.maximum(mma_k, 8 if paired_k(precision, k_fast) else 4)


def longer(precision: Precision, k_fast: tuple[bool, bool]) -> int:
    """Return by how much rows and planes of both tiles exceed the block's sides, in elements.

    `k_fast`: whose memory runs along k.  So lanes that read at once use all banks (mma.cuh).
    """
    paired, real = paired_k(precision, k_fast), not precision.is_complex
    slow, fast = (4, 2) if real and not paired else (2, 0)
    return sum(fast if along else slow for along in k_fast)


def registers(
    *,
    warp_m: Values,
    warp_n: Values,
    mma_k: Values,
    ahead: Values,
    precision: Precision,
    k_fast: tuple[bool, bool],
    other: int = OTHER_REGISTERS,
) -> Values:
    """Return the estimated 32-bit registers of a thread.

    Its sums, the fragments of one step or two; `other` are those for everything else.
    """
    step = step_k(mma_k=mma_k, precision=precision, k_fast=k_fast)
    held = warp_m * warp_n + (1 + ahead) * step * (warp_m + warp_n)
    return held * precision.element_bytes // (4 * WARP) + other
