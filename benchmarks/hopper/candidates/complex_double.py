"""ZGEMM on matrix units (DMMA), and some on the ordinary arithmetic units (DFMA)."""

from __future__ import annotations

import itertools

from tilewright.space import Config

from . import matrix_units
from .shapes import Points, mixed

NAMES = ("block_m", "block_n", "tile_m", "tile_n", "lanes_m", "resident")
SHAPES = (
    (64, 64, 4, 8, 8, 1), (32, 64, 4, 8, 8, 4), (64, 64, 4, 4, 8, 1), (32, 32, 4, 4, 4, 2),
)  # fmt: skip
FIXED = {
    "copy_groups": 2, "raster_rows": 8, "split_k": 1, "b_first": 0, "turn": 0, "k_vectors": 0,
}  # fmt: skip
DEPTHS = ((8, 8, 2), (8, 8, 3), (16, 8, 2))


def candidates(trans: str) -> list[Config]:
    """Return points of the space, the likeliest first."""
    points = Points("simt_async", "z", trans, FIXED)
    large = points.of(NAMES, SHAPES, copy_groups=(2, 1), depth=DEPTHS)
    small = points.of(NAMES, SHAPES[1:], split_k=(2, 4), depth=DEPTHS[:1])
    # One in five: matrix units have twice the rate.
    units = iter(matrix_units.candidates("z", trans))
    few = mixed(large, small)
    return [
        *itertools.chain.from_iterable((*itertools.islice(units, 4), one) for one in few),
        *units,
    ]
