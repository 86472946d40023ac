"""SGEMM: thread tiles of 128 elements first, which read least of shared memory."""

from __future__ import annotations

from tilewright.space import Config

from .shapes import Points, mixed
from .staying import staying

NAMES = ("block_m", "block_n", "tile_m", "tile_n", "lanes_m", "resident")
LARGE = (
    (128, 128, 8, 16, 8, 2), (128, 128, 16, 8, 4, 2), (128, 256, 8, 16, 8, 1),
    (256, 128, 16, 8, 4, 1), (256, 128, 8, 16, 8, 1), (128, 64, 8, 16, 8, 4),
    (128, 128, 8, 8, 8, 2),
)  # fmt: skip
SMALL = (
    (128, 64, 8, 8, 8, 2), (64, 128, 8, 8, 4, 2), (64, 64, 8, 8, 8, 4), (128, 128, 8, 8, 8, 2),
    (64, 64, 8, 4, 4, 3), (64, 32, 4, 4, 8, 4), (128, 128, 8, 16, 8, 2), (32, 32, 4, 4, 4, 4),
)  # fmt: skip
FIXED = {
    "copy_groups": 2, "raster_rows": 8, "split_k": 1, "b_first": 0, "turn": 0, "k_vectors": 0,
}  # fmt: skip
BOTH = (0, 1)


def candidates(trans: str) -> list[Config]:
    """Return points of the space, large and small ones in turns, the likeliest first."""
    points = Points("simt_async", "s", trans, FIXED)
    best = starts_and_best(points)
    # For columns that begin anywhere: what they cost where others are faster.
    narrow = [x for x in (one.replace(narrow=1) for one in best[:3]) if x in points.space]
    return mixed(large(points), small(points), [*staying(best, points.space), *narrow])


def starts_and_best(points: Points) -> list[Config]:
    """Return what was fastest of all blocks that do not stay, and small blocks for odd sizes."""
    names = (*NAMES, "b_first", "copy_groups")
    best = (
        (256, 128, 16, 8, 4, 1, 0, 4), (128, 128, 16, 8, 4, 2, 0, 4), (128, 256, 8, 16, 8, 1, 1, 2),
        (128, 128, 8, 16, 8, 2, 1, 4), (256, 128, 8, 16, 8, 1, 0, 2), (256, 128, 16, 8, 4, 1, 1, 2),
    )  # fmt: skip
    odd = ((128, 64, 8, 8, 8, 2, 0, 2), (64, 64, 8, 8, 8, 4, 0, 2), (128, 128, 8, 8, 8, 2, 0, 2))
    tall = ((128, 256, 16, 8, 4, 1, 1, 4), (128, 128, 8, 16, 8, 2, 0, 4))
    return [
        # 12 steps are the longest text that is near the schedulers.
        *points.of(names, (*best, *tall), depth=((12, 12, 3),)),
        *points.of(names, best, depth=((16, 16, 2),)),
        *points.of(names, odd, depth=((16, 8, 3),)),
        *points.of(names, best[:2], depth=((8, 8, 3), (16, 8, 2))),
    ]


def large(points: Points) -> list[Config]:
    """Return what may be fast from 2048 on."""
    best, depths = LARGE[:4], ((12, 12, 3), (16, 16, 2), (8, 8, 3), (16, 8, 2))
    found = list(points.of(NAMES, LARGE, b_first=BOTH, depth=depths))
    # Points that no operand of these transposes makes differ are not in the space.
    wide = [
        *points.of(NAMES, LARGE, k_vectors=(1,), b_first=BOTH, depth=((16, 16, 2), (8, 8, 2))),
        *points.of(NAMES, LARGE[:2], k_vectors=(1,), depth=((8, 8, 3), (16, 8, 2))),
    ]
    found = mixed(found, wide)
    found += points.of(NAMES, best, copy_groups=(1, 4), b_first=BOTH, depth=depths[:2])
    found += points.of(NAMES, best, depth=((8, 8, 4), (16, 8, 3), (32, 8, 2), (16, 4, 2)))
    found += points.of(NAMES, best[:2], raster_rows=(0, 4, 16), depth=depths[:1])
    found += points.of(NAMES, best, turn=(2, 1), b_first=BOTH, depth=depths[:2])
    return found


def small(points: Points) -> list[Config]:
    """Return what may be fast up to 1024: blocks of a cluster share a tile of C."""
    found = list(points.of(NAMES, SMALL[:4], split_k=(2,), depth=((16, 16, 3),)))
    found += points.of(NAMES, SMALL, split_k=(4, 2, 1, 8), depth=((16, 8, 3),))
    found += points.of(NAMES, SMALL[:5], k_vectors=(1,), split_k=(4, 2), depth=((16, 8, 3),))
    found += points.of(NAMES, SMALL[:5], split_k=(2, 4), depth=((32, 8, 2), (8, 8, 5)))
    return found
