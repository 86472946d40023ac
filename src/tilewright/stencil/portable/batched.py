"""Configs that are timed for batches: tiles of a warp or two, of which every product has some."""

from __future__ import annotations

from tilewright.space import Config
from tilewright.stencil.base import Variant

__all__ = ["batch_configs"]

# What a thread reads at once, in bytes.
_CHUNK_BYTES = 16

# Sides of a tile, steps of k of one, and threads along each side.
_SHAPES = ((16, 16, 8, 4), (32, 16, 8, 8))


def batch_configs(variant: Variant) -> tuple[Config, ...]:
    """Return them; of double-double, and of real and complex numbers of one word."""
    if variant.precision.is_short:
        return ()
    return tuple(Config("portable", _values(variant, *shape)) for shape in _SHAPES)


def _values(
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
