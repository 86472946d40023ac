"""What a thread block of this stencil uses, for one point or for arrays of them.

Arguments are parameters by name; integers give integers, NumPy arrays arrays.
"""

from __future__ import annotations

import numpy as np

from tilewright.precision import Precision
from tilewright.stencil.simt_async.resources import CHUNK_BYTES, NUMBER_BYTES, Values

__all__ = [
    "CHUNK_BYTES",
    "LEAST_OTHER",
    "OTHER_REGISTERS",
    "RUN_BYTES",
    "WARP",
    "Values",
    "registers",
    "shared_bytes",
    "step_k",
    "threads",
]

WARP = 32

# What copies take at a time along k: two of the pieces that device memory gives.
RUN_BYTES = 64

# 32-bit registers besides sums and fragments: addresses, steps and counters.  For sm_90a NVRTC
# 13.5 takes 22 to 62 beyond them; where a step of 8 is read in turns, whose fragments are never
# all there at once, it manages with up to 6 fewer than they are.
OTHER_REGISTERS = 40
LEAST_OTHER = 16


def threads(*, block_m: Values, block_n: Values, warp_m: Values, warp_n: Values) -> Values:
    """Return the threads of a block."""
    return WARP * (block_m * block_n // (warp_m * warp_n))


def paired_k(precision: Precision, k_fast: tuple[bool, bool]) -> bool:
    """Return whether neighbours along k are read at once: doubles, B alone running along k."""
    return not precision.is_complex and k_fast == (False, True)


def step_k(*, mma_k: Values, precision: Precision, k_fast: tuple[bool, bool]) -> Values:
    """Return the steps along k that fragments hold: an instruction's, and a plane's at least."""
    return np.maximum(mma_k, 8 if paired_k(precision, k_fast) else 4)


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

    Rows and planes are a little longer than the block's side, so that lanes that read at once
    use all banks (mma.cuh).  Where blocks of a cluster add up their parts, a part takes the
    place of the stages; blocks that share tiles with all others keep a number behind them.
    """
    paired, real = paired_k(precision, k_fast), not precision.is_complex
    slow, fast = (4, 2) if real and not paired else (2, 0)
    rows = block_m + block_n + sum(fast if along else slow for along in k_fast)
    ring = stages * block_k * rows
    part = np.where(np.asarray(split_k) > 1, block_m * block_n, 0)
    number = np.where(np.asarray(stream_k) > 0, NUMBER_BYTES, 0)
    return np.maximum(ring, part) * precision.element_bytes + number


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
