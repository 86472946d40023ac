"""Configs of which a portfolio is made in double precision and of complex elements.

Blocks from 32 x 32 to 128 x 128 and 192 x 96, each in the ways that serve some shape: a tile a
block, layers of warps on a tile, slices of k, blocks that stay and share.  As many are resident as
the space has room for.  `portfolio.py` times all of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.space import Config, Space
from tilewright.stencil import stencil, unscheduled

from .cases import variant_of

__all__ = ["CASES", "FAMILIES", "candidates", "what_counts"]

# What multiplies; single precision has a portfolio of other makes.  Conjugates take what their
# transposes take, so these four cases are timed of all.
FAMILIES = {"s": "simt_async", "d": "mma_f64", "c": "simt_async", "z": "mma_f64"}
CASES = ("NN", "NT", "TN", "TT")

# Ways through the tiles of C.
PLAIN = {"split_k": 1}
SLICED = {"split_k": 1, "sliced": 1}
SHARED = {"split_k": 1, "persistent": 1, "stream_k": 1}
STAYING = {"split_k": 1, "persistent": 1}
MOST_RESIDENT = 8

# Of a case, that count beside all the others.
COUNT = 36

# Blocks, the tile of a warp, layers of warps; then steps along k and stages.
Blocks = tuple[int, int, int, int, int]
UNITS: dict[str, list[Blocks]] = {
    "d": [
        (32, 32, 32, 32, 4), (32, 32, 32, 32, 2), (32, 32, 32, 16, 2), (32, 32, 16, 16, 1),
        (64, 32, 32, 32, 4), (64, 32, 32, 32, 2), (64, 32, 32, 32, 1),
        (32, 64, 32, 32, 4), (32, 64, 32, 32, 2), (32, 64, 32, 32, 1),
        (64, 64, 32, 32, 2), (64, 64, 32, 32, 1), (128, 32, 32, 32, 1), (32, 128, 32, 32, 1),
        (128, 64, 32, 32, 1), (128, 64, 64, 32, 1), (64, 128, 32, 32, 1), (64, 128, 32, 64, 1),
        (128, 128, 64, 32, 1), (128, 128, 32, 64, 1),
        (96, 96, 48, 48, 1), (96, 96, 48, 48, 2), (96, 64, 48, 32, 1), (64, 96, 32, 48, 1),
        (96, 128, 48, 32, 1), (128, 96, 32, 48, 1), (192, 64, 48, 32, 1), (64, 192, 32, 48, 1),
        (192, 96, 48, 48, 1), (96, 192, 48, 48, 1),
        (96, 32, 48, 32, 1), (96, 32, 48, 32, 2), (96, 32, 48, 32, 4),
        (32, 96, 32, 48, 1), (32, 96, 32, 48, 2), (32, 96, 32, 48, 4),
        (48, 48, 48, 48, 1), (48, 48, 48, 48, 2), (48, 48, 48, 48, 4),
        (96, 48, 48, 48, 1), (96, 48, 48, 48, 2), (48, 96, 48, 48, 1), (48, 96, 48, 48, 2),
        (48, 32, 48, 32, 4), (32, 48, 32, 48, 4),
    ],
    "z": [
        (32, 32, 32, 32, 4), (32, 32, 32, 32, 2), (32, 32, 16, 32, 2), (32, 32, 32, 16, 2),
        (32, 32, 16, 16, 1), (64, 32, 32, 32, 4), (64, 32, 32, 32, 2), (64, 32, 32, 32, 1),
        (64, 32, 16, 32, 1), (64, 32, 32, 16, 1), (32, 64, 32, 32, 4), (32, 64, 32, 32, 2),
        (32, 64, 32, 32, 1), (32, 64, 16, 32, 1), (32, 64, 32, 16, 1), (64, 64, 32, 32, 2),
        (64, 64, 32, 32, 1), (64, 64, 32, 16, 1), (128, 32, 32, 32, 1), (32, 128, 32, 32, 1),
        (128, 64, 32, 32, 1), (64, 128, 32, 32, 1),
        (96, 96, 24, 48, 1), (96, 96, 48, 24, 1), (96, 64, 24, 32, 1), (64, 96, 32, 24, 1),
        (96, 32, 24, 32, 1), (96, 32, 24, 32, 2), (32, 96, 32, 24, 1), (32, 96, 32, 24, 2),
        (48, 48, 24, 24, 1), (48, 48, 24, 24, 2), (48, 48, 24, 48, 2), (48, 48, 24, 48, 4),
    ],
}  # fmt: skip
# Steps along k of a layer's part of a tile, and stages; blocks with sides of 48, 96 and 192, which
# came later, have the first of these alone.
DEPTHS = {"d": ((16, 3), (8, 4)), "z": ((8, 3), (16, 2))}

# Beyond so many elements a warp has no registers for fragments of 8 steps.
MOST_OF_LONG_STEPS = 64 * 32

# Blocks, elements of a thread, lanes along m, layers.
THREADS: list[tuple[int, int, int, int, int, int]] = [
    (32, 32, 8, 4, 4, 8), (32, 32, 8, 4, 4, 4), (32, 32, 8, 4, 4, 2), (32, 32, 4, 8, 8, 4),
    (32, 32, 4, 4, 4, 1), (32, 32, 4, 4, 4, 2), (32, 32, 4, 4, 4, 4),
    (64, 32, 8, 4, 4, 1), (64, 32, 8, 4, 4, 2), (64, 32, 8, 4, 4, 4), (64, 32, 4, 4, 8, 1),
    (32, 64, 4, 8, 8, 1), (32, 64, 4, 8, 8, 2), (32, 64, 4, 8, 8, 4), (32, 64, 4, 4, 4, 1),
    (64, 64, 8, 4, 4, 1), (64, 64, 4, 8, 8, 1), (64, 64, 8, 4, 4, 2), (64, 64, 8, 8, 8, 2),
    (64, 64, 8, 8, 8, 4), (64, 64, 8, 8, 8, 1), (128, 32, 8, 4, 4, 1), (32, 128, 4, 8, 8, 1),
    (128, 64, 8, 8, 8, 1), (128, 64, 8, 8, 4, 2), (64, 128, 8, 8, 4, 1), (128, 128, 8, 8, 8, 1),
]  # fmt: skip
THREADS_DEPTHS = ((8, 3), (4, 4))


def candidates(letter: str, trans: str, device: Any) -> list[Config]:
    """Return the candidates of a case on a device, each once."""
    family = stencil(FAMILIES[letter])
    space = family.space(variant_of(letter, trans), device)
    made = of_threads() if letter == "c" else of_units(letter)
    found: dict[Config, None] = {}
    for values, way in made:
        found |= dict.fromkeys(densest(space, {**values, **way}))
    return list(found)


def ways(block_m: int, block_n: int, layers: int) -> Iterator[dict[str, int]]:
    """Yield the ways through C that a block may take."""
    yield PLAIN
    if layers == 1:
        yield SLICED
        if block_m * block_n >= 64 * 32:
            yield STAYING
        if block_m * block_n >= 64 * 64:
            yield SHARED


def is_odd(*sides: int) -> bool:
    """Whether a side is three quarters of a power of two."""
    return any(side % 3 == 0 for side in sides)


def of_units(letter: str) -> Iterator[tuple[dict[str, int], dict[str, int]]]:
    """Yield values of matrix units, with a way through C."""
    for blocks in UNITS[letter]:
        block_m, block_n, warp_m, warp_n, layers = blocks
        depths = DEPTHS[letter][: 1 if is_odd(block_m, block_n) else None]
        long_steps = letter == "d" and warp_m * warp_n <= MOST_OF_LONG_STEPS
        for (depth, stages), way in itertools.product(depths, ways(block_m, block_n, layers)):
            yield {
                "block_m": block_m, "block_n": block_n, "warp_m": warp_m, "warp_n": warp_n,
                "warps_k": layers, "block_k": depth * layers, "stages": stages, "mma_m": 16,
                "mma_k": 8 if long_steps and depth >= 16 else 4, "ahead": 1, "turns": 4,
                "walk": 0, "raster_rows": 8,
            }, way  # fmt: skip


def of_threads() -> Iterator[tuple[dict[str, int], dict[str, int]]]:
    """Yield values of threads that multiply, with a way through C."""
    for blocks, (depth, stages) in itertools.product(THREADS, THREADS_DEPTHS):
        block_m, block_n, tile_m, tile_n, lanes_m, layers = blocks
        for way in ways(block_m, block_n, layers):
            yield {
                "block_m": block_m, "block_n": block_n, "tile_m": tile_m, "tile_n": tile_n,
                "lanes_m": lanes_m, "warps_k": layers, "block_k": depth * layers, "stages": stages,
                "unroll_k": min(depth, 8), "copy_groups": 1 if tile_m * tile_n < 32 else 2,
                "walk": int(tile_m >= tile_n), "b_first": 0, "raster_rows": 8,
            }, way  # fmt: skip


def densest(space: Space, values: dict[str, int]) -> list[Config]:
    """Return the config with as many resident blocks as the space has room for, if it has any."""
    values = {name: value for name, value in values.items() if (name, value) != ("warps_k", 1)}
    made = (
        Config(space.stencil_name, {**values, "resident": many})
        for many in range(MOST_RESIDENT, 0, -1)
    )
    return list(itertools.islice((one for one in made if one in space), 1))


def what_counts(configs: Sequence[Config], ns: Sequence[Sequence[float | None]]) -> list[int]:
    """Return, greedily, which configs together come nearest to the best times of all shapes.

    Rescheduled code, which comes beside its twin, is none of them.

    Parameters
    ----------
    configs : sequence of Config
        Of one case.
    ns : sequence
        Of each shape a time of each config, None where it has none.
    """
    times = np.array(ns, float)
    costs = np.nan_to_num(np.log(times / np.nanmin(times, axis=1, keepdims=True)), nan=math.log(2))
    costs[:, [at for at, one in enumerate(configs) if unscheduled(one) != one]] = math.inf
    kept: list[int] = []
    left = np.full(len(times), math.log(2))
    while len(kept) < COUNT:
        after = np.minimum(left[:, None], costs).sum(axis=0)
        at = int(np.argmin(after))
        if after[at] >= left.sum():
            break
        kept.append(at)
        left = np.minimum(left, costs[:, at])
    return kept
