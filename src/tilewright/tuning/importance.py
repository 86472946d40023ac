"""Which parameters mattered in a search, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.space import Config
from tilewright.tuning.strategies.base import needs
from tilewright.tuning.strategies.surrogate import normal_scores

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LEAST", "Importance", "importances"]

# Candidates below which trees say more of chance than of parameters.
LEAST = 60

_BOOTSTRAPS, _TREES = 20, 50

# Ends of the interval that is told, in percent.
_LOW, _HIGH = 5, 95


@dataclass(frozen=True)
class Importance:
    """How much of the differences in speed one parameter explains.

    Parameters
    ----------
    name : str
        The parameter's.
    share : float
        By how much the explained part of the variance falls when the parameter's values are
        shuffled: 0 for one that does not matter.  Median over bootstraps.
    low, high : float
        Between which nine in ten bootstraps lie.
    """

    name: str
    share: float
    low: float
    high: float


def importances(configs: Sequence[Config], seconds: Sequence[float]) -> list[Importance]:
    """Return the permutation importance of each parameter that varies, the largest first.

    A random forest is fitted to candidates drawn with replacement; values are shuffled among
    those that were not drawn.  Times count by rank.

    Parameters
    ----------
    configs : sequence of Config
        Candidates that were timed; `LEAST` or more.
    seconds : sequence of float
        What they took.

    Raises
    ------
    RuntimeError
        If scikit-learn is not here.
    """
    needs("sklearn", "the importance of parameters")
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.inspection import permutation_importance

    names, numbers = _numbers(configs)
    scores = normal_scores(np.asarray(seconds, float))
    random = np.random.default_rng(0)
    rows = []
    for number in range(_BOOTSTRAPS if names else 0):
        drawn = random.integers(len(scores), size=len(scores))
        others = np.setdiff1d(np.arange(len(scores)), drawn)
        forest = RandomForestRegressor(_TREES, random_state=number)
        fitted = forest.fit(numbers[drawn], scores[drawn])
        found: Any = permutation_importance(
            fitted, numbers[others], scores[others], n_repeats=1, random_state=number
        )
        rows.append(found.importances_mean)
    if not rows:
        return []
    low, middle, high = np.percentile(rows, (_LOW, 50, _HIGH), axis=0)
    made = [
        Importance(name, float(middle[at]), float(low[at]), float(high[at]))
        for at, name in enumerate(names)
    ]
    return sorted(made, key=lambda one: (-one.share, one.name))


def _numbers(configs: Sequence[Config]) -> tuple[list[str], NDArray[np.float32]]:
    """Return the parameters that vary and their values, texts and what is not named by rank."""
    names, columns = [], []
    for name in sorted({name for config in configs for name in config}):
        values = [config.get(name, -1) for config in configs]
        distinct = sorted(set(values), key=lambda x: (isinstance(x, str), x))
        if len(distinct) > 1:
            code = {value: at for at, value in enumerate(distinct)}
            names.append(name)
            columns.append([code[value] for value in values])
    return names, np.array(columns, np.float32).T.reshape(len(configs), len(names))
