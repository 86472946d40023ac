"""Configs that are timed for batches, of 16-bit operands: a block computes one tile and goes."""

from __future__ import annotations

from tilewright.space import Config
from tilewright.stencil.base import Variant

__all__ = ["batch_configs"]

# block_m, block_n, instruction_m, consumers, block_k, stages, min_blocks.
_SHAPES: tuple[tuple[int, ...], ...] = (
    (64, 64, 64, 1, 32, 2, 2), (64, 64, 64, 1, 64, 3, 2), (128, 64, 128, 1, 64, 4, 2),
    (128, 128, 128, 2, 64, 4, 1), (128, 256, 128, 2, 64, 4, 1), (256, 128, 256, 2, 64, 4, 1),
)  # fmt: skip
_NAMES = (
    "block_m", "block_n", "instruction_m", "consumers", "block_k", "stages", "min_blocks",
)  # fmt: skip
_SAME = {
    "pingpong": 0, "promote_k": 0, "partials": 1, "cluster_m": 1, "cluster_n": 1,
    "swizzle_rows": 8, "multiprocessors": 0,
}  # fmt: skip


def batch_configs(variant: Variant) -> tuple[Config, ...]:
    """Return them; none of longer operands."""
    if not variant.precision.is_short:
        return ()
    return tuple(
        Config("wgmma", _SAME | dict(zip(_NAMES, shape, strict=True))) for shape in _SHAPES
    )
