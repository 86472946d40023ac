"""Results that pass through shared memory on their way to C: the kernels run on the CPU.

`staged` changes where lanes store, so that what is asked here are columns of C that begin
anywhere, blocks at every edge, and who else uses shared memory meanwhile: copies for a next tile,
the other blocks of a cluster.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.stencil.contract import (
    CHECKS,
    compiled,
    fails_by_fault,
    faulty,
    has_mode,
    mode_rules,
    thorough_but,
)
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.mma_f64 import test_stencil as test_mma_f64
from tests.stencil.portable_harness import variant
from tests.stencil.simt_async import test_stencil as test_simt_async
from tests.stencil.simt_async.test_persistent import SHARING, STAYING, TINY
from tilewright.backend import LaunchError
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.problem import Problem
from tilewright.stencil import Variant, stencil
from tilewright.stencil.mma_f64 import MmaF64
from tilewright.stencil.simt_async import SimtAsync
from tilewright.stencil.simt_async.stencil import STAGED_K
from tilewright.tuning.matrices import Matrix
from tilewright.tuning.verify import Bench, Check, WrongResultError, certify, screen

SIMT, MMA = SimtAsync(), MmaF64()

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


def bench(
    live: EmulatedDevice,
    name: str,
    family: Any = SIMT,
    blocks: int | None = None,
    mode: str = "staged",
    **changes: int,
) -> Bench:
    """Return a config of few threads, compiled with staged results."""
    of = variant(name)
    smalls = test_mma_f64.small if isinstance(family, MmaF64) else test_simt_async.small
    config = smalls(of, live, **changes)
    return Bench(live, compiled(live, family, config, of, mode), family, config, of, blocks)


@pytest.mark.every(3)
@needs_compiler
@pytest.mark.parametrize("name", ["sNT", "cCN", "dNN"])
def test_the_contract_is_kept(emulated: EmulatedDevice, name: str) -> None:
    """All classes of alpha and beta, ragged sizes, paddings, offsets, NaN and Inf."""
    run = bench(emulated, name, MMA if name[0] == "d" else SIMT)
    certify(emulated, run.kernel, run.stencil, run.config, run.variant)


# Lanes both ways, every transpose, and whoever shares a tile; persistent blocks are small, so that
# there are several tiles for each.
WAYS: list[dict[str, Any]] = [
    {"name": "sNN"},
    {"name": "sTN", "lanes_m": 4, "block_n": 64, "cluster_k": 4},
    {"name": "sNT", "lanes_m": 4, "block_n": 64},
    {"name": "sTT", **TINY, **STAYING, "lanes_m": 4, "tile_m": 8, "tile_n": 4},
    {"name": "sTN", **TINY, **SHARING},
]


@needs_compiler
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    way=st.sampled_from(WAYS),
    check=CHECKS,
    blocks=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_problem_is_computed_exactly(
    emulated: EmulatedDevice, way: dict[str, Any], check: Check, blocks: int, seed: int
) -> None:
    """Columns aligned and not, blocks that begin earlier and that do not, whoever shares a tile."""
    run = bench(emulated, **way, blocks=blocks if "persistent" in way else None)
    run.exact(check, np.random.default_rng(seed))


# Other sizes of an element, both ways lanes lie, other runs of columns (mma_f64: B along n or not).
OTHERS: list[dict[str, Any]] = [
    {"name": "cNT", "lanes_m": 4, "block_n": 64, "cluster_k": 2},
    {"name": "cTC", "persistent": 1, "stream_k": 1},
    {"name": "dNT", "family": MMA, "mma_k": 8, "interleave": 16},
    {"name": "dTT", "family": MMA, "cluster_k": 2, "mode": "scalar+staged"},
    {"name": "dTN", "family": MMA, "persistent": 1, "stream_k": 2},
    {"name": "dNN", "lanes_m": 4, "block_n": 64, "mode": "scalar+staged"},
]


def called(choice: dict[str, Any]) -> str:
    """Return a test's name, the same in every process: a family's own has its address."""
    return str({name: value for name, value in choice.items() if name != "family"})


@pytest.mark.every(3)
@needs_compiler
@pytest.mark.parametrize("choice", thorough_but(OTHERS[::2], OTHERS), ids=called)
def test_every_choice_computes_the_product(
    emulated: EmulatedDevice, choice: dict[str, Any]
) -> None:
    run = bench(emulated, **choice)
    screen(emulated, run.kernel, run.stencil, run.config, run.variant)
    for pad in (0, 1, 2):
        check = Check(131, 67, 50, beta=3, padding=pad, offset=pad)
        run.exact(check, np.random.default_rng(pad))


@needs_compiler
@pytest.mark.parametrize("m", [64, 67])
def test_bits_are_those_of_results_that_are_not_staged(emulated: EmulatedDevice, m: int) -> None:
    """Where no compiler fuses alpha and beta, how C is stored changes nothing in or beside it."""
    rng, check = np.random.default_rng(m), Check(m, 35, 40, beta=3)
    a, b, c = (rng.standard_normal(s, np.float32) for s in ((m, 40), (40, 35), (m, 35)))
    x, y = Matrix.place(a), Matrix.place(b)

    def bits(mode: str) -> bytes:
        return bench(emulated, "sNN", mode=mode).run(check, x, y, Matrix.result(c)).tobytes()

    assert bits("plain") == bits("staged")


FAULTS = {
    "lanes do not wait for each other": ("warp_barrier();", ";", {}),
    "one place for all rounds": ("s.to + r * ROUND_BYTES", "s.to + 0 * r", {}),
    "warps share a place": ("THREAD_ID / 32 * (PLACES * ROUND_BYTES)", "0", {}),
    "places are written again too soon": ("warp_barrier(); /* all have", "; /* all have",
                                          {"block_k": 8, "stages": 2}),
    "results lie where a next tile arrives": (
        "PERSISTENT || TMA ? (STAGES - 1) * STAGE_BYTES : 0", "0", STAYING
    ),
    "results lie where others still read": (
        "barrier_of_parts(); /* nobody reads", "; /* nobody reads", {"cluster_k": 2, "stages": 2}),
    "a neighbour's rows are stored, too": ("own[e] = row >= c.m_first && ", "own[e] = ", {}),
    "a neighbour's columns are stored, too": ("right >= c.n_first && right < c.n_left;",
                                              "right < c.n_left;", {}),
    "rows beyond C are stored": ("row < c.m_left && right >= ", "right >= ", {}),
    "lanes read what lies swapped elsewhere": ("(m ^ EXCHANGED(n))",
                                               "(m ^ EXCHANGED(n) * (THREAD_ID % 2))", {}),
}  # fmt: skip


@pytest.mark.every(3)
@needs_compiler
@pytest.mark.parametrize("fault", FAULTS)
def test_the_emulator_finds(emulated: EmulatedDevice, fault: str) -> None:
    """Each fault, put into the text, fails checks that the text passes."""
    old, new, changes = FAULTS[fault]
    of, stays = variant("sTN"), "persistent" in changes
    config = test_simt_async.small(of, emulated, **(TINY if stays else {}), **changes)
    families = SIMT, faulty(SimtAsync, old, new)
    kernels = [compiled(emulated, x, config, of, "staged") for x in families]

    def check_all(kernel: Any) -> None:
        for size, seed in itertools.product((131, 50), range(3)):
            run = Bench(emulated, kernel, SIMT, config, of, 2 if stays else None)
            run.exact(Check(size, 70, 100, beta=3), np.random.default_rng(seed))

    check_all(kernels[0])
    with pytest.raises((WrongResultError, LaunchError)):
        check_all(kernels[1])


WHOLE_FAULTS = {
    "columns of a lane are taken for neighbours": ("column_of(j + 1) - column_of(j)", "1"),
    "one chunk of a column is stored for all": ("to[e][i * ROUND_ROWS]", "to[e][0 * i]"),
    "old values do not count where all is stored": ("c.whole && elem_is_zero(c.beta)", "c.whole"),
}


@needs_compiler
@pytest.mark.parametrize("fault", WHOLE_FAULTS)
def test_whole_tiles_are_stored_without_questions(emulated: EmulatedDevice, fault: str) -> None:
    """Columns that begin anywhere, a tile that is all the block's own: no element is asked for."""
    of = variant("sNN")
    config = test_simt_async.small(of, emulated, tile_m=8, tile_n=8, block_m=128)

    def check(family: Any) -> None:
        kernel = compiled(emulated, family, config, of, "staged")
        for beta in (0, 3):
            run = Bench(emulated, kernel, family, config, of)
            run.exact(Check(256, 64, 50, beta=beta, padding=1), np.random.default_rng(beta))

    fails_by_fault(check, SimtAsync, *WHOLE_FAULTS[fault])


