"""The two families by themselves: copies, instructions, faults of a tile's own work."""

from __future__ import annotations

from tests.stencil.features.base import (
    EVERY,
    TRANSPOSES,
    Drawn,
    Fault,
    Feature,
    any_problem,
    at,
    faults_of,
)
from tests.stencil.ways import SHARING, mma, simt
from tilewright.tuning.verify import Check

COPIES = Feature(
    certified=[simt("s" + trans) for trans in TRANSPOSES],
    ways=[
        simt("cNT", block_k=4, unroll_k=4, stages=4, **SHARING),  # a tile along k is a sector
        simt("cCN", block_k=4, unroll_k=4, stages=4),
        # 12 steps of floats are one sector and a half: 4 threads lie side by side along k.
        simt("sTN", block_k=12, unroll_k=12, **SHARING),
        simt("cTN", block_k=12, unroll_k=6, **SHARING),
        simt("sTT", block_k=24, unroll_k=12, **SHARING),
        *(simt(name, block_k=8, cluster_k=2) for name in EVERY if name[0] != "s"),
        *(
            simt(name, **choice)
            for name in ("sNT", "sTN")
            for choice in (
                {"stages": 2, "block_k": 16, "unroll_k": 16},
                {"stages": 5, "block_k": 8, "copy_groups": 4, "serpentine_rows": 1},
                {"block_k": 32, "unroll_k": 4, "copy_groups": 1, "serpentine_rows": 1,
                 "swizzle_rows": 0},
                {"cluster_k": 8, "stages": 2, "serpentine_rows": 1, "b_first": 1},
                {"lanes_m": 4, "cluster_k": 4, "block_m": 32, "block_n": 64},
                {"block_m": 128, "block_n": 32, "tile_m": 8, "tile_n": 4, "block_k": 16},
                {"block_m": 32, "block_n": 256, "tile_m": 4, "tile_n": 16, "unroll_k": 16},
            )
        ),
    ],
    drawn=Drawn(
        [simt("s" + trans, cluster_k=split) for trans in TRANSPOSES for split in (1, 2)],
        any_problem(4, 200),
    ),
    faults=faults_of(
        simt("sTN", cluster_k=2),
        {
            "a barrier is left out": ("BARRIER();\n                    trip", "trip"),
            "copies are not waited for":
                ("wait_for_groups<STAGES - 2>();\n                    B", "B"),
            "the first copies are not waited for": ("wait_for_groups<STAGES - 2>();\n    B", "B"),
            "a copy is for the wrong stage": ("into = stage;", ""),
            "zeros beyond k are left out": ("&& l < depth", ""),
            "a neighbour's columns are stored, too":
                ("column < c.n_first || column >=", "column >="),
            "a neighbour's rows are stored, too": ("row + e >= c.m_first && row", "row"),
            "a block leaves while others read": ("cluster_barrier(); /* nobody l", "; /* nobody l"),
            "sums are read before they are there":
                ("barrier_of_parts();\n    const int columns", "const int columns"),
        },
    ),
)  # fmt: skip

# Single elements, unchecked in inner blocks whatever the leading dimensions; and long runs.
ELEMENTS = Feature(
    ways=[
        simt("sNT", "scalar"), simt("sTT", "scalar"),
        *(simt(name, run_bytes=64) for name in ("sTN", "sNN", "cCN")),
    ],
    checks=at((130, 70, 77), (0, 1, 3)),
    faults=faults_of(
        simt("sNT", "scalar"),
        {"an element is not copied": ("copy_element(place(i, stage), piece);", ";")},
        (Check(130, 70, 77, beta=1, padding=1, offset=1), 0, None),
    ),
)  # fmt: skip

PAIRS = Feature(
    ways=[simt("eTN", cluster_k=4, block_k=8, stages=2), simt("fNN", cluster_k=2)],
    faults=faults_of(
        simt("eNT", cluster_k=2),
        {
            "a low word is not written": ("v.r[1] = e[i].y;", "v.r[1] = 0.0;"),
            "the error of a sum is lost": ("plus(t.y, v.y)", "t.y"),
        },
    ),
)

