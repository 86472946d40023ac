"""Blocks longer than a side of the matrix that copy whole tiles: nothing outside is read or stored.

What lies outside is not copied, and what is multiplied with what shared memory holds in its place
is never stored (`simt_async/copies.cuh`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.double_double.oracle import spoils_as_a_plain_loop
from tests.stencil.contract import bench, computes_the_product, fault_is_found, faulty, has_mode
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.mma_f64 import test_stencil as test_mma_f64
from tests.stencil.portable_harness import variant
from tests.stencil.simt_async import test_persistent
from tests.stencil.simt_async import test_stencil as test_simt_async
from tilewright.backend import LaunchError
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.problem import Problem
from tilewright.stencil import Mode, Stencil, Variant
from tilewright.stencil.mma_f64 import MmaF64
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.verify import Bench, Check, WrongResultError, certify

SIMT, MMA = SimtAsync(), MmaF64()
H100 = architecture_spec("sm_90a")
needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")

# Blocks of 64 x 32, each way of copying; with 192 or 256 rows a thread copies several pieces of a
# column.
SINGLE: list[dict[str, Any]] = [
    {"name": "sNN"},
    {"name": "sNT"},
    {"name": "sTN"},
    {"name": "sTT"},
    {"name": "sNT", "mode": "scalar"},
    {"name": "sTT", "mode": "scalar", "cluster_k": 2},
    {"name": "sTN", "block_k": 12, "unroll_k": 12},
    {"name": "sNT", "block_m": 192, "tile_m": 12, "mode": "staged"},
    {"name": "sNT", "block_m": 192, "tile_m": 12},
    {"name": "sNT", "mode": "scalar", "block_m": 256, "tile_m": 16},
]
DOUBLE: list[dict[str, Any]] = [
    {"name": "dNT"},
    {"name": "dTN"},
    {"name": "dTN", "mode": "scalar", "cluster_k": 2},
    {"name": "dNT", "block_m": 96, "block_n": 96, "warp_m": 48, "warp_n": 48},
    {"name": "zCN"},
]


def made(live: EmulatedDevice, choice: dict[str, Any], family: Stencil = SIMT) -> Bench:
    """Return a small config, compiled with clamped loads."""
    of = variant(choice["name"])
    small = test_mma_f64.small if isinstance(family, MmaF64) else test_simt_async.small
    changes = {key: value for key, value in choice.items() if key not in ("name", "mode")}
    return bench(live, family, small(of, live, **changes), of, mode_of(choice))


def mode_of(choice: dict[str, Any]) -> str:
    """Return a choice's launch mode, clamped loads besides."""
    return str(Mode.parse(choice.get("mode", "plain")) | Mode(clamped=True))


