"""Products of 8- and 16-bit numbers on tensor cores, which take them as they are.

They take the route of any other precision (`tilewright.serve.routes`), once an operand without a
unit stride has been copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.backend import GemmCall, LiveDevice, Operand
from tilewright.dataclass import dataclass
from tilewright.precision import Precision
from tilewright.problem import Problem, Trans
from tilewright.serve.accuracy import INVARIANT
from tilewright.serve.arrange import Repeat
from tilewright.serve.kernels import kernel_of
from tilewright.serve.routes.lay_out import lay_out
from tilewright.serve.steps import MemorySpace, Step
from tilewright.stencil.asynchronous.realign import Realigned, aligned_ld
from tilewright.stencil.geometry import MOST_PLACES, MOST_STRIDE
from tilewright.stencil.wgmma import Following

if TYPE_CHECKING:
    from tilewright.serve.triangle import Triangle

__all__ = ["Matrix", "Product", "Stored", "copied_operand", "repeated", "steps"]


@dataclass(frozen=True)
class Stored:
    """An operand as a kernel takes it."""

    memory: Any
    k_fast: bool
    ld: int


@dataclass(frozen=True)
class Matrix:
    """An operand in device memory: rows of op(A) or columns of op(B), and steps of k.

    Parameters
    ----------
    memory : object
        The backend's handle, of the first element.
    side, k : int
        Sizes.
    step_side, step_k : int
        Elements from one to the next in memory; anything, also negative.
    """

    memory: Any
    side: int
    k: int
    step_side: int
    step_k: int

    @classmethod
    def of(cls, memory: Any, shape: Any, steps: Any, *, k_first: bool) -> Matrix:
        """Return a two-dimensional array whose first dimension is k, or its second."""
        (side, k), (step_side, step_k) = shape[:2], steps[:2]
        if k_first:
            side, k, step_side, step_k = k, side, step_k, step_side
        return cls(memory, int(side), int(k), step_side, step_k)

    def stored(self, size: int) -> Stored | None:
        """Return it as BLAS takes it: unit stride along k or along the side; None if it is not.

        `size`: bytes of an element.
        """
        for k_fast in (True, False):
            inner, outer = (self.k, self.side) if k_fast else (self.side, self.k)
            step, ld = (self.step_k, self.step_side)[:: 1 if k_fast else -1]
            if outer == 1:  # a step that is never taken
                ld = aligned_ld(inner, size)
            if (step == 1 or inner == 1) and ld >= inner:
                return Stored(self.memory, k_fast, ld)
        return None

    def copied(self, of: Precision) -> tuple[bool, int, int]:
        """Return how a copy is laid out: whether along k, its leading dimension, its bytes."""
        # What may stay in its order does: reading and writing side by side is fastest.
        k_fast = of.reads_along_k or abs(self.step_k) <= abs(self.step_side)
        inner, outer = (self.k, self.side) if k_fast else (self.side, self.k)
        ld = aligned_ld(inner, of.element_bytes)
        return k_fast, ld, ld * outer * of.element_bytes


@dataclass(frozen=True)
class Product:
    """C <- alpha op(A) op(B) + beta C, C column-major.

    Parameters
    ----------
    precision : Precision
        Types.
    alpha, beta : float or int
        Scalars; alpha is not 0.
    a, b : Matrix
        Operands, nothing of which is empty.
    c : Operand
        In elements of the result.
    then : Following, optional
        What follows the product (`tilewright.serve.narrow.fused`).
    triangle : Triangle, optional
        Which part of the result is computed, where that is not all.
    invariant : bool
        Whether bits depend on neither side.
    """

    precision: Precision
    alpha: Any
    beta: Any
    a: Matrix
    b: Matrix
    c: Operand
    then: Following | None = None
    triangle: Triangle | None = None
    invariant: bool = False

    def fits(self) -> bool:
        """Whether sizes and strides are what the copy engine counts to."""
        longest = max(self.a.side, self.b.side, self.a.k)
        reach = max(abs(step) for x in (self.a, self.b) for step in (x.step_side, x.step_k))
        copied = aligned_ld(longest, self.precision.element_bytes)
        most = max(reach, copied) * self.precision.element_bytes
        return longest < MOST_PLACES and most < MOST_STRIDE


def steps(live: LiveDevice, product: Product, space: MemorySpace) -> list[Step]:
    """Return the launches of a product, the one that multiplies last.

    Parameters
    ----------
    live : LiveDevice
        Where the memory is; it `has_wgmma`.
    product : Product
        What is computed.
    space : MemorySpace
        Whose memory copies are in.
    """
    return repeated(live, product, space, ())[0]


def repeated(
    live: LiveDevice, product: Product, space: MemorySpace, repeats: tuple[Repeat, ...]
) -> tuple[list[Step], tuple[Repeat, ...]]:
    """Return the launches of a batch, and how all of them are to be repeated.

    Parameters
    ----------
    live, product, space
        As of `steps`; the first product.
    repeats : tuple of Repeat
        In elements.
    """
    made: list[Step] = []
    of = product.precision
    a, b = (
        matrix.stored(of.element_bytes)
        or copied_operand(live, matrix, of, f"strided {name}", space, made)
        for name, matrix in (("a", product.a), ("b", product.b))
    )
    m, n, k = product.a.side, product.b.side, product.a.k
    trans = Trans.T if a.k_fast else Trans.N, Trans.N if b.k_fast else Trans.T
    problem = Problem(m, n, k, of, *trans, a.ld, b.ld, product.c.ld)
    call = GemmCall(
        of, m, n, k, product.alpha, Operand(a.memory, 0, a.ld), Operand(b.memory, 0, b.ld),
        product.beta, product.c,
    )  # fmt: skip
    again = () if made else repeats  # copies are of one product
    laid = lay_out(
        live, problem, call, INVARIANT if product.invariant else "", space,
        triangle=product.triangle, repeats=again,
    )  # fmt: skip
    return [*made, *laid.steps], repeats if made else laid.repeats


def copied_operand(
    live: LiveDevice, matrix: Matrix, of: Precision, name: str, space: MemorySpace,
    made: list[Step],
) -> Stored:  # fmt: skip
    """Add the launch that copies an operand, and return the copy."""
    k_fast, ld, count = matrix.copied(of)
    sizes, along = (matrix.side, matrix.k), (matrix.step_side, matrix.step_k)
    (outer, inner), (step_outer, step_inner) = (
        (sizes, along) if k_fast else (sizes[::-1], along[::-1])
    )
    memory = space.need(name, count)
    transposed = abs(step_inner) > abs(step_outer)
    copy = Realigned(of.element_bytes, inner, outer, transposed)
    arguments = copy.arguments(matrix.memory, 0, step_inner, step_outer, memory)
    made.append((kernel_of(live, copy.source(live.dialect)), copy.launch, arguments))
    return Stored(memory, k_fast, ld)
