"""Triangles of NumPy arrays: rank-k updates by NumPy's own BLAS, and what mirrors a triangle."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.serve.host_products import multiplied
from tilewright.serve.triangle import Block, Triangle, blocks_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["fill", "update_of"]

# Of diagonal blocks, of which half is lost; BLAS is slower below it.
_SIDE = 256


def update_of(triangle: Triangle) -> Callable[..., None]:
    """Return what computes a triangle of alpha x y + beta c; as of `host_products.multiplied`."""

    def update(x: Any, y: Any, c: NDArray[Any], *rest: Any) -> None:
        for block in blocks_of(len(c), _SIDE, triangle.lower):
            rows, columns = _slices(block)
            left, right = (None, None) if x is None else (x[rows], y[:, columns])
            part = c[rows, columns]
            if not block.is_diagonal:
                multiplied(left, right, part, *rest)
                continue
            made = np.array(part)
            multiplied(left, right, made, *rest)
            _put(part, made, triangle)
        if triangle.filled:
            fill(c, triangle)

    return update


def fill(c: NDArray[Any], triangle: Triangle) -> None:
    """Mirror a triangle of C to its other side."""
    for block in blocks_of(len(c), _SIDE, triangle.lower):
        rows, columns = _slices(block)
        part = c[rows, columns]
        mirrored = part.T.conj() if triangle.hermitian else part.T
        if block.is_diagonal:
            np.copyto(part, np.array(mirrored), where=~_is_within(block.rows, triangle))
            _make_real(part, triangle)
        else:
            c[columns, rows] = mirrored


def _put(part: NDArray[Any], made: NDArray[Any], triangle: Triangle) -> None:
    """Write a diagonal block's triangle."""
    _make_real(made, triangle)
    np.copyto(part, made, where=_is_within(len(part), triangle))


def _make_real(part: NDArray[Any], triangle: Triangle) -> None:
    if triangle.hermitian:
        np.einsum("ii->i", part).imag[...] = 0


def _is_within(n: int, triangle: Triangle) -> NDArray[np.bool_]:
    within = np.tri(n, dtype=bool)
    return within if triangle.lower else within.T


def _slices(block: Block) -> tuple[slice, slice]:
    return (
        slice(block.row, block.row + block.rows),
        slice(block.column, block.column + block.columns),
    )
