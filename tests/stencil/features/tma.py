"""Tiles that come by TMA, in boxes or in lines."""

from __future__ import annotations

from tests.stencil.features.base import TRANSPOSES, Drawn, Fault, Feature, any_problem
from tests.stencil.ways import SHARING, STAYING, Way, mma, simt
from tilewright.tuning.verify import Check

# Persistent blocks take tile after tile, and share what is left.
TAKING: tuple[dict[str, int], ...] = ({}, STAYING, {"persistent": 1, "stream_k": 2})


def boxed(name: str, mode: str = "plain", **changes: int) -> Way:
    """Return a way whose tiles come in boxes."""
    return simt(name, mode, **{"tma": 1, "block_k": 8, **changes})


BOXES = Feature(
    certified=[boxed("sNT")],
    ways=[
        # An element of 8 bytes is a double to the copy engine, one of 16 bytes is two.
        boxed("cNT"),
        *(boxed(name, **TAKING[2]) for name in ("cNC", "dNT", "zNT")),
        # Also three quarters of a power of two, which threads could not copy evenly.
        boxed("sNT", stages=2, block_k=4, unroll_k=4),
        boxed("sNT", stages=5, block_k=6, unroll_k=6, persistent=1),
        boxed("sNT", cluster_k=2, block_k=12, unroll_k=12),
        boxed("sNT", block_m=96, block_n=64, tile_m=12, tile_n=16, unroll_k=8, **SHARING),
    ],
    # Sides and sums shorter than a box, one that is empty, and rings that go round; results pass
    # through the last stage, in front of its barriers.
    drawn=Drawn(
        [boxed("sNT", **way) for way in TAKING]
        + [boxed("sNT", "staged", block_k=16, unroll_k=16, **way) for way in TAKING],
        any_problem(4, 200),
        40,
    ),
    faults={
        name: Fault(
            boxed("sNT", stages=2, **(TAKING[2] if "piece" in name else {})), old, new,
            tuple((Check(130, 70, 100, beta=1), blocks, blocks) for blocks in (2, 3, 5) * 4),
        )
        for name, old, new in (
            ("boxes come where others still read",
             "wait_for(empty_of(into), parity ^ first);", ""),
            ("a stage that was never full is waited for", "parity ^ first", "parity"),
            ("nobody says that a stage is read", "arrive(empty_of(tiles + stage));", ";"),
            ("a lane says it for those behind it",
             "warp_barrier();\n                if (is_e", "if (is_e"),
            ("a tile is read before it is there",
             "wait_for(full_of(tiles + stage), parity);", ";"),
            ("the first tile is read before it is there", "wait_for(full_of(tiles), 0);", ""),
            ("the second round's tiles are taken for there", "parity ^= last;", ""),
            ("barriers are met before they are begun",
             "BARRIER(); /* the stages' barr", "; /* the stages"),
            ("the next piece comes over the last one's tiles",
             "BARRIER(); /* all have", "; /* all have"),
            ("the remainder of k is left out",
             "mine.first_depth + (mine.begin - 1) * BLOCK_K", "(mine.begin - 1) * BLOCK_K"),
            ("a tile is asked for twice",
             "f->bring(into);\n                f->k_at += BLOCK_K;", "f->bring(into);"),
            ("the bytes of one operand are awaited",
             "BLOCK_K * (BLOCK_M + BLOCK_N) * ELEM_BYTES", "BLOCK_K * BLOCK_M * ELEM_BYTES"),
        )
    },
)  # fmt: skip

LINES = Feature(
    # Who holds which columns of C differs by how B is read: in pairs, one by one, along k, by
    # elements.
    ways=[
        mma("dNT", tma=1, mma_k=8, warp_n=32, interleave=16),
        mma("dTT", tma=1, mma_k=16, block_k=32, block_n=64, warp_n=64, warp_m=16),
        mma("dTN", tma=1, mma_k=8, block_k=32, persistent=1, stream_k=2),
        mma("dNN", "staged", tma=1, mma_k=8, warp_m=64, persistent=1),
        mma("dNT", "staged", tma=1, mma_k=8, warp_n=32, interleave=8),
        mma("dTT", "staged", tma=1, stages=2, cluster_k=2),
        mma("dNN", tma=1, mma_m=8, parallel_split_k=1),
        mma("zNC", tma=1, mma_m=8, **SHARING),
        mma("zTN", tma=1, block_k=16, mma_k=8, cluster_k=2, stages=5),
        mma("zCT", tma=1, parallel_split_k=1, serpentine_rows=1),
    ],
    # Sides and sums shorter than a line, one that is empty, and rings that go round.
    drawn=Drawn(
        [
            mma("d" + trans, mode, tma=1, **way)
            for trans in TRANSPOSES
            for mode in ("plain", "staged")
            for way in (TAKING[0], TAKING[2])
        ],
        any_problem(2, 120),
        12,
    ),
    faults={
        name: Fault(mma(variant, tma=1, stages=2), old, new)
        for name, variant, old, new in (
            ("lanes have other pieces than the engine swizzles apart",
             "dNT", "return g / 2 + g % 2 * 4;", "return g;"),
            ("lines are read as if not swizzled", "dNT", "ELEM_BYTES ^ t * 16)", "ELEM_BYTES ^ 0)"),
            ("a row's swizzle is forgotten", "dTN", "ELEM_BYTES ^ at % 8 * 16)", "ELEM_BYTES ^ 0)"),
            ("a neighbour's row is swizzled as the first one",
             "dTN", "ELEM_BYTES ^ on % 8 * 16))", "ELEM_BYTES))"),
            ("steps behind four are swizzled as the first ones", "dNT", " ^ k % 8 * 16))", "))"),
            ("rows of an operand along k count as doubles of two",
             "zTN", "(K_FAST_A ? 1 : BOX_WORDS)", "BOX_WORDS"),
            ("lines of a side that is not whole are one box",
             "dNT", "return side % IN_LINE == 0;", "return true;"),
            ("all lines of such a side are the first one",
             "dNT", "x.at + on * BOX_WORDS, k_at", "x.at, k_at"),
            ("the first tile along k begins before the matrix",
             "dTN", "K_FAST_A || K_FAST_B ? (int)(mine.begin * BLOCK_K)", "false ? 0"),
        )
    },
)  # fmt: skip
