"""What a portfolio loses on problems that did not pick it, by cross-validation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tilewright.portfolio.fit import fitted_costs
from tilewright.portfolio.measured import Case, Measured
from tilewright.portfolio.model import Model
from tilewright.portfolio.pick import pick
from tilewright.stencil import Variant, stencil

__all__ = ["Loss", "held_out"]


@dataclass(frozen=True)
class Loss:
    """Losses of one variant, of problems that were left out: times over the best's, less 1.

    Parameters
    ----------
    variant : Variant
        Precision and transposes.
    kernels : int
        Picked, in the mean of the folds.
    best : array
        Of the best kernel that was picked, beside everything measured.
    chosen : array
        Of the kernel that the model of time chooses, beside everything measured.
    """

    variant: Variant
    kernels: float
    best: NDArray[np.float64]
    chosen: NDArray[np.float64]


def held_out(measured: Measured, mean: float, most: float, folds: int = 5) -> Iterator[Loss]:
    """Yield the losses of each variant.

    Problems are dealt into folds at random; of each fold kernels are picked, and their costs
    fitted, by the others.

    Parameters
    ----------
    measured : Measured
        Everything measured in a precision.
    mean, most : float
        As of `tilewright.portfolio.select.select`.
    folds : int
        Two at least.
    """
    for variant, case in measured.cases.items():
        if len(case.problems) >= folds:
            yield _of_case(variant, case, measured.multiprocessors, mean, most, folds)


def _of_case(variant: Variant, case: Case, many: int, mean: float, most: float, folds: int) -> Loss:
    fold = np.random.default_rng(0).permutation(len(case.problems)) % folds
    least = case.ns.min(axis=1)
    best, chosen, counts = np.zeros(len(least)), np.zeros(len(least)), []
    for left_out in range(folds):
        inside = np.flatnonzero(fold != left_out)
        part = replace(case, problems=tuple(case.problems[x] for x in inside), ns=case.ns[inside])
        columns = pick(part.ns, mean, most)
        counts.append(len(columns))
        model = _fitted(part, columns, many)
        for row in np.flatnonzero(fold == left_out):
            ns = case.ns[row, list(columns)]
            expected = model.expected(case.problems[row], many)
            expected[~np.isfinite(ns)] = np.inf
            best[row] = ns.min() / least[row] - 1
            chosen[row] = ns[int(np.argmin(expected))] / least[row] - 1
    return Loss(variant, sum(counts) / folds, best, chosen)


def _fitted(case: Case, columns: tuple[int, ...], many: int) -> Model:
    """Return the model of some kernels, fitted to a case's problems."""
    configs = [case.configs[column] for column in columns]
    geometries = [stencil(one.stencil).geometry(one) for one in configs]
    costs = [
        fitted_costs(geometry, case.times(column), case.best, many)
        for geometry, column in zip(geometries, columns, strict=True)
    ]
    return Model(geometries, np.array(costs))
