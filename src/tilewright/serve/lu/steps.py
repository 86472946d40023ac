"""Launches on parts of row-major matrices, laid out at made-up addresses for a plan."""

from __future__ import annotations

from typing import Any

from tilewright.backend import GemmCall, Operand
from tilewright.dataclass import dataclass
from tilewright.portfolio.choose import choices
from tilewright.precision import Precision
from tilewright.problem import Problem, Trans
from tilewright.serve.kernels import kernel_of, ready_by
from tilewright.serve.routes.direct import direct
from tilewright.serve.steps import Step
from tilewright.stencil import Variant
from tilewright.stencil.lu import LUKernels, Way

__all__ = ["Part", "Steps"]


@dataclass(frozen=True)
class Part:
    """A row-major matrix, or a part of one, in device memory.

    Parameters
    ----------
    address : int
        Of its first element.
    ld : int
        Elements from a row to the next.
    element_bytes : int
        Of an element.
    """

    address: int
    ld: int
    element_bytes: int

    def at(self, row: int, column: int = 0) -> Part:
        """Return what begins at a row and a column."""
        beyond = (row * self.ld + column) * self.element_bytes
        return Part(self.address + beyond, self.ld, self.element_bytes)


class Steps:
    """Launches that are gathered in order.

    Parameters
    ----------
    live : CUDADevice
        Where they run.
    precision : Precision
        Of all matrices.
    """

    def __init__(self, live: Any, precision: Precision) -> None:
        self.live, self.precision = live, precision
        self.kernels = LUKernels(precision)
        self.made: list[Step] = []

    def take(self) -> list[Step]:
        """Return what has been gathered, and begin anew."""
        made, self.made = self.made, []
        return made

    def rows(
        self, way: Way, a: Part, columns: int, top: int, order: int, to: Part | None = None
    ) -> None:
        """Bring rows into the order of pivots (rows.cuh)."""
        if not columns or not top:
            return
        other = (None, 0) if to is None else (to.address, to.ld)
        arguments = self.kernels.rows_arguments(a.address, a.ld, columns, top, order, *other)
        kernel = kernel_of(self.live, self.kernels.rows(way))
        self.made.append((kernel, self.kernels.rows_launch(way, columns), arguments))

    def multiply(
        self, c: Part, a: Part, b: Part, sizes: tuple[int, int, int], *, adds: bool = False,
        trans_a: Trans = Trans.N, multiprocessors: int = 0, shares: bool = False,
    ) -> None:  # fmt: skip
        """C <- op(A) B, or C <- C - op(A) B where it adds; of m x n results of sums of k.

        With a number of multiprocessors, blocks that stay take no more of them; where the product
        shares the others with what else runs, its blocks have to stay.
        """
        m, n, k = sizes
        if not m or not n or not k:
            return
        alpha, beta = (-1.0, 1.0) if adds else (1.0, 0.0)
        # Column-major: C^T = B^T op(A)^T.
        problem = Problem(n, m, k, self.precision, Trans.N, trans_a, b.ld, a.ld, c.ld)
        first, second, result = (Operand(x.address, 0, x.ld) for x in (b, a, c))
        call = GemmCall(self.precision, n, m, k, alpha, first, second, beta, result)
        step = _reading(self.live, problem, call) if adds and not shares else None
        kernel, launch, arguments = step or direct(self.live, problem, call)
        if multiprocessors:
            launch = launch.on(multiprocessors)
        self.made.append((kernel, launch, arguments))


# Sums up to so many terms spend much of their time on what C was.  Kernels that have several blocks
# on a multiprocessor, which come and go, read it while others multiply.
_SHORT = {"s": 1024, "d": 1 << 20}
_BLOCKS = 3

# Results of a product for which that is worth a look at all kernels.
_LARGE = 1 << 20


def _reading(live: Any, problem: Problem, call: GemmCall) -> Step | None:
    """Return the launch of a kernel that reads C beside other blocks' products, if there is one."""
    is_large = problem.m * problem.n >= _LARGE
    if not is_large or problem.k > _SHORT.get(problem.precision.letter, 0):
        return None
    able = [
        one
        for one in choices(live, problem)
        if one.ns is not None
        and one.config.integer("min_blocks", 1) >= _BLOCKS
        and one.config.stencil != "skinny"
        and not one.config.integer("persistent", 0)
        and one.config.integer("warps_k", 1) == 1
    ]
    if not able:
        return None
    chosen, variant = min(able, key=lambda one: one.ns or 0.0), Variant.of(problem)
    kernel = ready_by(live, chosen, variant)
    arguments = chosen.stencil.arguments(chosen.config, variant, call)
    return None if kernel is None else (kernel, chosen.launch(problem), arguments)
