"""Configs of the whole space that may suit a shape in single precision: few of each kind.

A shape's candidates are what `gemm` chooses, those of least expected time, those of the shipped
table that come near to them, and the best of each class beyond.  Nothing here needs a GPU.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

import numpy as np

from tilewright.hardware import DeviceSpec
from tilewright.library.choose import Choice, choose, fitted, served
from tilewright.library.shipped import shipped
from tilewright.library.waves import effort
from tilewright.problem import Problem
from tilewright.space import Config, Space
from tilewright.stencil import Variant, stencil, unscheduled

from .absent import Absent
from .cases import variant_of
from .ending import end_with_parent

LETTER, FAMILY = "s", "simt_async"

# What the costs see.  Tiles of 12 x 16 are candidates where the shipped table has them only; 4 x 12
# and the like are left out, and blocks of more than 512 threads: the table has none above 256.
SIDES = (32, 64, 96, 128, 192, 256)
TILES = ((4, 4), (8, 4), (4, 8), (8, 8), (8, 16), (16, 8), (12, 8), (8, 12))
DEPTHS, STAGES, RESIDENT, LANES = (8, 12, 16, 32), (2, 3, 4, 5), (1, 2, 3, 4, 5, 6, 8), (4, 8)
THREADS = 512
# A block for each tile, for a share in a cluster or for a slice; or blocks that stay, may share.
NONE = {"split_k": 1, "persistent": 0, "stream_k": 0, "tree": 0, "sliced": 0}
SHARED = [{**NONE, "split_k": split} for split in (1, 2, 4, 8)]
SHARED += [{**NONE, "sliced": 1}]
SHARED += [
    {**NONE, "persistent": 1, "stream_k": how, "tree": tree}
    for how, tree in ((0, 0), *itertools.product((1, 2), (0, 1)))
]
# Of a shape, the best by costs: the cheapest of a kind, so many kinds, and few of a thread's tile,
# because what costs are off by depends on the tile most.
BEST, OF_A_TILE = 16, 5
# The shipped table's, and times the best's cost: they are timed already, so the bar is narrower
# than for the best of a class, which shows whether costs are wrong about blocks of that kind.
OF_TABLE, FAR_TABLE, FAR = 8, 1.35, 1.6
# Of costs this close (half of all are off by more than 5 %) what another shape wants, too, is
# compiled once; so many of a kind or class are looked at.
ALIKE, LOOKED_AT = 1.015, 12
# So many kinds and classes reach the choice among them: more than a shape may have candidates.
KINDS, CLASSES = 256, 64
# Medians of the table's times over costs, 1024 to 4096: threads with small tiles, and deep blocks,
# are slower than their costs say.
SLOWER = {(4, 4, 4): 1.05, (4, 4, 8): 1.14, (8, 4, 4): 1.03, (8, 4, 8): 1.03}
SLOWER |= {(4, 8, 4): 1.03, (4, 8, 8): 1.03}
DEEP, SLOWER_DEEP = 32, 1.04

# Times, or rather costs in cycles, with their configs.
Ranked = list[tuple[float, Config]]


@dataclass(frozen=True)
class Candidate:
    """A config, what of it a shape is multiplied by, its cycles, and why it is one."""

    config: Config
    fitted: Config
    cycles: float
    why: str


@dataclass
class Shape:
    """A problem with its candidates, `gemm`'s choice first."""

    problem: Problem
    candidates: list[Candidate]

    @property
    def chosen(self) -> Config:
        """Return what `gemm` launches."""
        return self.candidates[0].fitted

    @property
    def kernels(self) -> list[tuple[str, Config]]:
        """Return what is to be compiled, with its case."""
        return [(self.problem.trans, one.fitted) for one in self.candidates]


@dataclass
class Likely:
    """The cheapest configs of a shape, with those as cheap, by kind and by class."""

    kinds: list[Ranked] = field(default_factory=list)
    classes: list[Ranked] = field(default_factory=list)


# ---- The space -----------------------------------------------------------------------------


def space_of(trans: str, spec: DeviceSpec) -> Space:
    """Return the space of a case."""
    return stencil(FAMILY).space(variant_of(LETTER, trans), spec)


def _untold(v: Mapping[str, int]) -> dict[str, int]:
    """Return what costs do not see, as most rows of the shipped table have it."""
    if v["tma"]:
        found = {"unroll_k": v["block_k"], "copy_groups": 1}
    else:
        large = v["tile_m"] * v["tile_n"] >= 96
        unroll = {12: 12, 16: 16 if large else 8}.get(v["block_k"], 8)
        groups = 4 if (v["tile_m"], v["tile_n"]) == (16, 8) else 2
        found = {"unroll_k": unroll, "copy_groups": groups}
    walk = int(v["tile_m"] > v["tile_n"] and v["lanes_m"] == 4)
    return {**found, "raster_rows": 8, "walk": walk, "b_first": 0}


def _of_slices(v: Mapping[str, int]) -> dict[str, int]:
    """Return what kernels of slices are faster with, by wide_orders.json."""
    tall = (v["tile_m"], v["tile_n"]) == (16, 8)
    return {"walk": 1, "b_first": 1} if v["sliced"] and tall else {}