@st.composite
def short(draw: st.DrawFn, block_m: int, block_n: int, most_k: int) -> Check:
    """Draw a problem of which one side, or both, is shorter than a block."""
    which = draw(st.sampled_from(["m", "n", "both"]))
    m = draw(st.integers(1, block_m - 1 if which != "n" else 2 * block_m))
    n = draw(st.integers(1, block_n - 1 if which != "m" else 3 * block_n))
    k, padding, offset = (draw(st.integers(0, most)) for most in (most_k, 9, 9))
    if draw(st.booleans()):  # so that 16 bytes are copied
        m, n, k, padding, offset = (-(-x // 4) * 4 for x in (m, n, k, padding, offset))
    return Check(m, n, k, beta=draw(st.sampled_from([0, 1, 3])), padding=padding, offset=offset)


@needs_compiler
@settings(max_examples=36, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), choice=st.sampled_from(SINGLE), seed=st.integers(0, 2**32 - 1))
def test_every_side_shorter_than_a_block_is_right(
    emulated: EmulatedDevice, data: st.DataObject, choice: dict[str, Any], seed: int
) -> None:
    check = data.draw(short(choice.get("block_m", 64), 32, 70))
    made(emulated, choice).exact(check, np.random.default_rng(seed))


@needs_compiler
@settings(max_examples=16, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(check=short(64, 32, 50), choice=st.sampled_from(DOUBLE), seed=st.integers(0, 2**32 - 1))
def test_tensor_cores_are_fed_alike(
    emulated: EmulatedDevice, check: Check, choice: dict[str, Any], seed: int
) -> None:
    made(emulated, choice, MMA).exact(check, np.random.default_rng(seed))


@needs_compiler
@settings(max_examples=16, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    m=st.integers(1, 31),
    n=st.integers(1, 90),
    k=st.integers(1, 400),
    blocks=st.integers(1, 5),
    stream_k=st.sampled_from([0, 1, 2]),
    seed=st.integers(0, 2**32 - 1),
)
def test_blocks_that_stay_share_short_sides(
    emulated: EmulatedDevice, m: int, n: int, k: int, blocks: int, stream_k: int, seed: int
) -> None:
    run = test_persistent.bench(emulated, "sTN", blocks, "clamped", persistent=1, stream_k=stream_k)
    run.exact(Check(m, n, k, beta=1), np.random.default_rng(seed))


@needs_compiler
@pytest.mark.parametrize("name", ["sTN", "sNT"])
def test_all_modes_work_together(emulated: EmulatedDevice, name: str) -> None:
    """Short sides, columns that begin anywhere, results staged, parts added up by halves."""
    mode = "scalar+clamped+staged" if name == "sNT" else "clamped+staged"
    for blocks in (3, 7):
        run = test_persistent.bench(
            emulated, name, blocks, mode, persistent=1, stream_k=1, tree_reduction=1
        )
        for sizes in ((21, 90, 500), (97, 13, 333), (7, 5, 700)):
            check = Check(*sizes, beta=1, padding=1, offset=3)
            run.exact(check, np.random.default_rng(blocks))


@needs_compiler
@pytest.mark.parametrize("name", ["sTN", "cNT"])
def test_the_contract_is_kept(emulated: EmulatedDevice, name: str) -> None:
    run = made(emulated, {"name": name, "mode": "scalar" if name == "cNT" else "plain"})
    certify(emulated, run.kernel, SIMT, run.config, run.variant)


@needs_compiler
@pytest.mark.parametrize("name", ["eNT", "fTN"])
def test_sums_outside_are_not_computed_anew(emulated: EmulatedDevice, name: str) -> None:
    """37 rows in blocks of 64: Inf and NaN are a plain loop's, and nothing outside is looked at."""
    spoils_as_a_plain_loop(made(emulated, {"name": name}), 70)


ELEMENT = "copy_element_below(place(i, stage), piece, along_side(i), left)"
PIECE = "copy_chunk_below(place(i, stage), piece, along_side(i), left)"
ALONG = "K_FAST ? i / map::PARTS : i % map::PARTS"

# Each with a shape that shows it: 16-byte copies want aligned columns.
FAULTS: dict[str, tuple[dict[str, Any], str, str, Check]] = {
    "an element outside is copied": (
        {"name": "sTN"}, ELEMENT, "copy_element(place(i, stage), piece)", Check(3, 5, 64),
    ),
    "a chunk outside is copied": (
        {"name": "sNT"}, PIECE, "copy_chunk(place(i, stage), piece)", Check(8, 8, 64),
    ),
    "rows are not told apart": (
        {"name": "sTN"}, ALONG, "0", Check(40, 9, 64),
    ),
    "a part outside is copied": (
        SINGLE[-1], ELEMENT, "copy_element(place(i, stage), piece)", Check(70, 30, 64),
    ),
    "a part of a column outside is copied": (
        SINGLE[-2], PIECE, "copy_chunk(place(i, stage), piece)", Check(40, 8, 64),
    ),
    "a part of a remainder outside is copied": (
        SINGLE[-3], "(!CLAMPED || along_side(i) < left)", "true", Check(40, 8, 6),
    ),
    "a step too few": (
        {"name": "sTN"}, "(x.side_left - s + APART - 1) / APART", "(x.side_left - s) / APART",
        Check(42, 9, 64),
    ),
}  # fmt: skip


@pytest.mark.every(3)
@needs_compiler
@pytest.mark.parametrize("fault", FAULTS)
def test_the_emulator_finds(emulated: EmulatedDevice, fault: str) -> None:
    choice, old, new, check = FAULTS[fault]
    config, of = made(emulated, choice).config, variant(choice["name"])
    with pytest.raises((LaunchError, WrongResultError)):
        bench(emulated, faulty(SimtAsync, old, new), config, of, mode_of(choice)).exact(
            check, np.random.default_rng(0)
        )


@needs_compiler
def test_a_tuner_checks_what_guards_are_for(emulated: EmulatedDevice) -> None:
    """The loop without checks runs, and is checked, although no problem of others is so small."""
    of = variant("sTN")
    config = test_simt_async.small(of, emulated)
    computes_the_product(emulated, SIMT, config, of, "clamped")
    fault_is_found(emulated, faulty(SimtAsync, ALONG, "0"), config, of, mode="clamped")
    # Of a thin problem all copies but the remainder's are this loop's.
    broken = faulty(SimtAsync, ELEMENT + ";", ";")
    thin = Check(8, 8, 64)
    with pytest.raises(WrongResultError):
        bench(emulated, broken, config, of, "clamped").exact(thin, np.random.default_rng(0))
    bench(emulated, broken, config, of).exact(thin, np.random.default_rng(0))


@pytest.mark.parametrize("family", [SIMT, MMA], ids=lambda family: family.name)
@pytest.mark.parametrize("trans", ["NN", "NT", "TN", "TT"])
def test_every_config_may_be_clamped(family: Stencil, trans: str) -> None:
    """Whatever else it is, but for boxes, which need no such thing."""
    of = variant("d" + trans)
    space = family.space(of, H100)
    for config in space.sample(20, seed=3):
        assert has_mode(family, config, of, H100, "clamped") is not bool(config.get("tma", 0))


def changed(family: Stencil, problem: Problem) -> str:
    """Return the launch mode of copies that a problem asks a default for."""
    config = family.default(Variant.of(problem), H100).replace(block_m=128, block_n=64)
    return str(replace(family.geometry(config).mode(problem), staged=False))


def test_clamped_loads_are_asked_for_where_a_side_is_shorter_than_a_block() -> None:
    assert changed(SIMT, Problem(128, 64, 500, "s", "T", "N")) == "plain"
    assert changed(SIMT, Problem(127, 64, 500, "s", "T", "N")) == "clamped"
    assert changed(SIMT, Problem(500, 63, 500, "s", "T", "N")) == "clamped"
    # Single elements where columns of 16 bytes' pieces do not end with the matrix.
    assert changed(SIMT, Problem(100, 500, 500, "s", "N", "T")) == "clamped"
    padded = Problem(99, 500, 500, "s", "N", "T", lda=100)
    assert changed(SIMT, padded) == "scalar+clamped"
    assert changed(SIMT, Problem(500, 63, 500, "s", "N", "N")) == "clamped"
    assert changed(MMA, Problem(99, 500, 500, "d", "T", "N")) == "clamped"
    assert changed(MMA, Problem(99, 500, 501, "d", "T", "N")) == "scalar+clamped"
