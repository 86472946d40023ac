"""Experience: what measurements of other problems, precisions and devices say of candidates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tilewright.space import Config
from tilewright.tuning.strategies.base import Lesson, needs
from tilewright.tuning.strategies.pool import Pool
from tilewright.tuning.strategies.surrogate import normal_scores

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Experience"]

# Trees of the gradient boosting, and points of all lessons beyond which each is thinned: what a fit
# of some seconds allows.  A sweep of one case, of some thousand points, is not thinned by many
# others: among its fastest each counts.
_ROUNDS, _MOST, _SWEEP = 200, 20_000, 2000

# How much more the fastest of a lesson counts than the slowest: what is among the best is to be
# told, not what is worst.
_FASTEST = 20.0

# By how many measurements that miss nothing what the model misses of a config is held back.
_UNSURE = 0.3


class Experience:
    """Gradient-boosted trees over the numbers of other problems' configs.

    Each lesson's times are taken by rank (`normal_scores`), so that slow problems and slow devices
    count as much as fast ones.  What the trees miss of a config where its kernel was measured on
    other sizes (`Lesson.alike`), in the mean, is added to what they say of it: most of what numbers
    do not tell, such as what the compiler made of it, is a kernel's own on every size.

    Parameters
    ----------
    lessons : sequence of Lesson
        One or more.
    pool : Pool
        The candidates that it is asked about.
    seed : int
        Of what is drawn from long lessons.
    """

    def __init__(self, lessons: Sequence[Lesson], pool: Pool, seed: int) -> None:
        needs("sklearn", "a model of other problems")
        from scipy.stats import norm
        from sklearn.ensemble import HistGradientBoostingRegressor

        random = np.random.default_rng(seed)
        most = max(_SWEEP, _MOST // len(lessons))
        numbers, scores, weights = [], [], []
        for lesson in lessons:
            rows = np.arange(len(lesson.configs))
            if len(rows) > most:
                rows = random.choice(rows, most, replace=False)
            configs = [lesson.configs[row] for row in rows.tolist()]
            numbers.append(pool.lesson(configs, lesson.features[rows]))
            scores.append(normal_scores(np.asarray(lesson.seconds, float)[rows]))
            weights.append(1 / (1 + _FASTEST * norm.cdf(scores[-1])))
        model = HistGradientBoostingRegressor(max_iter=_ROUNDS, random_state=0)
        told = np.vstack(numbers), np.concatenate(scores), np.concatenate(weights)
        self._model = model.fit(*told)
        self._pool = pool
        self._scores: NDArray[np.float64] = np.zeros(0)
        self._missed: dict[Config, list[float]] = defaultdict(list)
        for lesson in lessons:
            if lesson.alike:
                expected = self._model.predict(pool.lesson(lesson.configs, lesson.features))
                missed = normal_scores(np.asarray(lesson.seconds, float)) - expected
                for config, error in zip(lesson.configs, missed.tolist(), strict=True):
                    self._missed[config].append(error)

    def scores(self, places: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return what candidates are expected to score, low being fast."""
        numbers = self._pool.numbers
        if len(self._scores) < len(numbers):
            fresh = np.arange(len(self._scores), len(numbers))
            configs = [self._pool.config(place) for place in fresh.tolist()]
            self._scores = np.concatenate([self._scores, self._of(configs, numbers[fresh])])
        return self._scores[places]

    def of(self, configs: Sequence[Config]) -> NDArray[np.float64]:
        """Return what configs are expected to score that need not be among the candidates."""
        return self._of(configs, self._pool.numbers_of(configs))

    def _of(self, configs: Sequence[Config], numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        missed = [self._missed.get(config, ()) for config in configs]
        errors = np.array([sum(one) / (_UNSURE + len(one)) for one in missed])
        found: NDArray[np.float64] = self._model.predict(numbers) + errors
        return found
