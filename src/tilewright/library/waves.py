"""How long a config takes on a problem, from its times on others: neighbours and waves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from tilewright.hardware import DeviceSpec
from tilewright.library.cycles import costs_of, cycles, turns, whole_chunks, work
from tilewright.problem import Problem
from tilewright.sass import occupancy
from tilewright.space import Config
from tilewright.stencil import Launch, Variant, stencil
from tilewright.stencil.asynchronous.division import divide

__all__ = ["Timed", "distance", "doubted", "effort", "expected_ns", "timed_nearby"]

# Before its first multiply-add and after its last a thread block waits for memory, as long as
# for so many steps along k; and each wave of blocks adds the latency that so few warps cannot
# hide: with w warps a block, 2 / w of a block's time.  Of 0, 32, 64, 128 and of 0, 1, 2, 4, 8
# the pair that serves sizes left out best.
_ENDS = 32
_HIDING_WARPS = 2.0

# A share that does not begin with its tile, or end with it, writes or reads parts of C, as long
# as for so many steps along k: 4 bytes in and out of each block's share of the L2's bandwidth,
# where a step is two flops.  Counted from that, not fitted: no such kernel has been timed yet.
_PARTS = 40

# A step of double-double is 12 or 21 instructions at half the rate, so that what passes between
# shares is so many times fewer steps.  Of 1, 2, 4, 8, 12 and infinitely many the number that
# carries times over best from 1024 to 2048 and so on to 8192: 1 % off, where 1 is off by 9 %.
_LONGER_STEPS_OF_PAIRS = 8

_NEIGHBOURS = 2

# A config with so many times, not of squares alone, was timed all over:
# more of its neighbours count, and one whose operands are copied otherwise, 16 bytes at once or
# single elements, is as far away as if it were so many doublings larger.  Of 4, 8, 12, 16
# and 20 neighbours, and 0.5, 1, 2 and 3 doublings, these choose best for shapes left out
# (`portfolio.py --table` says by how much they are off).
_MANY, _MORE_NEIGHBOURS, _COPIED_OTHERWISE = 16, 16, 1.0

# Beyond what was timed, so many doublings from the nearest and more, most times are much farther
# away and say little: only those count that are no farther than the nearest by so many.
_BEYOND, _NO_FARTHER = 2.0, 2.5

# Doublings beyond the nearest time within which another one is as near.
_AS_NEAR = 1.0

# Beside configs that were timed all over, what one with times of squares alone is expected to take
# is so many times as long where operands are copied otherwise than theirs: what was chosen by such
# times took 1.12 of what was expected in DGEMM (51 problems, 41 of them copied otherwise), 1.04 in
# SGEMM (10), where the others took 0.98 to 1.00.  Not so what comes in boxes, to which edges are no
# edges.
_DOUBT = 1.06

# Where effort is in cycles, times far away say less than the cycles themselves: these weigh as a
# time 2 doublings away.  Of weights of 0.1, 0.25, 0.5, 1 and 2 this served squares left out
# as well as the best did, and does so but for one of 20 with today's costs (15 reach
# 95 %, with 0.25 16); the portfolio's shapes left out are served as well with 0.2.
_CYCLES_WEIGH = 0.5

# Of the device that cycles were fitted on, an H100 at 1.9 GHz.
_CYCLES_PER_NS = 1.9


@dataclass(frozen=True, eq=False)
class Timed:
    """A config and the nanoseconds it took on some problems of one variant.

    Parameters
    ----------
    config : Config
        The point of its stencil's space.
    ns : Mapping
        Times of a search, to compare with others' of that search.
    won : Mapping
        Times of the races that it won, by m, n and k.
    anywhere : bool
        Whether its space has what serves columns that begin anywhere, and short sides.
    """

    config: Config
    ns: Mapping[Problem, float]
    won: Mapping[tuple[int, int, int], float] = field(default_factory=dict)
    anywhere: bool = True

    @cached_property
    def problems(self) -> tuple[Problem, ...]:
        """What was timed."""
        return tuple(self.ns)

    @cached_property
    def squares(self) -> bool:
        """Whether only squares were."""
        return all(one.m == one.n == one.k for one in self.ns)

    @cached_property
    def whole_chunks(self) -> NDArray[np.bool_]:
        """Whether operands of each of `problems` are copied 16 bytes at once."""
        return np.array([self.copies_whole_chunks(one) for one in self.ns])

    def copies_whole_chunks(self, problem: Problem) -> bool:
        """Whether operands of a problem are, but for those that are turned on their way."""
        return whole_chunks(problem, turns(self.config))

    @cached_property
    def _sides(self) -> NDArray[np.float64]:
        return np.array([_doublings(one) for one in self.ns])

    def far_from(self, problem: Problem) -> NDArray[np.float64]:
        """Return how far each of `problems` is from another, as `distance` does."""
        found: NDArray[np.float64] = np.abs(self._sides - _doublings(problem)).sum(axis=1)
        return found


def _doublings(problem: Problem) -> tuple[float, float, float]:
    m, n, k = (math.log2(max(1, side)) for side in (problem.m, problem.n, problem.k))
    return m, n, k


def distance(problem: Problem, other: Problem) -> float:
    """Return how far apart two problems' sizes are: doublings, summed over m, n and k."""
    m, n, k = (
        abs(math.log2(max(1, x) / max(1, y)))
        for x, y in ((problem.m, other.m), (problem.n, other.n), (problem.k, other.k))
    )
    # Not sum(): it rounds otherwise from Python 3.12 on, and exported C code chooses alike.
    return m + n + k


