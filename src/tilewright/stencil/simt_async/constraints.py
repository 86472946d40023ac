"""Constraints of the stencil fed by asynchronous copies, each with its reason."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from tilewright.hardware import DeviceSpec
from tilewright.precision import Precision
from tilewright.space import Constraint, composed
from tilewright.stencil.asynchronous.constraints import (
    clusters,
    copied_evenly,
    one_way_to_share,
    parallel_split_k_sums,
    resident_blocks,
    rows_along_side,
    schedulers,
    sliced_k,
    tma_or_sliced_k,
    tma_since,
    tree_reductions,
    whole_warps,
)
from tilewright.stencil.asynchronous.resources import CHUNK_BYTES, WARP, Values, shared_bytes
from tilewright.stencil.base import Variant
from tilewright.stencil.portable.constraints import block_limits, registers_of_a_thread
from tilewright.stencil.simt_async.resources import (
    LEAST_OTHER,
    SECTOR_BYTES,
    lanes_k,
    longer,
    registers,
    threads,
)
from tilewright.stencil.simt_async.tma import MOST_BOX, box_words

__all__ = ["constraints", "scalar_copies", "threads"]

# The most steps between two renormalisations of a pair: SETTLE_STEPS of prelude/pair.h.
_SETTLE_STEPS = 32


def constraints(variant: Variant, device: DeviceSpec) -> tuple[Constraint, ...]:
    """Return the named constraints; a limit that the device does not know applies none."""
    return (
        *_shapes(variant.precision),
        *_copied_evenly(variant, scalar=False),
        _runs(variant),
        *_boxes(variant, device),
        *block_limits(device, threads, _shared(variant)),
        *clusters(device),
        *registers_of_a_thread(device, _used(variant)),
        *_heuristics(variant, device),
    )


def scalar_copies(variant: Variant) -> tuple[Constraint, ...]:
    """Return what scalar copies need; nothing along k, where all copies are of single elements."""
    return () if all(variant.k_fast) else _copied_evenly(variant, scalar=True)


def _shapes(precision: Precision) -> tuple[Constraint, ...]:
    chunk = CHUNK_BYTES // precision.element_bytes
    return (
        *whole_warps(
            lambda block_m, tile_m, lanes_m: block_m % (lanes_m * tile_m) == 0,
            lambda block_n, tile_n, lanes_m: block_n % (WARP // lanes_m * tile_n) == 0,
        ),
        Constraint(
            "whole chunks in a tile",
            lambda tile_m, tile_n: (tile_m % chunk == 0) & (tile_n % chunk == 0),
            f"a thread reads {CHUNK_BYTES} bytes of shared memory at once",
            "divisibility",
        ),
        Constraint(
            "unrolling divides the k block",
            lambda block_k, warps_k, unroll_k: block_k % (warps_k * unroll_k) == 0,
            "the loop does whole trips for each tile, or a warp's part of it",
            "divisibility",
        ),
        Constraint(
            "columns for every part of a tile",
            lambda tile_n, cluster_k, warps_k: tile_n % (cluster_k * warps_k) == 0,
            "each block of a cluster, and each layer of its warps, adds up as many columns of a "
            "thread's tile",
            "divisibility",
        ),
        one_way_to_share(),
        sliced_k(),
        tree_reductions(),
        *parallel_split_k_sums(precision),
        *_settled(precision),
    )


def _settled(precision: Precision) -> tuple[Constraint, ...]:
    """Return the constraint that sums of pairs are settled at a tile's end (prelude/pair.h)."""
    if precision.parts == 1:
        return ()
    return (
        Constraint(
            "sums are settled with a tile's end",
            lambda block_k: _SETTLE_STEPS % block_k == 0,
            f"sums of pairs are renormalised every {_SETTLE_STEPS} steps",
            "divisibility",
        ),
    )


def _copied_evenly(variant: Variant, *, scalar: bool) -> tuple[Constraint, ...]:
    """Return the constraints that all threads of a block copy as much of each tile."""
    even = functools.partial(_even, variant.precision, scalar)
    return copied_evenly(variant.k_fast, even, threads)


