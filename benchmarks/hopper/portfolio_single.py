"""What portfolios are picked from: races at squares; in single precision at random shapes, too."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np

import ship
from hopper.cases import variant_of
from hopper.portfolio_space import CASES
from hopper.wide_file import unpacked
from shapes200 import LETTER
from tilewright.library.waves import Timed, expected_ns
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import stencil, unscheduled

__all__ = ["in_slices", "layered", "orders", "picked", "raced", "winners"]

MULTIPROCESSORS = 132
RACED = tuple(f"wide_{name}.json" for name in ("slow", "seed3", "sliced", "orders", "long"))
# Of a case.
PICKED = 64
# Of shapes with layers of warps, by the square they are fast at.
LAYERED = {512: 8, 1024: 6}
# Elements of a block whose slices `wide.py` raced at few shapes.
LARGE = 128 * 128
# What was not timed is not better than what was, though costs that are carried over are too small
# as often as too large: so many times as long, and never nearer to the best than this.
UNTAKEN, LEAST = 1.05, 0.02


def raced() -> dict[str, dict[Config, dict[Problem, float]]]:
    """Return what `wide.py` timed, by case and config as it was before it was fitted."""
    found: dict[str, Any] = {trans: defaultdict(dict) for trans in CASES}
    files = (name for name in RACED if (ship.RESULTS / name).exists())
    for row in (row for name in files for row in unpacked(ship.load(name))["rows"]):
        problem = Problem(row["m"], row["n"], row["k"], LETTER, *row["trans"])
        for one in (one for one in row["candidates"] if "ns" in one):
            config = Config("simt_async", one["config"])
            if unscheduled(config) == config:  # rescheduled code comes beside its twin
                found[row["trans"]][config][problem] = one["ns"]
    return found


def winners(trans: str, letter: str = LETTER) -> list[Config]:
    """Return what won a race at a square, as the compiler makes it."""
    log = ship.load(f"hopper_{letter}.json")["log"]
    known = ship.searched(log, trans)
    configs = (unscheduled(known[key][0]) for key in ship.raced(log, trans) if key in known)
    return list(dict.fromkeys(configs))


# The fastest order of large blocks in slices: first picked at two shapes that `shapes200.py` has,
# too (NT, 1010 x 905 x 5412 and 207 x 2263 x 7046); wide_orders.json, of others, says the same.
TALL = {
    "tile_m": 16, "tile_n": 8, "block_k": 8, "unroll_k": 8, "stages": 3, "walk": 1, "b_first": 1,
    "copy_groups": 4, "k_vectors": 0, "raster_rows": 8,
}  # fmt: skip
TALL_BLOCKS: list[dict[str, int]] = [
    {"block_m": 128, "block_n": 256, "lanes_m": 4, "resident": 1},
    {"block_m": 256, "block_n": 128, "lanes_m": 8, "resident": 1},
    {"block_m": 128, "block_n": 128, "lanes_m": 8, "resident": 2},
]

# The fastest orders of 320 that copy single elements, by blocks, NT and NN (wide_orders.json).
WIDE = {"tile_m": 8, "tile_n": 16, "lanes_m": 8, "walk": 0}
ORDERED: list[dict[str, int]] = [
    {"block_m": 256, "block_n": 128, "resident": 1, **WIDE, "b_first": 1},
    {"block_m": 128, "block_n": 128, "resident": 2, **WIDE, "b_first": 0},
    {"block_m": 128, "block_n": 128, "resident": 2, **WIDE, "b_first": 1},
    {"block_m": 128, "block_n": 128, "resident": 2, "lanes_m": 8},
    {"block_m": 256, "block_n": 128, "resident": 1, "lanes_m": 4, "block_k": 12, "unroll_k": 12},
]


def orders(trans: str, device: Any) -> list[Config]:
    """Return the fastest of these, for operands along m or n, whose blocks stay and share."""
    space = stencil("simt_async").space(variant_of(LETTER, trans), device)
    made = [
        Config("simt_async", {**TALL, **one, "split_k": 1, "persistent": 1, "stream_k": shared})
        for shared, one in (*((2, one) for one in ORDERED), *((1, one) for one in ORDERED[:2]))
    ]
    return [one for one in made if one in space and trans != "TN"]


# Who shares a tile of C, but for slices.
SHARING = ("persistent", "stream_k", "tree", "split_k", "staged", "schedule")


def in_slices(configs: list[Config], trans: str, device: Any) -> list[Config]:
    """Return the same blocks, cut into slices: nothing but squares was raced of the largest."""
    space = stencil("simt_async").space(variant_of(LETTER, trans), device)
    found = {}
    for one in (*configs, *(Config("simt_async", {**TALL, **of}) for of in TALL_BLOCKS)):
        values = {name: x for name, x in one.items() if name not in SHARING}
        config = Config(one.stencil, {**values, "split_k": 1, "sliced": 1})
        area = config.integer("block_m") * config.integer("block_n")
        if area >= LARGE and config in space:
            found[config] = None
    return list(found)


def picked(trans: str, times: dict[Config, dict[Problem, float]], device: Any) -> list[Config]:
    """Return the portfolio of a case, winners at squares first."""
    problems = sorted({p for taken in times.values() for p in taken}, key=str)
    configs = list(times)
    best = np.array([min(t[p] for t in times.values() if p in t) for p in problems])
    costs = np.array(
        [
            [_cost(c, times[c], p, best[at], device) for at, p in enumerate(problems)]
            for c in configs
        ]
    )
    made = winners(trans)
    more = *in_slices(made, trans, device), *orders(trans, device)
    made = list(dict.fromkeys((*made, *more)))
    left = np.full(len(problems), math.log(2.0))
    for config in made:
        if config in times:
            left = np.minimum(left, costs[configs.index(config)])
    while len(made) < PICKED:
        after = np.minimum(left, costs).sum(axis=1)
        at = int(np.argmin(after))
        if after[at] >= left.sum():
            break
        made.append(configs[at])
        left = np.minimum(left, costs[at])
    print(f"{trans}: {len(made)} of {len(configs)}, {math.exp(left.mean()):.3f} of the best times")
    return made


def _cost(
    config: Config, taken: dict[Problem, float], problem: Problem, best: float, device: Any
) -> float:
    """Return the logarithm of a time over the best, as taken, or as expected from the others."""
    if problem in taken:
        return math.log(taken[problem] / best)
    expected = expected_ns(Timed(config, taken), problem, device, MULTIPROCESSORS)
    return max(math.log(UNTAKEN * expected / best), LEAST)


def layered(trans: str) -> list[Config]:
    """Return, of each shape with layers of warps, what was the fastest at a short square."""
    known = ship.searched(ship.load("hopper_s.json")["log"], trans)
    found: dict[Config, None] = {}
    for size, most in LAYERED.items():
        timed = [
            (ns[size], one)
            for one, ns in known.values()
            if size in ns and one.get("warps_k", 1) > 1 and unscheduled(one) == one
        ]
        best: dict[tuple[Any, ...], Config] = {}
        for _, one in sorted(timed, key=lambda pair: pair[0]):
            best.setdefault(tuple(one.get(name) for name in ship.SHAPE), one)
        found |= dict.fromkeys(list(best.values())[:most])
    return list(found)
