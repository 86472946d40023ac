"""Constraints of the stencil on matrix units for doubles, each with its reason."""

from __future__ import annotations

import numpy as np

from tilewright.hardware import DeviceSpec
from tilewright.space import Constraint
from tilewright.stencil.base import Variant
from tilewright.stencil.mma_f64.resources import (
    CHUNK_BYTES,
    LEAST_OTHER,
    RUN_BYTES,
    WARP,
    Values,
    registers,
    shared_bytes,
    step_k,
    threads,
)
from tilewright.stencil.simt_async.constraints import CLUSTERS_SINCE, who_shares_a_tile

__all__ = ["constraints"]

# Instructions of 16 rows came with this compute capability, times ten.
TALL_SINCE = 90

# Of an instruction, along n; and the least along m of a line of fragments.
MMA_N = 8
LINE = 16

# A barrier of more warps stops more than four a scheduler.
MOST_THREADS = 512


def constraints(variant: Variant, device: DeviceSpec) -> tuple[Constraint, ...]:
    """Return the named constraints; a limit that the device does not know applies none."""
    return (
        *_shapes(variant),
        *_copies(variant),
        *_generation(device),
        *_limits(variant, device),
        *_heuristics(variant, device),
    )


def _shapes(variant: Variant) -> tuple[Constraint, ...]:
    precision, along = variant.precision, variant.k_fast

    def steps(block_k: Values, mma_k: Values) -> Values:
        return block_k // step_k(mma_k=mma_k, precision=precision, k_fast=along)

    return (
        Constraint(
            "whole warps along m",
            lambda block_m, warp_m: block_m % warp_m == 0,
            "a block is a whole number of warps' tiles high",
            "divisibility",
        ),
        Constraint(
            "whole warps along n",
            lambda block_n, warp_n: block_n % warp_n == 0,
            "a block is a whole number of warps' tiles wide",
            "divisibility",
        ),
        Constraint(
            "short instructions of few rows",
            lambda mma_m, mma_k: (mma_m == LINE) | (mma_k == 4),
            "instructions of 8 rows have 4 steps along k",
            "divisibility",
        ),
        Constraint(
            "steps of a tile",
            lambda block_k, mma_k, ahead: (
                (steps(block_k, mma_k) >= 2) & (steps(block_k, mma_k) % (1 + ahead) == 0)
            ),
            "copies start before a tile's last step; two sets of fragments take turns",
            "divisibility",
        ),
        Constraint(
            "columns for every block of a cluster",
            lambda warp_n, split_k: warp_n // 4 % split_k == 0,
            "each block of a cluster adds up as many columns of a lane's part of C",
            "divisibility",
        ),
        who_shares_a_tile(),
    )


