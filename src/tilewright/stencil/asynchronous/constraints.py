"""Constraints that hold whatever multiplies: of a block's shape, of the device, of what is busy.

Predicates and quantities name the parameters they look at, as in `tilewright.space.Constraint`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from tilewright.hardware import DeviceSpec
from tilewright.precision import Precision
from tilewright.space import Constraint
from tilewright.stencil.asynchronous.resources import CHUNK_BYTES, WARP, Values

__all__ = [
    "TMA_SINCE",
    "block_limits",
    "clusters",
    "copied_by_threads",
    "copied_evenly",
    "copy_engine",
    "engine_or_threads",
    "keep_busy",
    "registers_of_a_thread",
    "resident_blocks",
    "room_for",
    "rows_along_side",
    "schedulers",
    "sliced_sums",
    "staged_results",
    "who_adds_parts_up",
    "who_has_layers",
    "who_shares_a_tile",
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
    """Return what makes a block of whole warps' tiles."""
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


def who_shares_a_tile() -> Constraint:
    """Return what keeps ways to share a tile of C apart."""
    return Constraint(
        "who shares a tile",
        lambda persistent, stream_k, cluster_k, parallel_split_k: (
            ((stream_k == 0) | (persistent == 1))
            & ((persistent == 0) | (cluster_k == 1))
            & ((parallel_split_k == 0) | ((persistent == 0) & (cluster_k == 1)))
        ),
        "blocks that stay share tiles with all others, blocks of a cluster with each other, and "
        "slices have a block each",
        "divisibility",
    )


def who_has_layers() -> Constraint:
    """Return what leaves layers of warps to blocks whose shared memory is free at their end."""
    return Constraint(
        "who has layers",
        lambda warps_k, persistent, parallel_split_k: (
            (warps_k == 1) | ((persistent == 0) & (parallel_split_k == 0))
        ),
        "layers add up where blocks that stay have the next tile; slices add nothing up",
        "divisibility",
    )


def who_adds_parts_up() -> Constraint:
    """Return what leaves a tree of parts to tiles that have some."""
    return Constraint(
        "who adds parts up",
        lambda tree_reduction, stream_k: (tree_reduction == 0) | (stream_k > 0),
        "only blocks that share tiles with all others leave parts",
        "divisibility",
    )


def sliced_sums(precision: Precision) -> tuple[Constraint, ...]:
    """Return what leaves slices of k to sums that a second kernel may add up."""
    if precision.parts == 1:
        return ()
    return (
        Constraint(
            "no slices of pairs",
            lambda parallel_split_k: parallel_split_k == 0,
            "a sum of pairs that is not sound is computed anew by who has all of it",
            "divisibility",
        ),
    )


