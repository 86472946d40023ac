"""Constraints of the stencil on tensor cores for doubles, each with its reason."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from tilewright.hardware import DeviceSpec
from tilewright.precision import Precision
from tilewright.space import Constraint
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
from tilewright.stencil.asynchronous.resources import (
    CHUNK_BYTES,
    SWIZZLED_BARRIER_BYTES,
    Values,
    shared_bytes,
)
from tilewright.stencil.base import Variant
from tilewright.stencil.mma_f64.resources import (
    LEAST_OTHER,
    LINE_BYTES,
    plane_row_bytes,
    registers,
    threads,
)
from tilewright.stencil.portable.constraints import block_limits, registers_of_a_thread

__all__ = ["constraints", "scalar_copies", "threads"]

# Instructions of 16 rows came with this compute capability, times ten.
TALL_SINCE = 90

# Rows of the taller instruction.
TALL = 16


def constraints(variant: Variant, device: DeviceSpec) -> tuple[Constraint, ...]:
    """Return the named constraints; a limit that the device does not know applies none."""
    return (
        *_shapes(variant),
        *_copied_evenly(variant, scalar=False),
        *_boxes(variant, device),
        *_generation(device),
        *block_limits(device, threads, _shared(variant)),
        *registers_of_a_thread(device, _used(variant)),
        *_heuristics(variant, device),
    )


def scalar_copies(variant: Variant) -> tuple[Constraint, ...]:
    """Return what scalar copies need."""
    return _copied_evenly(variant, scalar=True)


def _shapes(variant: Variant) -> tuple[Constraint, ...]:
    return (
        *whole_warps(
            lambda block_m, warp_m: block_m % warp_m == 0,
            lambda block_n, warp_n: block_n % warp_n == 0,
        ),
        _whole_instructions(variant.precision),
        Constraint(
            "short instructions of few rows",
            lambda mma_m, mma_k: (mma_m == TALL) | (mma_k == 4),
            "instructions of 8 rows have 4 steps along k",
            "divisibility",
        ),
        Constraint(
            "steps of a tile",
            lambda block_k, warps_k, mma_k: block_k % (2 * warps_k * mma_k) == 0,
            "each part of sliced-K has whole steps; two sets of fragments alternate",
            "divisibility",
        ),
        Constraint(
            "columns for every part of a tile",
            lambda warp_n, cluster_k, warps_k: warp_n // 4 % (cluster_k * warps_k) == 0,
            "each block of a cluster, and each layer of its warps, adds up as many columns of a "
            "lane's part of C",
            "divisibility",
        ),
        one_way_to_share(),
        sliced_k(),
        tree_reductions(),
        *parallel_split_k_sums(variant.precision),
    )


def _whole_instructions(precision: Precision) -> Constraint:
    # Two reals of a complex row are two of an instruction's 16; columns of doubles are read in
    # pairs, for two instructions of 8.
    least = 8 if precision.is_complex else 16
    return Constraint(
        "whole instructions of a warp",
        lambda warp_m, warp_n: (warp_m % least == 0) & (warp_n % least == 0),
        f"a warp multiplies {least} rows and columns of such elements at least",
        "divisibility",
    )


def _copied_evenly(variant: Variant, *, scalar: bool) -> tuple[Constraint, ...]:
    """Return the constraints that all threads of a block copy as much of each tile."""
    size = variant.precision.element_bytes

    def even(
        along_k: bool, side: Values, block_k: Values, warps_k: Values, tma: Values, number: Values
    ) -> Values:
        boxed = np.asarray(tma) > 0
        if not along_k:
            return boxed | rows_along_side(
                CHUNK_BYTES // size, side=side, block_k=block_k, scalar=scalar, number=number
            )
        piece = size if scalar else CHUNK_BYTES
        row = plane_row_bytes(block_k=block_k, warps_k=warps_k, scalar=scalar, size=size)
        abreast = number // np.maximum(row // piece, 1)
        # Sides eight apart lie in rows of a plane that are swizzled alike; a thread's others lie
        # where powers of two put them (layout_of_planes of tiles.cuh).
        swizzled = (abreast % 8 == 0) & (abreast & (abreast - 1) == 0) & (abreast > 0)
        return boxed | (swizzled & (side % np.maximum(abreast, 1) == 0))

    return copied_evenly(variant.k_fast, even, threads)


def _boxes(variant: Variant, device: DeviceSpec) -> tuple[Constraint, ...]:
    """Return the constraints of TMA, which brings tiles in whole lines (lines.cuh)."""
    in_line = LINE_BYTES // variant.precision.element_bytes
    found = [tma_or_sliced_k()]
    if any(variant.k_fast):
        found.append(
            Constraint(
                "whole lines along k",
                lambda tma, block_k: (tma == 0) | (block_k % in_line == 0),
                f"a box is {LINE_BYTES} bytes wide",
                "divisibility",
            )
        )
    if not variant.k_fast[1] and not variant.precision.is_complex:
        found.append(
            Constraint(
                "columns of B one by one",
                lambda tma, mma_k, warp_n: (tma == 0) | (mma_k == 4) | (warp_n % 32 == 0),
                "lanes that read single doubles at once have columns of two lines",
                "divisibility",
            )
        )
    return (*found, *tma_since(device))


def _generation(device: DeviceSpec) -> tuple[Constraint, ...]:
    if (device.compute_capability or 0) >= TALL_SINCE:
        return clusters(device)
    short = Constraint(
        "instructions of 16 rows",
        lambda mma_m: mma_m < TALL,
        "tensor cores take 16 rows of doubles from compute capability 9.0 on",
        "hardware",
    )
    return short, *clusters(device)


def _shared(variant: Variant) -> Callable[..., Values]:
    return functools.partial(
        shared_bytes, precision=variant.precision, longer=0, barrier_bytes=SWIZZLED_BARRIER_BYTES
    )


def _used(variant: Variant) -> Callable[..., Values]:
    return functools.partial(registers, precision=variant.precision, other=LEAST_OTHER)


def _heuristics(variant: Variant, device: DeviceSpec) -> tuple[Constraint, ...]:
    words = variant.precision.words

    return (
        schedulers(threads),
        Constraint(
            "reads of shared memory beside multiply-adds",
            lambda warp_m, warp_n: words * warp_m * warp_n >= 16 * (warp_m + warp_n),
            "a warp's tile of less than 32 x 32 doubles takes more than half of what shared memory "
            "delivers; complex ones are read twice as long and multiplied four times",
            "heuristic",
        ),
        *resident_blocks(
            device, threads, _used(variant), functools.partial(_shared(variant), stream_k=0)
        ),
    )