def _copies(variant: Variant) -> tuple[Constraint, ...]:
    """Return what lets all threads of a block copy as much of each tile."""
    along_a, along_b = variant.k_fast
    size = variant.precision.element_bytes
    reason = "all threads copy as many pieces of a tile, at distances of whole rows"

    def even(along_k: bool, side: Values, block_k: Values, number: Values) -> Values:
        if along_k:
            abreast = number // (RUN_BYTES // CHUNK_BYTES)
            # Within 16 rows of a plane the sides are dealt in another order.
            return (abreast % LINE == 0) & (side % np.maximum(abreast, 1) == 0)
        across = side * size // CHUNK_BYTES
        return (number % across == 0) & (block_k % np.maximum(number // across, 1) == 0)

    return (
        Constraint(
            "A is copied evenly",
            lambda block_m, block_n, block_k, warp_m, warp_n: even(
                along_a, block_m, block_k,
                threads(block_m=block_m, block_n=block_n, warp_m=warp_m, warp_n=warp_n),
            ),
            reason,
            "divisibility",
        ),
        Constraint(
            "B is copied evenly",
            lambda block_m, block_n, block_k, warp_m, warp_n: even(
                along_b, block_n, block_k,
                threads(block_m=block_m, block_n=block_n, warp_m=warp_m, warp_n=warp_n),
            ),
            reason,
            "divisibility",
        ),
    )  # fmt: skip


def _generation(device: DeviceSpec) -> tuple[Constraint, ...]:
    capability = device.compute_capability
    found = []
    if capability is None or capability < TALL_SINCE:
        found.append(
            Constraint(
                "instructions of 16 rows",
                lambda mma_m: mma_m < LINE,
                "matrix units take 16 rows of doubles from compute capability 9.0 on",
                "hardware",
            )
        )
    if capability is None or capability < CLUSTERS_SINCE:
        found.append(
            Constraint(
                "clusters",
                lambda split_k: split_k == 1,
                "thread blocks form clusters from compute capability 9.0 on",
                "hardware",
            )
        )
    return tuple(found)


def _limits(variant: Variant, device: DeviceSpec) -> tuple[Constraint, ...]:
    room, most = device.shared_bytes_per_block, device.max_threads_per_block
    precision, along = variant.precision, variant.k_fast

    def ring(
        block_m: Values, block_n: Values, block_k: Values, stages: Values, split_k: Values,
        stream_k: Values,
    ) -> Values:  # fmt: skip
        return room >= shared_bytes(
            block_m=block_m, block_n=block_n, block_k=block_k, stages=stages, split_k=split_k,
            precision=precision, k_fast=along, stream_k=stream_k,
        )  # fmt: skip

    def holds(warp_m: Values, warp_n: Values, mma_k: Values, ahead: Values) -> Values:
        return named is None or named >= registers(
            warp_m=warp_m, warp_n=warp_n, mma_k=mma_k, ahead=ahead, precision=precision,
            k_fast=along, other=LEAST_OTHER,
        )  # fmt: skip

    found = [
        Constraint(
            "threads of a block",
            lambda block_m, block_n, warp_m, warp_n: (
                threads(block_m=block_m, block_n=block_n, warp_m=warp_m, warp_n=warp_n) <= most
            ),
            f"the device runs at most {most} threads in a block",
            "hardware",
        ),
        Constraint(
            "shared memory of a block",
            ring,
            f"a block has at most {room} bytes of shared memory",
            "hardware",
        ),
    ]
    named = device.max_registers_per_thread
    if named is not None:
        reason = f"a thread that needs more than {named} registers spills"
        found.append(Constraint("registers of a thread", holds, reason, "hardware"))
    return tuple(found)


def _heuristics(variant: Variant, device: DeviceSpec) -> tuple[Constraint, ...]:
    words = variant.precision.words

    def warps(
        block_m: Values, block_n: Values, warp_m: Values, warp_n: Values, resident: Values
    ) -> Values:
        number = threads(block_m=block_m, block_n=block_n, warp_m=warp_m, warp_n=warp_n)
        return (number * resident >= 4 * WARP) & (number <= MOST_THREADS)

    found = [
        Constraint(
            "a warp for each scheduler",
            warps,
            "a multiprocessor has four schedulers; a barrier of many warps stops them all",
            "heuristic",
        ),
        Constraint(
            "reads of shared memory beside multiply-adds",
            lambda warp_m, warp_n: words * warp_m * warp_n >= 16 * (warp_m + warp_n),
            "a warp's tile of less than 32 x 32 doubles takes more than half of what shared memory "
            "delivers; complex ones are read twice as long and multiplied four times",
            "heuristic",
        ),
    ]
    file, shared = device.registers_per_multiprocessor, device.shared_bytes_per_multiprocessor
    if file is not None and shared is not None:
        found.append(_room(variant, file, shared))
    return tuple(found)


def _room(variant: Variant, file: int, memory: int) -> Constraint:
    """Return what keeps `resident` blocks possible, and worth asking for."""
    precision, along = variant.precision, variant.k_fast

    def fits(
        block_m: Values, block_n: Values, block_k: Values, warp_m: Values, warp_n: Values,
        mma_k: Values, ahead: Values, stages: Values, split_k: Values, resident: Values,
    ) -> Values:  # fmt: skip
        number = threads(block_m=block_m, block_n=block_n, warp_m=warp_m, warp_n=warp_n)
        need = registers(
            warp_m=warp_m, warp_n=warp_n, mma_k=mma_k, ahead=ahead, precision=precision,
            k_fast=along, other=LEAST_OTHER,
        )  # fmt: skip
        each = shared_bytes(
            block_m=block_m, block_n=block_n, block_k=block_k, stages=stages, split_k=split_k,
            precision=precision, k_fast=along,
        )  # fmt: skip
        # 1 KiB of each block's shared memory is the system's from sm_80 on.
        return (resident * number * need <= file) & (resident * (each + 1024) <= memory)

    return Constraint(
        "resident blocks",
        fits,
        "registers and shared memory of a multiprocessor hold the blocks asked for",
        "heuristic",
    )
