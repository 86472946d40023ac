"""Kernel Tuner's own strategies on recorded spaces, in its simulation mode.

Its search spaces, strategies and simulation runner are used as they are; what is added is a record
of the order in which configurations were evaluated.
"""

from __future__ import annotations

import io
import random
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from tilewright.tuning.recorded import Recording
from tilewright.tuning.recorded.simulate import Trajectory

__all__ = ["STRATEGIES", "KernelTuner"]

# All that search for one objective and need no further package.  Left out: brute force; `skopt`
# and `pyatf_strategies`, which need packages that are not Kernel Tuner's own requirements.
STRATEGIES = (
    "random_sample", "genetic_algorithm", "diff_evo", "pso", "firefly_algorithm",
    "simulated_annealing", "dual_annealing", "basinhopping", "minimize", "mls", "greedy_mls",
    "ordered_greedy_mls", "greedy_ils", "bayes_opt", "hybrid_vndx", "adaptive_tabu_greywolf",
)  # fmt: skip


class KernelTuner:
    """A recorded space as Kernel Tuner searches it.

    Parameters
    ----------
    recording : Recording
        The space.

    Raises
    ------
    RuntimeError
        If the package ``kernel-tuner`` is not here.
    """

    def __init__(self, recording: Recording) -> None:
        if find_spec("kernel_tuner") is None:
            raise RuntimeError("its strategies need kernel-tuner; pip install kernel-tuner")
        space = recording.space
        names = [p.name for p in space.parameters]
        self._values = {p.name: list(p.values) for p in space.parameters}
        points = [tuple(config[name] for name in names) for config in space.configs]
        self._rows = {point: row for row, point in enumerate(points)}
        entries = {}
        for point, seconds, cost in zip(
            points, recording.seconds.tolist(), recording.cost.tolist(), strict=True
        ):
            entry: dict[str, Any] = dict(zip(names, point, strict=True))
            entry["time"] = seconds * 1e3 if np.isfinite(seconds) else _failed()
            if not np.isfinite(seconds):
                entry["__error__"] = entry["time"]
            whole = cost if np.isfinite(cost) else recording.typical_cost
            entry |= {"compile_time": whole * 1e3, "verification_time": 0, "benchmark_time": 0}
            entries[",".join(map(str, point))] = entry
        self._entries = entries
        searchspace = import_module("kernel_tuner.searchspace")
        of = {"tune_params": self._values, "cache": entries}
        self._space = searchspace.Searchspace(None, None, None, from_cache=of)

    def run(self, name: str, seed: int, candidates: int) -> Trajectory:
        """Run one of Kernel Tuner's strategies with its default options.

        Parameters
        ----------
        name : str
            One of `STRATEGIES`.
        seed : int
            Of the random numbers that it draws.
        candidates : int
            Unique configurations after which it ends.
        """
        interface = import_module("kernel_tuner.interface")
        util = import_module("kernel_tuner.util")
        random.seed(seed)
        np.random.seed(seed)  # Kernel Tuner draws from it
        runner = _recorder()(self._rows)
        options = interface.Options(
            strategy_options=interface.Options(max_fevals=candidates),
            tune_params=self._values, restrictions=None, cache=self._entries, metrics=None,
            objective=["time"], objective_higher_is_better=[False], verbose=False, seed=seed,
            simulation_mode=True, budget=util.TuningBudget(None, candidates), max_fevals=candidates,
        )  # fmt: skip
        with _quiet():
            interface.strategy_map[name].tune(self._space, runner, options)
        return Trajectory(np.array(runner.tried, np.intp), np.array(runner.thinking))


def _failed() -> Any:
    return import_module("kernel_tuner.util").RuntimeFailedConfig()


@lru_cache(maxsize=1)
def _recorder() -> Any:
    """Return Kernel Tuner's simulation runner with a record of what it evaluated first, and when.

    Made late: the package takes a second to import.
    """
    simulation = import_module("kernel_tuner.runners.simulation")

    class Recorder(simulation.SimulationRunner):  # type: ignore[misc, name-defined]
        def __init__(self, rows: dict[tuple[Any, ...], int]) -> None:
            options = import_module("kernel_tuner.interface").Options
            named, quiet = options(kernel_name="recorded"), options(quiet=True)
            super().__init__(None, named, quiet, 1, None)
            self._known = rows
            self._seen: set[int] = set()
            self._since = time.perf_counter()
            self.tried: list[int] = []
            self.thinking: list[float] = []

        def run(self, parameter_space: Any, tuning_options: Any) -> Any:
            """Evaluate as the simulation runner does."""
            points = list(parameter_space)
            thought = time.perf_counter() - self._since
            results = super().run(points, tuning_options)
            pairs = zip(points, results, strict=True)
            ran = [self._known.get(tuple(point), -1) for point, result in pairs if result]
            fresh = [row for row in dict.fromkeys(ran) if row >= 0 and row not in self._seen]
            self._seen.update(fresh)
            self.tried += fresh
            self.thinking += [thought / max(1, len(fresh))] * len(fresh)
            self._since = time.perf_counter()
            return results

    return Recorder


@contextmanager
def _quiet() -> Iterator[None]:
    """Print nothing, warn of nothing: strategies meet points of no recording by the thousand."""
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
