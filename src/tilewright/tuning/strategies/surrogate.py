"""Surrogate: what points are expected to take, and how sure that is, from those that were tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Surrogate", "expected_improvement", "normal_scores"]

_TREES = 40

# A Gaussian process takes time by the cube of its points: beyond these the best half of so many
# stay, and as many others are drawn.
_POINTS = 250

# Its length scales are fitted anew whenever there are so many times as many points, by so many
# steps: to go on until nothing changes takes seconds, and finds nothing sooner.
_GROWN, _STEPS = 1.6, 20

# What trees that agree are unsure of all the same, in standard deviations of all points.
_TREES_LEAST = 0.02


def normal_scores(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return times by rank, spread as a normal distribution is: fast is low, failed highest.

    Times of a space differ by factors that say nothing of its best points; ranks tell these apart
    as well where all others are ten times slower as where they are 5 % slower.

    Parameters
    ----------
    seconds : ndarray
        NaN where a point failed.
    """
    from scipy.stats import norm

    known = np.where(np.isfinite(seconds), seconds, np.inf)
    places = np.argsort(np.argsort(known, kind="stable"), kind="stable")
    scores: NDArray[np.float64] = norm.ppf((places + 0.5) / len(known))
    failed = np.isinf(known)
    if failed.any():  # all alike
        scores[failed] = scores[failed].mean()
    return scores


def expected_improvement(
    best: float, mean: NDArray[np.float64], deviation: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return by how much points are expected to fall below the best, if they do."""
    from scipy.stats import norm

    away = (best - mean) / deviation
    gain: NDArray[np.float64] = (best - mean) * norm.cdf(away) + deviation * norm.pdf(away)
    return gain


class Surrogate:
    """A random forest and a Gaussian process, of which each knows what the other does not.

    Trees follow steps and interactions of parameters; the process knows how far a point is from
    all that were tried.  Their mean counts, and where they disagree neither is sure.

    Parameters
    ----------
    seed : int
        Of the trees and of what is drawn.
    """

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._forest: Any = None
        self._process: Any = None
        self._kernel: Any = None
        self._fitted = 0

    def fit(self, numbers: NDArray[np.float64], scores: NDArray[np.float64]) -> None:
        """Learn from tried points.

        Parameters
        ----------
        numbers : ndarray, shape (points, numbers)
            About 0 to 1 each.
        scores : ndarray, shape (points,)
            As `normal_scores` gives them.
        """
        from sklearn.ensemble import RandomForestRegressor

        seed = int(self._random.integers(1 << 31))
        forest = RandomForestRegressor(_TREES, bootstrap=True, random_state=seed)
        self._forest = forest.fit(numbers.astype(np.float32), scores)
        kept = self._kept(scores)
        self._fit_process(numbers[kept], scores[kept], len(scores))

    def _kept(self, scores: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return which points the process learns from."""
        order = np.argsort(scores, kind="stable")
        if len(order) <= _POINTS:
            return order
        best, rest = order[: _POINTS // 2], order[_POINTS // 2 :]
        drawn = self._random.choice(rest, _POINTS - len(best), replace=False)
        return np.concatenate([best, drawn])

    def _fit_process(
        self, numbers: NDArray[np.float64], scores: NDArray[np.float64], points: int
    ) -> None:
        import warnings

        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        anew = self._kernel is None or points >= _GROWN * self._fitted
        if self._kernel is None:
            lengths = np.full(numbers.shape[1], 0.5)
            smooth = Matern(lengths, (5e-2, 2e1), nu=2.5)
            noise = WhiteKernel(1e-2, (1e-5, 0.3))
            self._kernel = ConstantKernel(1.0, (1e-2, 1e2)) * smooth + noise
        optimizer = _steps_nearer if anew else None
        process = GaussianProcessRegressor(self._kernel, random_state=0, optimizer=optimizer)
        with warnings.catch_warnings():  # a length scale at its bound means an idle parameter
            warnings.simplefilter("ignore")
            self._process = process.fit(numbers, scores)
        if anew:
            self._kernel, self._fitted = self._process.kernel_, points

    def predict(
        self, numbers: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the expected scores of points and their standard deviations."""
        single = numbers.astype(np.float32)
        trees = np.array([tree.tree_.predict(single)[:, 0] for tree in self._forest.estimators_])
        mean, deviation = self._process.predict(numbers, return_std=True)
        means = np.array([trees.mean(axis=0), mean])
        spread = trees.var(axis=0) + _TREES_LEAST**2, deviation**2
        return means.mean(axis=0), np.sqrt(np.mean(spread, axis=0) + means.var(axis=0))


def _steps_nearer(
    loss: Callable[..., Any], start: NDArray[np.float64], bounds: Any
) -> tuple[NDArray[np.float64], float]:
    """Return a process's lengths and noise after some steps from those of the last time."""
    from scipy.optimize import minimize

    found = minimize(
        loss, start, method="L-BFGS-B", jac=True, bounds=bounds, options={"maxiter": _STEPS}
    )
    return found.x, float(found.fun)