def test_staging_is_for_elements_smaller_than_a_chunk_that_have_room() -> None:
    """Two chunks of 16 bytes a thread, in a stage of both tiles."""
    device = architecture_spec("sm_90a")
    for name, sound in {"sNN": True, "cTT": True, "dNT": True, "zNT": False, "eNN": False}.items():
        of = variant(name)
        assert has_mode(SIMT, SIMT.default(of, device), of, device, "staged") is sound
    tight = {"block_m": 64, "block_n": 64, "tile_m": 4, "tile_n": 4, "lanes_m": 8, "unroll_k": 4}
    of = variant("sNT")
    for block_k, sound in ((8, False), (16, True)):
        config = SIMT.default(of, device).replace(**tight, block_k=block_k)
        assert (config in mode_rules(SIMT, of, device, "staged")) is sound


def mode_of(problem: Problem, family: str = "simt_async", **changes: int) -> str:
    """Return the launch mode that a default, so changed, is compiled in for a problem."""
    of = Variant.of(problem)
    config = stencil(family).default(of, architecture_spec("sm_90a"))
    return str(stencil(family).geometry(config.replace(**changes)).mode(problem))


def test_short_sums_into_unaligned_columns_are_staged() -> None:
    """Where the store is a good part of the work; nothing changes where C is aligned."""
    short = Problem(1024, 1024, 128, "s", "N", "N")
    assert "staged" not in mode_of(short)
    assert "staged" in mode_of(replace(short, m=1021, lda=0, ldc=0))
    assert "staged" in mode_of(replace(short, ldc=1025))
    assert "staged" in mode_of(replace(short, m=1021, lda=1024, ldc=1024))
    assert "staged" not in mode_of(replace(short, ldc=1025, k=STAGED_K + 1, ldb=0))
    assert "staged" not in mode_of(Problem(1021, 1024, 128, "z", "N", "N"))
    assert "staged" not in mode_of(Problem(1022, 1024, 128, "c", "N", "N"))
    assert "staged" in mode_of(Problem(1021, 1024, 128, "d", "N", "N"), "mma_f64")
    # Both ways are fitted at once, and one that has no room to stage is not asked to.
    assert mode_of(replace(short, m=1021, lda=0, ldc=0)) == "scalar+staged"
    crowded = {"block_m": 64, "block_n": 64, "tile_m": 4, "tile_n": 4, "block_k": 8, "unroll_k": 8}
    assert "staged" not in mode_of(replace(short, ldc=1025), **crowded)
