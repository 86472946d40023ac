"""How large a rectangle the tiles of one triangle of a square result make (triangle.cuh)."""

from __future__ import annotations

from dataclasses import replace
from math import lcm

from tilewright.problem import Problem
from tilewright.stencil.geometry import Geometry, elements_of_chunk

__all__ = ["folded", "folded_problem"]


def folded(geometry: Geometry, n: int) -> tuple[int, int]:
    """Return the sides of a result that has as many tiles as a triangle of an n x n one.

    The triangle's squares, whose sides are whole clusters' tiles both ways, are folded to it: so a
    launch for it is one for the triangle, and takes as long.
    """
    clusters = geometry.tile_m * geometry.cluster_m, geometry.tile_n * geometry.cluster_n
    square = lcm(*clusters)
    down = -(-n // square)
    return (down + (down % 2 == 0)) * square, (down + 1) // 2 * square


def folded_problem(geometry: Geometry, problem: Problem) -> Problem:
    """Return a product of as many tiles as a triangle has, with C's columns aligned alike."""
    m, n = folded(geometry, problem.n)
    ldc = m + problem.ldc % elements_of_chunk(problem)
    return replace(problem, m=m, n=n, lda=0, ldb=0, ldc=ldc)
