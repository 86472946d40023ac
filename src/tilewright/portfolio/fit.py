"""What things cost in a kernel's launches: fitted where it was timed often, else estimated."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from tilewright.portfolio.instances import NOT_STAGED
from tilewright.portfolio.kernel import PortfolioKernel
from tilewright.portfolio.model import TERMS, Model
from tilewright.problem import Problem
from tilewright.stencil.geometry import Geometry
from tilewright.text import install_hint

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["alike_costs", "fitted_costs"]


# Multiply-adds in a nanosecond that no multiprocessor passes without tensor cores: 128 in a clock
# of 2 GHz (H100: 1.98; CUDA C++ Programming Guide, throughput of arithmetic instructions).
_MOST_MULTIPLY_ADDS = 256.0

# The same of tensor cores, for operands of one byte: 4096 in a clock, and half as many of operands
# twice as long (H100 data sheet: 1979 TFLOP/s of FP8, 989 of FP16).
_MOST_OF_TENSOR_CORES = 8192.0

# Fits of a kernel, whose weights settle in three or four; what is slower than the best by less
# is as good.
_ROUNDS, _SLOWER = 6, 1.05

_STEPS = [TERMS.index("vector steps"), TERMS.index("scalar steps")]
_RAGGED = TERMS.index("ragged C")


def fitted_costs(
    geometry: Geometry, times: Mapping[Problem, float], best: Mapping[Problem, float], many: int
) -> Floats:
    """Return a kernel's costs, nanoseconds for one of each of `TERMS`.

    Errors count relative to the measured time, and the less the slower the kernel is beside the
    best of a problem: what is far from it is not chosen, unless it is expected to be the best.  A
    step costs no less than its
    multiply-adds at the peak, also where few times tell it from what grows along with it; copies
    of either width that were never timed cost what the other ones do, and C of columns that are
    not aligned, where it was never timed, what it costs without staged results.

    Parameters
    ----------
    geometry : Geometry
        Of the kernel.
    times : Mapping
        Its measured nanoseconds by problem.
    best : Mapping
        The least of all kernels by problem.
    many : int
        Multiprocessors of the device that was measured.
    """
    model = Model((geometry,), np.zeros((1, len(TERMS))))
    does = np.array([model.work(problem, many)[0] for problem in times])
    ns = np.array(list(times.values()))
    least_ns = np.array([best[problem] for problem in times])
    weights = least_ns / ns
    for _ in range(_ROUNDS):
        costs = _solved(geometry, times, does / ns[:, None], weights)
        # Where the kernel would be chosen and is not the best, an error counts in full.
        wrong = (does @ costs < least_ns) & (ns > _SLOWER * least_ns)
        wanted = np.where(wrong, 1.0, weights)
        if (wanted == weights).all():
            break
        weights = wanted
    return costs


def _solved(
    geometry: Geometry, problems: Iterable[Problem], does: Floats, weights: Floats
) -> Floats:
    """Return costs by least squares of relative errors; `does` is relative to measured times."""
    try:
        from scipy.optimize import nnls
    except ImportError:
        raise RuntimeError(f"fitted costs need SciPy; {install_hint('tune')}") from None

    least = _least(geometry, problems)
    rows = does * weights[:, None]
    scale = np.linalg.norm(rows, axis=0)
    unseen = scale == 0
    scale[unseen] = 1.0
    above = np.maximum(0.0, weights - rows @ least)
    found, _ = nnls(rows / scale, above, maxiter=100 * len(TERMS))
    costs: Floats = least + found / scale
    if unseen[_STEPS].any():
        costs[_STEPS] = costs[_STEPS].max()
    if unseen[_RAGGED]:
        costs[_RAGGED] = NOT_STAGED
    return costs


def _least(geometry: Geometry, problems: Iterable[Problem]) -> Floats:
    """Return the least that each of `TERMS` can cost: steps take their multiply-adds."""
    precisions = {problem.precision for problem in problems}
    parts = 4 if any(one.is_complex for one in precisions) else 1
    multiplied = [one.element_bytes for one in precisions if one.is_short]
    most = _MOST_OF_TENSOR_CORES / min(multiplied) if multiplied else _MOST_MULTIPLY_ADDS
    least = np.zeros(len(TERMS))
    least[_STEPS] = parts * geometry.tile_m * geometry.tile_n / most
    return least


def alike_costs(
    geometry: Geometry,
    times: Mapping[Problem, float],
    kernels: Iterable[PortfolioKernel],
    multiprocessors: int,
) -> Floats:
    """Return costs of a kernel with few times: those of the most similar one, scaled to them.

    Parameters
    ----------
    geometry : Geometry
        Of the kernel.
    times : Mapping
        Its nanoseconds by problem; one at least.
    kernels : iterable of PortfolioKernel
        Of the same variant, with costs.
    multiprocessors : int
        Of the device.
    """

    def apart(one: PortfolioKernel) -> float:
        its = one.geometry
        sides = (
            (geometry.tile_m, its.tile_m), (geometry.tile_n, its.tile_n),
            (geometry.tile_k, its.tile_k),
        )  # fmt: skip
        kinds = (
            geometry.persistent != its.persistent, geometry.stream_k != its.stream_k,
            (geometry.split_k is None) != (its.split_k is None), geometry.tma != its.tma,
        )  # fmt: skip
        return sum(abs(math.log2(a / b)) for a, b in sides) + 2 * sum(kinds)

    able = [one for one in kernels if one.costs]
    # Costs of what is for short sums say nothing of longer ones.
    able = [one for one in able if one.geometry.most_k == geometry.most_k] or able
    if not able:
        return np.zeros(0)
    nearest = min(able, key=apart)
    model = Model((geometry,), np.array([nearest.costs]))
    expected = [float(model.expected(problem, multiprocessors)[0]) for problem in times]
    # Of what no device holds, or costs that are nothing, no time is expected.
    ratios = [math.log(ns / of) for ns, of in zip(times.values(), expected, strict=True) if of > 0]
    if not ratios:
        return np.zeros(0)
    scaled = np.array(nearest.costs) * math.exp(sum(ratios) / len(ratios))
    return np.maximum(scaled, _least(geometry, times))
