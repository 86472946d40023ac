"""The route of rank-k updates: products of a triangle's blocks, and what moves triangles.

::

    [copies of operands, or their parts]
    [C's triangles of diagonal blocks to a workspace, where beta is not 0]
    all blocks' products: those below the diagonal into C, the others into the workspace
    [the workspace's triangles to C]

All products are one launch where a kernel takes groups.  Where both triangles of C are to be
written, diagonal blocks are products in C itself, and the last launch mirrors C's triangle.  So
nothing of the other triangle is read or written that a caller did not ask for, and every element
has the rounding of the product that it is of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import lcm
from typing import Any

import numpy as np

from tilewright.backend import GemmCall, Kernel, LiveDevice, Operand
from tilewright.portfolio import Choice, choose
from tilewright.problem import Problem
from tilewright.serve.accuracy import BY_RESIDUES
from tilewright.serve.batched.one_launch import group_step
from tilewright.serve.kernels import begin_aligned, kernel_of, ready_for_group
from tilewright.serve.rank_k.triangle import Block, Piece, Triangle, blocks_of
from tilewright.serve.routes import Laid, MemorySpace, Step, direct
from tilewright.stencil.asynchronous.realign import aligned_ld
from tilewright.stencil.asynchronous.triangle import MovedTriangle

__all__ = ["lay_out_triangle"]

# Sides of diagonal blocks are multiples of a line of memory, of an element of 2 bytes; and the side
# of a large kernel's tile.
_UNIT, _LARGE = 64, 128

# Diagonal blocks in one launch, and how many of its largest blocks are beside each other at least:
# with them there are at most 84 problems, of which few have far more tiles than others.
_MOST_IN_GROUP, _ACROSS = 32, 8

# Blocks without a tile leave those with one unevenly spread where all run at once: updates of 1024
# and 2048 columns took up to 1.25 times what is expected of their kernels (H100).
_LONGER = 1.2

# Of blocks that are launches of their own, one after the other, which should fill a GPU each; of
# OpenCL's devices, CPUs among them, smaller ones do.
_LEAST_SIDE, _LEAST_SIDE_OF_OPENCL, _MOST_BLOCKS = 2048, 256, 16


def lay_out_triangle(
    live: LiveDevice,
    problem: Problem,
    call: GemmCall,
    arithmetic: str,
    space: MemorySpace,
    triangle: Triangle,
    *,
    report: Any = None,
    copies: bool = True,
) -> Laid:
    """Return the launches of a rank-k update.

    Parameters
    ----------
    live, problem, call, arithmetic, space, report, copies
        As of `routes.lay_out`, of the product of which the triangle counts.
    triangle : Triangle
        As kernels see it, column-major.

    Raises
    ------
    BackendError
        As of `routes.lay_out`.
    """
    why, steps = "", list[Step]()
    if arithmetic in BY_RESIDUES:
        why = "half of a product is computed by native kernels"
    elif arithmetic:
        from tilewright.serve.split.serve import split_steps, why_ieee

        why = why_ieee(live, problem, call, arithmetic)
        if not why:
            update = _Update(live, problem, call, space, triangle, of_parts=True)
            laid = split_steps(live, space, problem, call, arithmetic, report, update.pieces)
            return replace(laid, steps=update.around(laid.steps), name="syrk")
    if copies and call.alpha != 0 and call.k != 0:
        from tilewright.serve.realigned import copied, way_of

        way = way_of(live, problem, call)
        steps, call = copied(live, way, call, space, is_one=True)
        problem = way.problem
    update = _Update(live, problem, call, space, triangle)
    return Laid(update.around([*steps, *update.products()]), "syrk", why=why)


class _Update:
    """One update as it is laid out."""

    def __init__(
        self,
        live: LiveDevice,
        problem: Problem,
        call: GemmCall,
        space: MemorySpace,
        triangle: Triangle,
        *,
        of_parts: bool = False,
    ) -> None:
        self._live, self._problem, self._call = live, problem, call
        self._triangle = triangle
        n, most = problem.n, 0
        small = live.dialect != "cuda" and not of_parts
        self._side = _side(n, _LEAST_SIDE_OF_OPENCL if small else _LEAST_SIDE, _MOST_BLOCKS)
        self._group = None if of_parts else self._kernel_for_group()
        if self._group is not None:
            chosen = self._group[0]
            tile = chosen.geometry
            self._side = _side(n, lcm(tile.tile_m, tile.tile_n, _UNIT), _MOST_IN_GROUP)
            most = -(-n // (_ACROSS * self._side)) * self._side
            whole = choose(live, problem, begin_aligned(call)).ns
            if whole is not None and chosen.ns is not None and whole < _LONGER * chosen.ns:
                self._side, self._group = n, None
        self._ld = aligned_ld(self._side, 1)
        self._workspace: Any = None
        if not triangle.filled:
            size = problem.precision.result_bytes * self._ld * self._side * -(-n // self._side)
            self._workspace = space.need("diagonal blocks", size)
        self.pieces = [
            Piece(x.row, x.column, x.rows, x.columns, self._result(x))
            for x in blocks_of(n, self._side, triangle.lower, most)
        ]

    def _kernel_for_group(self) -> tuple[Choice, Kernel] | None:
        """Return the kernel that computes all blocks in one launch: one for half of the result.

        A large tile longer, as those on the diagonal are whole.
        """
        p = self._problem
        half = replace(p, m=p.m + _LARGE, n=-(-p.n // 2), lda=p.lda + _LARGE, ldc=p.ldc + _LARGE)
        return ready_for_group(self._live, [half], begin_aligned(self._call))

    def _result(self, block: Block) -> Operand:
        c = self._call.c
        if block.is_diagonal and self._workspace is not None:
            return Operand(self._workspace, block.row * self._ld, self._ld)
        return Operand(c.memory, c.offset + block.row + block.column * c.ld, c.ld)

    def products(self) -> list[Step]:
        """Return the blocks' products in IEEE arithmetic."""
        if self._group is None:
            return [direct(self._live, *one.of(self._problem, self._call)) for one in self.pieces]
        parts = [one.part(self._call) for one in self.pieces]
        return [group_step(*self._group, self._problem, parts)]

    # -- around them -----------------------------------------------------------------------

    def around(self, products: Sequence[Step]) -> list[Step]:
        """Return all launches: products, between passes."""
        before: list[Step] = []
        if self._workspace is None:
            after = self._mirrored()
        else:
            after = self._moved(into_c=True)
            if self._call.beta != 0:
                before = [self._moved(into_c=False)]
        return [*before, *products, after]

    def _pass(self, *, mirrored: bool) -> MovedTriangle:
        size = self._problem.precision.result_bytes
        return MovedTriangle(size, mirrored, self._triangle.hermitian)

    def _mirrored(self) -> Step:
        one, n, c = self._pass(mirrored=True), self._problem.n, self._call.c
        arguments = _i(n), c.memory, _i(c.offset), _i(c.ld), np.int32(self._triangle.lower)
        source = one.source(self._live.dialect)
        return kernel_of(self._live, source), one.launch(n, n), arguments

    def _moved(self, *, into_c: bool) -> Step:
        """Return the copy of diagonal blocks' triangles between C and the workspace."""
        one, n, c, side = self._pass(mirrored=False), self._problem.n, self._call.c, self._side
        ends = [
            (c.memory, _i(c.offset), _i(c.ld), _i(side * (c.ld + 1))),
            (self._workspace, _i(0), _i(self._ld), _i(side * self._ld)),
        ]
        if into_c:
            ends.reverse()
        arguments = (_i(n), _i(side), *ends[0], *ends[1], np.int32(self._triangle.lower))
        source = one.source(self._live.dialect)
        return kernel_of(self._live, source), one.launch(n, side), arguments


def _side(n: int, unit: int, most: int) -> int:
    """Return the side of at most so many diagonal blocks: the least multiple of a unit, or all."""
    return min(n, -(-n // (unit * most)) * unit)


def _i(number: int) -> np.int64:
    return np.int64(number)
