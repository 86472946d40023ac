"""Constraints that hold whatever multiplies: of a block's shape, of the device, of what is busy.

Predicates and quantities name the parameters they look at, as in `tilewright.space.Constraint`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from tilewright.hardware import DeviceSpec
from tilewright.precision import Precision
from tilewright.space import Constraint, composed
from tilewright.stencil.asynchronous.resources import CHUNK_BYTES, WARP, Values, room_to_stage

__all__ = [
    "TMA_SINCE",
    "clusters",
    "copied_evenly",
    "cp_async_alone",
    "one_way_to_share",
    "parallel_split_k_sums",
    "resident_blocks",
    "rows_along_side",
    "schedulers",
    "sliced_k",
    "staged_results",
    "tma_or_sliced_k",
    "tma_since",
    "tree_reductions",
    "whole_warps",
]

# What is computed from a point's parameters, by their names.
Quantity = Callable[..., Values]

# Clusters of thread blocks came with this compute capability, times ten.
_CLUSTERS_SINCE = 90

# Tensor maps came with it, too.
TMA_SINCE = 90

# Blocks of less than a warp for each scheduler, or of more threads than this, were never fast:
# a barrier then stops more than four warps a scheduler.
_MOST_THREADS = 512

# Of each block's shared memory, the system's from sm_80 on.
_SYSTEM_BYTES = 1024


def whole_warps(along_m: Quantity, along_n: Quantity) -> tuple[Constraint, Constraint]:
    """Return the constraints that a block is a whole number of warps' tiles."""
    return (
        Constraint(
            "whole warps along m",
            along_m,
            "a block is a whole number of warps' tiles high",
            "divisibility",
        ),
        Constraint(
            "whole warps along n",
            along_n,
            "a block is a whole number of warps' tiles wide",
            "divisibility",
        ),
    )


def one_way_to_share() -> Constraint:
    """Return the constraint that one tile of C is shared in one way at most."""
    return Constraint(
        "one way to share a tile",
        lambda persistent, stream_k, cluster_k, parallel_split_k: (
            ((stream_k == 0) | (persistent == 1))
            & ((persistent == 0) | (cluster_k == 1))
            & ((parallel_split_k == 0) | ((persistent == 0) & (cluster_k == 1)))
        ),
        "stream-K is of persistent blocks; cluster split-K and parallel split-K exclude them and "
        "each other",
        "divisibility",
    )


def sliced_k() -> Constraint:
    """Return the constraint that sliced-K has shared memory to add up in at a tile's end."""
    return Constraint(
        "sliced-K or persistent",
        lambda warps_k, persistent, parallel_split_k: (
            (warps_k == 1) | ((persistent == 0) & (parallel_split_k == 0))
        ),
        "sliced-K adds up where a persistent block has its next tile; split-K blocks do not",
        "divisibility",
    )


def tree_reductions() -> Constraint:
    """Return the constraint that only stream-K has parts for a tree reduction."""
    return Constraint(
        "tree reduction of stream-K",
        lambda tree_reduction, stream_k: (tree_reduction == 0) | (stream_k > 0),
        "only stream-K leaves parts of a tile",
        "divisibility",
    )


def parallel_split_k_sums(precision: Precision) -> tuple[Constraint, ...]:
    """Return the constraint that a reduction kernel may add up the sums of a precision."""
    if precision.parts == 1:
        return ()
    return (
        Constraint(
            "no parallel split-K of pairs",
            lambda parallel_split_k: parallel_split_k == 0,
            "a sum of pairs that is not sound is computed anew, by the block that has all of it",
            "divisibility",
        ),
    )


def copied_evenly(
    k_fast: tuple[bool, bool], even: Quantity, threads: Quantity
) -> tuple[Constraint, ...]:
    """Return the constraints that all threads of a block copy as much of each tile.

    `even` is told whether an operand runs along k, its `side` of a block, and `number`, threads.
    """
    reason = "all threads copy as many pieces of a tile, at distances of whole rows"
    sides: tuple[Quantity, Quantity] = (lambda block_m: block_m, lambda block_n: block_n)
    evenly = (
        composed(functools.partial(even, along_k), side=side, number=threads)
        for side, along_k in zip(sides, k_fast, strict=True)
    )
    return tuple(
        Constraint(f"{name} is copied evenly", each, reason, "divisibility")
        for name, each in zip("AB", evenly, strict=True)
    )


