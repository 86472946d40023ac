"""Configs that tuning tries first, and what serves where nothing was tuned."""

from __future__ import annotations

from tilewright.stencil.base import Variant

__all__ = ["starts"]

_NAMES = (
    "block_m", "block_n", "tile_m", "tile_n", "lanes_m", "block_k", "unroll_k", "stages",
    "resident", "split_k", "walk", "b_first",
)  # fmt: skip

# Thread tiles of 128 elements: the most that leave room for fragments, so the fewest reads of
# shared memory a multiply-add; walked along the shorter side.  Texts of 8 steps fit the nearest
# instruction cache.  Blocks of a cluster give small results to all multiprocessors.
_SINGLE = (
    (128, 128, 8, 16, 8, 8, 8, 3, 2, 1, 0, 0),
    (128, 128, 16, 8, 4, 8, 8, 3, 2, 1, 1, 1),
    (128, 128, 8, 16, 8, 16, 16, 2, 2, 1, 0, 0),
    (128, 256, 8, 16, 8, 8, 8, 3, 1, 1, 0, 0),
    (256, 128, 16, 8, 4, 8, 8, 3, 1, 1, 1, 1),
    (128, 256, 8, 16, 8, 16, 16, 2, 1, 1, 0, 0),
    (128, 64, 8, 8, 8, 16, 8, 3, 2, 4, 0, 0),
    (64, 64, 8, 8, 8, 16, 8, 3, 4, 4, 0, 0),
    (128, 128, 8, 8, 8, 8, 8, 3, 2, 1, 0, 0),
)
_DOUBLE = (
    (64, 64, 8, 8, 8, 16, 8, 2, 2, 1, 0, 0),
    (128, 64, 8, 8, 8, 16, 8, 2, 1, 1, 0, 0),
    (64, 64, 8, 8, 8, 16, 8, 2, 2, 4, 0, 0),
    (64, 64, 4, 8, 8, 16, 8, 2, 2, 1, 0, 0),
)
_DOUBLE_COMPLEX = (
    (64, 64, 4, 8, 8, 8, 8, 2, 1, 1, 0, 0),
    (32, 64, 4, 8, 8, 8, 8, 2, 4, 1, 0, 0),
    (32, 32, 4, 4, 4, 8, 8, 2, 2, 4, 0, 0),
)
_SHAPES = {"s": _SINGLE, "d": _DOUBLE, "c": _DOUBLE, "z": _DOUBLE_COMPLEX}


def starts(variant: Variant) -> tuple[dict[str, int], ...]:
    """Return values of all parameters, the likeliest first."""
    rest = {"copy_groups": 2, "raster_rows": 8, "k_vectors": 0}
    return tuple(
        dict(zip(_NAMES, shape, strict=True)) | rest for shape in _SHAPES[variant.precision.letter]
    )
