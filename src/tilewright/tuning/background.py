"""Background: what is known of a stencil's configs before any was compiled.

Numbers for models to learn from, and a static forecast: what blocks take, how many of them a
multiprocessor holds, and how evenly the grid covers the device.
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
from tilewright.stencil import Stencil, Variant
from tilewright.tuning.measurement import Measurement
from tilewright.tuning.strategies.base import Lesson

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FEATURES", "features_on", "forecast_on", "lessons_of"]

FEATURES = (
    "registers", "pressure", "threads", "shared bytes", "blocks", "warps", "filled", "waves",
    "m", "n", "k", "element bytes", "multiprocessors",
)  # fmt: skip
"""Names of the numbers that `features_on` gives, each about 0 to 1."""

_WARP = 32

# A multiprocessor's where neither its architecture nor its specification says more.
_REGISTERS, _WARPS = 65_536, 64

# Warps that a multiprocessor's four schedulers have to choose from until multiply-adds no longer
# wait for each other: two each, as their latency is four cycles and their rate one in two.
_ENOUGH_WARPS = 8

# What a kernel is left of its speed for each factor by which its registers exceed what it may
# have: spilled registers pass through memory in the main loop.
_SPILLED = 4.0


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
        problem.precision.element_bytes / 16, units / 132,
    ]  # fmt: skip

    def row(config: Config) -> list[float]:
        plain = unscheduled(config)
        taken = family.resources(plain, variant)
        asked = plain.integer("min_blocks", 1)
        allowed = _REGISTERS / max(1, taken.threads * asked)
        registers = min(taken.registers, allowed, 255)
        warps = -(-taken.threads // _WARP)
        blocks = _resident(limits, warps, registers, taken.shared_bytes)
        launch = family.launch(plain, problem.m, problem.n, problem.k)
        waves = prod(launch.grid) / (max(1, blocks) * units)
        return [
            taken.registers / 255, min(4.0, taken.registers / allowed) / 4,
            log2(max(1, taken.threads)) / 10, log2(max(1, taken.shared_bytes)) / 18,
            blocks / 8, min(1.0, blocks * warps / limits[0]), waves / -(-waves // 1),
            min(1.0, log2(1 + waves) / 8), *whole,
        ]  # fmt: skip

    def rows(configs: Sequence[Config]) -> NDArray[np.float64]:
        return np.array([row(config) for config in configs]).reshape(len(configs), len(FEATURES))

    return rows


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
) -> Callable[[Sequence[Config]], NDArray[np.float64]]:
    """Return what gives the share of the peak that a static model expects of configs.

    The share of its last wave that a grid fills, times what is left where schedulers have too few
    warps, and where a thread may have fewer registers than its tile takes.  It tells kernels
    apart before they are compiled; `tilewright.tuning.forecast` reads their machine code then.
    """
    features = features_on(family, problem, spec)
    at = {name: place for place, name in enumerate(FEATURES)}
    most_warps = _limits(spec)[0]

    def shares(configs: Sequence[Config]) -> NDArray[np.float64]:
        numbers = features(configs)
        warps = numbers[:, at["warps"]] * most_warps
        pressure = np.maximum(1.0, 4 * numbers[:, at["pressure"]])
        share: NDArray[np.float64] = numbers[:, at["filled"]] * np.minimum(1, warps / _ENOUGH_WARPS)
        return share / pressure**_SPILLED

    return shares


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
            found.append(Lesson(list(times), np.array(list(times.values())), features))
    return tuple(found)
