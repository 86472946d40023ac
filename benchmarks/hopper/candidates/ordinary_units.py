"""Doubles on ordinary arithmetic units (DFMA): large results, and shares of small ones."""

from __future__ import annotations

from tilewright.space import Config

from .shapes import Points, mixed

NAMES = ("block_m", "block_n", "tile_m", "tile_n", "lanes_m", "resident")
FIXED = {
    "copy_groups": 2, "raster_rows": 8, "split_k": 1, "b_first": 0, "turn": 0, "k_vectors": 0,
}  # fmt: skip


def ordinary(
    letter: str,
    trans: str,
    shapes: tuple[tuple[int, ...], ...],
    copy_groups: tuple[int, ...],
    depths: tuple[tuple[int, ...], ...],
) -> list[Config]:
    """Return points of the space for d or z, the likeliest first."""
    points = Points("simt_async", letter, trans, FIXED)
    large = points.of(NAMES, shapes, copy_groups=copy_groups, depth=depths)
    small = points.of(NAMES, shapes[1:], split_k=(2, 4), depth=depths[:1])
    return mixed(large, small)