def _grid(variant: Variant) -> Iterator[dict[str, int]]:
    """Yield values of the parameters, constraints aside."""
    copies = [{"tma": 0, "k_vectors": 0}]
    copies += [{"tma": 0, "k_vectors": 1} if any(variant.k_fast) else {"tma": 1, "k_vectors": 0}]
    for m, n, (tile_m, tile_n) in itertools.product(SIDES, SIDES, TILES):
        if m * n > THREADS * tile_m * tile_n:
            continue
        tiles = {"block_m": m, "block_n": n, "tile_m": tile_m, "tile_n": tile_n}
        rest = itertools.product(DEPTHS, STAGES, RESIDENT, LANES, copies)
        for depth, stages, resident, lanes, copied in rest:
            v = {**tiles, "block_k": depth, "stages": stages, "resident": resident, **copied}
            v["lanes_m"] = lanes
            v |= _untold(v)
            for how in SHARED:
                yield {**v, **how, **_of_slices({**v, **how})}


@lru_cache(maxsize=4)
def members(trans: str, spec: DeviceSpec) -> tuple[Config, ...]:
    """Return what of the grid is in the space, by constraints over whole columns."""
    variant = variant_of(LETTER, trans)
    space, rows = space_of(trans, spec), list(_grid(variant))
    silent = {p.name: p.unnamed for p in space.parameters}
    columns = {
        name: np.array([row.get(name, unnamed or 0) for row in rows])
        for name, unnamed in silent.items()
    }
    good = np.ones(len(rows), bool)
    for constraint in space.constraints:
        part = {name: columns[name] for name in constraint.variables}
        good &= np.broadcast_to(constraint.holds(part), good.shape)
    return tuple(
        Config(FAMILY, {name: x for name, x in row.items() if x != silent[name]})
        for row, holds in zip(rows, good, strict=True)
        if holds
    )


def class_of(c: Config) -> tuple[Any, ...]:
    """Return the block and who shares it."""
    told = ("block_m", "block_n", "split_k", "stream_k", "tree", "sliced")
    return tuple(c.get(name, 0) for name in told)


def kind_of(c: Config) -> tuple[Any, ...]:
    """Return a class with a thread's tile and the depth."""
    return (*class_of(c), c["tile_m"], c["tile_n"], c["block_k"])


# ---- What is likely ------------------------------------------------------------------------


def cost(config: Config, problem: Problem, spec: DeviceSpec) -> float:
    """Return cycles that are expected, by which candidates are compared."""
    cycles = effort(config, problem, spec, spec.multiprocessors or 1)
    tile = config.integer("tile_m"), config.integer("tile_n"), config.integer("lanes_m")
    return cycles * SLOWER.get(tile, 1.0) * (SLOWER_DEEP if config["block_k"] == DEEP else 1.0)


def takes(config: Config, problem: Problem) -> bool:
    """Whether a config suits a problem's columns, or is fitted to them by itself.

    One that copies 16 bytes along k where columns are not aligned so would be fitted to another
    that is a candidate itself.
    """
    if not stencil(FAMILY).takes(config, problem):
        return False
    ragged = problem.k % 4 or problem.lda % 4 or problem.ldb % 4
    return not (ragged and config.get("k_vectors", 0))


def likely(problem: Problem, spec: DeviceSpec, having: str = "") -> Likely:
    """Return the cheapest of each kind and class, with those that are as good.

    `having`: a parameter that is not 0.
    """
    every = (c for c in members(problem.trans, spec) if not having or c.get(having, 0))
    taken = [c for c in every if takes(c, problem)]
    ranked = [(cost(c, problem, spec), c) for c in taken]
    ranked.sort(key=lambda one: (one[0], one[1].id))
    kinds: dict[tuple[Any, ...], Ranked] = {}
    classes: dict[tuple[Any, ...], Ranked] = {}
    for one in ranked:
        for found, key in ((kinds, kind_of(one[1])), (classes, class_of(one[1]))):
            group = found.setdefault(key, [])
            if len(group) < LOOKED_AT and (not group or one[0] <= ALIKE * group[0][0]):
                group.append(one)
    return Likely(list(kinds.values())[:KINDS], list(classes.values())[:CLASSES])