def _runs(variant: Variant) -> Constraint:
    """Return the constraint on `run_bytes`, runs along k of scalar copies."""
    size = variant.precision.element_bytes
    if not any(variant.k_fast) or size == CHUNK_BYTES:
        why = "neither operand is contiguous along k, or an element is all that is copied at once"
        return Constraint(
            "no runs along k", lambda run_bytes: run_bytes == SECTOR_BYTES, why, "divisibility"
        )

    return Constraint(
        "long runs along k",
        lambda run_bytes, block_k: (run_bytes == SECTOR_BYTES) | (block_k * size % run_bytes == 0),
        "runs longer than what device memory gives at least are whole",
        "divisibility",
    )


def _boxes(variant: Variant, device: DeviceSpec) -> tuple[Constraint, ...]:
    """Return the constraints of TMA."""
    why = ""
    if any(variant.k_fast):
        why = "TMA transposes nothing, and an operand runs along k"
    elif variant.precision.parts == 2:
        why = "sums of pairs are renormalised between tiles, which the loop of TMA does not do"
    if why:
        return (Constraint("no TMA", lambda tma: tma == 0, why, "divisibility"),)
    words = box_words(variant.precision)
    found = (
        tma_or_sliced_k(),
        Constraint(
            "TMA tiles unrolled whole",
            lambda tma, block_k, unroll_k: (tma == 0) | (block_k == unroll_k),
            "warps that do not wait for each other would request tiles in the middle of one",
            "divisibility",
        ),
        Constraint(
            "sides of a box",
            lambda tma, block_m, block_n: (
                (tma == 0) | (np.maximum(block_m, block_n) * words <= MOST_BOX)
            ),
            f"a box has at most {MOST_BOX} numbers a side",
            "hardware",
        ),
    )
    return *tma_since(device), *found


def _even(
    precision: Precision,
    scalar: bool,
    along_k: bool,
    side: Values,
    block_k: Values,
    tma: Values,
    run_bytes: Values,
    number: Values,
) -> Values:
    """Return whether so many threads copy a tile of an operand in rows that are whole.

    As tiles.cuh lays them out along k, and copies.cuh along m or n.
    """
    if along_k:
        lanes = lanes_k(block_k, run_bytes, precision)
        return (block_k % lanes == 0) & (side % np.maximum(number // lanes, 1) == 0)
    chunk = CHUNK_BYTES // precision.element_bytes
    rows = rows_along_side(chunk, side=side, block_k=block_k, scalar=scalar, number=number)
    return (np.asarray(tma) > 0) | rows


def _shared(variant: Variant) -> Callable[..., Values]:
    rows = functools.partial(longer, precision=variant.precision, k_fast=variant.k_fast)
    return composed(functools.partial(shared_bytes, precision=variant.precision), longer=rows)


def _used(variant: Variant) -> Callable[..., Values]:
    return functools.partial(
        registers, precision=variant.precision, k_fast=variant.k_fast, other=LEAST_OTHER
    )


def _heuristics(variant: Variant, device: DeviceSpec) -> tuple[Constraint, ...]:
    # A multiply-add of pairs is at least 12 instructions.
    each = 12 if variant.precision.parts == 2 else 1
    return (
        schedulers(threads),
        Constraint(
            "reads of shared memory beside multiply-adds",
            lambda tile_m, tile_n: tile_m * tile_n >= 4 * (tile_m + tile_n) // 2,
            "a thread's tile of less than 4 x 4 reads more than it multiplies",
            "heuristic",
        ),
        Constraint(
            "long loops",
            lambda unroll_k, tile_m, tile_n: unroll_k * tile_m * tile_n * each <= 2048,
            "beyond 2048 multiply-adds, 32 KiB, the loop leaves the nearest instruction cache",
            "heuristic",
        ),
        *resident_blocks(
            device, threads, _used(variant), functools.partial(_shared(variant), stream_k=0)
        ),
    )
