"""Background: what is known of a stencil's configs before any was compiled.

Numbers for models to learn from, and a static forecast: what blocks take, how many of them a
multiprocessor holds, how evenly the grid covers the device and the result, and how often what is
loaded is used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from math import log2, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.hardware import DeviceSpec
from tilewright.problem import Problem
from tilewright.reschedule.levels import unscheduled
from tilewright.sass.occupancy import limits_of
from tilewright.space import Config
from tilewright.stencil import Geometry, Stencil, Variant
from tilewright.stencil.work import TERMS, Work
from tilewright.tuning.measurement import Measurement
from tilewright.tuning.strategies.base import Lesson

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FEATURES", "OF_ONE_PROBLEM", "features_on", "forecast_on", "lessons_of"]

FEATURES = (
    "registers", "pressure", "threads", "shared bytes", "blocks", "warps", "filled", "waves",
    "covered", "elements a thread", "reuse of a block", "steps of a tile", "length of the loop",
    "forecast", "m", "n", "k", "A transposed", "B transposed", "complex", "element bytes",
    "multiprocessors", "needed", "stored", "latencies", "L2", "parts", "split-K",
    "waves of a block", "scalar copies",
)  # fmt: skip
"""Names of the numbers that `features_on` gives, each about 0 to 1."""

OF_ONE_PROBLEM = FEATURES.index("m")
"""How many of these, from the first, a model of one problem's few points is given."""

_WARP = 32

# A multiprocessor's where neither its architecture nor its specification says more.
_REGISTERS, _WARPS = 65_536, 64

# Warps that a multiprocessor's four schedulers have to choose from until multiply-adds no longer
# wait for each other: two each, as their latency is four cycles and their rate one in two.
_ENOUGH_WARPS = 8

# What a kernel is left of its speed for each factor by which its registers exceed what it may
# have: spilled registers pass through memory in the main loop.
_SPILLED = 4.0

# Multiply-adds for each number that a thread, or a block, loads, of which loads take as long as the
# multiply-adds: a multiprocessor's shared memory and its share of the second cache give so few.
_BALANCED_THREAD, _BALANCED_BLOCK = 1.0, 4.0


