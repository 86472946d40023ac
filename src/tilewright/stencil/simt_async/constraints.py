"""Constraints of the stencil fed by asynchronous copies, each with its reason."""

from __future__ import annotations

import functools

import numpy as np

from tilewright.hardware import DeviceSpec
from tilewright.precision import Precision
from tilewright.space import Constraint
from tilewright.stencil.base import Variant
from tilewright.stencil.schedule import schedule_constraints
from tilewright.stencil.simt_async.resources import (
    CHUNK_BYTES,
    LEAST_OTHER,
    Values,
    registers,
    shared_bytes,
    threads,
)

__all__ = ["constraints", "who_shares_a_tile"]

WARP = 32

# The least that device memory transfers at a time.
SECTOR_BYTES = 32

# Blocks of fewer threads than one warp a scheduler, of more than this, were never fast:
# a barrier then stops more than two warps a scheduler.
MOST_THREADS = 512

# Clusters of thread blocks came with this compute capability, times ten.
CLUSTERS_SINCE = 90


def constraints(variant: Variant, device: DeviceSpec) -> tuple[Constraint, ...]:
    """Return the named constraints; a limit that the device does not know applies none."""
    return (
        *_shapes(variant.precision),
        *_copies(variant),
        *_hardware(variant, device),
        *_heuristics(variant, device),
        *schedule_constraints("simt_async", variant.precision, device),
    )


