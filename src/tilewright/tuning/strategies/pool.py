"""Pool: the candidates among which a model chooses, as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.space import Config
from tilewright.tuning.strategies.base import Background, Points

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Pool", "encoded"]

# A space of so many points is a pool as a whole; of a larger one so many are drawn, to which the
# neighbours of the best come.
_WHOLE, _DRAWN = 20_000, 4096


def encoded(space: Points, configs: Sequence[Config]) -> NDArray[np.float64]:
    """Return configs as numbers: positions in each parameter's values, 0 to 1.

    Returns
    -------
    ndarray, shape (configs, parameters)
        A value that a config does not name is the one that goes without saying; one that the
        space lacks, as configs of another space may have, is -1.
    """
    columns = []
    for parameter in space.parameters:
        name, unnamed = parameter.name, parameter.unnamed
        code: dict[Any, int] = {value: at for at, value in enumerate(parameter.values)}
        last = max(1, len(parameter) - 1)
        columns.append([code.get(config.get(name, unnamed), -last) / last for config in configs])
    return np.array(columns, np.float64).T.reshape(len(configs), len(space.parameters))


class Pool:
    """Candidates of a space that nobody proposed yet.

    Parameters
    ----------
    space : Points
        What is searched.
    seed : int
        Of what is drawn.
    background : Background
        Adds its features to the parameters' values.
    """

    def __init__(self, space: Points, seed: int, background: Background) -> None:
        self._space, self._background = space, background
        self.is_whole = space.count() <= _WHOLE
        self._configs: list[Config] = []
        self._at: dict[Config, int] = {}
        self._rows: list[NDArray[np.float64]] = []
        self._forecasts: NDArray[np.float64] = np.zeros(0)
        self._free: set[int] = set()
        self._taken: set[Config] = set()
        self.add(space.enumerate() if self.is_whole else space.sample(_DRAWN, seed))

    def add(self, configs: Iterable[Config]) -> None:
        """Put candidates in that are not there."""
        fresh = [config for config in dict.fromkeys(configs) if config not in self._at]
        if not fresh:
            return
        first = len(self._configs)
        for at, config in enumerate(fresh, start=first):
            self._at[config] = at
            if config not in self._taken:
                self._free.add(at)
        self._configs += fresh
        self._rows.append(self.numbers_of(fresh))

    def numbers_of(self, configs: Sequence[Config]) -> NDArray[np.float64]:
        """Return configs' numbers, whether they are candidates or not."""
        plain = encoded(self._space, configs)
        if self._background.features is None:
            return plain
        return np.hstack([plain, self._background.features(configs)])

    def widen(self, best: Iterable[Config]) -> None:
        """Add the neighbours of the best, where the pool is not the whole space."""
        if not self.is_whole:
            for config in best:
                self.add(self._space.neighbours(config))

    def take(self, config: Config) -> None:
        """Mark a config, of the pool or not, as one that is not to be proposed."""
        self._taken.add(config)
        at = self._at.get(config)
        if at is not None:
            self._free.discard(at)

    @property
    def numbers(self) -> NDArray[np.float64]:
        """All candidates' numbers, shape (candidates, numbers)."""
        if len(self._rows) > 1:
            self._rows = [np.vstack(self._rows)]
        return self._rows[0]

    @property
    def forecasts(self) -> NDArray[np.float64]:
        """What a static model expects of all candidates; there is one in the background."""
        assert self._background.forecast is not None
        known = len(self._forecasts)
        if known < len(self._configs):
            fresh = self._background.forecast(self._configs[known:])
            self._forecasts = np.concatenate([self._forecasts, fresh])
        return self._forecasts

    def every(self) -> NDArray[np.intp]:
        """Return the places of all candidates, also of those that were proposed."""
        return np.arange(len(self._configs))

    def free(self) -> NDArray[np.intp]:
        """Return the places of those that may be proposed, in order."""
        return np.array(sorted(self._free), np.intp)

    def config(self, place: int) -> Config:
        """Return the candidate of a place."""
        return self._configs[place]

    def places(self, configs: Iterable[Config]) -> NDArray[np.intp]:
        """Return the places of configs, which are put in where they are not there."""
        wanted = list(configs)
        self.add(wanted)
        return np.array([self._at[config] for config in wanted], np.intp)

    def lesson(self, configs: Sequence[Config], features: NDArray[Any]) -> NDArray[np.float64]:
        """Return the numbers of another problem's configs, as this pool has them of its own."""
        plain = encoded(self._space, configs)
        return plain if self._background.features is None else np.hstack([plain, features])
