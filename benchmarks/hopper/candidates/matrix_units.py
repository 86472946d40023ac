"""DGEMM and ZGEMM on matrix units (DMMA), the likeliest by the cycle model first.

Two resident blocks of four warps come first: while one waits at its barrier, the other
multiplies.  Then one block of eight warps, which copies a third less for each multiply-add: where
power is the limit that may decide.
"""

from __future__ import annotations

import itertools

from tilewright.space import Config

from .shapes import Points, mixed
from .staying import staying

NAMES = ("block_m", "block_n", "warp_m", "warp_n", "resident")
# Steps between barriers, stages, whether fragments are read a step ahead, and turns.
FLOW = ("block_k", "stages", "ahead", "turns")
FIXED = {"mma_m": 16, "raster_rows": 8, "split_k": 1, "walk": 0}

DOUBLE = (
    (128, 64, 64, 32, 2), (64, 128, 32, 64, 2), (128, 128, 64, 32, 1), (128, 128, 32, 64, 1),
    (256, 64, 64, 32, 1), (64, 256, 32, 64, 1), (128, 64, 32, 32, 2), (64, 64, 32, 32, 4),
)  # fmt: skip
DOUBLE_FLOWS = (
    (16, 3, 1, 8), (32, 2, 1, 8), (16, 3, 1, 4), (32, 2, 0, 1), (16, 4, 1, 8), (32, 3, 1, 8),
    (16, 3, 1, 1),
)  # fmt: skip
COMPLEX = (
    (64, 64, 32, 32, 2), (64, 128, 32, 32, 1), (128, 64, 32, 32, 1), (64, 64, 16, 64, 2),
    (64, 64, 64, 16, 2),
)  # fmt: skip
COMPLEX_FLOWS = ((8, 3, 1, 8), (16, 2, 1, 8), (8, 3, 1, 1), (16, 2, 0, 1), (8, 4, 1, 4))
FAST_COMPLEX = (64, 64, 32, 32, 2)
# With the order of a step: what was within half a percent of the best of each case at 4096
# (hopper_z.json), then what NVRTC 13.5 makes the shortest loops and the fewest reads of: 3.7
# instructions instead of 4.2 for each of matrix units, and 0.34 and 0.32 reads instead of 0.44.
# Of 4, 8 and 16 turns it makes the same code.
LEAST_MOVED = ((8, 3, 1, 8, 0), (8, 3, 1, 2, 1), (16, 2, 1, 1, 1))
SMALL = ((64, 64, 32, 32, 2), (64, 32, 32, 16, 2), (32, 64, 16, 32, 2), (128, 64, 64, 32, 2))


def candidates(letter: str, trans: str) -> list[Config]:
    """Return points of the space for d or z."""
    real = letter == "d"
    shapes, flows = (DOUBLE, DOUBLE_FLOWS) if real else (COMPLEX, COMPLEX_FLOWS)
    lengths = (8, 4, 16) if real else (4,)
    points = Points("mma_f64", letter, trans, FIXED)

    def flowing(shapes: tuple[tuple[int, ...], ...], flows: tuple[tuple[int, ...], ...],
                **choices: tuple[int, ...]) -> list[Config]:  # fmt: skip
        whole = [shape + flow for flow, shape in itertools.product(flows, shapes)]
        return list(points.of(NAMES + FLOW, whole, **choices))

    large = flowing(shapes[:4], flows[:4], mma_k=lengths[:2])
    rest = flowing(shapes, flows, mma_k=lengths[:1])
    long = flowing(shapes[:4], flows[:4], mma_k=lengths[2:])
    order = flowing(shapes[:2], flows[:2], mma_k=lengths[:1], walk=(1,), raster_rows=(4, 16))
    kept = list(staying(large[:4], points.space))
    small = flowing(SMALL, flows[:1], mma_k=lengths[:1], split_k=(2, 4, 1))
    if real:  # halves of 128 x 128: where both operands run along k these were a fifth faster
        halves = flowing(shapes[2:4], (flows[2], flows[0]), mma_k=lengths[:2], split_k=(2,))
        small = mixed(halves, small)
    # Blocks that stay gained 5 % for D: they come before what is for small results.
    return mixed(large, kept + small, [*long, *order, *rest])


def best_complex(trans: str) -> list[Config]:
    """Return what was fast of complex doubles and what moves least, then their blocks staying.

    Where power is the limit, fewer reads of shared memory and fewer moves between registers for
    each instruction on matrix units are a higher clock.  Instructions of 8 steps are not among
    these: beside complex sums they spill, and take 5 moves for each instead of one.
    """
    points = Points("mma_f64", "z", trans, FIXED)
    names = (*NAMES, *FLOW, "walk")
    shapes = [FAST_COMPLEX + flow for flow in LEAST_MOVED]
    best = list(points.of(names, shapes, mma_k=(4,)))
    stay = list(staying(best, points.space))
    alone = list(staying((one.replace(resident=1) for one in best[:1]), points.space))
    bands = list(points.of(names, shapes, mma_k=(4,), raster_rows=(4, 16)))
    return [*best, *stay, *alone, *bands]


def with_few(letter: str, trans: str, others: list[Config]) -> list[Config]:
    """Return the points with one in five of others: matrix units have twice the rate."""
    units = iter(candidates(letter, trans))
    return [
        *itertools.chain.from_iterable((*itertools.islice(units, 4), one) for one in others),
        *units,
    ]
