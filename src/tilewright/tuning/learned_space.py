"""A space pruned further by what measurements of other problems taught.

The thresholds of a stencil's space (constraints of the kind ``heuristic``: occupancy, register
reuse, balance) say for every problem alike what is unlikely to be fast.  A model of a store's
measurements says it for one problem: of all points those stay that it ranks among the best tenth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from tilewright.space import Config, Parameter, Value
from tilewright.space.funnel import Stage
from tilewright.tuning.strategies.base import Background, Points, needs
from tilewright.tuning.strategies.lessons import Experience
from tilewright.tuning.strategies.pool import Pool

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["KEPT", "LEAST_LESSONS", "LearnedSpace"]

KEPT = 0.1
"""Share of the points that stay."""

LEAST_LESSONS = 200
"""Measurements below which a model knows less than the thresholds."""

_SEED = 0  # of the draws that decide the rank: the same points stay every time


class LearnedSpace:
    """The points of a space that a model of other problems' measurements ranks best.

    Which points stay is decided point by point, against the rank that a tenth of some thousand
    draws reach; how many that are is therefore an estimate.

    Parameters
    ----------
    whole : Points
        What is pruned.
    background : Background
        With lessons, and with features where there are any.
    always : sequence of Config
        Points that stay whatever the model says, such as a stencil's starting points.

    Raises
    ------
    ValueError
        If the lessons hold fewer than `LEAST_LESSONS` measurements.
    """

    def __init__(
        self, whole: Points, background: Background, always: Sequence[Config] = ()
    ) -> None:
        needs("sklearn", "learned pruning")
        lessons = background.lessons()
        self._known = sum(len(lesson.configs) for lesson in lessons)
        if self._known < LEAST_LESSONS:
            raise ValueError(
                f"pruning='learned' has {self._known} measurements of other problems to learn from;"
                f" measure {LEAST_LESSONS} first, or use pruning='thresholds'"
            )
        self._whole, self.stencil_name = whole, whole.stencil_name
        self._always = frozenset(always)
        self._pool = Pool(whole, _SEED, background)
        self._experience = Experience(lessons, self._pool, _SEED)
        drawn = self._experience.scores(self._pool.free())
        self._least = float(np.quantile(drawn, KEPT))
        self._share = float(np.mean(drawn <= self._least))

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What may be varied."""
        return self._whole.parameters

    @cached_property
    def stage(self) -> Stage:
        """The funnel's row: about how many points stay, and why."""
        before = self._whole.count()
        left = self.count()
        reason = f"ranked among the best {KEPT:.0%} by a model of {self._known} measurements"
        name = "learned from other problems"
        return Stage(name, "learned", reason, left, before - left)

    def _kept(self, configs: Sequence[Config]) -> NDArray[np.bool_]:
        if not configs:
            return np.zeros(0, bool)
        scores = self._experience.of(configs)
        always = np.array([config in self._always for config in configs])
        kept: NDArray[np.bool_] = (scores <= self._least) | always
        return kept

    def contained(self, points: Sequence[Mapping[str, Value]]) -> list[bool]:
        """Return of each point whether it stays."""
        inside = self._whole.contained(points)
        configs = [
            point if isinstance(point, Config) else Config(self.stencil_name, point)
            for point, within in zip(points, inside, strict=True)
            if within
        ]
        kept = iter(self._kept(configs).tolist())
        return [within and next(kept) for within in inside]

    def __contains__(self, values: object) -> bool:
        return isinstance(values, Mapping) and self.contained([values])[0]

    def count(self) -> int:
        """Return about how many points stay."""
        return max(1, round(self._share * self._whole.count()))

    def enumerate(self) -> Iterator[Config]:
        """Yield the points that stay."""
        waiting: list[Config] = []
        for config in self._whole.enumerate():
            waiting.append(config)
            if len(waiting) == _AT_ONCE:
                yield from self._of(waiting)
                waiting = []
        yield from self._of(waiting)

    def _of(self, configs: Sequence[Config]) -> Iterator[Config]:
        kept = self._kept(configs).tolist()
        return (config for config, stays in zip(configs, kept, strict=True) if stays)

    def sample(self, n: int, seed: int) -> list[Config]:
        """Return `n` points drawn uniformly of those that stay; fewer where there are not more."""
        found: dict[Config, None] = {}
        asked = min(self._whole.count(), int(n / KEPT) + _AT_ONCE)
        for attempt in count():
            drawn = self._whole.sample(asked, seed + _ATTEMPT * attempt)
            found |= dict.fromkeys(self._of(drawn))
            if len(found) >= n or attempt == _ATTEMPTS or asked == self._whole.count():
                return list(found)[:n]
        raise AssertionError

    def neighbours(self, config: Mapping[str, Value]) -> list[Config]:
        """Return the points that stay and differ from one in one parameter."""
        return list(self._of(self._whole.neighbours(config)))


# Points that the model is asked about at once; draws until a sample is given up as small, each
# with a seed far from the callers' next ones.
_AT_ONCE, _ATTEMPTS, _ATTEMPT = 1024, 20, 1_000_003
