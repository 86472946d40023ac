"""Which kernel computes one triangle of a square result: that of the shortest expected time.

A kernel's costs are those of products; a triangle takes as long as a product of as many tiles.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from tilewright.portfolio.choose import Choice, able_by_arrays, expected_by_arrays, made_choice
from tilewright.portfolio.held import Held, Served, held_rows
from tilewright.portfolio.kernel import TRIANGLE
from tilewright.portfolio.model import Model
from tilewright.problem import Problem
from tilewright.stencil import Variant
from tilewright.stencil.asynchronous.folded import folded_problem
from tilewright.stencil.geometry import Geometry, elements_of_chunk

__all__ = ["choices_for_triangle"]


def choices_for_triangle(device: Served, problem: Problem, aligned: bool = True) -> list[Choice]:
    """Return the kernels that compute a triangle, the best first; those with machine code.

    Parameters
    ----------
    device : Served
        Where.
    problem : Problem
        The product that the triangle is of, as kernels see it, column-major.
    aligned : bool
        Whether A and B begin at multiples of 16 bytes.
    """
    found = []
    for one in _each(held_rows(device, Variant.of(problem))):
        if not able_by_arrays(one, problem, aligned, TRIANGLE)[0]:
            continue
        geometry = one.kernels[0].geometry
        [ns] = expected_by_arrays(device.spec, one, _as_long(geometry, problem), TRIANGLE)
        chosen = made_choice(one, 0, geometry.mode(problem), device.spec, TRIANGLE)
        found.append(replace(chosen, ns=float(ns)))
    return sorted(found, key=lambda one: one.ns or 0.0)


@lru_cache(maxsize=64)
def _each(table: Held) -> tuple[Held, ...]:
    """Return the kernels with machine code for triangles, each by itself.

    Each has sides of its own, and what is expected of all others for them takes milliseconds.
    """
    model = table.model
    if model is None:
        return ()
    return tuple(
        replace(
            table, kernels=table.kernels[at : at + 1], portfolios=table.portfolios[at : at + 1],
            own=table.own[at : at + 1], is_own=table.is_own[at : at + 1],
            model=Model([table.kernels[at].geometry], model.costs[at : at + 1]),
            compiled=tuple(form[at : at + 1] for form in table.compiled), native=(None,) * 3,
        )
        for at in map(int, np.flatnonzero(table.there(TRIANGLE)))
    )  # fmt: skip


def _as_long(geometry: Geometry, problem: Problem) -> Problem:
    """Return a product of as many tiles as the triangle, all columns aligned as they are."""
    found, chunk = folded_problem(geometry, problem), elements_of_chunk(problem)

    def ld(rows: int, given: int) -> int:
        return -(-rows // chunk) * chunk + given % chunk

    rows_a = found.k if found.trans_a.transposed else found.m
    rows_b = found.n if found.trans_b.transposed else found.k
    return replace(found, lda=ld(rows_a, problem.lda), ldb=ld(rows_b, problem.ldb))
