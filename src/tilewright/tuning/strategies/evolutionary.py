"""A genetic algorithm: points are crossed and mutated, the fastest stay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.space import Config
from tilewright.tuning.strategies.base import STRATEGIES, Points, needs
from tilewright.tuning.strategies.guided import Drawing

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Evolutionary"]

# Points of a generation: its size by default in Kernel Tuner is 26, whose budgets are as ours.
_POPULATION = 24

# Of polynomial mutation: how near a mutated value stays.  Low, as values are few.
_ETA = 3.0

# What failed is worse than whatever ran.
_FAILED = 1e30


class Evolutionary(Drawing):
    """pymoo's genetic algorithm; children that are no points become neighbours that are."""

    def __init__(self, space: Points, seed: int, start: Sequence[Config]) -> None:
        super().__init__(space, seed, start)
        needs("pymoo", "the evolutionary strategy")
        self._random = np.random.default_rng(seed)
        self._seconds: dict[Config, float] = {}
        self._waiting: list[Config] = []
        self._generation: Any = None

    def propose(self) -> Config | None:
        """Return the next of a generation; None until all of the last have been told."""
        while True:
            while self._waiting:
                config = self._waiting.pop()
                if config not in self._proposed:
                    self._proposed.add(config)
                    return config
            if self._generation is not None and not self._tell():
                return None
            self._generation = self._algorithm.ask()
            made = self._generation  # none where all children are in the population
            members = [] if made is None else [self._config(row) for row in made.get("X")]
            self._waiting = list(reversed(members))
            if all(member in self._proposed for member in members):
                fresh = self._draw()  # the population is all alike
                if fresh is None:
                    return None
                self._waiting.append(fresh)

    def observe(self, config: Config, seconds: float | None) -> None:
        """Learn a time; also of configs that others proposed."""
        self._proposed.add(config)
        self._seconds[config] = _FAILED if seconds is None else seconds

    def _tell(self) -> bool:
        """Give the algorithm its generation's times; return whether all are known."""
        members = [self._config(row) for row in self._generation.get("X")]
        times = [self._seconds.get(member, math.nan) for member in members]
        if any(map(math.isnan, times)):
            return False
        self._generation.set("F", np.array(times)[:, None])
        self._algorithm.tell(infills=self._generation)
        return True

    def _config(self, codes: NDArray[Any]) -> Config:
        values = {
            parameter.name: parameter.values[int(code)]
            for parameter, code in zip(self.space.parameters, codes, strict=True)
            if parameter.values[int(code)] != parameter.unnamed
        }
        return Config(self.space.stencil_name, values)

    def _codes(self, config: Config) -> list[int]:
        return [p.code(config.get(p.name, p.unnamed)) for p in self.space.parameters]

    def _valid(self, codes: NDArray[Any]) -> NDArray[Any]:
        """Return rows of codes with each that is no point replaced by a neighbour, or a draw.

        By one that was tried, once all are drawn.
        """
        found = np.array(codes).round().astype(int)
        configs = [self._config(row) for row in found]
        for row, inside in enumerate(self.space.contained(configs)):
            if not inside:
                near = self.space.neighbours(configs[row])
                other = near[self._random.integers(len(near))] if near else self._draw()
                found[row] = self._codes(other or next(iter(self._seconds)))
        return found

    @cached_property
    def _algorithm(self) -> Any:
        """The algorithm, with starting points and the best draws as its first generation."""
        from pymoo.algorithms.soo.nonconvex.ga import GA
        from pymoo.core.problem import Problem
        from pymoo.core.repair import Repair
        from pymoo.core.termination import NoTermination
        from pymoo.operators.crossover.ux import UniformCrossover
        from pymoo.operators.mutation.pm import PM

        valid = self._valid

        class ToPoints(Repair):  # type: ignore[misc]
            def _do(self, problem: Any, X: Any, **_: Any) -> Any:  # pymoo's name
                return valid(X)

        asked = min(_POPULATION, self.space.count())
        known = set(self.start)
        rest = (config for config in self._draws if config not in known)
        first = list(islice(chain(self.start, rest), asked))
        last = [len(parameter) - 1 for parameter in self.space.parameters]
        problem = Problem(n_var=len(last), n_obj=1, xl=0, xu=np.array(last), vtype=float)
        made = GA(
            pop_size=len(first), sampling=np.array([self._codes(one) for one in first], float),
            crossover=UniformCrossover(), mutation=PM(eta=_ETA), repair=ToPoints(),
            eliminate_duplicates=True,
        )  # fmt: skip
        made.setup(problem, seed=self.seed % (1 << 31), termination=NoTermination(), verbose=False)
        return made


STRATEGIES["evolutionary"] = Evolutionary