def copied_evenly(a: Quantity, b: Quantity) -> tuple[Constraint, Constraint]:
    """Return what lets all threads of a block copy as much of each tile."""
    reason = "all threads copy as many pieces of a tile, at distances of whole rows"
    return (
        Constraint("A is copied evenly", a, reason, "divisibility"),
        Constraint("B is copied evenly", b, reason, "divisibility"),
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


def engine_or_threads() -> Constraint:
    """Return what leaves to the copy engine tiles that all warps of a block read."""
    return Constraint(
        "boxes or threads",
        lambda tma, warps_k: (tma == 0) | (warps_k == 1),
        "no layers read the copy engine's boxes",
        "divisibility",
    )


def copy_engine(device: DeviceSpec) -> tuple[Constraint, ...]:
    """Return what leaves boxes to devices that copy them."""
    capability = device.compute_capability
    if capability is not None and capability >= TMA_SINCE:
        return ()
    return (
        Constraint(
            "copy engine",
            lambda tma: tma == 0,
            "devices copy boxes of a matrix from compute capability 9.0 on",
            "hardware",
        ),
    )


def copied_by_threads() -> Constraint:
    """Return what keeps scalar copies and clamped loads from the copy engine."""
    return Constraint(
        "copied by threads",
        lambda tma: tma == 0,
        "the copy engine takes aligned columns and checks by itself",
        "divisibility",
    )


def staged_results(room: Quantity) -> tuple[Constraint, ...]:
    """Return what leaves staging to results that have room; `room` says."""
    return (
        Constraint(
            "room to stage results",
            room,
            f"one stage holds two chunks of {CHUNK_BYTES} bytes for each thread while it is free",
            "divisibility",
        ),
        Constraint(
            "split in parallel or staged",
            lambda parallel_split_k: parallel_split_k == 0,
            "parts of slices are aligned; the second kernel stores C down its columns",
            "divisibility",
        ),
    )


def clusters(device: DeviceSpec) -> tuple[Constraint, ...]:
    """Return what leaves clusters to devices that have them."""
    capability = device.compute_capability
    if capability is not None and capability >= _CLUSTERS_SINCE:
        return ()
    return (
        Constraint(
            "clusters",
            lambda cluster_k: cluster_k == 1,
            "thread blocks form clusters from compute capability 9.0 on",
            "hardware",
        ),
    )


def block_limits(
    device: DeviceSpec, threads: Quantity, shared_bytes: Quantity
) -> tuple[Constraint, Constraint]:
    """Return what a device's limits allow a block."""
    room, most = device.shared_bytes_per_block, device.max_threads_per_block
    return (
        Constraint(
            "threads of a block",
            _at_most(threads, most),
            f"the device runs at most {most} threads in a block",
            "hardware",
        ),
        Constraint(
            "shared memory of a block",
            _at_most(shared_bytes, room),
            f"a block has at most {room} bytes of shared memory",
            "hardware",
        ),
    )


def registers_of_a_thread(device: DeviceSpec, registers: Quantity) -> tuple[Constraint, ...]:
    """Return what leaves a thread the registers it needs, where the device's are known."""
    named = device.max_registers_per_thread
    if named is None:
        return ()
    reason = f"a thread that needs more than {named} registers spills"
    return (Constraint("registers of a thread", _at_most(registers, named), reason, "hardware"),)


def schedulers(busy: Quantity) -> Constraint:
    """Return what gives each scheduler a warp; `busy` is by `keep_busy`."""
    return Constraint(
        "a warp for each scheduler",
        busy,
        "a multiprocessor has four schedulers; a barrier of many warps stops them all",
        "heuristic",
    )


def keep_busy(threads: Values, min_blocks: Values) -> Values:
    """Return whether so many blocks give each scheduler a warp, and one does not stop them all."""
    return (threads * min_blocks >= 4 * WARP) & (threads <= _MOST_THREADS)


def resident_blocks(device: DeviceSpec, fit: Quantity) -> tuple[Constraint, ...]:
    """Return what keeps `min_blocks` possible, and worth asking for; `fit` is by `room_for`.

    There is none where the device does not say what a multiprocessor has.
    """
    if None in (device.registers_per_multiprocessor, device.shared_bytes_per_multiprocessor):
        return ()
    return (
        Constraint(
            "resident blocks",
            fit,
            "registers and shared memory of a multiprocessor hold the blocks asked for",
            "heuristic",
        ),
    )


def room_for(
    device: DeviceSpec,
    *,
    min_blocks: Values,
    threads: Values,
    registers: Values,
    shared_bytes: Values,
) -> Values:
    """Return whether a multiprocessor holds so many blocks of these resources."""
    file, memory = device.registers_per_multiprocessor, device.shared_bytes_per_multiprocessor
    return (min_blocks * threads * registers <= file) & (
        min_blocks * (shared_bytes + _SYSTEM_BYTES) <= memory
    )


def _at_most(quantity: Quantity, most: int) -> Quantity:
    """Return the predicate of the same parameters that a quantity is no larger."""

    @functools.wraps(quantity)
    def predicate(**values: Values) -> Values:
        return quantity(**values) <= most

    return predicate
