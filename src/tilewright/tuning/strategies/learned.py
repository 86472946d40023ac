"""The points that a model of what was tried expects most of; it remembers other problems."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tilewright.space import Config
from tilewright.tuning.strategies.base import STRATEGIES, Points, Strategy, needs
from tilewright.tuning.strategies.pool import Pool, encoded
from tilewright.tuning.strategies.sampled import draws
from tilewright.tuning.strategies.surrogate import Surrogate, expected_improvement, normal_scores

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tilewright.tuning.strategies.lessons import Experience

__all__ = ["Learned"]

# Points that ran before anything is learned of them.
_FIRST = 5

# Proposals between two fits, as a share of what was tried, as fits grow dearer as they grow better;
# and of the most that were under way at a time, which would run out while the next one is made.
_SHARE, _OF_UNDER_WAY = 0.05, 0.5

# Candidates whose improvement is computed: so many drawn, the most promising of the last time, and
# the neighbours of the best.
_DRAWN, _PROMISING, _LEADERS = 2000, 500, 5

# Of candidates that a static model or lessons rank, those come first that are among so many for
# each that was tried.
_RANKED = 2


class Learned(Strategy):
    """Bayesian optimisation: expected improvement over what was tried so far.

    With lessons in its background it begins with what other problems' measurements promise, and
    what they say of a point goes into its model.
    """

    def __init__(self, space: Points, seed: int, start: Sequence[Config]) -> None:
        super().__init__(space, seed, start)
        needs("sklearn", "the learned strategy")
        self._waiting = list(reversed(self.start))
        self._seconds: dict[Config, float] = {}
        self._under_way: set[Config] = set()
        self._most_under_way = 0
        self._random = np.random.default_rng(seed)
        self._draws = draws(space, seed)
        self._promising: NDArray[np.intp] = np.zeros(0, np.intp)
        self._began = False
        self._turn = 0

    @cached_property
    def _pool(self) -> Pool:
        return Pool(self.space, self.seed, self.background)

    @cached_property
    def _surrogate(self) -> Surrogate:
        return Surrogate(self.seed)

    @cached_property
    def _experience(self) -> Experience | None:
        from tilewright.tuning.strategies.lessons import Experience

        lessons = self.background.lessons()
        return Experience(lessons, self._pool, self.seed) if lessons else None

    def propose(self) -> Config | None:
        """Return a starting point, one of the first, or the most promising."""
        while self._waiting or self._choose():
            config = self._waiting.pop()
            if config in self._seconds or config in self._under_way:
                continue
            self._under_way.add(config)
            self._most_under_way = max(self._most_under_way, len(self._under_way))
            self._pool.take(config)
            return config
        return None

    def observe(self, config: Config, seconds: float | None) -> None:
        """Learn a time; also of configs that others proposed."""
        self._under_way.discard(config)
        self._seconds[config] = math.nan if seconds is None else seconds
        self._pool.take(config)

    def _choose(self) -> bool:
        """Put what comes next among what waits; return whether there is anything.

        Processes that compile have all cores meanwhile.  Threads that wait for one another among
        them are slower than one alone, and hold the processes up.
        """
        import sklearn.ensemble  # whose libraries can be limited once they are loaded
        import sklearn.gaussian_process  # noqa: F401
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):
            return self._fill()

    def _fill(self) -> bool:
        good = sum(map(math.isfinite, self._seconds.values()))
        if not self._began or (self._experience is not None and good < _FIRST):
            self._began = True
            self._wait(self._first())
        elif good < _FIRST:
            self._waiting = self._drawn()
        else:
            self._wait(self._best_by_model())
        return bool(self._waiting)

    def _drawn(self) -> list[Config]:
        known = self._seconds.keys() | self._under_way
        found = next((config for config in self._draws if config not in known), None)
        return [] if found is None else [found]

    def _first(self) -> NDArray[np.intp]:
        """Return the places of the points to begin with.

        Where there are lessons or a static model, those that these expect most of; else the one
        nearest to the middle of every parameter's values: extremes are seldom fast.
        """
        free = self._pool.free()
        ranked = self._ranked(free)
        if ranked is not None:
            return ranked[:_FIRST]
        configs = [self._pool.config(place) for place in free.tolist()]
        middle = np.abs(encoded(self.space, configs) - 0.5).sum(axis=1)
        return free[np.argsort(middle, kind="stable")[:1]]

    def _ranked(self, places: NDArray[np.intp]) -> NDArray[np.intp] | None:
        """Return places in the order of what lessons, or a static model, expect; None without."""
        if self._experience is not None:
            expected = self._experience.scores(places)
        elif self.background.forecast is not None:
            expected = -self._pool.forecasts[places]
        else:
            return None
        return places[np.argsort(expected, kind="stable")]

    def _wait(self, places: NDArray[np.intp]) -> None:
        self._waiting = [self._pool.config(place) for place in reversed(places.tolist())]

    def _best_by_model(self) -> NDArray[np.intp]:
        """Return the places of the candidates that promise most, the best first."""
        tried = list(self._seconds)
        scores = normal_scores(np.array([self._seconds[config] for config in tried]))
        leaders = [tried[at] for at in np.argsort(scores, kind="stable")[:_LEADERS]]
        self._pool.widen(leaders)
        places = self._pool.places(tried)
        for config in tried:
            self._pool.take(config)
        candidates = self._candidates(leaders)
        if not len(candidates):
            return candidates
        self._surrogate.fit(self._numbers(places), scores)
        mean, deviation = self._surrogate.predict(self._numbers(candidates))
        gain = expected_improvement(float(scores.min()), mean, deviation)
        order = candidates[np.argsort(-gain, kind="stable")]
        self._promising = order[:_PROMISING]
        self._turn += 1
        if self._turn % 2:
            first = self._near(order, leaders[0])
            order = np.concatenate([order[first], order[~first]])
        elif (ranked := self._ranked(self._pool.every())) is not None:
            first = np.isin(order, ranked[: _FIRST + _RANKED * len(tried)])
            order = np.concatenate([order[first], order[~first]])
        proposals = max(_SHARE * len(tried), _OF_UNDER_WAY * self._most_under_way)
        return order[: max(1, int(proposals))]

    def _near(self, places: NDArray[np.intp], best: Config) -> NDArray[np.bool_]:
        """Return which candidates are a step away from the best: every other fit prefers these.

        A step changes one parameter to anything, or any of them to a next value.  Where little was
        tried, a model's idea of the rest of the space is mostly doubt, which would be looked into
        everywhere before the best is improved.
        """
        parameters = self.space.parameters
        steps = np.array([max(1, len(parameter) - 1) for parameter in parameters])
        numbers = self._pool.numbers[:, : len(steps)]
        apart = np.abs(numbers[places] - numbers[self._pool.places([best])[0]]) * steps
        near: NDArray[np.bool_] = (apart.max(axis=1) < 1.5) | ((apart > 0.5).sum(axis=1) <= 1)
        return near

    def _candidates(self, leaders: Sequence[Config]) -> NDArray[np.intp]:
        """Return the places of free candidates whose improvement is worth computing."""
        free = self._pool.free()
        if len(free) <= _DRAWN:
            return free
        drawn = self._random.choice(free, _DRAWN, replace=False)
        near = [config for leader in leaders for config in self.space.neighbours(leader)]
        some = np.concatenate([drawn, self._promising, self._pool.places(near)])
        return np.intersect1d(some, free)

    def _numbers(self, places: NDArray[np.intp]) -> NDArray[np.float64]:
        numbers = self._pool.numbers[places]
        if self._experience is None:
            some = self.background.of_one_problem
            return numbers if some is None else numbers[:, : len(self.space.parameters) + some]
        return np.column_stack([numbers, self._experience.scores(places)])


STRATEGIES["learned"] = Learned
