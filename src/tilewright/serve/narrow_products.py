"""Products of 8- and 16-bit numbers on tensor cores, which take them as they are.

16-bit numbers take the route of any other precision (`tilewright.serve.routes`), once an operand
without a unit stride has been copied.  8-bit ones are one launch where the copy engine takes the
operands as they lie; else a copy before it, in scratch memory of the queue, of each operand that it
does not take::

    [copy A] [copy B] product
"""

from __future__ import annotations

from typing import Any

from tilewright.backend import GemmCall, Kernel, LiveDevice, Operand
from tilewright.dataclass import dataclass
from tilewright.precision import SHORT, Precision, precision
from tilewright.problem import Problem, Trans
from tilewright.serve.routes import MemorySpace, lay_out
from tilewright.serve.tensor_cores import config_for, source_of, wgmma
from tilewright.stencil import Launch, Source
from tilewright.stencil.asynchronous.realign import Realigned, aligned_ld
from tilewright.stencil.wgmma import Arithmetic, Parts, TensorCall, TensorVariant
from tilewright.stencil.wgmma.call import ALIGNMENT

__all__ = ["Laid", "Matrix", "Product", "Step", "serves", "steps"]

# What coordinates and strides of a copy are below (cuTensorMapEncodeTiled), and ours (call.py).
_MOST_SIZE, _MOST_BYTES = 2**31, 2**40


@dataclass(frozen=True)
class Laid:
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

    @property
    def along_k(self) -> Laid | None:
        """It as the copy engine takes 8-bit elements, along k and aligned; None if it is not."""
        # What a device allocates is aligned; only numbers are addresses inside of that.
        if isinstance(self.memory, int) and self.memory % ALIGNMENT:
            return None
        ld = aligned_ld(self.k, 1) if self.side == 1 else self.step_side
        fits = (self.step_k == 1 or self.k == 1) and ld >= self.k and ld % ALIGNMENT == 0
        return Laid(self.memory, True, ld) if fits else None

    @property
    def stored(self) -> Laid | None:
        """It as BLAS takes it: unit stride along k or along the side; None if it is not."""
        for k_fast in (True, False):
            inner, outer = (self.k, self.side) if k_fast else (self.side, self.k)
            step, ld = (self.step_k, self.step_side)[:: 1 if k_fast else -1]
            if outer == 1:  # a step that is never taken
                ld = inner
            if (step == 1 or inner == 1) and ld >= inner:
                return Laid(self.memory, k_fast, ld)
        return None

    def copied(self, size: int) -> tuple[bool, int, int]:
        """Return how a copy is laid out: whether along k, its leading dimension, its bytes."""
        # 16-bit elements stay in their order: reading and writing side by side is fastest.
        k_fast = size == 1 or abs(self.step_k) <= abs(self.step_side)
        inner, outer = (self.k, self.side) if k_fast else (self.side, self.k)
        ld = aligned_ld(inner, size)
        return k_fast, ld, ld * outer * size


@dataclass(frozen=True)
class Product:
    """C <- alpha op(A) op(B) + beta C, C column-major.

    Parameters
    ----------
    element, result : str
        Types, as `Arithmetic` has them.
    alpha, beta : float or int
        Scalars; alpha is not 0.
    a, b : Matrix
        Operands, nothing of which is empty.
    c : Operand
        In elements of the result.
    """

    element: str
    result: str
    alpha: Any
    beta: Any
    a: Matrix
    b: Matrix
    c: Operand

    @property
    def size(self) -> int:
        """Bytes of an operand's element."""
        return 1 if self.element == "int8" else 2

    def fits(self) -> bool:
        """Whether sizes and strides are what the copy engine counts to."""
        longest = max(self.a.side, self.b.side, self.a.k)
        reach = max(abs(step) for x in (self.a, self.b) for step in (x.step_side, x.step_k))
        return longest < _MOST_SIZE and max(reach, longest + ALIGNMENT) * self.size < _MOST_BYTES

    @property
    def precision(self) -> Precision:
        """The precision of 16-bit operands and their result."""
        return next(
            one
            for one in SHORT.values()
            if (one.dtype_name, one.result_name) == (self.element, self.result)
        )


Step = tuple[Source | Kernel, Launch, tuple[Any, ...]]


def serves(live: LiveDevice) -> bool:
    """Whether a device has the tensor cores, and runs CUDA."""
    return live.dialect == "cuda" and wgmma().suits(live.spec)


def steps(live: LiveDevice, product: Product, space: MemorySpace) -> list[Step]:
    """Return the launches of a product, the one that multiplies last.

    Parameters
    ----------
    live : LiveDevice
        Where the memory is; `serves` is true of it.
    product : Product
        What is computed.
    space : MemorySpace
        Whose memory copies are in.
    """
    return _by_route(live, product, space) if product.size == 2 else _integers(live, product, space)


def _by_route(live: LiveDevice, product: Product, space: MemorySpace) -> list[Step]:
    """Return the launches of a 16-bit product."""
    made: list[Step] = []
    a, b = (
        matrix.stored or _copy(live, matrix, product.size, f"strided {name}", space, made)
        for name, matrix in (("a", product.a), ("b", product.b))
    )
    m, n, k = product.a.side, product.b.side, product.a.k
    trans = Trans.T if a.k_fast else Trans.N, Trans.N if b.k_fast else Trans.T
    problem = Problem(m, n, k, product.precision, *trans, a.ld, b.ld, product.c.ld)
    call = GemmCall(
        product.precision, m, n, k, product.alpha, Operand(a.memory, 0, a.ld),
        Operand(b.memory, 0, b.ld), product.beta, product.c,
    )  # fmt: skip
    return [*made, *lay_out(live, problem, call, "", space).steps]


def _integers(live: LiveDevice, product: Product, space: MemorySpace) -> list[Step]:
    """Return the launches of an 8-bit product."""
    made: list[Step] = []
    a, b = (
        matrix.along_k or _copy(live, matrix, 1, f"aligned {name}", space, made)
        for name, matrix in (("a", product.a), ("b", product.b))
    )
    arithmetic = Arithmetic(product.element, product.result)  # type: ignore[arg-type]
    trans = Trans.T if a.k_fast else Trans.N, Trans.N if b.k_fast else Trans.T
    variant = TensorVariant(precision("s"), *trans, arithmetic=arithmetic)
    m, n, family = product.a.side, product.b.side, wgmma()
    config = config_for(variant, live.spec, m, n, product.a.k)
    call = TensorCall(
        m, n, product.a.k, product.alpha, Parts(a.memory, 0, a.ld), Parts(b.memory, 0, b.ld),
        product.beta, product.c,
    )  # fmt: skip
    launch, arguments = family.launch(config, m, n), family.arguments(config, variant, call)
    return [*made, (source_of(config, variant), launch, arguments)]


def _copy(
    live: LiveDevice,
    matrix: Matrix,
    size: int,
    name: str,
    space: MemorySpace,
    made: list[Step],
) -> Laid:
    """Add the launch that copies an operand, and return the copy."""
    k_fast, ld, count = matrix.copied(size)
    sizes, along = (matrix.side, matrix.k), (matrix.step_side, matrix.step_k)
    (outer, inner), (step_outer, step_inner) = (
        (sizes, along) if k_fast else (sizes[::-1], along[::-1])
    )
    memory = space.need(name, count)
    transposed = abs(step_inner) > abs(step_outer)
    copy = Realigned(size, inner, outer, transposed)
    arguments = copy.arguments(matrix.memory, 0, step_inner, step_outer, memory)
    made.append((copy.source(live.dialect), copy.launch, arguments))
    return Laid(memory, k_fast, ld)
