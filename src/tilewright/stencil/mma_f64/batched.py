"""Configs that are timed for batches: small tiles."""

from __future__ import annotations

from tilewright.space import Config
from tilewright.stencil.base import Variant

__all__ = ["batch_configs"]

# block_m, block_n, warp_m, warp_n, mma_k, block_k, stages, interleave, min_blocks.
_SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "d": (
        (32, 32, 16, 16, 4, 16, 3, 4, 6), (32, 32, 32, 16, 4, 16, 3, 4, 8),
        (64, 32, 32, 32, 8, 16, 3, 4, 6), (64, 64, 32, 32, 8, 16, 3, 4, 3),
        (128, 64, 64, 32, 8, 16, 3, 4, 2),
    ),
    "z": (
        (32, 32, 16, 16, 4, 8, 3, 4, 4), (32, 32, 32, 16, 4, 8, 3, 4, 6),
        (64, 32, 16, 32, 4, 8, 3, 4, 4), (64, 64, 32, 32, 4, 8, 3, 8, 2),
    ),
}  # fmt: skip

_NAMES = (
    "block_m", "block_n", "warp_m", "warp_n", "mma_k", "block_k", "stages", "interleave",
    "min_blocks",
)  # fmt: skip
_SAME = {
    "cluster_k": 1, "serpentine_rows": 0, "swizzle_rows": 8, "mma_m": 16,
}  # fmt: skip


def batch_configs(variant: Variant) -> tuple[Config, ...]:
    """Return them; none of a precision that has none."""
    shapes = _SHAPES.get(variant.precision.letter, ())
    return tuple(
        Config("mma_f64", _SAME | dict(zip(_NAMES, shape, strict=True))) for shape in shapes
    )
