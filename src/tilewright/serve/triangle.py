"""Which part of a square result a rank-k update computes, cut into blocks that are products.

::

    | 0          |      diagonal blocks 0 to 3: products of which a triangle counts
    | a  1       |      a, b, c: products as any other, as large as they can be, or may be
    | c  c  2    |
    | c  c  b  3 |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.backend import GemmCall, Operand
from tilewright.dataclass import dataclass
from tilewright.problem import Problem
from tilewright.stencil.table import Part

__all__ = ["LEAST_SIDE", "Block", "Piece", "Triangle", "blocks_of"]

LEAST_SIDE = 2048
"""Of blocks that are launched one after the other: with it one fills a GPU."""


@dataclass(frozen=True)
class Triangle:
    """What is written of a square result.

    Parameters
    ----------
    lower : bool
        Whether it is the triangle below the diagonal, with it; else the one above.
    hermitian : bool
        Whether the result is Hermitian, so that its diagonal is real.
    filled : bool
        Whether the other triangle is written, too: mirrored.
    """

    lower: bool
    hermitian: bool = False
    filled: bool = False

    def exchanged(self) -> Triangle:
        """Return the same of the transpose."""
        return Triangle(not self.lower, self.hermitian, self.filled)


@dataclass(frozen=True)
class Block:
    """A product among those of a triangle.

    Parameters
    ----------
    row, column : int
        Where it begins.
    rows, columns : int
        How large it is.
    """

    row: int
    column: int
    rows: int
    columns: int

    @property
    def is_diagonal(self) -> bool:
        """Whether only a triangle of it counts."""
        return self.row == self.column


@dataclass(frozen=True)
class Piece(Block):
    """A block of a result, with the memory that it goes to.

    Parameters
    ----------
    c : Operand
        Its first element.
    """

    c: Operand

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

    def part(self, call: GemmCall) -> Part:
        """Return it as a problem of a group, of a whole product."""
        return Part(call, self.rows, self.columns, self.c, self.row, self.column)


def blocks_of(n: int, side: int, lower: bool, most: int = 0) -> list[Block]:
    """Return the blocks of a triangle, the largest first.

    Parameters
    ----------
    n : int
        Rows and columns.
    side : int
        Of the diagonal blocks; the last may be smaller.
    lower : bool
        Which triangle.
    most : int
        Rows and columns of a block at most, a multiple of `side`; 0: as many as there are.
    """
    count = -(-n // side)
    whole = [Block(at, at, min(side, n - at), min(side, n - at)) for at in range(0, n, side)]
    between = [part for one in _between(0, count, n, side) for part in _cut(one, most or n)]
    found = [*between, *whole]
    if not lower:
        found = [Block(x.column, x.row, x.columns, x.rows) for x in found]
    return sorted(found, key=lambda x: -x.rows * x.columns)


def _cut(block: Block, most: int) -> Iterator[Block]:
    """Yield the parts of a block, each of at most so many rows and columns."""
    for row in range(0, block.rows, most):
        for column in range(0, block.columns, most):
            yield Block(
                block.row + row, block.column + column, min(most, block.rows - row),
                min(most, block.columns - column),
            )  # fmt: skip


def _between(first: int, end: int, n: int, side: int) -> Iterator[Block]:
    """Yield what lies below the diagonal blocks from `first` to before `end`: halves, and again."""
    if end - first < 2:
        return
    middle = (first + end + 1) // 2
    row, column = middle * side, first * side
    yield Block(row, column, min(end * side, n) - row, row - column)
    yield from _between(first, middle, n, side)
    yield from _between(middle, end, n, side)
