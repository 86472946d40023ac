"""How long a multiprocessor takes, from what its blocks have to do.

What a launch of a stencil of asynchronous copies does is counted (`work`); what each thing costs
was fitted (`Costs`), for each stencil and precision.  Counted are, for the busiest multiprocessor,
steps along k, copies into shared memory, tiles stored, parts that a tile's owner adds up one after
another, sums of clusters; and for the device, bytes that pass the L2 and the memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Variant, stencil
from tilewright.stencil.asynchronous.division import (
    MOST_IN_TREE,
    MOST_SINGLE,
    divide,
)
from tilewright.stencil.asynchronous.resources import CHUNK_BYTES
from tilewright.stencil.simt_async.stencil import stages_results

__all__ = ["COSTS", "Costs", "Work", "costs_of", "cycles", "turns", "whole_chunks", "work"]

# Multiply-adds of a multiprocessor in a cycle: four schedulers of 32 lanes; and Hopper's matrix
# units do as many of doubles.
_FMA = 128
_SCHEDULERS = 4  # of a multiprocessor
_LANES_M = 8  # of a warp, along m, of matrix units


@dataclass(frozen=True)
class Costs:
    """What things cost, in cycles unless said otherwise.

    The values are those of ``python benchmarks/shipped/choice_fit.py`` for an H100: a portfolio of
    configs of each precision, each timed on 68 to 175 shapes.  Some cannot be told apart: `launch`
    and `begin` are known by their sum alone.

    Parameters
    ----------
    launch : float
        Of a kernel, between two events.
    begin : float
        From its start to the first multiply-adds.
    hiding : float
        Warps; of so many beside those that are there, the time goes to latency.
    latency : float
        Of a copy from device memory to shared memory, from its start.
    copy : float
        Of an instruction's lane that copies into shared memory, 1, 2 or 4 elements.
    check : float
        Of an element that is copied with checks (`Work.checked`), in place of `copy`.
    store : float
        Of an element of C, with the first copies of its tile.
    turn : float
        Between two tiles of a block that stays.
    meet : float
        That a cluster's blocks wait for each other.  What they send each other costs nothing
        that a fit could tell from `store`.
    part : float
        That an owner waits for a part, and reads it.
    part_element : float
        Of each element of a thread's tile in that part.
    l2, memory : float
        Bytes in a cycle, of the device.
    segment : float
        Bytes that a segment stored by single elements is worth (`Work.segments`).
    staged : float
        Of an element of C that passes through shared memory.
    second : float
        Of a second kernel, beside the parts of C that it adds up, which pass through the L2.
    """

    launch: float
    begin: float
    hiding: float
    latency: float
    copy: float
    check: float
    store: float
    turn: float
    meet: float
    part: float
    part_element: float
    l2: float
    memory: float
    segment: float
    staged: float
    second: float


# By stencil and precision.
COSTS: Mapping[tuple[str, str], Costs] = {
    ("simt_async", "s"): Costs(
        launch=9550, begin=0, hiding=1.42, latency=387, copy=0.0614, check=0.349, store=0.279,
        turn=4770, meet=949, part=2630, part_element=0, l2=7040, memory=1450, segment=0,
        # Held: a fit cannot tell it from `store`.  For 32 elements an instruction of 32 lanes that
        # reads 4 bytes each and a quarter of one that writes 16, 128 bytes a cycle either way.
        staged=0.0625,
        second=5090,
    ),
    # Of these no launch was of clusters, so that `meet` is single precision's; and so is ZGEMM's
    # `segment`, as its elements are stored 16 bytes at once.
    ("mma_f64", "d"): Costs(
        launch=10300, begin=0, hiding=0, latency=709, copy=0.0715, check=0.349, store=0.441, turn=0,
        meet=949, part=1180, part_element=21.1, l2=8430, memory=3360, segment=762, staged=0.0625,
        second=5510,
    ),
    ("simt_async", "c"): Costs(
        launch=0, begin=9690, hiding=1.36, latency=0, copy=0.119, check=0.349, store=0.741,
        turn=6000, meet=949, part=2480, part_element=0, l2=3800, memory=1190, segment=0,
        staged=0.0625, second=1520,
    ),
    ("mma_f64", "z"): Costs(
        launch=6130, begin=2870, hiding=0.656, latency=970, copy=0.0297, check=0.349, store=0.939,
        turn=0, meet=949, part=2140, part_element=9.92, l2=5900, memory=3350, segment=0,
        staged=0.0625, second=3720,
    ),
}  # fmt: skip


def costs_of(config: Config, problem: Problem) -> Costs | None:
    """Return what a config's launches cost in a precision; None where nobody fitted that."""
    return COSTS.get((config.stencil, problem.precision.letter))


