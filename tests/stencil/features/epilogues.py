"""How results are stored: staged in shared memory, or with straight code a case."""

from __future__ import annotations

import itertools

from tests.stencil.contract import CHECKS
from tests.stencil.features.base import Drawn, Fault, Feature, at, faults_of
from tests.stencil.ways import SHARING, STAYING, TINY, mma, simt
from tilewright.tuning.verify import Check

UNALIGNED = at((131, 67, 50), (0, 1, 2), beta=3)
STAGED = Feature(
    certified=[simt("sNT", "staged"), simt("cCN", "staged"), mma("dNN", "staged")],
    # Other sizes of an element, both ways lanes lie, other runs of columns (mma_f64: B along n or
    # not).
    ways=[
        simt("cNT", "staged", lanes_m=4, block_n=64, cluster_k=2),
        simt("cTC", "staged", **SHARING),
        mma("dNT", "staged", mma_k=8, interleave=16),
        mma("dTT", "scalar+staged", cluster_k=2),
        mma("dTN", "staged", persistent=1, stream_k=2),
        simt("dNN", "scalar+staged", lanes_m=4, block_n=64),
    ],
    checks=UNALIGNED,
    # Lanes both ways, every transpose, and whoever shares a tile; persistent blocks are small, so
    # that there are several tiles for each.
    drawn=Drawn(
        [
            simt("sNN", "staged"),
            simt("sTN", "staged", lanes_m=4, block_n=64, cluster_k=4),
            simt("sNT", "staged", lanes_m=4, block_n=64),
            simt("sTT", "staged", **{**TINY, "tile_m": 8, "tile_n": 4}, **STAYING, lanes_m=4),
            simt("sTN", "staged", **TINY, **SHARING),
        ],
        lambda way: CHECKS,
        40,
    ),
    faults={
        name: Fault(
            simt("sTN", "staged", **(TINY if "persistent" in changes else {}), **changes),
            old, new,
            tuple(
                (Check(size, 70, 100, beta=3), seed, 2 if "persistent" in changes else None)
                for size, seed in itertools.product((131, 50), range(3))
            ),
        )
        for name, old, new, changes in (
            ("lanes do not wait for each other", "warp_barrier();", ";", {}),
            ("one place for all rounds", "s.to + r * ROUND_BYTES", "s.to + 0 * r", {}),
            ("warps share a place", "THREAD_ID / 32 * (PLACES * ROUND_BYTES)", "0", {}),
            ("places are written again too soon", "warp_barrier(); /* all have", "; /* all have",
             {"block_k": 8, "stages": 2}),
            ("results lie where a next tile arrives",
             "PERSISTENT || TMA ? (STAGES - 1) * STAGE_BYTES : 0", "0", STAYING),
            ("results lie where others still read",
             "barrier_of_parts(); /* nobody reads", "; /* nobody reads",
             {"cluster_k": 2, "stages": 2}),
            ("a staged neighbour's rows are stored, too",
             "own[e] = row >= c.m_first && ", "own[e] = ", {}),
            ("a staged neighbour's columns are stored, too",
             "right >= c.n_first && right < c.n_left;", "right < c.n_left;", {}),
            ("rows beyond C are stored", "row < c.m_left && right >= ", "right >= ", {}),
            ("lanes read what lies swapped elsewhere",
             "(m ^ EXCHANGED(n))", "(m ^ EXCHANGED(n) * (THREAD_ID % 2))", {}),
        )
    } | faults_of(  # whole tiles in columns that begin anywhere: no element is asked for
        simt("sNN", "staged", tile_m=8, tile_n=8, block_m=128),
        {
            "columns of a lane are taken for neighbours":
                ("column_of(j + 1) - column_of(j)", "1"),
            "one chunk of a column is stored for all": ("to[e][i * ROUND_ROWS]", "to[e][0 * i]"),
            "old values do not count where all is stored":
                ("c.whole && elem_is_zero(c.beta)", "c.whole"),
        },
        (Check(256, 64, 50, padding=1), 0, None),
        (Check(256, 64, 50, beta=3, padding=1), 3, None),
    ),
)  # fmt: skip

SPECIALISED = Feature(
    certified=[
        simt("sNT", specialised_epilogue=1),
        simt("cCN", specialised_epilogue=1),
    ],
    thorough=[mma("dNN", specialised_epilogue=1), mma("zTC", specialised_epilogue=1)],
    # Other sizes of an element, sums that need care, layers beside clusters.
    ways=[
        simt("eNT", specialised_epilogue=1),
        mma("zNT", specialised_epilogue=1),
        mma("dTN", specialised_epilogue=1, persistent=1, stream_k=2),
        simt("dNN", specialised_epilogue=1, cluster_k=2, warps_k=2, block_k=32),
        simt("fTN", specialised_epilogue=1, cluster_k=2),
    ],
    checks=UNALIGNED,
    # Both ways lanes lie, results that are staged where columns are not aligned, and whoever
    # shares a tile.
    drawn=Drawn(
        [
            simt("sNN", specialised_epilogue=1),
            simt("sTN", specialised_epilogue=1, lanes_m=4, block_n=64, cluster_k=4),
            simt("sNT", specialised_epilogue=1, lanes_m=4, block_n=64, warps_k=2),
            simt("sTT", specialised_epilogue=1, **{**TINY, "tile_m": 8, "tile_n": 4}, **STAYING,
                 lanes_m=4),
            simt("cTN", specialised_epilogue=1, **TINY, **SHARING),
            simt("cNC", "staged", specialised_epilogue=1),
        ],
        lambda way: CHECKS,
        40,
    ),
    faults=faults_of(
        simt("sNT", specialised_epilogue=1),
        {
            "rows and columns end one early":
                ("(unsigned int)(left - first)", "(unsigned int)(left - first - 1)"),
            "a chunk goes where it is not aligned": ("CHUNK == 1 || c.wide, add", "true, add"),
            "C is left out": ("elem_add(v[e], elem_scale(c.beta, old[e]))", "v[e]"),
            "C counts though beta is 0": ("add = !elem_is_zero(c.beta)", "add = true"),
        },
    ),
)  # fmt: skip
