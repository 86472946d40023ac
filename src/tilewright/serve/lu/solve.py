"""Solution of A X = B by factors on a CUDA device: inverses of diagonal blocks, all else products.

Triangles are split in half, and again, down to blocks as wide as a panel::

    solve the first half  ->  B of the other half -= T X  ->  solve the other half

X and B change places with every triangle: a block's product with its inverse goes from one to the
other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.portfolio.find import generation
from tilewright.precision import Precision
from tilewright.problem import Trans
from tilewright.serve.arenas import enqueue
from tilewright.serve.calls import keep, kept
from tilewright.serve.kernels import kernel_of
from tilewright.serve.laid_out import A, B, C, Space
from tilewright.serve.lu.steps import Part, Steps
from tilewright.serve.plan import Plan, call_of
from tilewright.stencil.lu import TOP_OF_PIVOTS, Way

__all__ = ["Solution", "solution"]


class Solution:
    """The launches that solve for right-hand sides of a kind.

    Parameters
    ----------
    live : CUDADevice
        Where all is.
    precision : Precision
        Of all matrices.
    n, ld : int
        Of the factors: row-major, rows `ld` elements apart.
    sides : int
        Right-hand sides, row-major, one behind the other.
    trans : Trans
        op: op(A) X = B is solved.

    Raises
    ------
    BackendError
        If no kernel can be had.
    """

    def __init__(
        self, live: Any, precision: Precision, n: int, ld: int, sides: int, trans: Trans
    ) -> None:
        self._live, self._n, self._sides = live, n, sides
        self._trans = trans.on(precision)
        self._steps = steps = Steps(live, precision)
        size, width = precision.element_bytes, steps.kernels.width
        self._factors, self._b = Part(A, ld, size), Part(B, sides, size)
        space = Space()
        blocks = -(-n // TOP_OF_PIVOTS)
        orders = space.need("orders", 4 * blocks * n)
        triangles = -(-n // width) * width * width * size
        self._lower, self._upper = (
            Part(space.need(name, triangles), width, size) for name in ("lower", "upper")
        )
        self._x = Part(space.need("x", n * sides * size), sides, size)

        kernels = steps.kernels
        pivots = (np.int32(n), C, orders)
        steps.made.append((kernel_of(live, kernels.order()), kernels.order_launch(n), pivots))
        for part, is_upper in ((self._lower, False), (self._upper, True)):
            what = (np.int64(n), A, np.int64(ld), part.address)
            kernel = kernel_of(live, kernels.invert(is_upper))
            steps.made.append((kernel, kernels.invert_launch(n), what))
        tops = range(0, n, TOP_OF_PIVOTS)
        if not trans.transposed:
            for top in tops:
                self._rows(Way.IN_PLACE, top, orders)
            self._solve(self._b, self._x, 0, n, self._lower, first=True)
            self._solve(self._x, self._b, 0, n, self._upper, first=False)
        else:
            self._solve(self._b, self._x, 0, n, self._upper, first=True)
            self._solve(self._x, self._b, 0, n, self._lower, first=False)
            for top in reversed(tops):
                self._rows(Way.BACK, top, orders)
        self.plan = Plan(live, steps.take(), space, name="LU solve")

    def _rows(self, way: Way, top: int, orders: int) -> None:
        """Exchange rows of B as the pivots of some rows say."""
        order = orders + 4 * (top // TOP_OF_PIVOTS) * self._n
        self._steps.rows(
            way, self._b.at(top), self._sides, min(TOP_OF_PIVOTS, self._n - top), order
        )

    def _solve(self, b: Part, x: Part, low: int, high: int, inverses: Part, first: bool) -> None:
        """Solve for rows from `low` to `high`; the triangle's `first` rows are solved first.

        Products of the rows solved before are subtracted from B's rows already.
        """
        steps, sides, width = self._steps, self._sides, self._steps.kernels.width
        rows = high - low
        if rows <= width:
            inverse = inverses.at(low)
            sizes = rows, sides, rows
            steps.multiply(x.at(low), inverse, b.at(low), sizes, trans_a=self._trans)
            return
        middle = low + -(-rows // (2 * width)) * width
        halves = [(low, middle), (middle, high)]
        (known, known_end), (other, other_end) = halves if first else halves[::-1]
        self._solve(b, x, known, known_end, inverses, first)
        at = (known, other) if self._trans.transposed else (other, known)
        sizes = other_end - other, sides, known_end - known
        factor = self._factors.at(*at)
        steps.multiply(b.at(other), factor, x.at(known), sizes, adds=True, trans_a=self._trans)
        self._solve(b, x, other, other_end, inverses, first)

    def start(self, factors: int, b: int, pivots: int, stream: int, memory: Any = None) -> None:
        """Enqueue all on a stream; X takes the place of B.

        Parameters
        ----------
        factors, b, pivots : int
            Addresses; pivots are n ints, LAPACK's.
        stream : int
            The caller's.
        memory : Memory, optional
            The allocator of the arrays' library.
        """
        call = call_of(factors, b, pivots, 1, 0, stream)
        enqueue(self._live, self.plan, call, stream, memory)


def solution(
    live: Any, precision: Precision, n: int, ld: int, sides: int, trans: Trans
) -> Solution:
    """Return the launches for a kind of systems, laid out if none are kept."""
    key = ("lu solve", live, precision, n, ld, sides, trans, generation())
    found: Solution | None = kept(key)
    if found is None:
        found = Solution(live, precision, n, ld, sides, trans)
        keep(key, found, large=True)
    return found