# Sides that are three quarters of a power of two: rows of them are copied in parts.
SQUARE = {"block_m": 96, "block_n": 96, "warp_m": 48, "warp_n": 48}
HALF_SQUARE = {**SQUARE, "block_m": 48, "block_n": 48, "warps_k": 2, "block_k": 32}
OF_UNITS = {
    name: Fault(mma(variant, stages=2, interleave=1, **changes), old, new)
    for name, variant, old, new, changes in (
        ("a lane reads another one's rows",
         "dNT", "((side + g * PAIR) * ELEM", "((side + (g ^ 1) * PAIR) * ELEM", {}),
        ("A's steps along k are in another order than B's",
         "dNN", "(t * ELEM_BYTES ^ swizzle<1>(g))", "((3 - t) * ELEM_BYTES ^ swizzle<1>(g))", {}),
        ("units of a plane's row are read where others lie",
         "dTN", "on % LINE)", "on % LINE * 0)", {}),
        ("units along n are read where others lie",
         "dNT", "k % DEEP : 8 * x)", "k % DEEP : 8 * (x ^ 1))", {}),
        ("a sum goes to its neighbour's column",
         "dNT", "4 + 2 * e + j % 2", "4 + e + 2 * (j % 2)", {}),
        ("rows of a plane are not in the order of lanes",
         "dTN", "side % CHUNK * 8 + side % 16 / CHUNK", "side % 16", {}),
        ("rows of a thread lie where more threads' would",
         "dTN", "return row_of_plane(r * ABREAST) * PLANE_ROW", "return r * ABREAST * PLANE_ROW",
         {"warp_m": 32, "warp_n": 32}),
        ("a conjugate has the wrong sign",
         "zCN", "TURNED_BACK ? im : negative(im)", "negative(im)", {}),
        ("sums stay conjugates", "zCC", "SUMS_CONJUGATE ? elem_conj(sum) : sum", "sum", {}),
        ("some lanes do not multiply", "dNT", "MMA_M / 8) mma(", "MMA_M / 8) if (lane_t()) mma(",
         {}),
    )
}  # fmt: skip

UNITS = Feature(
    certified=[mma("d" + trans, tma=tma) for trans in TRANSPOSES for tma in (0, 1)],
    thorough=[mma(name, tma=tma) for name in EVERY if name[0] == "z" for tma in (0, 1)],
    ways=[
        # Instructions of each length, what a step interleaves.
        mma("dNN", mma_k=8, block_k=16, interleave=1, stages=2),
        mma("dNT", mma_k=8, interleave=16, serpentine_rows=1),
        mma("dTN", mma_k=16, block_k=32, stages=4),
        mma("dNN", mma_k=16, block_k=32, interleave=8, swizzle_rows=0),
        mma("dTT", mma_m=8, cluster_k=2, warp_m=16, warp_n=32),
        mma("zNR", mma_m=8, interleave=2),
        mma("zTC", mma_k=8, block_k=16, cluster_k=4, serpentine_rows=1),
        mma("zCR", stages=2, warp_m=16, warp_n=32),
        mma("zNC", interleave=8),
        mma("dTN", **SHARING),
        # Two warps copy eight rows at once, the others' places are between these in a plane.
        mma("dTN", warp_m=32, warp_n=32),
        mma("zTN", warp_m=32, warp_n=32),
        mma("dNN", "staged", **SQUARE),
        mma("dTT", **SQUARE, **SHARING),
        mma("dTN", **SQUARE, warps_k=2, block_k=32),
        mma("dNT", **{**SQUARE, "block_m": 192}, tma=1),
        mma("dNT", "clamped", **{**SQUARE, "warp_m": 32}),
        mma("dNN", block_m=96, block_n=64, warp_m=48, warp_n=32, mma_k=8),
        mma("dTT", **HALF_SQUARE),
        mma("zTN", block_m=48, block_n=48, warp_m=24, warp_n=48, block_k=16),
        mma("zNC", block_m=96, block_n=96, warp_m=24, warp_n=48),
        mma("zTN", block_m=64, block_n=96, warp_m=32, warp_n=24, tma=1),
        mma("zCT", block_m=96, warp_m=24, warp_n=32, parallel_split_k=1),
    ],
    drawn=Drawn([mma("d" + trans) for trans in TRANSPOSES], any_problem(2, 120), 8),
    faults=OF_UNITS,
)  # fmt: skip

# Operands along m, along n, and along k, wherever columns begin.
DOUBLES_ONE_BY_ONE = Feature(
    ways=[
        mma("dNT", "scalar"),
        mma("dTN", "scalar", persistent=1, stream_k=2),
        mma("dNN", "scalar", mma_k=8),
        mma("dTN", "scalar", warp_m=32, warp_n=32),
        mma("dTT", "scalar", **SQUARE),
        mma("dNT", "scalar", **{**SQUARE, "warp_m": 32}),
        mma("dNN", "scalar", **HALF_SQUARE),
    ],
    checks=(
        Check(150, 97, 51, beta=1, offset=1),
        Check(150, 97, 51, beta=1, padding=1, offset=1),
    ),
)
