"""A block of a result as a product of its own: parts of A and B, and where it goes."""

from __future__ import annotations

from dataclasses import replace

from tilewright.backend import GemmCall, Operand
from tilewright.dataclass import dataclass
from tilewright.problem import Problem
from tilewright.stencil import Launch

__all__ = ["Piece"]


@dataclass(frozen=True)
class Piece:
    """A block of a result, with the memory that it goes to.

    Parameters
    ----------
    row, column, rows, columns : int
        Where it begins, and its size.
    c : Operand
        Its first element.
    lane, phase : int
        Of its launches (`tilewright.stencil.Launch`).
    """

    row: int
    column: int
    rows: int
    columns: int
    c: Operand
    lane: int = 0
    phase: int = 0

    def real(self) -> Piece:
        """Return it as a block of real numbers, of which a complex result has twice the rows."""
        c = Operand(self.c.memory, 2 * self.c.offset, 2 * self.c.ld)
        return replace(self, row=2 * self.row, rows=2 * self.rows, c=c)

    def of(self, problem: Problem, call: GemmCall) -> tuple[Problem, GemmCall]:
        """Return the product that it is of a whole one."""
        p = problem
        along_a = call.a.ld if p.trans_a.transposed else 1
        along_b = 1 if p.trans_b.transposed else call.b.ld
        a = replace(call.a, offset=call.a.offset + self.row * along_a)
        b = replace(call.b, offset=call.b.offset + self.column * along_b)
        made = Problem(
            self.rows, self.columns, p.k, p.precision, p.trans_a, p.trans_b, p.lda, p.ldb, self.c.ld
        )
        return made, replace(call, m=self.rows, n=self.columns, a=a, b=b, c=self.c)

    def placed(self, launch: Launch) -> Launch:
        """Return a launch in its lane and phase."""
        return replace(launch, lane=self.lane, phase=self.phase)
