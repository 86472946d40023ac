"""The route of rank-k updates: products of a triangle's blocks, and what moves triangles.

::

    [copies of operands, or their parts]
    [C's triangles of diagonal blocks to a workspace, where beta is not 0]
    all blocks' products, at once: those below the diagonal into C, the others into the workspace
    [the workspace's triangles to C]

Where both triangles of C are to be written, diagonal blocks are products in C itself, and the last
launch mirrors C's triangle.  So nothing of the other triangle is read or written that a caller did
not ask for, and every element has the rounding of the product that it is of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.backend import GemmCall, LiveDevice, Operand
from tilewright.portfolio import choose
from tilewright.problem import Problem
from tilewright.serve.kernels import begin_aligned, kernel_of, ready
from tilewright.serve.piece import Piece
from tilewright.serve.routes import Laid, MemorySpace, Step
from tilewright.serve.triangle import Block, Triangle, blocks_of
from tilewright.stencil import Variant
from tilewright.stencil.asynchronous.realign import aligned_ld
from tilewright.stencil.asynchronous.triangle import MovedTriangle

__all__ = ["lay_out_triangle"]

# Diagonal blocks of a triangle that are tried.
_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)

# Sides are multiples of what no tile of C that ships is longer than, nor a line of memory.
_UNIT = 128

# Of a call's launches at once (core.h): as many as a device takes from different streams, where
# CUDA_DEVICE_MAX_CONNECTIONS does not say otherwise.
_LANES = 8
_MANY = (1, 2, 3, 4, 6, 8)

# Nanoseconds: what a launch takes beside its work where others run at once, and what a launch
# between phases takes, as on an H100; bytes a nanosecond that the passes move there.
_LAUNCH_NS, _PHASE_NS, _PASS_RATE = 2500.0, 4000.0, 1500.0

# Of sides that are expected to take no longer than so many times the least, the longest: it has the
# fewest launches.
_AS_GOOD = 1.02

# Products of parts take three launches a block, of which two return at once, and tensor cores are
# fast on large results only.
_LEAST_SIDE_OF_PARTS = 2048

# Where no times are known: larger blocks waste less than launches cost.
_USUAL_SIDE, _MOST_USUAL = 256, 16


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
    if arithmetic == "fp64":
        why = "half of a product is computed by native kernels"
    elif arithmetic:
        from tilewright.serve.split.serve import split_steps, why_ieee

        why = why_ieee(live, problem, call, arithmetic)
        if not why:
            update = _Update(live, problem, call, space, triangle, _LEAST_SIDE_OF_PARTS)
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
        least_side: int = 1,
    ) -> None:
        self._live, self._problem, self._call = live, problem, call
        self._least_side = least_side
        self._triangle = triangle
        self._side = self._best_side()
        self._ld = aligned_ld(self._side, 1)
        self._workspace: Any = None
        n = problem.n
        if not triangle.filled:
            size = problem.precision.result_bytes * self._ld * self._side * -(-n // self._side)
            self._workspace = space.need("diagonal blocks", size)
        self._spread_out = self._spread(blocks_of(n, self._side, triangle.lower))
        self.pieces = [piece for piece, _ in self._spread_out]

    # -- which blocks ----------------------------------------------------------------------

    def _best_side(self) -> int:
        """Return the side of diagonal blocks of which the shortest time is expected."""
        n = self._problem.n
        sides = {-(-n // count // _UNIT) * _UNIT for count in _COUNTS}
        sides = {side for side in sides if side >= self._least_side} or {n}
        times = {side: self._expected(side) for side in sides}
        known = {side: ns for side, ns in times.items() if ns is not None}
        if known:
            most = _AS_GOOD * min(known.values())
            return min(n, max(side for side, ns in known.items() if ns <= most))
        count = min(_MOST_USUAL, max(1, n // max(_USUAL_SIDE, self._least_side)))
        return min(n, -(-n // count // _UNIT) * _UNIT)

    def _expected(self, side: int) -> float | None:
        """Return the nanoseconds to expect with such diagonal blocks; None where unknown."""
        n, size = self._problem.n, self._problem.precision.result_bytes
        moved = size * n * (n if self._triangle.filled else 2 * min(side, n))
        total = _PHASE_NS * 2 + moved / _PASS_RATE
        for alike in _alike(blocks_of(n, side, self._triangle.lower)):
            ns = self._at_once(alike)[1]
            if ns is None:
                return None
            total += ns + _LAUNCH_NS * len(alike)
        return total

    def _at_once(self, alike: Sequence[Block]) -> tuple[int, float | None]:
        """Return how many of some products are to run at once, and the nanoseconds of all.

        More than one only of kernels of which a multiprocessor holds two blocks: of others DGEMM
        took 5 to 14 % longer at 4096 and 8192 than one after the other (H100).
        """
        rows, columns = alike[0].rows, alike[0].columns
        best: tuple[int, float | None] = (1, None)
        for many in _MANY:
            if many > min(_LANES, len(alike)):
                break
            chosen = choose(self._live, self._stacked(rows, columns, many))
            if chosen.ns is None:
                break
            if many > 1 and chosen.geometry.resident < 2:
                continue
            ns = chosen.ns * -(-len(alike) // many)
            if best[1] is None or ns < best[1]:
                best = many, ns
        return best

    def _stacked(self, rows: int, columns: int, many: int) -> Problem:
        """Return a product as large as many of a size.

        What serves that serves each of them best: none has to fill the device by itself.
        """
        p = self._problem
        m = rows * many
        lda = p.lda if p.trans_a.transposed else _at_least(p.lda, m)
        return Problem(
            m, columns, p.k, p.precision, p.trans_a, p.trans_b, lda, p.ldb,
            _at_least(p.ldc, m),
        )  # fmt: skip

    def _spread(self, blocks: Sequence[Block]) -> list[tuple[Piece, int]]:
        """Return blocks with their memory and lanes, and how many of their size run at once."""
        found = []
        for alike in _alike(blocks):
            many, _ = self._at_once(alike)
            for at, x in enumerate(alike):
                c = self._result(x)
                piece = Piece(x.row, x.column, x.rows, x.columns, c, at % many, phase=1)
                found.append((piece, many))
        return found

    def _result(self, block: Block) -> Operand:
        c = self._call.c
        if block.is_diagonal and self._workspace is not None:
            return Operand(self._workspace, block.row * self._ld, self._ld)
        return Operand(c.memory, c.offset + block.row + block.column * c.ld, c.ld)

    # -- products --------------------------------------------------------------------------

    def products(self) -> list[Step]:
        """Return the blocks' products in IEEE arithmetic."""
        return [self._product(*one) for one in self._spread_out]

    def _product(self, one: Piece, many: int) -> Step:
        of, call = one.of(self._problem, self._call)
        aligned = begin_aligned(call)
        chosen, kernel = ready(self._live, self._stacked(one.rows, one.columns, many), aligned)
        if not _suits(chosen, of, aligned):
            chosen, kernel = ready(self._live, of, aligned)
        arguments = chosen.stencil.arguments(chosen.config, Variant.of(of), call)
        return kernel, one.placed(chosen.launch(of)), arguments

    # -- around them -----------------------------------------------------------------------

    def around(self, products: Sequence[Step]) -> list[Step]:
        """Return all launches: products, which are of phase 1, between passes."""
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
        launch = replace(one.launch(n, n), phase=2)
        return kernel_of(self._live, one.source(self._live.dialect)), launch, arguments

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
        launch = replace(one.launch(n, side), phase=2 if into_c else 0)
        return kernel_of(self._live, one.source(self._live.dialect)), launch, arguments


def _alike(blocks: Sequence[Block]) -> list[list[Block]]:
    """Return blocks by size: those of more than half of the largest's, and so on."""
    found: list[list[Block]] = []
    for x in blocks:
        first = found[-1][0] if found else None
        if first is None or 2 * x.rows * x.columns <= first.rows * first.columns:
            found.append([])
        found[-1].append(x)
    return found


def _suits(chosen: Any, problem: Problem, aligned: bool) -> bool:
    """Whether a kernel chosen for a larger product is right for one, in the same launch mode."""
    if chosen.kernel is None:
        return False
    geometry = chosen.kernel.geometry
    return bool(geometry.takes(problem, aligned) and geometry.mode(problem) == chosen.mode)


def _at_least(ld: int, least: int) -> int:
    """Return a leading dimension of so many elements, as aligned as another one."""
    return ld if ld >= least else ld + -(-(least - ld) // _UNIT) * _UNIT


def _i(number: int) -> np.int64:
    return np.int64(number)