def features_on(
    family: Stencil, problem: Problem, spec: DeviceSpec
) -> Callable[[Sequence[Config]], NDArray[np.float64]]:
    """Return what gives the numbers of configs on a problem and a device.

    Parameters
    ----------
    family : Stencil
        Whose configs.
    problem : Problem
        What they are to compute.
    spec : DeviceSpec
        Where.

    Returns
    -------
    callable
        From configs to an ndarray of shape (configs, len(FEATURES)).
    """
    variant = Variant.of(problem)
    units = spec.multiprocessors or 1
    limits = _limits(spec)
    whole = [
        log2(problem.m) / 14, log2(problem.n) / 14, log2(problem.k) / 14,
        float(problem.trans_a.transposed), float(problem.trans_b.transposed),
        float(problem.precision.is_complex), problem.precision.element_bytes / 16, units / 132,
    ]  # fmt: skip
    # Of numbers of 4 bytes, as the constants of the balance are.
    each = (4 if problem.precision.is_complex else 1) * 4 / problem.precision.element_bytes

    def row(config: Config) -> list[float]:
        plain = unscheduled(config)
        taken, tile = family.resources(plain, variant), family.geometry(plain)
        threads, pieces = max(1, taken.threads), _pieces(family, plain, problem, units)
        asked = plain.integer("min_blocks", 1)
        # Compilers drop a bound on registers for more blocks than a multiprocessor can hold.
        asked = asked if asked * -(-threads // _WARP) <= limits[0] else 1
        allowed = _REGISTERS / (threads * asked)
        registers, pressure = min(taken.registers, allowed, 255), taken.registers / allowed
        warps = -(-threads // _WARP)
        blocks = _resident(limits, warps, registers, taken.shared_bytes)
        most = -(-pieces // units)  # of a multiprocessor
        busy = min(blocks, most) * warps
        filled, covered = pieces / (most * units), _covered(problem, tile)
        elements = tile.tile_m * tile.tile_n / threads
        reuse = tile.tile_m * tile.tile_n / (tile.tile_m + tile.tile_n)
        forecast = filled * covered * min(1.0, busy / _ENOUGH_WARPS)
        forecast *= _share(each * elements**0.5, _BALANCED_THREAD)
        forecast *= _share(each * reuse, _BALANCED_BLOCK) / max(1.0, pressure) ** _SPILLED
        loop = elements * plain.integer("unroll_k", 1)
        return [
            taken.registers / 255, min(4.0, pressure) / 4,
            log2(threads) / 10, log2(max(1, taken.shared_bytes)) / 18,
            blocks / 8, min(1.0, busy / limits[0]), filled,
            min(1.0, log2(1 + pieces / units) / 8), covered, log2(elements) / 8, log2(reuse) / 8,
            log2(tile.tile_k) / 6, log2(max(1.0, loop)) / 12, forecast, *whole,
        ]  # fmt: skip

    def rows(configs: Sequence[Config]) -> NDArray[np.float64]:
        if not configs:
            return np.zeros((0, len(FEATURES)))
        geometries = [family.geometry(unscheduled(config)) for config in configs]
        return np.hstack(
            [[row(config) for config in configs], _busiest(geometries, problem, units)]
        )

    return rows


def _busiest(geometries: Sequence[Geometry], problem: Problem, units: int) -> NDArray[np.float64]:
    """Return what the busiest of some multiprocessors does, for what it has to.

    Returns
    -------
    ndarray, shape (geometries, 8)
        The share of its steps that the product needs if all have as many; and the other things
        that `Work` counts, for each of these steps, as logarithms that span about 0 to 1.
    """
    does = dict(zip(TERMS, Work(geometries).work(problem, units).T, strict=True))
    steps = np.maximum(1.0, does["vector steps"] + does["scalar steps"])
    adds = steps * [one.tile_m * one.tile_n for one in geometries]
    volume = problem.m * problem.n * problem.k
    spans = (
        (64 * does["tiles"] / steps, 4), (16e3 * does["latencies"] / adds, 8),
        (1e8 * does["L2"] / volume, 8), (does["parts"], 6),
        (does["split-K"] / does["memory"], 4), (does["waves"], 6),
    )  # fmt: skip
    logarithms = [np.log2(1 + value) / most for value, most in spans]
    return np.column_stack([volume / units / adds, *logarithms, does["scalar steps"] > 0])


def _pieces(family: Stencil, config: Config, problem: Problem, units: int) -> int:
    """Return what a launch hands to multiprocessors one by one: its blocks, or shared steps."""
    launch = family.launch(config, problem.m, problem.n, problem.k)
    return prod((launch.on(units) if launch.split_k else launch).grid)


def _covered(problem: Problem, tile: Geometry) -> float:
    """Return the product's share of what whole tiles of it compute."""
    steps = (problem.m, tile.tile_m), (problem.n, tile.tile_n), (problem.k, tile.tile_k)
    return prod(side / (-(-side // step) * step) for side, step in steps)


def _limits(spec: DeviceSpec) -> tuple[int, int, int]:
    """Return the warps, blocks and bytes of shared memory of a multiprocessor."""
    try:
        known: Any = limits_of(spec.compute_capability or 0)
    except ValueError:
        return _WARPS, 32, spec.shared_bytes_per_block or 1 << 16
    return known.warps, known.blocks, known.shared_bytes


def _resident(limits: tuple[int, int, int], warps: int, registers: float, shared_bytes: int) -> int:
    """Return how many blocks a multiprocessor holds, by its warps, registers and shared memory."""
    most_warps, blocks, shared = limits
    by_registers = _REGISTERS / max(1.0, registers * warps * _WARP)
    by_shared = shared / (shared_bytes + 1024)
    return max(1, int(min(blocks, most_warps / warps, by_registers, by_shared)))


def forecast_on(
    family: Stencil, problem: Problem, spec: DeviceSpec
) -> Callable[[Sequence[Config]], NDArray[np.float64]] | None:
    """Return what gives the share of the peak that a static model expects of configs; None on CPUs.

    The share that multiprocessors are busy until the last ends, and that is no edge beyond the
    result, times what is left where schedulers have too few warps, where numbers are loaded for
    few multiply-adds, and where a thread may have fewer registers than its tile takes.  It tells
    kernels apart before they are compiled; `tilewright.tuning.forecast` reads their machine code
    then.
    """
    if spec.kind == "cpu":  # whose cores are no multiprocessors
        return None
    features, at = features_on(family, problem, spec), FEATURES.index("forecast")
    return lambda configs: features(configs)[:, at]


def _share(reuse: float, balanced: float) -> float:
    """Return the share of the time that is left to multiply-adds, of so many a loaded number."""
    return reuse / (reuse + balanced)


# Fewer measurements of a problem teach nothing.
_LEAST = 16


def lessons_of(
    measured: Iterable[Measurement], family: Stencil, problem: Problem, spec: DeviceSpec
) -> tuple[Lesson, ...]:
    """Return what a store's measurements of other problems and devices teach.

    Parameters
    ----------
    measured : iterable of Measurement
        Of the stencil in its present version.
    family : Stencil
        That stencil.
    problem : Problem
        The one that is tuned, of which there is no lesson.
    spec : DeviceSpec
        Where it is tuned.  Measurements of another device are taken as of one like it: a store
        has devices' names, not their numbers.
    """
    groups: dict[tuple[str, Problem], dict[Config, float]] = defaultdict(dict)
    for one in measured:
        if one.problem != problem and not one.config.get("schedule"):
            time = one.median_ns * 1e-9 if one.ok else np.nan
            groups[one.device, one.problem][one.config] = time
    found = []
    for (_, of), times in groups.items():
        if len(times) >= _LEAST:
            features = features_on(family, of, spec)(list(times))
            alike = Variant.of(of) == Variant.of(problem)
            found.append(Lesson(list(times), np.array(list(times.values())), features, alike))
    return tuple(found)
