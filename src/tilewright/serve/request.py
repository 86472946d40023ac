"""One checked product: what the caller asked for, and how kernels see it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tilewright.backend import GemmCall, LiveDevice, Operand
from tilewright.dataclass import dataclass
from tilewright.precision import Precision
from tilewright.problem import Problem, Trans
from tilewright.serve.arrange import Arranged, Repeat, arrange
from tilewright.serve.layout import layout_of, operation
from tilewright.serve.routes.residues.options import PLAIN, Residues

if TYPE_CHECKING:
    from tilewright.serve.decision import Decision
    from tilewright.serve.triangle import Triangle

__all__ = ["Device", "Placed", "Request", "column_major_call", "strided"]

Several = list[str] | list[LiveDevice] | list[str | LiveDevice] | tuple[str | LiveDevice, ...]
Device = str | LiveDevice | Several | None
"""Where a product is computed: one device's name, or several."""

Placed = tuple[Operand, bool]
"""A matrix, and whether it is stored by rows."""


@dataclass(frozen=True)
class Request:
    """One checked call: sizes and operations in the caller's orientation."""

    precision: Precision
    m: int
    n: int
    k: int
    alpha: complex
    beta: complex
    trans_a: Trans
    trans_b: Trans
    a: Any
    b: Any
    c: Any
    arithmetic: str = ""  # how products are computed, if not by the units for this precision
    report: Decision | None = None
    limits: tuple[int | None, int | None] | None = None  # bytes of the device's memory, the host's
    batch: Arranged | None = None  # how the arrays are matrices, where they are not
    triangle: Triangle | None = None  # of c, where that is all that is computed
    residues: Residues = PLAIN  # how residues may serve

    def arranged(self) -> Request:
        """Return it as matrices and repeats, with the sizes of these."""
        for name, x in (("a", self.a), ("b", self.b), ("c", self.c)):
            if not hasattr(x, "strides"):  # read part by part
                raise ValueError(
                    f"{name} is a {type(x).__name__}, whose matrices are multiplied one by one;"
                    f" give {name} with two dimensions"
                )
        found = arrange(self.a, self.b, self.c, self.trans_a, self.trans_b)
        return replace(self, m=found.m, n=found.n, k=found.k, batch=found)

    def matrix(self, name: str) -> Any:
        """Return what has shape and strides, in bytes, of the first product's a, b or c."""
        return getattr(self if self.batch is None else self.batch, name)

    @property
    def repeats(self) -> tuple[Repeat, ...]:
        """How the product is repeated, in elements of the arrays."""
        if self.batch is None:
            return ()
        size = self.precision.element_bytes
        return tuple((n, a // size, b // size, c // size) for n, a, b, c in self.batch.repeats)

    @property
    def keeps_c(self) -> bool:
        """Whether some of what c holds counts, or stays."""
        return self.beta != 0 or (self.triangle is not None and not self.triangle.filled)


def column_major_call(
    request: Request, operands: tuple[Placed, Placed, Placed]
) -> tuple[Problem, GemmCall, bool]:
    """Return a request as kernels see it, and whether their A is the caller's b."""
    (a, row_a), (b, row_b), (c, row_c) = operands
    m, n, k = request.m, request.n, request.k
    op_a = operation(request.trans_a, row_a, row_c).on(request.precision)
    op_b = operation(request.trans_b, row_b, row_c).on(request.precision)
    if row_c:  # C^T = op(B)^T op(A)^T
        m, n, a, b, op_a, op_b = n, m, b, a, op_b, op_a
    problem = Problem(m, n, k, request.precision, op_a, op_b, a.ld, b.ld, c.ld)
    call = GemmCall(request.precision, m, n, k, request.alpha, a, b, request.beta, c)
    return problem, call, row_c


def strided(
    shape: Any, strides: Any, itemsize: int, *, rows_first: bool = False
) -> tuple[bool, int] | None:
    """Return `layout_of` for byte strides; None if they are no multiples of an element."""
    down, right = strides
    if down % itemsize or right % itemsize:
        return None
    return layout_of(shape, (down // itemsize, right // itemsize), rows_first=rows_first)