def _shapes(precision: Precision) -> tuple[Constraint, ...]:
    chunk = CHUNK_BYTES // precision.element_bytes
    return (
        Constraint(
            "whole warps along m",
            lambda block_m, tile_m, lanes_m: block_m % (lanes_m * tile_m) == 0,
            "a block is a whole number of warps' tiles high",
            "divisibility",
        ),
        Constraint(
            "whole warps along n",
            lambda block_n, tile_n, lanes_m: block_n % (WARP // lanes_m * tile_n) == 0,
            "a block is a whole number of warps' tiles wide",
            "divisibility",
        ),
        Constraint(
            "whole chunks in a tile",
            lambda tile_m, tile_n: (tile_m % chunk == 0) & (tile_n % chunk == 0),
            f"a thread reads {CHUNK_BYTES} bytes of shared memory at once",
            "divisibility",
        ),
        Constraint(
            "unrolling divides the k block",
            lambda block_k, unroll_k: block_k % unroll_k == 0,
            "the loop does whole trips for each tile",
            "divisibility",
        ),
        Constraint(
            "columns for every block of a cluster",
            lambda tile_n, split_k: tile_n % split_k == 0,
            "each block of a cluster adds up as many columns of a thread's tile",
            "divisibility",
        ),
        who_shares_a_tile(),
    )


def who_shares_a_tile() -> Constraint:
    """Return what keeps ways to share a tile of C apart."""
    return Constraint(
        "who shares a tile",
        lambda persistent, stream_k, split_k: (
            ((stream_k == 0) | (persistent == 1)) & ((persistent == 0) | (split_k == 1))
        ),
        "blocks that stay share tiles with all others, blocks of a cluster with each other",
        "divisibility",
    )


def _copies(variant: Variant) -> tuple[Constraint, ...]:
    """Return what lets all threads of a block copy as much of each tile."""
    along_a, along_b = variant.k_fast
    chunk = CHUNK_BYTES // variant.precision.element_bytes
    reason = "all threads copy as many pieces of a tile, at distances of whole rows"
    even = functools.partial(_even, variant.precision)
    found = [
        Constraint(
            "A is copied evenly",
            lambda block_m, block_n, block_k, tile_m, tile_n, k_vectors: even(
                along_a, block_m, block_k, k_vectors,
                threads(block_m=block_m, block_n=block_n, tile_m=tile_m, tile_n=tile_n),
            ),
            reason,
            "divisibility",
        ),
        Constraint(
            "B is copied evenly",
            lambda block_m, block_n, block_k, tile_m, tile_n, k_vectors: even(
                along_b, block_n, block_k, k_vectors,
                threads(block_m=block_m, block_n=block_n, tile_m=tile_m, tile_n=tile_n),
            ),
            reason,
            "divisibility",
        ),
    ]  # fmt: skip
    if (along_a and along_b) or chunk == 1:
        found.append(
            Constraint(
                "nothing to copy narrowly",
                lambda narrow: narrow == 0,
                "both operands are contiguous along k, or an element is 16 bytes",
                "divisibility",
            )
        )
    else:
        found.append(
            Constraint(
                "vectors or none",
                lambda narrow, k_vectors: (narrow == 0) | (k_vectors == 0),
                "columns that begin anywhere are read by single elements whichever way they run",
                "divisibility",
            )
        )
    if not (along_a or along_b):
        found.append(
            Constraint(
                "nothing to transpose",
                lambda k_vectors: k_vectors == 0,
                "neither operand is contiguous along k",
                "divisibility",
            )
        )
    return tuple(found)


def _even(
    precision: Precision,
    along_k: bool,
    side: Values,
    block_k: Values,
    k_vectors: Values,
    number: Values,
) -> Values:
    chunk = CHUNK_BYTES // precision.element_bytes
    if along_k:
        sector = SECTOR_BYTES // precision.element_bytes
        across = np.where(k_vectors == 1, sector // chunk, sector)
        return (block_k % sector == 0) & (side % np.maximum(number // across, 1) == 0)
    across = side // chunk
    return (number % across == 0) & (block_k % np.maximum(number // across, 1) == 0)


def _hardware(variant: Variant, device: DeviceSpec) -> tuple[Constraint, ...]:
    room, most = device.shared_bytes_per_block, device.max_threads_per_block
    shared = functools.partial(shared_bytes, precision=variant.precision, k_fast=variant.k_fast)
    found = [
        Constraint(
            "threads of a block",
            lambda block_m, block_n, tile_m, tile_n: (
                threads(block_m=block_m, block_n=block_n, tile_m=tile_m, tile_n=tile_n) <= most
            ),
            f"the device runs at most {most} threads in a block",
            "hardware",
        ),
        Constraint(
            "shared memory of a block",
            lambda block_m, block_n, block_k, stages, split_k, stream_k: (
                shared(
                    block_m=block_m, block_n=block_n, block_k=block_k, stages=stages,
                    split_k=split_k, stream_k=stream_k,
                ) <= room
            ),
            f"a block has at most {room} bytes of shared memory",
            "hardware",
        ),
    ]  # fmt: skip
    capability = device.compute_capability
    if capability is None or capability < CLUSTERS_SINCE:
        found.append(
            Constraint(
                "clusters",
                lambda split_k: split_k == 1,
                "thread blocks form clusters from compute capability 9.0 on",
                "hardware",
            )
        )
    named = device.max_registers_per_thread
    if named is not None:
        used = functools.partial(
            registers, precision=variant.precision, k_fast=variant.k_fast, other=LEAST_OTHER
        )
        found.append(
            Constraint(
                "registers of a thread",
                lambda block_m, block_n, block_k, tile_m, tile_n, k_vectors: (
                    used(
                        block_m=block_m,
                        block_n=block_n,
                        block_k=block_k,
                        tile_m=tile_m,
                        tile_n=tile_n,
                        k_vectors=k_vectors,
                    )
                    <= named
                ),
                f"a thread that needs more than {named} registers spills",
                "hardware",
            )
        )
    return tuple(found)


def _heuristics(variant: Variant, device: DeviceSpec) -> tuple[Constraint, ...]:
    # A multiply-add of pairs is at least 12 instructions.
    each = 12 if variant.precision.parts == 2 else 1
    found = [
        Constraint(
            "a warp for each scheduler",
            lambda block_m, block_n, tile_m, tile_n, resident: (
                (threads(block_m=block_m, block_n=block_n, tile_m=tile_m, tile_n=tile_n) * resident
                 >= 4 * WARP)
                & (threads(block_m=block_m, block_n=block_n, tile_m=tile_m, tile_n=tile_n)
                   <= MOST_THREADS)
            ),
            "a multiprocessor has four schedulers; a barrier of many warps stops them all",
            "heuristic",
        ),
        Constraint(
            "reads of shared memory beside multiply-adds",
            lambda tile_m, tile_n: tile_m * tile_n >= 4 * (tile_m + tile_n) // 2,
            "a thread's tile of less than 4 x 4 reads more than it multiplies",
            "heuristic",
        ),
        Constraint(
            "long texts",
            lambda unroll_k, tile_m, tile_n: unroll_k * tile_m * tile_n * each <= 2048,
            "beyond 2048 multiply-adds, 32 KiB, the loop leaves the nearest instruction cache",
            "heuristic",
        ),
    ]  # fmt: skip
    file, shared = device.registers_per_multiprocessor, device.shared_bytes_per_multiprocessor
    if file is not None and shared is not None:
        found.append(_room(variant, file, shared))
    return tuple(found)


def _room(variant: Variant, file: int, memory: int) -> Constraint:
    """Return what keeps `resident` blocks possible, and worth asking for."""
    used = functools.partial(
        registers, precision=variant.precision, k_fast=variant.k_fast, other=LEAST_OTHER
    )
    shared = functools.partial(shared_bytes, precision=variant.precision, k_fast=variant.k_fast)

    def fits(
        block_m: Values, block_n: Values, block_k: Values, tile_m: Values, tile_n: Values,
        stages: Values, split_k: Values, k_vectors: Values, resident: Values,
    ) -> Values:  # fmt: skip
        number = threads(block_m=block_m, block_n=block_n, tile_m=tile_m, tile_n=tile_n)
        need = used(
            block_m=block_m, block_n=block_n, block_k=block_k, tile_m=tile_m, tile_n=tile_n,
            k_vectors=k_vectors,
        )  # fmt: skip
        each = shared(
            block_m=block_m, block_n=block_n, block_k=block_k, stages=stages, split_k=split_k
        )
        # 1 KiB of each block's shared memory is the system's from sm_80 on.
        return (resident * number * need <= file) & (resident * (each + 1024) <= memory)

    return Constraint(
        "resident blocks",
        fits,
        "registers and shared memory of a multiprocessor hold the blocks asked for",
        "heuristic",
    )
