"""Operands that the copy engine brings, and the tensor maps that it reads (tma.cuh)."""

from __future__ import annotations

from dataclasses import replace

from tilewright.precision import Precision
from tilewright.space import Config
from tilewright.stencil.asynchronous.resources import CHUNK_BYTES
from tilewright.stencil.base import Variant
from tilewright.stencil.call import GemmCall, Operand, TensorMap

__all__ = ["MOST_BOX", "box_words", "maps"]

# CUDA driver API, cuTensorMapEncodeTiled: a box's side at most.
MOST_BOX = 256

# A map's elements have at most so many bytes.
_WIDEST = 8


def box_words(precision: Precision) -> int:
    """Return how many of a map's elements one of a matrix is."""
    return max(1, precision.element_bytes // _WIDEST)


def maps(
    config: Config, variant: Variant, call: GemmCall, line_bytes: int = 0
) -> tuple[TensorMap, TensorMap]:
    """Return A's and B's maps.

    Parameters
    ----------
    config, variant, call
        What is launched.
    line_bytes : int
        How wide a box is that is one of some for a tile, and whose lines TMA swizzles
        (mma_f64/lines.cuh); 0: one box is the whole tile, as it lies in the matrix.

    Raises
    ------
    ValueError
        If columns of one are not aligned to 16 bytes, as far as its offset and leading dimension
        say.
    """
    k, block_k = call.k, config.integer("block_k")
    found = []
    for name, matrix, side, block, k_fast in (
        ("a", call.a, call.m, config.integer("block_m"), variant.k_fast[0]),
        ("b", call.b, call.n, config.integer("block_n"), variant.k_fast[1]),
    ):
        _look_at(name, matrix, variant.precision)
        sizes, tile = ((k, side), (block_k, block)) if k_fast else ((side, k), (block, block_k))
        if not line_bytes:
            found.append(_map(matrix, variant.precision, sizes, tile))
        else:
            found.append(_lines(matrix, variant.precision, sizes, tile, line_bytes, not k_fast))
    return found[0], found[1]


def _look_at(name: str, matrix: Operand, precision: Precision) -> None:
    """Refuse columns that the copy engine does not read."""
    size = precision.element_bytes
    if matrix.offset * size % CHUNK_BYTES or matrix.ld * size % CHUNK_BYTES:
        raise ValueError(
            f"{name} has offset={matrix.offset} and ld={matrix.ld}, no multiples of"
            f" {CHUNK_BYTES} bytes; use a config with tma=0"
        )


def _map(
    matrix: Operand, precision: Precision, sizes: tuple[int, int], box: tuple[int, int]
) -> TensorMap:
    """Return the map of a matrix, columns of it one behind the other."""
    size, words = precision.element_bytes, box_words(precision)
    long, short = (max(side, 1) for side in sizes)  # with nothing to sum it has to be a map still
    return TensorMap(
        matrix.memory,
        matrix.offset * size,
        "float32" if size < _WIDEST else "float64",
        (long * words, short),
        (max(matrix.ld * size, CHUNK_BYTES),),
        (box[0] * words, box[1]),
    )


def _lines(
    matrix: Operand,
    precision: Precision,
    sizes: tuple[int, int],
    tile: tuple[int, int],
    line_bytes: int,
    along_side: bool,
) -> TensorMap:
    """Return the map of a matrix in boxes a line wide, which TMA swizzles.

    With `along_side` it has a third dimension: from line to line, if these are whole, so that one
    box is as many as a tile has.  A box that took more of a side that is not would read beyond its
    last column.
    """
    in_line = line_bytes // precision.element_bytes
    plain = _map(matrix, precision, sizes, (in_line, tile[1]))
    plain = replace(plain, swizzle=line_bytes)
    if not along_side:
        return plain
    whole = sizes[0] > 0 and sizes[0] % in_line == 0
    lines, taken = (sizes[0] // in_line, tile[0] // in_line) if whole else (1, 1)
    long = plain.sizes[0] // lines
    return replace(
        plain,
        sizes=(long, plain.sizes[1], lines),
        strides=(*plain.strides, line_bytes),
        box=(*plain.box, taken),
    )
