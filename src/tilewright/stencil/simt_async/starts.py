"""Configs that tuning tries first, and what serves where nothing was tuned."""

from __future__ import annotations

from tilewright.stencil.base import Variant

__all__ = ["starts"]

_NAMES = (
    "block_m", "block_n", "tile_m", "tile_n", "lanes_m", "block_k", "stages", "resident", "split_k",
)  # fmt: skip

_SINGLE = (
    (128, 128, 8, 16, 8, 16, 2, 2, 1),
    (256, 128, 8, 16, 8, 16, 2, 1, 1),
    (128, 256, 8, 16, 8, 16, 2, 1, 1),
    (128, 128, 16, 8, 4, 16, 2, 2, 1),
    (128, 64, 8, 8, 8, 16, 3, 2, 4),
    (64, 64, 8, 8, 8, 16, 4, 4, 4),
    (128, 128, 8, 8, 8, 8, 3, 2, 1),
)
_DOUBLE = (
    (64, 64, 8, 8, 8, 16, 2, 2, 1),
    (128, 64, 8, 8, 8, 16, 2, 1, 1),
    (64, 64, 8, 8, 8, 16, 2, 2, 4),
    (64, 64, 4, 8, 8, 16, 2, 2, 1),
)
_DOUBLE_COMPLEX = (
    (64, 64, 4, 8, 8, 8, 2, 1, 1),
    (32, 64, 4, 4, 8, 8, 2, 2, 1),
    (32, 32, 4, 4, 4, 8, 2, 2, 4),
)
_SHAPES = {"s": _SINGLE, "d": _DOUBLE, "c": _DOUBLE, "z": _DOUBLE_COMPLEX}


def starts(variant: Variant) -> tuple[dict[str, int], ...]:
    """Return values of all parameters, the likeliest first."""
    rest = {"unroll_k": 8, "copy_groups": 2, "walk": 0, "raster_rows": 8}
    return tuple(
        dict(zip(_NAMES, shape, strict=True)) | rest for shape in _SHAPES[variant.precision.letter]
    )
