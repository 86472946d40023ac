"""Which kernel computes one triangle of a square result: that of the shortest expected time.

A kernel's costs are those of products; a triangle takes as long as a product of as many tiles.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.portfolio.choose import Choice, able_by_arrays, expected_by_arrays, made_choice
from tilewright.portfolio.held import Served, held_rows
from tilewright.portfolio.kernel import TRIANGLE
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
    table, found = held_rows(device, Variant.of(problem)), list[Choice]()
    if table.model is None:
        return found
    for at in map(int, np.flatnonzero(able_by_arrays(table, problem, aligned, TRIANGLE))):
        geometry = table.kernels[at].geometry
        as_long = _as_long(geometry, problem)
        ns = expected_by_arrays(device.spec, table, as_long, TRIANGLE)[at]
        chosen = made_choice(table, at, geometry.mode(problem), device.spec, TRIANGLE)
        found.append(replace(chosen, ns=float(ns)))
    return sorted(found, key=lambda one: one.ns or 0.0)


def _as_long(geometry: Geometry, problem: Problem) -> Problem:
    """Return a product of as many tiles as the triangle, all columns aligned as they are."""
    found, chunk = folded_problem(geometry, problem), elements_of_chunk(problem)

    def ld(rows: int, given: int) -> int:
        return -(-rows // chunk) * chunk + given % chunk

    rows_a = found.k if found.trans_a.transposed else found.m
    rows_b = found.n if found.trans_b.transposed else found.k
    return replace(found, lda=ld(rows_a, problem.lda), ldb=ld(rows_b, problem.ldb))
