"""Products of random shapes: what nobody tuned for, a third of it odd."""

from __future__ import annotations

import itertools
import math

import numpy as np

from tilewright.bench.registry import Asked, Products
from tilewright.bench.sizes import parse_cases
from tilewright.problem import Problem

__all__ = ["BENCHMARK", "drawn_sides"]

# The longest side, and the most operations (2 m n k): 0.04 s of an H100's SGEMM, a second of a CPU.
GPU_MOST, CPU_MOST = (16384, 2**41), (4096, 2**36)


def drawn_sides(seed: int, count: int, most: tuple[int, int]) -> list[tuple[int, int, int]]:
    """Return m, n and k of shapes, each side log-uniform from 1 on, every third shape all odd.

    Parameters
    ----------
    seed, count : int
        The same shapes whenever both are the same.
    most : tuple of int
        The longest side, and the most operations; what has more is drawn anew.
    """
    rng = np.random.default_rng(seed)
    side, operations = most
    found: list[tuple[int, int, int]] = []
    while len(found) < count:
        m, n, k = (round(x) for x in np.exp(rng.uniform(0, math.log(side), 3)))
        if len(found) % 3 == 2:
            m, n, k = (x - 1 + x % 2 for x in (m, n, k))
        if 2 * m * n * k <= operations:
            found.append((m, n, k))
    return found


def problems(asked: Asked) -> list[Problem]:
    """Return random shapes, each transpose as often as the others, precision by precision."""
    sides = drawn_sides(asked.seed, asked.count, GPU_MOST if asked.is_gpu else CPU_MOST)
    cases = parse_cases(asked.precision, asked.trans)
    by_precision = itertools.groupby(cases, key=lambda case: case[0])
    return [
        Problem(*side, *case)  # type: ignore[arg-type]
        for _, group in by_precision
        for side, case in zip(sides, itertools.cycle(list(group)), strict=False)
    ]


BENCHMARK = Products(
    measures="products of random shapes, sides log-uniform from 1 on, a third of them odd",
    against="cuBLAS; NumPy on a CPU; errors of both",
    takes="three minutes for 200 shapes on an H100 once their kernels are compiled",
    options={"precision": "s", "trans": "all", "seed": "0", "count": "200"},
    problems=problems,
    rounds=7,
    errors=True,
)