def rows_along_side(
    chunk: int, *, side: Values, block_k: Values, scalar: bool, number: Values
) -> Values:
    """Return whether `number` threads copy a tile along m or n in rows that are whole.

    As copies.cuh lays them out: pieces of `chunk` elements, a row or a part of one at once, or
    `scalar` ones, by as many lanes of a warp as divide the side, or by more.
    """

    def evenly(across: Values) -> Values:
        whole = (side % across == 0) & (number % across == 0)
        return whole & (block_k % np.maximum(number // across, 1) == 0)

    if not scalar:
        return evenly(np.gcd(side // chunk, number))
    most = np.minimum(side, number)
    alone = evenly(most)
    for times in (1, 2, 4):  # what `side_by_side` tries, up to all of a block's
        across = times * np.gcd(side, WARP)
        alone = alone | ((across < most) & evenly(across))
    return alone


def tma_or_sliced_k() -> Constraint:
    """Return the constraint that all warps of a block read a tile that TMA brings."""
    return Constraint(
        "TMA or sliced-K",
        lambda tma, warps_k: (tma == 0) | (warps_k == 1),
        "warps of sliced-K read parts of a stage, and TMA's barriers count all warps",
        "divisibility",
    )


def tma_since(device: DeviceSpec) -> tuple[Constraint, ...]:
    """Return the constraint that a device has TMA."""
    if (device.compute_capability or 0) >= TMA_SINCE:
        return ()
    return (
        Constraint("TMA", lambda tma: tma == 0, "TMA came with compute capability 9.0", "hardware"),
    )


def cp_async_alone() -> Constraint:
    """Return the constraint that scalar copies and clamped loads are cp.async's."""
    return Constraint(
        "cp.async alone",
        lambda tma: tma == 0,
        "TMA takes aligned columns and checks bounds by itself",
        "divisibility",
    )


def staged_results(precision: Precision, threads: Quantity) -> tuple[Constraint, ...]:
    """Return the constraints of staged results, of blocks of so many threads."""
    return (
        Constraint(
            "room to stage results",
            composed(functools.partial(room_to_stage, precision=precision), threads=threads),
            f"one stage holds two chunks of {CHUNK_BYTES} bytes for each thread while it is free",
            "divisibility",
        ),
        Constraint(
            "parallel split-K or staged",
            lambda parallel_split_k: parallel_split_k == 0,
            "parts in the workspace are aligned; the reduction kernel stores C down its columns",
            "divisibility",
        ),
    )


def clusters(device: DeviceSpec) -> tuple[Constraint, ...]:
    """Return the constraint that a device has clusters."""
    if (device.compute_capability or 0) >= _CLUSTERS_SINCE:
        return ()
    return (
        Constraint(
            "clusters",
            lambda cluster_k: cluster_k == 1,
            "thread blocks form clusters from compute capability 9.0 on",
            "hardware",
        ),
    )


def schedulers(threads: Quantity) -> Constraint:
    """Return the constraint that each scheduler has a warp, and a barrier does not stop many."""
    return Constraint(
        "a warp for each scheduler",
        composed(
            lambda threads, min_blocks: (
                (threads * min_blocks >= 4 * WARP) & (threads <= _MOST_THREADS)
            ),
            threads=threads,
        ),
        "a multiprocessor has four schedulers; a barrier of many warps stops them all",
        "heuristic",
    )


def resident_blocks(
    device: DeviceSpec, threads: Quantity, registers: Quantity, shared_bytes: Quantity
) -> tuple[Constraint, ...]:
    """Return the constraint that `min_blocks` fit a multiprocessor.

    There is none where the device does not say what a multiprocessor has.
    """
    file, memory = device.registers_per_multiprocessor, device.shared_bytes_per_multiprocessor
    if file is None or memory is None:
        return ()
    return (
        Constraint(
            "resident blocks",
            composed(
                lambda min_blocks, threads, registers, shared: (
                    (min_blocks * threads * registers <= file)
                    & (min_blocks * (shared + _SYSTEM_BYTES) <= memory)
                ),
                threads=threads, registers=registers, shared=shared_bytes,
            ),
            "registers and shared memory of a multiprocessor hold the blocks asked for",
            "heuristic",
        ),
    )  # fmt: skip