def all_likely(
    problems: Sequence[Problem], spec: DeviceSpec, workers: int, having: str = ""
) -> list[Likely]:
    """Return `likely` of each: a shape takes seconds, so other processes share them."""
    if workers < 2:
        return [likely(one, spec, having) for one in problems]
    order = sorted(range(len(problems)), key=lambda at: problems[at].trans)  # few cases a process
    with ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), end_with_parent, (os.getpid(),)
    ) as pool:
        sorted_problems = [problems[at] for at in order]
        each = -(-len(order) // workers)
        same = itertools.repeat(spec), itertools.repeat(having)
        found = pool.map(likely, sorted_problems, *same, chunksize=each)
        return [one for _, one in sorted(zip(order, found, strict=True), key=lambda one: one[0])]


# ---- The list ------------------------------------------------------------------------------


def listed(
    problems: Sequence[Problem],
    spec: DeviceSpec,
    each: int,
    kernels: int,
    workers: int = 1,
    having: str = "",
) -> list[Shape]:
    """Return problems with at most so many candidates each, and so many kernels in all.

    Beside the choice all have the parameter `having`, if it is named.  They are in the order in
    which they are best compiled and timed.
    """
    known: dict[str, set[Config]] = {}
    shapes = []
    every = all_likely(problems, spec, workers, having)
    for problem, found in zip(problems, every, strict=True):
        popular = known.setdefault(problem.trans, set())
        candidates = picked(problem, spec, found, popular, each, having)
        popular.update(one.fitted for one in candidates)
        shapes.append(Shape(problem, candidates))
    trim(shapes, kernels)
    return ordered(shapes)


def picked(
    problem: Problem,
    spec: DeviceSpec,
    found: Likely,
    popular: set[Config],
    most: int,
    having: str = "",
) -> list[Candidate]:
    """Return a problem's candidates, the choice first; no two are launched as the same."""
    device = Absent(spec)
    mine, choice = served(device, problem).config, choose(device, problem).config
    chosen = {mine: Candidate(choice, mine, _cost(choice, problem, spec), "choice")}
    first = found.kinds[0][0][0] if found.kinds else 0.0

    @cache
    def fit(config: Config) -> Config:
        return fitted(Choice(stencil(FAMILY), config), problem, spec).config

    def take(group: Ranked, why: str) -> None:
        """Take the cheapest of a group, or one as cheap that another shape has."""
        cycles, config = next((one for one in group if fit(one[1]) in popular), group[0])
        if len(chosen) < most:
            chosen.setdefault(fit(config), Candidate(config, fit(config), cycles, why))

    for group in cheapest(found.kinds):
        take(group, "best")
    for one in of_table(problem, spec):
        if one[0] <= FAR_TABLE * first and (not having or one[1].get(having, 0)):
            take([one], "table")
    have = {class_of(one.config) for one in chosen.values()}
    for group in found.classes:
        if group[0][0] <= FAR * first and class_of(group[0][1]) not in have:
            take(group, "class")
    return list(chosen.values())


def cheapest(kinds: Sequence[Ranked]) -> list[Ranked]:
    """Return the first kinds, few of each thread's tile."""
    taken: list[Ranked] = []
    tiles = Counter[Any]()
    for group in kinds:
        tile = group[0][1]["tile_m"], group[0][1]["tile_n"]
        if len(taken) < BEST and tiles[tile] < OF_A_TILE:
            tiles[tile] += 1
            taken.append(group)
    return taken


def of_table(problem: Problem, spec: DeviceSpec) -> Ranked:
    """Return the cheapest of the shipped table, as the compiler leaves them."""
    table = shipped(spec, variant_of(LETTER, problem.trans))
    rows = [row.config for row in table.rows] if table else []
    configs = [c for c in dict.fromkeys(map(unscheduled, rows)) if c.stencil == FAMILY]
    taken = [(cost(c, problem, spec), c) for c in configs if takes(c, problem)]
    return sorted(taken, key=lambda one: (one[0], one[1].id))[:OF_TABLE]


def _cost(config: Config, problem: Problem, spec: DeviceSpec) -> float:
    """Return the cost of any stencil's config; that of others is in no unit of ours."""
    return cost(config, problem, spec) if config.stencil == FAMILY else 0.0


def trim(shapes: Sequence[Shape], kernels: int) -> None:
    """Drop what one shape alone wants until few enough kernels are left.

    Those of classes go first, then those of the table, each the costliest beside its shape's
    choice first; the choice and what other shapes want stay.
    """
    users = Counter(kernel for shape in shapes for kernel in shape.kernels)
    for why in ("class", "table", "best"):
        alone = [
            (one.cycles / (shape.candidates[0].cycles or one.cycles), number, one)
            for number, shape in enumerate(shapes)
            for one in shape.candidates
            if one.why == why and users[shape.problem.trans, one.fitted] == 1
        ]
        for _, number, one in sorted(alone, key=lambda of: (-of[0], of[1], of[2].fitted.id)):
            if len(users) <= kernels:
                return
            del users[shapes[number].problem.trans, one.fitted]
            shapes[number].candidates.remove(one)


def ordered(shapes: Sequence[Shape]) -> list[Shape]:
    """Return shapes, the cases in turns, so that the next of a case adds the fewest kernels."""
    cases: dict[str, list[Shape]] = {}
    for shape in shapes:
        cases.setdefault(shape.problem.trans, []).append(shape)
    turns = itertools.zip_longest(*map(_fewest_first, cases.values()))
    return [shape for turn in turns for shape in turn if shape]


def _fewest_first(shapes: Sequence[Shape]) -> Iterator[Shape]:
    """Yield the shapes of a case."""
    rest = {number: set(shape.kernels) for number, shape in enumerate(shapes)}
    while rest:
        number = min(rest, key=lambda of: (len(rest[of]), of))
        done = rest.pop(number)
        yield shapes[number]
        for kernels in rest.values():
            kernels -= done
