"""Who computes what of a tile: layers of warps, slices of k, persistent blocks."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

from tests.stencil.features.base import Drawn, Feature, any_problem, faults_of
from tests.stencil.ways import SHARING, TINY, mma, simt
from tilewright.tuning.verify import Check

SLICED_K = Feature(
    certified=[simt("sNT", warps_k=2), simt("cCN", warps_k=2)],
    # Copies of every kind, as many trips as there are, and layers in the blocks of a cluster.
    ways=[
        simt("sNN", warps_k=2, cluster_k=2),
        simt("sNN", warps_k=4, unroll_k=4),
        simt("sNT", warps_k=8, tile_m=8, block_k=32, unroll_k=4),
        simt("sTT", "scalar", warps_k=8, tile_m=8, block_k=64),
        simt("sTT", warps_k=2, unroll_k=4),
        simt("sTN", "clamped", warps_k=2),
        simt("sNT", "scalar", warps_k=2, cluster_k=4),
        simt("sNN", "staged", warps_k=2),
        simt("zNC", warps_k=2),
        mma("dNN", warps_k=2, block_n=64, warp_n=32, block_k=32, mma_k=8),
        mma("dTN", warps_k=2, block_n=64, warp_n=32, cluster_k=2),
        mma("dNT", block_k=32, warps_k=4),
        mma("zTC", warps_k=2, block_n=64, warp_n=32, block_k=16),
    ],
    # Also without a step along k, or with fewer than there are layers.
    drawn=Drawn([simt("sNN", warps_k=2, cluster_k=2)], any_problem(4, 70)),
    faults=faults_of(
        simt("sNT", warps_k=2),
        {
            "another layer's steps": ("layer() * (BYTES_A", "0 * (BYTES_A"),
            "another layer's sums": ("part % WARPS_K * LAYER +", "0 * LAYER +"),
            "another layer's columns": ("* WARPS_K + layer()) * columns", "* WARPS_K) * columns"),
        },
    ),
)

SPLIT_K = Feature(
    certified=[
        simt("sNT", parallel_split_k=1),
        simt("cCN", parallel_split_k=1),
        mma("dNN", parallel_split_k=1),
    ],
    # What a block does with its steps is the same as without slices.
    ways=[
        simt("sTT", parallel_split_k=1),
        simt("sNN", parallel_split_k=1, lanes_m=4, block_n=64),
        simt("sNT", "scalar", parallel_split_k=1),
        simt("sTN", "clamped", parallel_split_k=1),
        simt("zNC", parallel_split_k=1),
        mma("dTN", parallel_split_k=1),
        mma("zTC", parallel_split_k=1),
    ],
    drawn=Drawn([simt("sNT", parallel_split_k=1)], any_problem(4, 300), 25),
    faults=faults_of(
        simt("sNT", parallel_split_k=1),
        {
            "a slice too few": ("slice < slices;", "slice + 1 < slices;"),
            "a slice twice": ("slice = 1; slice < slices", "slice = 0; slice < slices"),
            "another tile's part": ("part_at(workspace, tile) +", "part_at(workspace, tile ^ 1) +"),
            "another slice's steps": ("BLOCK_ID / tiles, GRID", "0, GRID"),
        },
    ),
)


@st.composite
def tiny_tiles(draw: st.DrawFn) -> Check:
    """Draw whole waves, shares of one tile and of several, tiles of many shares, idle blocks."""
    m = 32 * draw(st.integers(1, 5)) - draw(st.integers(0, 31))
    n = 32 * draw(st.integers(1, 3)) - draw(st.integers(0, 31))
    beta = draw(st.sampled_from([0, 3]))
    alpha = draw(st.sampled_from([0, 1, -2]))
    return Check(m, n, draw(st.integers(0, 400)), alpha, beta, nan_in_c=beta == 0)


# Whole tiles and shares, tiles of many shares; each in other orders.
MANY_SHARES = tuple(
    (Check(96, 64, 500, beta=1), seed, blocks)
    for blocks, seed in itertools.product((3, 5, 7), range(3))
)
PERSISTENT = Feature(
    certified=[simt("sTN", **TINY, persistent=1, stream_k=2)],
    drawn=Drawn(
        [
            simt("sTN", **TINY, persistent=1, stream_k=stream_k, tree_reduction=tree)
            for stream_k, tree in ((0, 0), (1, 0), (2, 0), (1, 1), (2, 1))
        ],
        lambda way: tiny_tiles(),
        25,
        7,
    ),
    faults=faults_of(
        simt("sTN", **TINY, **SHARING),
        {
            "numbers follow the grid's order":
                ("draw_number((unsigned int *)workspace, GRID_BLOCKS - 1)",
                 "GRID_BLOCKS - 1 - BLOCK_ID"),
            "a flag is raised before all have written":
                ("    BARRIER();\n    if (THREAD_ID == 0)\n        raise",
                 "    if (THREAD_ID == 0)\n        raise"),
            "a part is read before it is there": ("            await_flag(flag);\n", ""),
            "a part is read before all may":
                ("        BARRIER();\n        const unsigned char", "        const unsigned char"),
            "a flag stays raised": ("lower_flag(flag);", ""),
            "a part is left out": ("share_at(d, other) < tile_end", "other < worker + 2"),
            "a share ends too early": ("share_at(d, worker + 1);", "share_at(d, worker + 1) - 1;"),
            "sums of the tile before":
                ("sum[i] = elem_zero();\n        if (now", "\n        if (now"),
            "the number is read too early": ("BARRIER(); /* the number", "; /* the number"),
        },
        *MANY_SHARES,
    ) | faults_of(  # what only a tree of parts can get wrong
        simt("sTN", **TINY, **SHARING, tree_reduction=1),
        {
            "a part is waited for twice": ("TREE_REDUCTION ? last_bit(other) : 1", "1"),
            "parts are left before others' are in them":
                ("        if (TREE_REDUCTION)\n            add_parts",
                 "        if (0)\n            add_parts"),
            "the numbers behind the last are asked":
                ("last < d.workers ? last : d.workers", "0xffffffffu"),
            "a worker takes what is another's":
                ("worker + last_bit(worker)", "worker + 2 * last_bit(worker)"),
        },
        *MANY_SHARES,
    ),
)  # fmt: skip
