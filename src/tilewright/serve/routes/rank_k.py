"""The route of rank-k updates: products of a triangle's blocks, and what moves triangles.

::

    [copies of operands, or their parts]
    [C's triangles of diagonal blocks to a workspace, where beta is not 0]
    all blocks' products: those below the diagonal into C, the others into the workspace
    [the workspace's triangles to C]

Where there is a kernel that writes C's triangle alone, that is one launch in the place of the last
three, or two where the triangle is mirrored behind it (`masked`).  Elsewhere all products are one
launch where a kernel takes groups; or all but one block's, without whose tiles the others fill
whole waves, where a kernel for that block is faster than one more wave.  Where both triangles of C
are to be written, diagonal blocks are products in C itself, and the last launch mirrors C's
triangle.  So nothing of the other triangle is read or written that a caller did not ask for, and
every element has the rounding of the product that it is of.

Of double-double and ``accuracy="fp64"`` the triangle is one chain of residues, of real matrices
with ``accuracy="fp32"``, or a scheme by name, one of parts (`residues.chain`, `split.chain`).  The
products of blocks behind such a chain, and the copies of triangles around them, run where its guard
has refused the operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, lcm, prod
from typing import Any, NamedTuple

import numpy as np

from tilewright.backend import GemmCall, Kernel, LiveDevice, Operand
from tilewright.portfolio import Choice, choose
from tilewright.portfolio.batches import choices_for_group
from tilewright.precision import precision
from tilewright.problem import Problem
from tilewright.serve.accuracy import BY_RESIDUES
from tilewright.serve.kernels import begin_aligned, begins_aligned, kernel_of, ready_by
from tilewright.serve.routes.direct import direct
from tilewright.serve.routes.masked import TRIANGLES, by_tiles, masked, mirrored
from tilewright.serve.routes.one_launch import group_step
from tilewright.serve.routes.realigned import copied, way_of, ways
from tilewright.serve.routes.residues.options import PLAIN, Residues
from tilewright.serve.steps import Laid, MemorySpace, Step
from tilewright.serve.triangle import LEAST_SIDE, Block, Piece, Triangle, blocks_of
from tilewright.stencil import Variant
from tilewright.stencil.asynchronous.realign import aligned_ld
from tilewright.stencil.asynchronous.triangle import MovedTriangle
from tilewright.stencil.table import Part

__all__ = ["lay_out_triangle"]

_i = np.int64  # as kernels take sizes and places

# Sides of diagonal blocks are multiples of a line of memory, of an element of 2 bytes; and the side
# of a large kernel's tile.
_UNIT, _LARGE = 64, 128

# Diagonal blocks in one launch, and how many of its largest blocks are beside each other at least:
# with them there are at most 84 problems, of which few have far more tiles than others.
_MOST_IN_GROUP, _ACROSS = 32, 8

# Thread blocks without a tile let those with one be spread unevenly where all run at once: updates
# of 1024 and 2048 columns took up to 1.25 times what is expected of their kernels (H100).
_LONGER = 1.2

# What a launch for one block costs besides its kernel, in nanoseconds; and how many times what is
# expected counts where there is one: updates of 2048 and 4096 took up to 1.15 times that (H100).
_APART, _SURELY = 2000.0, 1.15

# Where each block is a launch, one after the other: the least side on OpenCL's devices, CPUs among
# them; and how many are on the diagonal at most.
_LEAST_SIDE_OF_OPENCL, _MOST_BLOCKS = 256, 16

# Diagonal blocks where they are for what a guard refuses: few, as each block is a launch of 1 to
# 3 us (H200) that mostly returns at once.
_MOST_REFUSED = 4

# Thread blocks for each multiprocessor in a copy that mostly returns at once.
_RESIDENT = 8


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
    residues: Residues = PLAIN,
) -> Laid:
    """Return the launches of a rank-k update.

    Parameters
    ----------
    live, problem, call, arithmetic, space, report, copies, residues
        As of `lay_out`, of the product of which a triangle is wanted.
    triangle : Triangle
        As kernels see it, column-major.

    Raises
    ------
    BackendError
        As of `lay_out`.
    """
    why, steps = "", list[Step]()
    if arithmetic in BY_RESIDUES:
        from tilewright.serve.routes.residues.chain import why_native

        why = why_native(live, problem, call, residues, triangle=triangle)
        if not why:
            return _by_residues(live, problem, call, space, triangle, report, residues)
    elif arithmetic:
        from tilewright.serve.routes.split.serve import why_ieee

        why = why_ieee(live, problem, call, arithmetic)
        if not why:
            return _by_parts(live, problem, call, arithmetic, space, triangle, report)
    if copies and call.alpha != 0 and call.k != 0:
        steps, problem, call = _copied(live, problem, call, space)
    found = masked(live, problem, call, triangle)
    if found is None:
        found = by_tiles(live, problem, call, triangle)
    if found is not None:
        return Laid([*steps, *found], "syrk", why=why)
    update = _Update(live, problem, call, space, triangle)
    return Laid(update.around([*steps, *update.products()]), "syrk", why=why)


def _by_residues(
    live: LiveDevice, problem: Problem, call: GemmCall, space: MemorySpace, triangle: Triangle,
    report: Any, asked: Residues,
) -> Laid:  # fmt: skip
    """Return a chain of residues for the triangle, and blocks for what they may not compute."""
    from tilewright.serve.routes.residues.chain import chain_of

    chain = chain_of(live, space, problem, call, asked, triangle)
    side = _side(problem.n, LEAST_SIDE, _MOST_REFUSED)
    update = _Update(live, problem, call, space, triangle, side)
    native = [chain.native(*one.of(problem, call)) for one in update.pieces]
    steps = [*chain.by_residues(report), *update.around(native, chain.decision)]
    return Laid(steps, "syrk", chain.name, guarded=True)


def _by_parts(
    live: LiveDevice, problem: Problem, call: GemmCall, arithmetic: str, space: MemorySpace,
    triangle: Triangle, report: Any,
) -> Laid:  # fmt: skip
    """Return the launches of parts: of the triangle, or of blocks of complex numbers."""
    from tilewright.serve.routes.split.chain import Chain
    from tilewright.serve.routes.split.serve import split_steps

    why, name = f"accuracy is {arithmetic!r}", "syrk"
    if problem.precision.is_complex:
        update = _Update(live, problem, call, space, triangle, _side_of_large(problem.n))
        laid = split_steps(live, space, problem, call, arithmetic, report, update.pieces)
        return replace(laid, steps=update.around(laid.steps), name=name)
    if arithmetic == "tf32":
        of = precision(arithmetic)
        problem, call = replace(problem, precision=of), replace(call, precision=of)
        steps, problem, call = _copied(live, problem, call, space)
        found = masked(live, problem, call, triangle)
        if found is None:
            update = _Update(live, problem, call, space, triangle, _side_of_large(problem.n))
            found = update.around(update.products())
        return Laid([*steps, *found], name, arithmetic, why)
    chain = Chain(live, space, problem, call, arithmetic, lower=triangle.lower)
    steps = chain.by_parts(report)
    if arithmetic != "fp32":
        mirror = [mirrored(live, problem, call, triangle)] if triangle.filled else []
        return Laid([*steps, *mirror], name, arithmetic, why)
    side = _side(problem.n, LEAST_SIDE, _MOST_REFUSED)
    update = _Update(live, problem, call, space, triangle, side)
    refused = [chain.ieee(*one.of(problem, call)) for one in update.pieces]
    steps = [*steps, *update.around(refused, chain.decision)]
    return Laid(steps, name, arithmetic, guarded=True)


def _copied(
    live: LiveDevice, problem: Problem, call: GemmCall, space: MemorySpace
) -> tuple[list[Step], Problem, GemmCall]:
    """Return the launches that copy operands, and the product of what they leave.

    A matrix that is copied for one operand is for the other, too, where a kernel for a triangle
    takes both alike.
    """
    way = way_of(live, problem, call)
    if way.copies and problem.precision.letter in TRIANGLES:
        begin = (begins_aligned(call.a, call.precision), begins_aligned(call.b, call.precision))
        way = ways(problem, begin)[-1]
    steps, call = copied(live, way, call, space, is_one=True)
    return steps, way.problem, call


class _Group(NamedTuple):
    """A launch of all blocks, or of all but one.

    Parameters
    ----------
    chosen : Choice
        What computes them.
    ns : float
        What all blocks are expected to take together; 0 where that is not known.
    apart : tuple of int, optional
        Row and column of the block that is a launch of its own.
    kernel : Kernel, optional
        Loaded.
    """

    chosen: Choice
    ns: float
    apart: tuple[int, int] | None = None
    kernel: Kernel | None = None


class _Update:
    """One update as it is laid out.

    `side`: that of diagonal blocks that are launches of their own; 0: as it is best.
    """

    def __init__(
        self,
        live: LiveDevice,
        problem: Problem,
        call: GemmCall,
        space: MemorySpace,
        triangle: Triangle,
        side: int = 0,
    ) -> None:
        self._live, self._problem, self._call = live, problem, call
        self._triangle = triangle
        n, most, on_cuda = problem.n, 0, live.dialect == "cuda"
        least = LEAST_SIDE if on_cuda else _LEAST_SIDE_OF_OPENCL
        self._side = side or _side(n, least, _MOST_BLOCKS)
        self._group = self._kernel_for_group() if on_cuda and not side else None
        if self._group is not None:
            self._side, most = _sides(n, self._group.chosen)
            whole = choose(live, problem, begin_aligned(call)).ns
            if whole is not None and whole < _LONGER * self._group.ns:
                self._side, self._group, most = n, None, 0
        self._ld = aligned_ld(self._side, 1)
        self._workspace: Any = None
        if not triangle.filled:
            size = problem.precision.result_bytes * self._ld * self._side * -(-n // self._side)
            self._workspace = space.need("diagonal blocks", size)
        self.pieces = [
            Piece(x.row, x.column, x.rows, x.columns, self._result(x))
            for x in blocks_of(n, self._side, triangle.lower, most)
        ]

    def _kernel_for_group(self) -> _Group | None:
        """Return the kernel that computes all blocks in one launch.

        It is chosen for a product of half of C's columns, and a large tile more of rows, as
        diagonal blocks are computed whole.
        """
        p = self._problem
        half = replace(p, m=p.m + _LARGE, n=-(-p.n // 2), lda=p.lda + _LARGE, ldc=p.ldc + _LARGE)
        found = choices_for_group(self._live, [half], begin_aligned(self._call))
        for group in sorted((self._waves(one, half) for one in found), key=lambda one: one.ns):
            kernel = ready_by(self._live, group.chosen, Variant.of(p))
            if kernel is not None:
                return group._replace(kernel=kernel)
        return None

    def _waves(self, chosen: Choice, half: Problem) -> _Group:
        """Return how long a kernel takes for all blocks, or for all but one that is apart."""
        whole = _Group(chosen, chosen.ns or 0.0)
        many, tile = self._live.spec.multiprocessors, chosen.geometry
        if chosen.ns is None or tile.resident != 1:  # several share a multiprocessor unevenly
            return whole

        def tiles(m: int, n: int) -> int:
            return prod(tile.tiles(m, n))

        side, most = _sides(self._problem.n, chosen)
        blocks = blocks_of(self._problem.n, side, self._triangle.lower, most)
        every = sum(tiles(one.rows, one.columns) for one in blocks)
        wave = chosen.ns / -(-tiles(half.m, half.n) // many)
        waves, over = divmod(every, many)
        # These are not as many as `half` has: diagonal blocks are computed whole.
        whole = whole._replace(ns=wave * (waves + (over > 0)))
        able = [x for x in blocks if not x.is_diagonal and tiles(x.rows, x.columns) >= over > 0]
        if not waves or not able:
            return whole
        apart = able[-1]  # the smallest
        alone = replace(self._problem, m=apart.rows, n=apart.columns)
        ns = choose(self._live, alone, begin_aligned(self._call)).ns
        parted = _SURELY * (wave * waves + (ns or inf) + _APART)
        return min(whole, _Group(chosen, parted, (apart.row, apart.column)), key=lambda one: one.ns)

    def _result(self, block: Block) -> Operand:
        c = self._call.c
        if block.is_diagonal and self._workspace is not None:
            return Operand(self._workspace, block.row * self._ld, self._ld)
        return Operand(c.memory, c.offset + block.row + block.column * c.ld, c.ld)

    def products(self) -> list[Step]:
        """Return the blocks' products in IEEE arithmetic."""
        if self._group is None:
            return [direct(self._live, *one.of(self._problem, self._call)) for one in self.pieces]
        parts, made = list[Part](), list[Step]()
        for one in self.pieces:
            if (one.row, one.column) == self._group.apart:
                made.append(direct(self._live, *one.of(self._problem, self._call)))
            else:
                parts.append(one.part(self._call))
        chosen, kernel = self._group.chosen, self._group.kernel
        assert kernel is not None
        return [group_step(chosen, kernel, self._problem, parts), *made]

    # -- around them -----------------------------------------------------------------------

    def around(self, products: Sequence[Step], run_if: Any = None) -> list[Step]:
        """Return all launches: products, between passes.

        `run_if`: memory with an int, where what it holds decides whether the products count: 0.
        """
        before: list[Step] = []
        if self._workspace is None:
            after = mirrored(self._live, self._problem, self._call, self._triangle)
        else:
            after = self._moved(run_if, into_c=True)
            if self._call.beta != 0:
                before = [self._moved(run_if, into_c=False)]
        return [*before, *products, after]

    def _moved(self, run_if: Any, *, into_c: bool) -> Step:
        """Return the copy of diagonal blocks' triangles between C and the workspace."""
        size, hermitian = self._problem.precision.result_bytes, self._triangle.hermitian
        one, n = MovedTriangle(size, mirrored=False, hermitian=hermitian), self._problem.n
        c, side = self._call.c, self._side
        ends = [
            (c.memory, _i(c.offset), _i(c.ld), _i(side * (c.ld + 1))),
            (self._workspace, _i(0), _i(self._ld), _i(side * self._ld)),
        ]
        if into_c:
            ends.reverse()
        held = () if run_if is None else (run_if,)
        arguments = (_i(n), _i(side), *ends[0], *ends[1], np.int32(self._triangle.lower), *held)
        source = one.source(self._live.dialect)
        most = None
        if held:
            source, most = source.run_if_zero(), _RESIDENT * self._live.spec.multiprocessors
        return kernel_of(self._live, source), one.launch(n, side, most), arguments


def _sides(n: int, chosen: Choice) -> tuple[int, int]:
    """Return the side of diagonal blocks of a group, and the longest of any other block."""
    tile = chosen.geometry
    side = _side(n, lcm(tile.tile_m, tile.tile_n, _UNIT), _MOST_IN_GROUP)
    return side, -(-n // (_ACROSS * side)) * side


def _side_of_large(n: int) -> int:
    """Return the side of diagonal blocks that are launches of their own."""
    return _side(n, LEAST_SIDE, _MOST_BLOCKS)


def _side(n: int, unit: int, most: int) -> int:
    """Return the side of at most so many diagonal blocks: the least multiple of a unit, or all."""
    return min(n, -(-n // (unit * most)) * unit)
