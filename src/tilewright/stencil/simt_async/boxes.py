"""Operands that the copy engine brings, and the tensor maps that it reads (boxes.cuh)."""

from __future__ import annotations

from tilewright.precision import Precision
from tilewright.space import Config
from tilewright.stencil.asynchronous.resources import CHUNK_BYTES
from tilewright.stencil.base import Call, Matrix, TensorMap, Variant

__all__ = ["MOST_BOX", "MOST_SIDE", "TMA_SINCE", "box_words", "maps"]

# Tensor maps came with this compute capability, times ten.
TMA_SINCE = 90

# CUDA driver API, cuTensorMapEncodeTiled: a box's side at most.
MOST_BOX = 256

# Where a box begins is told in signed 32-bit numbers of a map's elements.
MOST_SIDE = 2**31

# A map's elements have at most so many bytes.
_WIDEST = 8


def box_words(precision: Precision) -> int:
    """Return how many of a map's elements one of a matrix is."""
    return max(1, precision.element_bytes // _WIDEST)


def maps(config: Config, variant: Variant, call: Call) -> tuple[TensorMap, TensorMap]:
    """Return A's and B's maps; both operands run along m or n.

    Raises
    ------
    ValueError
        If columns of one are not aligned to 16 bytes, as far as its offset and leading dimension
        say.
    """
    block_m, block_n, block_k = (config.integer(f"block_{side}") for side in "mnk")
    return (
        _map("a", call.a, variant.precision, (call.m, call.k), (block_m, block_k)),
        _map("b", call.b, variant.precision, (call.n, call.k), (block_n, block_k)),
    )


def _map(
    name: str, matrix: Matrix, precision: Precision, sizes: tuple[int, int], box: tuple[int, int]
) -> TensorMap:
    """Return the map of a matrix, columns of it one behind the other."""
    size, words = precision.element_bytes, box_words(precision)
    if matrix.offset * size % CHUNK_BYTES or matrix.ld * size % CHUNK_BYTES:
        raise ValueError(
            f"{name} has offset={matrix.offset} and ld={matrix.ld}, no multiples of"
            f" {CHUNK_BYTES} bytes; use a config with tma=0"
        )
    rows, columns = (max(side, 1) for side in sizes)  # with nothing to sum it has to be a map still
    return TensorMap(
        matrix.memory,
        matrix.offset * size,
        "float32" if size < _WIDEST else "float64",
        (rows * words, columns),
        (max(matrix.ld * size, CHUNK_BYTES),),
        (box[0] * words, box[1]),
    )
