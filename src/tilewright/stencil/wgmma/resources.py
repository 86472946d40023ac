"""What a thread block of this stencil uses, for one point or for arrays of them.

Arguments are parameters by name; integers give integers, NumPy arrays arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.stencil.wgmma.arithmetic import Arithmetic

__all__ = [
    "GROUP",
    "OTHER_REGISTERS",
    "Values",
    "consumer_registers",
    "producer_registers",
    "shared_bytes",
    "sums",
    "threads",
]

# An integer, or an array of them.
Values = Any

# Threads of a warpgroup.
GROUP = 128

# 32-bit registers of a consumer besides its sums: places, counters, and what the epilogue
# holds of C.  NVRTC 13 needs more than 24 and fits into 40.
OTHER_REGISTERS = 40

# Registers of a multiprocessor, and the most that a thread can have and `setmaxnreg` takes:
# CUDA C++ Programming Guide, compute capability 9.0.
_FILE = 65536
_MOST = 240

# Barriers of a stage, and what it takes to begin at a multiple of 1024 bytes.
_STAGE_BARRIERS = 16
_ROUNDING = 1024


def threads(*, consumers: Values) -> Values:
    """Return the threads of a block: the consumers and one warpgroup that copies."""
    return GROUP * (consumers + 1)


def sums(
    *,
    block_m: Values,
    block_n: Values,
    block_k: Values,
    instruction_m: Values,
    consumers: Values,
    promote_k: Values,
    partials: Values,
) -> Values:
    """Return the sums that a consumer's thread holds, those on their way included."""
    own = block_m * block_n // (GROUP * consumers)
    short = np.where(np.asarray(promote_k) <= block_k, partials * instruction_m // 2, own)
    return own + np.where(np.asarray(promote_k) == 0, 0, short)


def producer_registers(*, consumers: Values, resident: Values) -> Values:
    """Return what the producer keeps; 0 where nobody gives or takes any."""
    alone = (np.asarray(consumers) == 1) & (np.asarray(resident) == 1)
    # With 24 it spills where it brings squares for a cluster; with 40 it leaves 232 to two
    # consumers, with 32 the most that there are, and 160 to three.
    return np.where(alone, 0, 32)


def consumer_registers(*, consumers: Values, resident: Values) -> Values:
    """Return a consumer's registers after the producer has given up its own."""
    kept = producer_registers(consumers=consumers, resident=resident)
    found = (_FILE // np.asarray(resident) // GROUP - kept) // consumers // 8 * 8
    return np.where(kept == 0, 0, np.minimum(found, _MOST))


def shared_bytes(
    *,
    block_m: Values,
    block_n: Values,
    block_k: Values,
    stages: Values,
    arithmetic: Arithmetic,
) -> Values:
    """Return the shared memory of a block, with what aligns its stages."""
    stage = arithmetic.parts * (block_m + block_n) * block_k * arithmetic.element_bytes
    return stages * (stage + _STAGE_BARRIERS) + _ROUNDING
