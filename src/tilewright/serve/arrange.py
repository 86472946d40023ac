"""Batches: arrays of more than two dimensions, as products of matrices that lie equal steps apart.

::

    a, b, c  ->  broadcast  ->  dimensions that step alike are one  ->  folded  ->  repeats

A batch folds into one product where an operand is the same in all of it and the other one's
matrices continue each other, as tokens times weights do::

    [batch, seq, d] @ [d, n]    ->    [batch seq, d] @ [d, n]

What does not fold is repeated: by one launch that computes many products, or by launches one after
the other (`tilewright.serve.calls`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.dataclass import dataclass
from tilewright.problem import Trans
from tilewright.serve.layout import Strided, layout_of

__all__ = ["Arranged", "Repeat", "arrange", "shapes_of"]

Repeat = tuple[int, int, int, int]
"""How many products, and from A, B and C of one to those of the next, in elements or bytes."""


@dataclass(frozen=True)
class Arranged:
    """A batch as matrices and repeats.

    Parameters
    ----------
    m, n, k : int
        Sizes of a product.
    a, b, c : Strided
        The first product's matrices, as their arrays have them; steps in bytes.
    repeats : tuple of Repeat
        In bytes, the slowest first; none where all of it is one product.
    """

    m: int
    n: int
    k: int
    a: Strided
    b: Strided
    c: Strided
    repeats: tuple[Repeat, ...]


def shapes_of(
    a: Any, b: Any, c: Any, op_a: Trans, op_b: Trans
) -> tuple[tuple[int, ...], int, int, int]:
    """Return the shape of the batch, and m, n and k of its products.

    Raises
    ------
    ValueError
        If shapes do not fit as NumPy's matmul has it; the message names the argument.
    """
    for name, x in (("a", a), ("b", b), ("c", c)):
        if x is not None and len(x.shape) < 2:
            raise ValueError(
                f"{name}.shape={tuple(x.shape)} is not a matrix; give two dimensions or more"
            )
        if x is not None and any(side != side for side in x.shape):  # Dask's NaN
            raise ValueError(
                f"{name}.shape={tuple(x.shape)} is unknown; call {name}.compute_chunk_sizes() first"
            )
    (*many_a, m, k), (*many_b, k_b, n) = map(tuple, (a.shape, b.shape))
    if op_a.transposed:
        m, k = k, m
    if op_b.transposed:
        k_b, n = n, k_b
    if k != k_b:
        raise ValueError(
            f"b.shape={tuple(b.shape)} does not fit: op(a) is {m} x {k}, op(b) is {k_b} x {n};"
            " their inner sizes must agree"
        )
    batch = _broadcast(many_a, many_b)
    if batch is None:
        raise ValueError(
            f"b.shape={tuple(b.shape)} does not fit a.shape={tuple(a.shape)}: dimensions before the"
            " last two must be equal, or 1"
        )
    if c is not None and tuple(c.shape) != (*batch, m, n):
        raise ValueError(f"c.shape={tuple(c.shape)} should be {(*batch, m, n)}")
    return batch, int(m), int(n), int(k)


def _broadcast(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...] | None:
    """Return the shape that two broadcast to; None where they do not."""
    if not one and not other:  # as nearly all are
        return ()
    length = max(len(one), len(other))
    x, y = ((1,) * (length - len(shape)) + tuple(shape) for shape in (one, other))
    if any(p != q and 1 not in (p, q) for p, q in zip(x, y, strict=True)):
        return None
    return tuple(int(q if p == 1 else p) for p, q in zip(x, y, strict=True))


def arrange(a: Any, b: Any, c: Any, op_a: Trans, op_b: Trans) -> Arranged:
    """Return a batch, nothing of which is empty, as matrices and repeats.

    Parameters
    ----------
    a, b, c : array
        With shapes that fit, and strides in bytes; c has the shape of the whole result.
    op_a, op_b : Trans
        What is done to the matrices.
    """
    (*batch, m, n), k = map(int, c.shape), int(a.shape[-2 if op_a.transposed else -1])
    found = _merged(list(zip(batch, *(_steps(x, len(batch)) for x in (a, b, c)), strict=True)))
    # Which of a matrix's dimensions is along m or n.
    side_a, side_b = int(op_a.transposed), int(not op_b.transposed)
    sizes = tuple(int(x.dtype.itemsize) for x in (a, b, c))
    matrices = [Strided(tuple(x.shape[-2:]), tuple(x.strides[-2:])) for x in (a, b, c)]
    while True:
        for at, one in enumerate(found):
            along_m = _stacked(matrices, one, (0, 2), (side_a, 0), 1, sizes)
            along_n = None if along_m else _stacked(matrices, one, (1, 2), (side_b, 1), 0, sizes)
            if along_m or along_n:
                m, n = (m * one[0], n) if along_m else (m, n * one[0])
                matrices = along_m or along_n or matrices
                del found[at]
                break
        else:
            first_a, first_b, first_c = matrices
            return Arranged(m, n, k, first_a, first_b, first_c, tuple(found))


def _steps(x: Any, dimensions: int) -> list[int]:
    """Return an array's strides along a batch's dimensions: 0 where it is the same in all."""
    missing = dimensions - (len(x.shape) - 2)
    own = [
        0 if size == 1 else int(step)
        for size, step in zip(x.shape[:-2], x.strides[:-2], strict=True)
    ]
    return [0] * missing + own


def _merged(every: list[Repeat]) -> list[Repeat]:
    """Return dimensions of which those that step alike are one, C's longest step first."""
    found: list[Repeat] = []
    for one in sorted((x for x in every if x[0] > 1), key=lambda x: -abs(x[3])):
        if found and all(p == q * one[0] for p, q in zip(found[-1][1:], one[1:], strict=True)):
            one = (found.pop()[0] * one[0], *one[1:])
        found.append(one)
    return found


def _stacked(
    matrices: list[Strided], one: Repeat, which: tuple[int, int], sides: tuple[int, int], same: int,
    sizes: tuple[int, ...],
) -> list[Strided] | None:  # fmt: skip
    """Return matrices as long as a dimension of the batch; None where they cannot be.

    Parameters
    ----------
    matrices : list of Strided
        A, B and C.
    one : Repeat
        The dimension.
    which : tuple of int
        The operand that has it, and C.
    sides : tuple of int
        Along which of their dimensions they would grow.
    same : int
        The operand that has to be the same in all of it.
    sizes : tuple of int
        Bytes of an element of each.
    """
    count, *steps = one
    if steps[same]:
        return None
    made = list(matrices)
    for x, side in zip(which, sides, strict=True):
        shape, along = list(matrices[x].shape), list(matrices[x].strides)
        if shape[side] == 1:  # a step that was never taken
            along[side] = steps[x]
        elif steps[x] != along[side] * shape[side]:
            return None
        shape[side] *= count
        made[x] = Strided((shape[0], shape[1]), (along[0], along[1]))
        if not _is_taken(made[x], sizes[x]):  # in pieces it may be
            return None
    return made


def _is_taken(x: Strided, size: int) -> bool:
    """Whether BLAS takes a matrix whose steps are in bytes, of elements of so many."""
    down, across = x.strides
    if down % size or across % size:
        return False
    return layout_of(x.shape, (down // size, across // size)) is not None
