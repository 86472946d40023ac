"""Which part of a square result a rank-k update computes, cut into blocks that are products.

::

    | 0          |      diagonal blocks 0 to 3: products of which a triangle counts
    | a  1       |      a, b, c: products as any other, as large as they can be
    | c  c  2    |
    | c  c  b  3 |      so many blocks that products take the shortest time that is expected
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.dataclass import dataclass

__all__ = ["Block", "Triangle", "blocks_of"]


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


def blocks_of(n: int, side: int, lower: bool) -> list[Block]:
    """Return the blocks of a triangle, the largest first.

    Parameters
    ----------
    n : int
        Rows and columns.
    side : int
        Of the diagonal blocks; the last may be smaller.
    lower : bool
        Which triangle.
    """
    count = -(-n // side)
    whole = [Block(at, at, min(side, n - at), min(side, n - at)) for at in range(0, n, side)]
    found = [*_between(0, count, n, side), *whole]
    if not lower:
        found = [Block(x.column, x.row, x.columns, x.rows) for x in found]
    return sorted(found, key=lambda x: -x.rows * x.columns)


def _between(first: int, end: int, n: int, side: int) -> Iterator[Block]:
    """Yield what lies below the diagonal blocks from `first` to before `end`: halves, and again."""
    if end - first < 2:
        return
    middle = (first + end + 1) // 2
    row, column = middle * side, first * side
    yield Block(row, column, min(end * side, n) - row, row - column)
    yield from _between(first, middle, n, side)
    yield from _between(middle, end, n, side)
