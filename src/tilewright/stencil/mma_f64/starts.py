"""Configs that tuning tries first."""

from __future__ import annotations

from tilewright.stencil.base import Variant

__all__ = ["starts"]

_NAMES = (
    "block_m", "block_n", "warp_m", "warp_n", "mma_m", "mma_k", "block_k", "stages", "ahead",
    "resident", "split_k", "walk", "raster_rows", "turns",
)  # fmt: skip

_DOUBLE = (
    (128, 128, 64, 32, 16, 8, 16, 3, 1, 1, 1, 0, 8, 8),
    (64, 64, 32, 32, 8, 4, 16, 3, 1, 1, 1, 0, 8, 8),
)
_DOUBLE_COMPLEX = (
    (64, 128, 32, 32, 16, 4, 8, 3, 1, 1, 1, 0, 8, 8),
    (64, 64, 32, 32, 8, 4, 8, 3, 1, 1, 1, 0, 8, 8),
)


def starts(variant: Variant) -> tuple[dict[str, int], ...]:
    """Return values of all parameters, the likeliest for large results first."""
    shapes = _DOUBLE_COMPLEX if variant.precision.is_complex else _DOUBLE
    return tuple(dict(zip(_NAMES, shape, strict=True)) for shape in shapes)