def effort(
    config: Config,
    problem: Problem,
    device: DeviceSpec,
    multiprocessors: int,
) -> float:
    """Return what the busiest multiprocessor has to do, in a unit of its precision and stencil.

    Cycles where `tilewright.library.cycles` has what things cost, elsewhere multiply-adds of full
    speed.

    Parameters
    ----------
    config : Config
        A point of its stencil's space.
    problem : Problem
        Whose m, n and k count.
    device : DeviceSpec
        For its occupancy.
    multiprocessors : int
        That blocks are spread over.

    Notes
    -----
    Blocks come in whole numbers: a multiprocessor with one more than the others sets the time
    (tail effect; Lai & Seznec 2013 leave it out).  Blocks at an edge count as whole ones, and so
    does the last tile along k.
    """
    costs = costs_of(config, problem)
    if costs is not None:
        resident = _resident(config, Variant.of(problem), device)
        return cycles(work(config, problem, resident, multiprocessors), costs)
    launch = stencil(config.stencil).launch(config, problem.m, problem.n, problem.k)
    warps = max(1.0, prod(launch.block) / device.warp_size)
    if config.get("stream_k"):
        return _shared_effort(config, problem, launch.on(multiprocessors), warps, multiprocessors)
    blocks, split = prod(launch.grid), int(config.get("split_k", 1))
    if launch.slices is not None:
        cut = prod(launch.on(multiprocessors).grid)
        blocks, split = cut, cut // blocks
    each = -(-blocks // multiprocessors)
    waves = -(-each // _resident(config, Variant.of(problem), device))
    area = problem.m * problem.n * split / blocks
    if "block_m" in config and "block_n" in config:
        area = config.integer("block_m") * config.integer("block_n")
    return (
        (each + waves * _HIDING_WARPS / warps) * area * (_steps(config, problem.k, split) + _ENDS)
    )


def _steps(config: Config, k: int, split: int) -> float:
    """Return the steps along k that each of so many blocks does: of tiles, which are whole."""
    if "block_k" not in config:
        return k / split
    depth = config.integer("block_k")
    return -(-k // depth) * depth / split


def _shared_effort(
    config: Config, problem: Problem, launch: Launch, warps: float, multiprocessors: int
) -> float:
    """Return the same where tiles are shared: whole tiles in turns, then a share each.

    Blocks stay, so what each wave of blocks adds elsewhere is added once, and the ends of a
    tile pass while the next one's first copies are on their way.
    """
    sizes = (problem.m, problem.n, problem.k)
    d = divide(config, sizes, launch.grid[0])
    area, depth = (config.integer("block_m") * config.integer("block_n"), config.integer("block_k"))
    steps, together = 0, -(-d.blocks // multiprocessors)
    if d.whole:
        steps += together * (d.whole // d.blocks) * d.steps
    if d.shared:
        # Blocks are spread evenly: few workers have a multiprocessor each.
        steps += -(-d.workers // multiprocessors) * d.longest_share
    longer = _LONGER_STEPS_OF_PAIRS if problem.precision.parts == 2 else 1
    ends = (_ENDS + (_PARTS if d.shared else 0)) / longer
    hiding = 1 + _HIDING_WARPS / (longer * warps * max(1, steps // max(1, d.steps)))
    return hiding * area * (steps * depth + together * ends)


def _resident(config: Config, variant: Variant, device: DeviceSpec) -> int:
    """Return how many blocks a multiprocessor runs at a time, at least one."""
    if "resident" in config:
        return config.integer("resident")
    if device.compute_capability is None:
        return 1
    uses = stencil(config.stencil).resources(config, variant)
    registers = min(uses.registers, device.max_registers_per_thread or uses.registers)
    fits = occupancy(device.compute_capability, uses.threads, registers, uses.shared_bytes)
    return max(1, fits.blocks)


def _products(problem: Problem) -> int:
    return max(1, problem.m) * max(1, problem.n) * max(1, problem.k)


def timed_nearby(rows: Sequence[Timed], problem: Problem) -> list[Timed]:
    """Return the rows that have a time near a problem.

    Where all times are of squares: at the one of nearly as many multiply-adds.  A search takes to
    larger sizes only what was fast at smaller ones, so a config without a time there has lost; what
    `expected_ns` hopes of it from small sizes is no reason to serve it.  An oblong problem is as
    small as the square that takes as long.

    Where some are of other shapes: at the nearest of all, or about as near.
    """
    if all(row.squares for row in rows):
        products = math.log2(_products(problem))
        sizes = dict.fromkeys(size for row in rows for size in row.ns)
        nearest = min(sizes, key=lambda size: abs(math.log2(_products(size)) - products))
        return [row for row in rows if nearest in row.ns]
    far = [float(row.far_from(problem).min()) for row in rows]
    as_near = min(far) + _AS_NEAR
    return [row for row, apart in zip(rows, far, strict=True) if apart <= as_near]


def doubted(rows: Sequence[Timed], problem: Problem) -> list[float]:
    """Return by how much the time expected of each row is to be raised before they are compared.

    Parameters
    ----------
    rows : sequence of Timed
        All that are compared.
    problem : Problem
        What one of them is to serve.
    """
    if all(row.squares for row in rows):
        return [1.0] * len(rows)
    return [_DOUBT if _is_doubtful(row, problem) else 1.0 for row in rows]


def _is_doubtful(timed: Timed, problem: Problem) -> bool:
    """Whether only squares were timed, whose operands are copied otherwise than a problem's."""
    if not timed.squares or timed.config.get("tma", 0):
        return False
    return not np.any(timed.whole_chunks == timed.copies_whole_chunks(problem))


def expected_ns(timed: Timed, problem: Problem, device: DeviceSpec, multiprocessors: int) -> float:
    """Return the time to expect of a config; the measured one where there is one.

    Of the nearest problems it was timed on, two or some more, the time for a unit of `effort`,
    averaged geometrically with weights 1 / `distance`, times the effort of this problem.

    Parameters
    ----------
    timed : Timed
        Times of the config on at least one problem.
    problem : Problem
        What it may serve.
    device : DeviceSpec
        Where it is to run.
    multiprocessors : int
        Of the device that the times are from.
    """
    many = len(timed.ns) >= _MANY and not timed.squares
    far_from = timed.far_from(problem)
    if many:
        otherwise = timed.whole_chunks != timed.copies_whole_chunks(problem)
        far_from = far_from + _COPIED_OTHERWISE * otherwise
    nearest = np.argsort(far_from, kind="stable")[: _MORE_NEIGHBOURS if many else _NEIGHBOURS]
    if many and far_from[nearest[0]] >= _BEYOND:
        nearest = nearest[far_from[nearest] <= far_from[nearest[0]] + _NO_FARTHER]
    near = [timed.problems[at] for at in nearest]
    apart = [float(far_from[at]) for at in nearest]
    if apart[0] == 0 and multiprocessors == device.multiprocessors:
        return timed.ns[near[0]]
    total = logarithm = 0.0
    if costs_of(timed.config, problem) is not None:
        total = _CYCLES_WEIGH
        logarithm = -total * math.log(_CYCLES_PER_NS)
    for other, far in zip(near, apart, strict=True):
        weight = 1 / max(far, 1e-9)
        total += weight
        logarithm += weight * _log_pace(timed, other, device, multiprocessors)
    here = effort(timed.config, problem, device, device.multiprocessors)
    return here * math.exp(logarithm / total)


# A table's rows are asked for every choice.
@lru_cache(maxsize=131072)
def _log_pace(timed: Timed, other: Problem, device: DeviceSpec, multiprocessors: int) -> float:
    """Return the logarithm of the time for a unit of effort at a problem that was timed."""
    return math.log(timed.ns[other] / effort(timed.config, other, device, multiprocessors))
