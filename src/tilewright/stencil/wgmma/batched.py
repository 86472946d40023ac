"""Configs that are timed for batches: a block computes one tile and goes."""

from __future__ import annotations

from tilewright.space import Config
from tilewright.stencil.base import Variant
from tilewright.stencil.wgmma.small import SMALL

__all__ = ["batch_configs"]

# block_m, block_n, instruction_m, consumers, bytes of block_k, stages, min_blocks.
_SHAPES: tuple[tuple[int, ...], ...] = (
    (64, 64, 64, 1, 64, 2, 2), (64, 64, 64, 1, 128, 3, 2), (128, 64, 128, 1, 128, 4, 2),
    (128, 128, 128, 2, 128, 4, 1), (128, 256, 128, 2, 128, 4, 1), (256, 128, 256, 2, 128, 4, 1),
)  # fmt: skip
_NAMES = (
    "block_m", "block_n", "instruction_m", "consumers", "block_k", "stages", "min_blocks",
)  # fmt: skip
_SMALL_NAMES = "block_m", "block_n", "block_k", "matrices", "min_blocks"
_SAME = {
    "pingpong": 0, "partials": 1, "cluster_m": 1, "cluster_n": 1, "swizzle_rows": 8,
    "multiprocessors": 0,
}  # fmt: skip

# FP8's sums, of which tensor cores keep 14 bits, are promoted as often as elsewhere; a thread has
# registers for two sets of these numbers.
_PROMOTE_K, _MOST_SUMS = 128, 64


def batch_configs(variant: Variant) -> tuple[Config, ...]:
    """Return them; none of a precision that tensor cores do not take as it is."""
    of = variant.precision
    if not of.is_short:
        return ()
    promote_k = _PROMOTE_K if of.dtype_name.startswith("float8") else 0
    found = []
    for *sides, consumers, bytes_k, stages, min_blocks in _SHAPES:
        if promote_k and sides[0] * sides[1] > 128 * consumers * _MOST_SUMS:
            continue
        shape = *sides, consumers, bytes_k // of.element_bytes, stages, min_blocks
        values = _SAME | {"promote_k": promote_k} | dict(zip(_NAMES, shape, strict=True))
        found.append(Config("wgmma", values))
    if of.element_bytes == 2:
        found += [Config("wgmma", dict(zip(_SMALL_NAMES, shape, strict=True))) for shape in SMALL]
    return tuple(found)
