"""Points of the space for squares up to 2048, where how many blocks there are decides.

A search's other lists were made for large products, and what they have for small ones was chosen
by times with the host's share (docs/hopper.md).  Here points of the whole space are ranked by what
a multiprocessor has to do one after another: rounds of blocks, each with a beginning and an end,
and multiply-adds that few warps or small tiles leave idle.  It is an estimate, made to leave out
what cannot win: few points of a kind, so that kinds are many.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import ceil, prod
from typing import Any

from tilewright.precision import precision
from tilewright.space import Config
from tilewright.stencil import stencil

from .shapes import Points, mixed

SIZES = (512, 1024, 2048)
# Of a size, and of these so many of a kind.
EACH, OF_A_KIND = 96, 2
MULTIPROCESSORS, A_CYCLE = 132, 128

# A block for each tile, a share in a cluster or a slice, with layers of warps or without, or
# blocks that stay.
ALONE = {"split_k": 1, "persistent": 0, "stream_k": 0, "sliced": 0, "warps_k": 1}
SHARED = [{**ALONE, "split_k": split} for split in (1, 2, 4, 8)]
SHARED += [{**ALONE, "split_k": split, "warps_k": many} for split in (1, 2) for many in (2, 4, 8)]
SHARED += [{**ALONE, "sliced": 1}, {**ALONE, "persistent": 1}]
SHARED += [{**ALONE, "persistent": 1, "stream_k": 1}]
RESIDENT = (1, 2, 3, 4)
SINCE = ("block_m", "block_n", "block_k", "tile_m", "tile_n", "warp_m", "warp_n", *ALONE)

# Estimates, in cycles: a block's first copies and its text that comes from far; blocks of a cluster
# that meet, layers of warps that do; a second kernel; a share that is left and taken in.  Bytes of
# C that a multiprocessor stores in a cycle.  Warps that keep its schedulers busy.
BEGIN, MEET, LAYERS, SECOND, SHARE, STORED, BUSY = 3000, 1500, 800, 6000, 6000, 10, 8
# And until a tile's copies are there: a trip of 512 cycles of multiply-adds, with two stages, took
# 1100 (docs/hopper.md).
ARRIVE = 1100


def candidates(letter: str, trans: str) -> list[Config]:
    """Return what may be fast at some of `SIZES`, these in turns, the likeliest first."""
    points = list(ordinary(letter, trans) if letter in "sc" else matrix_units(letter, trans))
    return list(dict.fromkeys(mixed(*(best(points, letter, size) for size in SIZES))))


def best(points: Iterable[Config], letter: str, size: int) -> list[Config]:
    """Return the likeliest at a size, few of a kind."""
    found, kinds = [], Counter[Any]()
    cost: Callable[[Config], float] = partial(cycles, letter, size)
    for one in sorted(points, key=cost):
        kind = tuple(one.get(name) for name in SINCE)
        kinds[kind] += 1
        if kinds[kind] <= OF_A_KIND:
            found.append(one)
        if len(found) == EACH:
            break
    return found


def cycles(letter: str, size: int, config: Config) -> float:
    """Return what the busiest multiprocessor takes for a square, estimated."""
    number = precision(letter)
    launch = stencil(config.stencil).launch(config, size, size, size).on(MULTIPROCESSORS)
    area = config.integer("block_m") * config.integer("block_n")
    tiles = ceil(size / config.integer("block_m")) * ceil(size / config.integer("block_n"))
    stays, shares = bool(config.get("persistent")), bool(config.get("stream_k"))
    blocks = tiles if stays else prod(launch.grid)
    each = blocks / MULTIPROCESSORS if shares else ceil(blocks / MULTIPROCESSORS)
    together = max(1, min(each, config.integer("resident")))
    depth = size * tiles / blocks
    work = area * depth * number.words**2 / A_CYCLE / used(config, number.words, together)
    trips = ceil(depth / config.integer("block_k"))
    work = max(work, trips * ARRIVE / (config.integer("stages") - 1) / together)
    ends = BEGIN + area * number.element_bytes / STORED
    besides = MEET if config.integer("split_k") > 1 else SECOND if config.get("sliced") else 0
    besides += LAYERS if config.integer("warps_k") > 1 else 0
    return each * work + ceil(each / together) * ends + besides + (SHARE if shares else 0)


def used(config: Config, words: int, together: float) -> float:
    """Return the share of multiply-adds that a multiprocessor's cycles are used for, at most."""
    warps = stencil(config.stencil).threads(config) / 32 * together
    busy = min(1.0, (warps / BUSY) ** 0.5)
    if "tile_m" not in config:
        return busy
    # Reads of 16 bytes that a step's multiply-adds stand beside, two cycles each.
    tile = config.integer("tile_m"), config.integer("tile_n")
    multiplies, reads = prod(tile) * words**2, sum(tile) * words / 4
    return float(busy * multiplies / (multiplies + 2 * reads))


def ordinary(letter: str, trans: str) -> Iterator[Config]:
    """Yield points of `simt_async`: all blocks, tiles and depths, the usual order of a step."""
    fixed = {"copy_groups": 4, "raster_rows": 8, "b_first": 0, "k_vectors": 0, "turn": 0}
    sides, tiles = (32, 64, 96, 128), ((4, 4), (8, 4), (4, 8), (8, 8), (8, 16), (16, 8))
    shapes = [
        (*block, *tile, lanes, resident, *shared.values())
        for shared in SHARED
        for block in itertools.product(sides, sides)
        for tile in tiles
        for lanes in (4, 8)
        for resident in RESIDENT
    ]
    names = ("block_m", "block_n", "tile_m", "tile_n", "lanes_m", "resident", *ALONE)
    depths = ((8, 8, 3), (8, 8, 5), (16, 16, 3), (32, 16, 2), (32, 8, 2), (16, 8, 3), (16, 4, 4))
    # Layers have short trips, which copies outlast: more stages, or longer trips.
    depths += ((32, 16, 3), (32, 8, 3), (32, 4, 3), (64, 16, 2), (64, 8, 2), (64, 8, 3))
    points = Points("simt_async", letter, trans, fixed)
    yield from points.of(names, shapes, depth=depths)
    # Runs of 64 bytes won at 512: small blocks, eight layers of warps, the longest trips.
    layered = [shape for shape in shapes if shape[-1] == 8 and shape[0] * shape[1] <= 64 * 64]
    yield from points.of(names, layered, depth=depths[-3:], run_bytes=(64,))


def matrix_units(letter: str, trans: str) -> Iterator[Config]:
    """Yield points of `mma_f64`: all blocks, warps and depths."""
    sides, warps = (32, 64, 128), (16, 32, 64)
    flows = ((16, 3, 1, 8), (8, 4, 1, 4), (16, 3, 0, 1), (32, 2, 1, 8), (32, 3, 1, 8))
    if letter == "d":  # layers of four warps, at 512
        flows += ((64, 3, 1, 4), (64, 3, 1, 8))
    shapes = [
        (*block, *warp, resident, *flow, *shared.values())
        for flow in flows
        for shared in SHARED
        for block in itertools.product(sides, sides)
        for warp in itertools.product(warps, warps)
        if all(side >= part for side, part in zip(block, warp, strict=True))
        for resident in RESIDENT
    ]
    names = ("block_m", "block_n", "warp_m", "warp_n", "resident")
    names += ("block_k", "stages", "ahead", "turns", *ALONE)
    points = Points("mma_f64", letter, trans, {"mma_m": 16, "raster_rows": 8})
    lengths = (8, 4) if letter == "d" else (4,)
    yield from points.of(names, shapes, mma_k=lengths, walk=(0, 1))
