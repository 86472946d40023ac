"""Operands that the copy engine brings, and the tensor maps that it reads (boxes.cuh)."""

from __future__ import annotations

from typing import Any

from tilewright.precision import Precision
from tilewright.space import Config
from tilewright.stencil.asynchronous.resources import CHUNK_BYTES
from tilewright.stencil.base import Call, Matrix, TensorMap, Variant

__all__ = ["MOST_BOX", "MOST_SIDE", "TMA_SINCE", "box_words", "fits", "maps"]

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


def fits(matrix: Matrix, precision: Precision) -> bool:
    """Whether an operand's columns begin where the copy engine can read them.

    As far as its offset and leading dimension say: memory begins at a multiple of 16 bytes.
    """
    size = precision.element_bytes
    return matrix.offset * size % CHUNK_BYTES == 0 and matrix.ld * size % CHUNK_BYTES == 0


def maps(config: Config, variant: Variant, call: Call) -> tuple[TensorMap, ...]:
    """Return the maps of operands along m or n, A's before B's.

    Raises
    ------
    ValueError
        If columns of one are not aligned to 16 bytes.
    """
    operands = zip("ab", "mn", (call.a, call.b), (call.m, call.n), variant.k_fast, strict=True)
    return tuple(
        _map(name, matrix, variant.precision, side, call.k, _box(config, along))
        for name, along, matrix, side, k_fast in operands
        if not k_fast
    )


def _box(config: Config, along: str) -> tuple[int, int]:
    return config.integer(f"block_{along}"), config.integer("block_k")


def _map(
    name: str, matrix: Any, precision: Precision, side: int, k: int, box: tuple[int, int]
) -> TensorMap:
    """Return the map of side x k elements, columns of them one behind the other."""
    if not fits(matrix, precision):
        raise ValueError(
            f"{name} has offset={matrix.offset} and ld={matrix.ld}, no multiples of"
            f" {CHUNK_BYTES} bytes; use a config with tma=0"
        )
    words = box_words(precision)
    size = precision.element_bytes
    return TensorMap(
        matrix.memory,
        matrix.offset * size,
        "float32" if size < _WIDEST else "float64",
        (max(side, 1) * words, max(k, 1)),
        (max(matrix.ld * size, CHUNK_BYTES),),
        (box[0] * words, box[1]),
    )
