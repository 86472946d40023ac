"""Copies at edges: sides shorter than a block, remainders of k."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.stencil.features.base import TRANSPOSES, Drawn, Fault, Feature, faults_of
from tests.stencil.features.families import SQUARE
from tests.stencil.ways import SHARING, TINY, Way, mma, simt
from tilewright.tuning.verify import Check

# Blocks of 64 x 32, each way of copying; with 192 or 256 rows a thread copies several pieces of a
# column.
TALL = [
    simt("sNT", "clamped+staged", block_m=192, tile_m=12),
    simt("sNT", "clamped", block_m=192, tile_m=12),
    simt("sNT", "scalar+clamped", block_m=256, tile_m=16),
]
ELEMENT = "copy_element_below(place(i, stage), piece, along_side(i), left)"
PIECE = "copy_chunk_below(place(i, stage), piece, along_side(i), left)"
ALONG = "K_FAST ? i / map::PARTS : i % map::PARTS"


@st.composite
def short_sides(draw: st.DrawFn, way: Way) -> Check:
    """Draw a problem of which one side, or both, is shorter than a block."""
    block_m, block_n = way.changes.get("block_m", 64), way.changes.get("block_n", 32)
    which = draw(st.sampled_from(["m", "n", "both"]))
    m = draw(st.integers(1, block_m - 1 if which != "n" else 2 * block_m))
    n = draw(st.integers(1, block_n - 1 if which != "m" else 3 * block_n))
    k, padding, offset = (draw(st.integers(0, most)) for most in (70, 9, 9))
    if draw(st.booleans()):  # so that 16 bytes are copied
        m, n, k, padding, offset = (-(-x // 4) * 4 for x in (m, n, k, padding, offset))
    return Check(m, n, k, beta=draw(st.sampled_from([0, 1, 3])), padding=padding, offset=offset)


CLAMPED = Feature(
    certified=[simt("sTN", "clamped"), simt("cNT", "scalar+clamped")],
    drawn=Drawn(
        [
            *(simt("s" + trans, "clamped") for trans in TRANSPOSES),
            simt("sNT", "scalar+clamped"),
            simt("sTT", "scalar+clamped", cluster_k=2),
            simt("sTN", "clamped", block_k=12, unroll_k=12),
            *TALL,
            mma("dNT", "clamped"),
            mma("dTN", "clamped"),
            mma("dTN", "scalar+clamped", cluster_k=2),
            mma("dNT", "clamped", **SQUARE),
            mma("zCN", "clamped"),
        ],
        short_sides,
        50,
    ),
    # Each with a shape that shows it: 16-byte copies want aligned columns.
    faults={
        name: Fault(way, old, new, ((check, 0, None),))
        for name, way, old, new, check in (
            ("an element outside is copied", simt("sTN", "clamped"),
             ELEMENT, "copy_element(place(i, stage), piece)", Check(3, 5, 64)),
            ("rows are not told apart", simt("sTN", "clamped"), ALONG, "0", Check(40, 9, 64)),
            ("a part outside is copied", TALL[2],
             ELEMENT, "copy_element(place(i, stage), piece)", Check(70, 30, 64)),
            ("a part of a column outside is copied", TALL[1],
             PIECE, "copy_chunk(place(i, stage), piece)", Check(40, 8, 64)),
            ("a part of a remainder outside is copied", TALL[0],
             "(!CLAMPED || along_side(i) < left)", "true", Check(40, 8, 6)),
            ("a step too few", simt("sTN", "clamped"),
             "(x.side_left - s + APART - 1) / APART", "(x.side_left - s) / APART",
             Check(42, 9, 64)),
        )
    } | faults_of(simt("sTN", "clamped"), {"no row is told apart of a tuner's own": (ALONG, "0")}),
)  # fmt: skip

# Each way of copying, alone and with who clamps, shares or layers.
REMAINDERS = [
    simt("sNT", "scalar"),
    simt("sTN", "staged"),
    simt("cNC", "staged"),
    simt("sNN", "scalar", cluster_k=2),
    simt("sNT", "clamped+staged"),
    simt("sTT", "scalar+clamped+staged"),
    mma("dNT", "scalar"),
    mma("dTN", "scalar+clamped"),
    simt("sNN", "scalar+staged", parallel_split_k=1),
    simt("sNT", "scalar", **TINY, **SHARING),
    simt("sTT", "staged", warps_k=2),
]


@st.composite
def remainders(draw: st.DrawFn) -> Check:
    """Draw no remainder, one of each length, a k of less than a tile; columns of any kind."""
    sides = draw(st.sampled_from([(64, 32), (131, 67), (21, 50), (36, 20)]))
    k, beta, pad = draw(st.integers(0, 70)), draw(st.integers(0, 1)), draw(st.sampled_from("014"))
    return Check(*sides, k, beta=beta, padding=int(pad), offset=int(pad) % 4)


REMAINDER = Feature(
    drawn=Drawn(REMAINDERS, lambda way: remainders(), 100),
    faults={
        f"{name}, {way}": Fault(way, old, new, ((Check(64, 64, 45), 3, None),))
        for name, old, new in (
            ("steps before the matrix are read", "first_step + beyond >= absent", "true"),
            ("a step of the remainder is left out", "beyond >= absent", "beyond > absent"),
            ("the first tile begins with the matrix",
             "RESTS_END ? mine.first_depth + (mine.begin - 1) * BLOCK_K", "RESTS_END ? 0"),
        )
        for way in REMAINDERS[:3]
    },
)  # fmt: skip
