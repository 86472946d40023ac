"""Configs whose blocks compute many small products of a batch, by a warp each (small.cuh).

They have parameters of their own and serve batches alone, so that they are no points of the space:

block_m, block_n, block_k
    The tile of a product that a warp computes, multiples of 16, with at most 64 elements along
    memory.
matrices
    Products of a block, side by side.
min_blocks
    Blocks that a multiprocessor is to hold.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.space import Config
from tilewright.stencil.base import Resources, Variant
from tilewright.stencil.call import TensorMap
from tilewright.stencil.geometry import Geometry
from tilewright.stencil.wgmma.arithmetic import Arithmetic
from tilewright.stencil.wgmma.call import TensorCall, operand_maps

__all__ = ["DEFINES", "SMALL", "geometry", "is_small", "resources", "small_arguments"]

# block_m, block_n, block_k, matrices, min_blocks.
SMALL: tuple[tuple[int, ...], ...] = (
    (16, 16, 16, 8, 8), (32, 32, 32, 4, 8), (32, 32, 16, 8, 4), (64, 32, 32, 4, 4),
)  # fmt: skip

_STAGES = 2  # small.cuh

# What of the other kernels' text is compiled with it and not used.
DEFINES = {
    "INSTRUCTION_M": 64, "CONSUMERS": 1, "STAGES": _STAGES, "PINGPONG": 0, "PARTIALS": 1,
    "CLUSTER_M": 1, "CLUSTER_N": 1, "PROMOTE_K": 0, "SWIZZLE_ROWS": 8,
}  # fmt: skip

# What beginning at a multiple of 1024 bytes takes, and barriers.
_ROUNDING, _BARRIERS = 1024, 16


def is_small(config: Config) -> bool:
    """Whether it is one of these."""
    return "matrices" in config


def resources(config: Config, arithmetic: Arithmetic) -> Resources:
    """Return threads and shared memory, exact, and an estimate of registers."""
    take = config.integer
    tile = (take("block_m") + take("block_n")) * take("block_k") * arithmetic.element_bytes
    shared = _STAGES * take("matrices") * tile + _ROUNDING + _BARRIERS
    sums = take("block_m") * take("block_n") // 32
    return Resources(32 * take("matrices"), shared, sums + 40)


def geometry(config: Config) -> Geometry:
    """Return how launches cover results."""
    take = config.integer
    return Geometry(
        take("block_m"), take("block_n"), (32 * take("matrices"), 1), tile_k=take("block_k"),
        stages=_STAGES, resident=take("min_blocks"), tma=True, products=take("matrices"),
    )  # fmt: skip


def small_arguments(
    config: Config, variant: Variant, arithmetic: Arithmetic, call: TensorCall, batch: int,
    steps: tuple[int, int, int],
) -> tuple[Any, ...]:  # fmt: skip
    """Return the argument list, with maps of all matrices of a batch."""
    take, size = config.integer, arithmetic.element_bytes
    shape = {name: take(name) for name in ("block_m", "block_n", "block_k")}
    maps = operand_maps(call, arithmetic, shape | {"cluster_m": 1, "cluster_n": 1}, variant.k_fast)
    a, b = (
        _of_many(one, (shape["block_k"], side) if along_k else (side, shape["block_k"]), many, size)
        for one, side, along_k, many in zip(
            maps, (shape["block_m"], shape["block_n"]), variant.k_fast,
            (take("matrices") if step else 1 for step in steps[:2]), strict=True,
        )
    )  # fmt: skip
    scalar, long = np.float32, np.int64
    k = 0 if call.alpha == 0 else call.k
    c = call.c.memory + call.c.offset * arithmetic.result_bytes
    return (
        long(call.m), long(call.n), long(k), scalar(call.alpha), a, b, scalar(call.beta), c,
        long(call.c.ld), *map(np.int32, map(bool, steps[:2])), long(steps[2]), np.int32(batch),
    )  # fmt: skip


def _of_many(one: TensorMap, box: tuple[int, int], many: int, size: int) -> TensorMap:
    """Return a map whose copies take a tile of many matrices."""
    return replace(one, box=(*box, many), swizzle=box[0] * size)
