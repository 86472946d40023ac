"""How arrays map onto column-major operands, by their strides.

BLAS takes a matrix whose elements are neighbours along one axis and whose other axis
steps by a positive leading dimension.  Everything else has to be copied first, and only
that.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.dataclass import dataclass
from tilewright.problem import Trans

__all__ = ["Strided", "layout_of", "operation"]


@dataclass(frozen=True)
class Strided:
    """Where a two-dimensional array's elements lie.

    Parameters
    ----------
    shape : tuple of int
        Rows and columns.
    strides : tuple of int
        Elements from one row to the next, and from one column to the next.
    """

    shape: tuple[int, int]
    strides: tuple[int, int]


def _column_major(shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """Return the leading dimension of an array that is column-major, else None."""
    (rows, columns), (down, across) = shape, strides
    if rows > 1 and down != 1:
        return None
    if columns <= 1:
        return max(1, rows)
    return across if across >= max(1, rows) else None


def layout_of(
    shape: Sequence[int], strides: Sequence[int], *, rows_first: bool = False
) -> tuple[bool, int] | None:
    """Return whether an array is row-major, and its leading dimension; strides are in elements.

    One that is column-major as well counts as that, or, with `rows_first`, as row-major.

    None means that BLAS could not take the array: neither axis has unit stride, a stride
    is negative or zero, or columns overlap.
    """
    if 0 in shape:  # nothing is read; NumPy gives such arrays any strides
        return False, max(1, shape[0])
    for row_major in (rows_first, not rows_first):
        order = -1 if row_major else 1
        ld = _column_major(shape[::order], strides[::order])
        if ld is not None:
            return row_major, ld
    return None


def operation(trans: Trans, row_major: bool, result_row_major: bool) -> Trans:
    """Return what the kernel has to do to an operand's memory, read as column-major.

    Row-major memory read as column-major is the transpose.  So is a row-major result,
    which is why the operands are exchanged there: C^T = op(B)^T op(A)^T.
    """
    return Trans.of(trans.transposed ^ row_major ^ result_row_major, trans.conjugated)
