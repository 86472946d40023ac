"""Configs that may serve batches: small tiles, of which every product has some to itself.

A block computes one tile of one product and goes; a batch fills a device by itself, so that there
is nothing to share along k.  Some are no points of their stencil's space, which leaves out what is
slow on a large matrix: tiles of 16 x 16, by a single warp.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.space import Config
from tilewright.stencil import Variant

__all__ = ["batch_configs"]

# What a thread reads at once, in bytes.
_CHUNK_BYTES = 16

# Sides of a tile, steps of k of one, and threads along each side.
_PORTABLE = ((16, 16, 8, 4), (32, 16, 8, 8))

# block_m, block_n, tile_m, tile_n, lanes_m, block_k, unroll_k, stages, min_blocks, copy_groups.
# The first are a single warp's.
_SIMT: dict[str, tuple[tuple[int, ...], ...]] = {
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

# block_m, block_n, warp_m, warp_n, mma_k, block_k, stages, interleave, min_blocks.
_MMA: dict[str, tuple[tuple[int, ...], ...]] = {
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

# Of 16-bit operands: block_m, block_n, instruction_m, consumers, block_k, stages, min_blocks.
_WGMMA: tuple[tuple[int, ...], ...] = (
    (64, 64, 64, 1, 32, 2, 2), (64, 64, 64, 1, 64, 3, 2), (128, 64, 128, 1, 64, 4, 2),
    (128, 128, 128, 2, 64, 4, 1), (128, 256, 128, 2, 64, 4, 1), (256, 128, 256, 2, 64, 4, 1),
)  # fmt: skip
_WGMMA_NAMES = (
    "block_m", "block_n", "instruction_m", "consumers", "block_k", "stages", "min_blocks",
)  # fmt: skip
_WGMMA_SAME = {
    "pingpong": 0, "promote_k": 0, "partials": 1, "cluster_m": 1, "cluster_n": 1,
    "swizzle_rows": 8, "multiprocessors": 0,
}  # fmt: skip

_SIMT_NAMES = (
    "block_m", "block_n", "tile_m", "tile_n", "lanes_m", "block_k", "unroll_k", "stages",
    "min_blocks", "copy_groups",
)  # fmt: skip
_MMA_NAMES = (
    "block_m", "block_n", "warp_m", "warp_n", "mma_k", "block_k", "stages", "interleave",
    "min_blocks",
)  # fmt: skip
_SAME = {"cluster_k": 1, "serpentine_rows": 0, "swizzle_rows": 8}


def batch_configs(variant: Variant) -> Iterator[Config]:
    """Yield the configs that are timed for batches of a variant."""
    letter = variant.precision.letter
    if variant.precision.is_short:
        for shape in _WGMMA:
            yield Config("wgmma", _WGMMA_SAME | dict(zip(_WGMMA_NAMES, shape, strict=True)))
        return
    for side, depth, threads_m, threads_n in _PORTABLE:
        yield Config("portable", _portable(variant, side, depth, threads_m, threads_n))
    for shape in _SIMT.get(letter, ()):
        values = _SAME | {"b_first": 0} | dict(zip(_SIMT_NAMES, shape, strict=True))
        yield Config("simt_async", values)
    for shape in _MMA.get(letter, ()):
        more = {"mma_m": 16, "double_buffered": 1}
        yield Config("mma_f64", _SAME | more | dict(zip(_MMA_NAMES, shape, strict=True)))


def _portable(
    variant: Variant, side: int, depth: int, threads_m: int, threads_n: int
) -> dict[str, int]:
    """Return values of a square tile that is read in chunks, whole columns (or rows) of it."""
    vector = max(1, _CHUNK_BYTES // variant.precision.element_bytes)
    threads = threads_m * threads_n

    def threads_side(k_fast: bool) -> int:
        along = depth if k_fast else side
        each = min(threads, along // vector)
        return threads // each if k_fast else each

    a, b = (threads_side(k_fast) for k_fast in variant.k_fast)
    fragment = min(vector, side // threads_m, side // threads_n)
    return {
        "block_m": side, "block_n": side, "block_k": depth, "threads_m": threads_m,
        "threads_n": threads_n, "fragment_vector": fragment, "strided": 0, "read_a_m": a,
        "read_b_n": b, "read_vector": vector, "pad": 1, "shared_buffers": 1, "prefetch": 1,
        "unroll_k": min(16, depth), "swizzle_rows": 0,
    }  # fmt: skip
