"""Configs that are timed for batches: small tiles, the first a single warp's."""

from __future__ import annotations

from tilewright.space import Config
from tilewright.stencil.base import Variant

__all__ = ["batch_configs"]

# block_m, block_n, tile_m, tile_n, lanes_m, block_k, unroll_k, stages, min_blocks, copy_groups.
# The first are a single warp's.
_SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "s": (
        (16, 32, 4, 4, 4, 16, 8, 2, 16, 2), (32, 32, 4, 4, 8, 16, 8, 3, 8, 2),
        (64, 64, 4, 8, 8, 8, 8, 3, 5, 2), (64, 64, 8, 8, 8, 16, 8, 3, 6, 2),
        (128, 64, 8, 8, 8, 8, 8, 4, 3, 1), (128, 128, 8, 16, 8, 8, 8, 3, 2, 4),
    ),
    "d": ((16, 32, 4, 4, 4, 16, 8, 2, 16, 2),),
    "c": (
        (16, 32, 4, 4, 4, 16, 8, 2, 16, 2), (32, 32, 4, 4, 8, 8, 8, 3, 8, 1),
        (64, 32, 4, 4, 8, 8, 8, 3, 6, 1), (64, 64, 8, 8, 8, 4, 4, 4, 4, 2),
        (128, 64, 8, 8, 8, 4, 4, 4, 2, 2),
    ),
    "z": ((16, 32, 4, 4, 4, 8, 8, 2, 8, 2),),
}  # fmt: skip

_NAMES = (
    "block_m", "block_n", "tile_m", "tile_n", "lanes_m", "block_k", "unroll_k", "stages",
    "min_blocks", "copy_groups",
)  # fmt: skip
_SAME = {"cluster_k": 1, "serpentine_rows": 0, "swizzle_rows": 8, "b_first": 0}


def batch_configs(variant: Variant) -> tuple[Config, ...]:
    """Return them; none of a precision that has none."""
    shapes = _SHAPES.get(variant.precision.letter, ())
    return tuple(
        Config("simt_async", _SAME | dict(zip(_NAMES, shape, strict=True))) for shape in shapes
    )