@dataclass(frozen=True)
class Work:
    """What the busiest multiprocessor has to do, and bytes of all of them.

    Parameters
    ----------
    area : int
        Elements of a tile of C.
    multiplied : int
        Real multiply-adds of a step along k of a tile: four for each complex element.
    of_thread : int
        Elements of it that a thread has.
    warps : float
        On the multiprocessor at a time.
    copies : float
        Of a step along k: lanes that copy.
    checked : float
        Of a step along k: elements that are checked instead: all of those where a side of the
        matrix is shorter than the block's, in kernels without guards.
    steps : float
        Along k, of all its tiles.
    waits : float
        Latencies of copies, one after another: a stage may be read once its copies arrived,
        which were started `stages` - 1 tiles of k before.  Blocks side by side wait together.
    tiles : int
        That it stores, or parts of them.
    turns : int
        Tiles of a block that stays; 0 for others.
    parts : int
        That the owner of a tile adds up, or that it waits for, one after another, in a tree.
    waves : int
        Of clusters.
    l2, memory : int
        Bytes read from the L2, or written to it by those that leave a part; bytes of A, B and C.
    segments : float
        Where C's columns are not aligned to 16 bytes: columns that each store of a warp touches,
        of single elements 16 bytes apart, which leave most of each sector empty.  For those that
        are staged as many as leave as much of sectors empty.
    staged : int
        Elements of C that it stages.
    sliced : int
        Bytes of parts that slices of k leave, of all tiles, which a second kernel adds up; 0 where
        there are no slices.
    """

    area: int
    multiplied: int
    of_thread: int
    warps: float
    copies: float
    checked: float
    steps: float
    waits: float
    tiles: int
    turns: int
    parts: int
    waves: int
    l2: int
    memory: int
    segments: float
    staged: int
    sliced: int = 0


# A staged store fills all sectors of a column that it touches but one, as it begins and ends within
# one; of single elements 16 bytes apart a fourth of each sector is filled.  So 8 lanes leave 32 of
# 160 bytes empty, not 128, and touch a fourth of the columns: an estimate from traffic alone, until
# such stores have been timed.
_STAGED_SEGMENTS = 1 / 4 / 4


