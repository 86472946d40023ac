"""CGEMM: 8 x 8 complex elements a thread are as many accumulators as 8 x 16 real ones.

A multiply-add of complex elements is 4 FFMA, so a step of such a tile reads 8 + 8 elements, 8
reads of 16 bytes, for 256 FFMA: a third less than a real tile's 6 for 128.  Smaller tiles read
more for each FFMA (8 x 4: 6 for 128) but leave registers for a second block's worth of warps.
"""

from __future__ import annotations

from tilewright.space import Config

from .shapes import Points, mixed
from .staying import staying

NAMES = ("block_m", "block_n", "tile_m", "tile_n", "lanes_m", "resident")
LARGE = (
    (64, 64, 8, 8, 8, 2), (128, 64, 8, 8, 8, 2), (64, 128, 8, 8, 4, 2), (128, 128, 8, 8, 8, 1),
    (64, 64, 8, 4, 4, 2), (128, 64, 8, 4, 4, 1), (64, 128, 4, 8, 4, 1), (64, 64, 4, 8, 8, 2),
    (128, 32, 8, 8, 8, 3), (32, 128, 8, 4, 4, 4),
)  # fmt: skip
# The fastest at 4096 and 8192 in nearly every case are these, when they stay (hopper_c.json).
# Blocks of two warps stay four at a time: two would leave each scheduler one warp.
STAYING = ((128, 64, 8, 8, 8, 2), (64, 128, 8, 8, 4, 2), (64, 64, 8, 8, 8, 4))
# 8 steps are 35 KB of text, 4 steps 18: what stays is then rescheduled to 91 % of the peak.
SHORT = (4, 4, 4)
SMALL = ((64, 64, 8, 4, 4, 1), (64, 32, 8, 4, 4, 3), (32, 32, 4, 4, 4, 4), (64, 32, 4, 4, 8, 4))
FIXED = {
    "copy_groups": 2, "raster_rows": 8, "split_k": 1, "b_first": 0, "walk": 1, "k_vectors": 0,
}  # fmt: skip
BOTH = (0, 1)
# 8 x 8 complex elements: 8 steps are 2048 FFMA, the longest text that is near the schedulers.
DEPTHS = ((8, 8, 3), (16, 8, 2), (16, 16, 2), (8, 8, 4))


def candidates(trans: str) -> list[Config]:
    """Return points of the space: what was fastest, then large and small ones in turns."""
    points = Points("simt_async", "c", trans, FIXED)
    # By rows the model expects 7 points more of 8 x 8 tiles than by columns.
    large = list(points.of(NAMES, LARGE, walk=(1, 0), b_first=BOTH, depth=DEPTHS[:2]))
    large += points.of(NAMES, LARGE[:6], walk=(1,), copy_groups=(1, 4), depth=DEPTHS[:2])
    large += points.of(NAMES, LARGE[:6], walk=(2, 3), depth=DEPTHS[:2])
    large += points.of(NAMES, LARGE[:6], walk=(1,), depth=DEPTHS[2:])
    wide = list(points.of(NAMES, LARGE[:6], k_vectors=(1,), depth=DEPTHS[:3]))
    small = list(points.of(NAMES, SMALL, split_k=(1, 2, 4, 8), depth=DEPTHS[:2]))
    small += points.of(NAMES, STAYING, split_k=(2,), b_first=BOTH, depth=DEPTHS[:1])
    short = points.of(NAMES, (*STAYING, LARGE[3]), walk=(1,), b_first=(1, 0), depth=(SHORT,))
    usual = points.of(NAMES, STAYING, walk=(1,), depth=DEPTHS[:1])
    best = staying([*short, *usual], points.space)
    stays = staying(points.of(NAMES, LARGE[:6], walk=(1,), depth=DEPTHS[:2]), points.space)
    return [*best, *mixed(mixed(large, wide), small, stays)]