def work(
    config: Config,
    problem: Problem,
    resident: int,
    multiprocessors: int,
    shares: int | None = None,
    *,
    guarded: bool = True,
    staged: bool | None = None,
) -> Work:
    """Return what a launch has to do.

    Parameters
    ----------
    config : Config
        A point of the space of a stencil that `COSTS` has.
    problem : Problem
        Of a precision that it has.
    resident : int
        Blocks that fit on a multiprocessor.
    multiprocessors : int
        That blocks are spread over.
    shares : int, optional
        Of a tile at most, where it is not what kernels of the precision have.
    guarded : bool, optional
        Whether blocks longer than a side copy whole tiles, as those that are served do
        (`stencil.fitted`).  Guards count nothing: of 2254 instructions a trip of TN's loop
        (128 x 128 x 16) they add 36, of NT's none, 15 of 1143 where it copies single elements.
    staged : bool, optional
        Whether results that are not aligned are staged; as `gemm` would have it, if left out.
    """
    m, n, k = problem.m, problem.n, problem.k
    block_m, block_n = config.integer("block_m"), config.integer("block_n")
    launch = stencil(config.stencil).launch(config, m, n, k)
    threads = prod(launch.block)
    checks = not guarded and (m < block_m or n < block_n)
    size = problem.precision.element_bytes
    even = problem.ldc % _vector(problem) == 0
    area = block_m * block_n
    blocks = prod(launch.on(multiprocessors).grid)
    split = int(config.get("split_k", 1))
    each = -(-blocks // _reached(multiprocessors, split))
    depth, together = config.integer("block_k"), max(1, min(each, resident))
    tiles, steps, turns, parts, waves, left = each, 0.0, 0, 0, 0, 0
    if config.get("persistent"):
        most = shares or _most_shares(config, problem)
        tiles, steps, turns, parts, left = _staying(
            config, (m, n, k), multiprocessors, blocks, most
        )
    else:
        slices = blocks // prod(launch.grid)
        steps = each * (-(-k // (depth * slices)) * depth) / split
        if split > 1:
            waves = -(-each // resident)
    if staged is None:
        staged = bool(config.get("staged", 0)) or stages_results(
            problem, bool(config.get("tma", 0))
        )
    sliced = blocks * area if config.get("sliced") else 0
    even = even or sliced > 0  # parts are aligned
    segments = 0.0 if even else m * n / int(config.get("lanes_m", _LANES_M))
    return Work(
        area=area,
        multiplied=area * (4 if problem.precision.is_complex else 1),
        of_thread=area // threads,
        warps=together * threads / 32,
        copies=0.0 if checks else _copies(config, problem),
        checked=block_m + block_n if checks else 0.0,
        steps=steps,
        waits=steps / depth / together / max(1, config.integer("stages") - 1),
        tiles=tiles,
        turns=turns,
        parts=parts,
        waves=waves,
        l2=size * (k * (-(-n // block_n) * m + -(-m // block_m) * n) + 2 * left * area),
        memory=size * (m * k + k * n + m * n),
        segments=segments * _STAGED_SEGMENTS if staged else segments,
        staged=tiles * area if staged and not even else 0,
        sliced=sliced * size,
    )


def _vector(problem: Problem) -> int:
    """Return the elements that are copied or stored at once where they are aligned."""
    return max(1, CHUNK_BYTES // problem.precision.element_bytes)


def _most_shares(config: Config, problem: Problem) -> int | None:
    """Return how many blocks share a tile at most, as persistent.cuh says; None: any number."""
    if problem.precision.letter != "s":
        return None
    return MOST_IN_TREE if config.get("tree") else MOST_SINGLE


# Blocks of a cluster are neighbours on the chip, so that some of its corners stay empty: 64
# clusters of 4 that should fit two to a multiprocessor took 1.4 times as long.  Of 112 to 132
# multiprocessors those with the least error.
_REACHED = {4: 124 / 132, 8: 120 / 132}


def _reached(multiprocessors: int, split: int) -> int:
    """Return how many multiprocessors clusters of so many blocks are spread over."""
    return max(1, round(multiprocessors * _REACHED.get(split, 1.0)))


def _staying(
    config: Config, sizes: tuple[int, int, int], multiprocessors: int, blocks: int, most: int | None
) -> tuple[int, float, int, int, int]:
    """Return tiles and steps of the busiest multiprocessor, turns of a block, and parts.

    Of parts: how many an owner waits for one after another, and how many blocks leave one.
    """
    d = divide(config, sizes, blocks, most=most)
    turns, rest = divmod(d.whole, d.blocks)
    tiles = turns * -(-d.blocks // multiprocessors) + -(-rest // multiprocessors)
    shares = -(-d.workers // multiprocessors) if d.shared else 0
    steps = tiles * d.steps + shares * d.longest_share
    parts, left = 0, 0
    if d.shared:
        # Those whose share begins within a tile; where it would by less than a step, it does not.
        common = math.gcd(d.workers, d.shared)
        left = d.workers - common * -(-d.workers // (common * d.steps))
    if d.shared and d.workers != d.shared:
        parts = max(1, -(-d.steps // d.longest_share))
        if config.get("tree"):
            # Counted, not timed yet: on the longest way to the owner each doubling of the shares
            # adds a part that is waited for and read, and one, half as dear, that is written.
            parts = math.ceil(1.5 * math.log2(parts + 1))
    more = 1 if rest or d.shared else 0
    depth = config.integer("block_k")
    return tiles + shares, float(steps * depth), turns + more, parts, left


def turns(config: Config) -> bool:
    """Whether operands along k are turned on their way, element by element."""
    return config.stencil == "simt_async"


# All rows of a table are timed on the same problems.
@lru_cache(maxsize=8192)
def whole_chunks(problem: Problem, turned: bool) -> bool:
    """Return whether operands have whole aligned chunks of 16 bytes.

    Those along k need not where they are `turned`.
    """
    chunk, k = _vector(problem), problem.k
    sides = ((problem.m, problem.lda), (problem.n, problem.ldb))
    return all(
        (k_fast and turned) or ((k if k_fast else side) % chunk == 0 and ld % chunk == 0)
        for (side, ld), k_fast in zip(sides, Variant.of(problem).k_fast, strict=True)
    )


def _copies(config: Config, problem: Problem) -> float:
    """Return the lanes that copy a step of A and B, in copies that fit (`stencil.fitted`)."""
    if config.get("tma", 0):
        return 0.0  # one lane asks the copy engine for whole tiles
    vector, turned = _vector(problem), turns(config)
    narrow = not whole_chunks(problem, turned)
    lanes = 0.0
    for side, k_fast in zip("mn", Variant.of(problem).k_fast, strict=True):
        single = narrow or (k_fast and turned)
        lanes += config.integer(f"block_{side}") / (1 if single else vector)
    return lanes


def cycles(does: Work, costs: Costs) -> float:
    """Return the cycles that a launch takes."""
    step = does.multiplied / _FMA + costs.copy * does.copies + costs.check * does.checked
    # A scheduler without a warp issues nothing.
    warps = max(1.0, does.warps)
    idle = max(1.0, _SCHEDULERS / warps) + costs.hiding / warps
    busy = _slower(does.steps * step * idle, costs.latency * does.waits)
    busy += costs.begin + costs.store * does.tiles * does.area + costs.turn * does.turns
    busy += costs.meet * does.waves + costs.staged * does.staged
    if does.sliced:
        busy += costs.second + 2 * does.sliced / costs.l2
    busy += does.parts * (costs.part + costs.part_element * does.of_thread)
    memory = does.memory + costs.segment * does.segments
    waiting = does.l2 / costs.l2 + memory / costs.memory
    return costs.launch + _slower(busy, waiting)


def _slower(one: float, other: float) -> float:
    """Return the time of two things at once, smoothly the longer.

    Two equal times are 41 % more than one.  The power, fitted with the costs, was 2.2; 4, and the
    plain sum, left larger errors.
    """
    return math.sqrt(one * one + other * other)
