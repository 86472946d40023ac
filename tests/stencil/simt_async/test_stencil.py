"""The stencil of asynchronous copies, its text run on the CPU: every way through it is right.

The emulator runs the threads of a block in a random order between barriers, and each launch
twice, with copies as early and as late as the text allows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.stencil.contract import (
    bench,
    checks,
    compiled,
    computes_the_product,
    every_start_computes_the_product,
    fault_is_found,
    faulty,
    has_mode,
    thorough_but,
)
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.portable_harness import variant
from tilewright.backend import LaunchError
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.precision import PRECISIONS
from tilewright.problem import transposes_of
from tilewright.space import Config
from tilewright.stencil import Variant
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.verify import Check, WrongResultError, certify, screen

FAMILY = SimtAsync()
VARIANTS = [str(p.letter) + a + b for p in PRECISIONS.values() for a, b in transposes_of(p)]

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


def small(of: Variant, live: EmulatedDevice, **changes: int) -> Config:
    """Return a config of few threads: two warps and more, chunks in every direction."""
    chunk = 16 // of.precision.element_bytes
    tile = max(4, chunk)
    if chunk == 1:  # double complex: as many registers for a quarter of the elements
        changes = {"block_m": 32, "tile_n": 4, **changes}
    values = {
        "block_m": 64, "block_n": 32, "tile_m": tile, "tile_n": 2 * tile, "lanes_m": 8,
        "block_k": 16, "unroll_k": 8, "stages": 3, "cluster_k": 1, "min_blocks": 1,
        "copy_groups": 2, "serpentine_rows": 0, "b_first": 0, "swizzle_rows": 4,
    }  # fmt: skip
    return FAMILY.space(of, live.spec).config(
        {**values, **changes}, kinds=("divisibility", "hardware")
    )


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ["sNN", "sNT", "sTN", "sTT"])
def test_the_contract_is_kept_by_every_transpose(emulated: EmulatedDevice, name: str) -> None:
    """All classes of alpha and beta, ragged sizes, paddings, offsets, NaN and Inf."""
    of = variant(name)
    config = small(of, emulated)
    certify(emulated, compiled(emulated, FAMILY, config, of), FAMILY, config, of)


@pytest.mark.parametrize("name", ["sNT", "sTT"])
def test_columns_may_begin_anywhere(emulated: EmulatedDevice, name: str) -> None:
    """Single elements, unchecked in inner blocks whatever the leading dimensions."""
    of = variant(name)
    config = small(of, emulated)
    run = bench(emulated, FAMILY, config, of, "scalar")
    screen(emulated, run.kernel, FAMILY, config, of)
    odd = [Check(130, 70, 77, beta=1, padding=pad, offset=pad) for pad in (0, 1, 3)]
    for check in odd:
        run.exact(check, np.random.default_rng(check.padding))
    # It is these copies that the result is made of: without them it is wrong.
    broken = faulty(SimtAsync, "copy_element(place(i, stage), piece);", ";")
    with pytest.raises(WrongResultError):
        bench(emulated, broken, config, of, "scalar").exact(odd[1], np.random.default_rng(0))


@pytest.mark.parametrize("name", ["sTN", "sNN", "cCN"])
def test_runs_of_64_bytes_are_right(emulated: EmulatedDevice, name: str) -> None:
    of = variant(name)
    config = small(of, emulated, run_bytes=64)
    computes_the_product(emulated, FAMILY, config, of)
    for padding in (0, 1):
        check = Check(130, 70, 77, beta=1, padding=padding, offset=padding)
        bench(emulated, FAMILY, config, of).exact(check, np.random.default_rng(padding))


def test_long_runs_are_whole() -> None:
    device = architecture_spec("sm_90a")
    of = variant("sTN")
    config = FAMILY.default(of, device).replace(block_k=16, unroll_k=16, run_bytes=64)
    space = FAMILY.space(of, device)
    assert config in space
    short = config.replace(block_k=8, unroll_k=8)
    assert "long runs along k" in [c.name for c in space.violated(short)]
    assert config not in FAMILY.space(variant("sNT"), device)  # nothing is transposed


def test_scalar_copies_are_for_what_runs_along_m_or_n() -> None:
    device = architecture_spec("sm_90a")
    for name, sound in {"sNN": True, "sTN": False, "zNT": False, "cTT": True}.items():
        of = variant(name)
        assert has_mode(FAMILY, FAMILY.default(of, device), of, device, "scalar") is sound


@pytest.mark.parametrize("name", ["cNT", "cCN"])
def test_a_loop_of_four_steps_is_right(emulated: EmulatedDevice, name: str) -> None:
    """A short text, whose tile along k is one sector of complex elements."""
    of = variant(name)
    stays = {"persistent": 1, "stream_k": 1} if name == "cNT" else {}
    config = small(of, emulated, block_k=4, unroll_k=4, stages=4, **stays)
    computes_the_product(emulated, FAMILY, config, of)


@pytest.mark.parametrize(
    ("name", "block_k", "unroll_k"),
    [("sTN", 12, 12), ("cTN", 12, 6), ("sTT", 24, 12)],
)
def test_tiles_of_half_sectors_are_right(
    emulated: EmulatedDevice, name: str, block_k: int, unroll_k: int
) -> None:
    """12 steps of floats are one sector and a half: 4 threads lie side by side along k."""
    of = variant(name)
    config = small(of, emulated, block_k=block_k, unroll_k=unroll_k, persistent=1, stream_k=1)
    computes_the_product(emulated, FAMILY, config, of)


@pytest.mark.every(8)
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in VARIANTS if name[0] != "s"])
def test_every_other_variant_computes_the_product(emulated: EmulatedDevice, name: str) -> None:
    of = variant(name)
    config = small(of, emulated, block_k=8, cluster_k=2)
    computes_the_product(emulated, FAMILY, config, of)


@pytest.mark.every(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    thorough_but(("sNN", "dTN", "zNR"), ["sNN", "sNT", "sTN", "sTT", "dTN", "cCN", "zNR"]),
)
def test_what_ships_is_right(emulated: EmulatedDevice, name: str) -> None:
    of = variant(name)
    every_start_computes_the_product(emulated, FAMILY, of)


@pytest.mark.every(5)
@pytest.mark.parametrize(
    "changes",
    [
        {"stages": 2, "block_k": 16, "unroll_k": 16},
        {"stages": 5, "block_k": 8, "copy_groups": 4, "serpentine_rows": 1},
        {"block_k": 32, "unroll_k": 4, "copy_groups": 1, "serpentine_rows": 1, "swizzle_rows": 0},
        {"cluster_k": 8, "stages": 2, "serpentine_rows": 1, "b_first": 1},
        {"lanes_m": 4, "cluster_k": 4, "block_m": 32, "block_n": 64},
        {"block_m": 128, "block_n": 32, "tile_m": 8, "tile_n": 4, "block_k": 16},
        {"block_m": 32, "block_n": 256, "tile_m": 4, "tile_n": 16, "unroll_k": 16},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["sNT", "sTN"])
def test_every_choice_computes_the_product(
    emulated: EmulatedDevice, name: str, changes: dict[str, int]
) -> None:
    of = variant(name)
    config = small(of, emulated, **changes)
    computes_the_product(emulated, FAMILY, config, of)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from(["sNN", "sNT", "sTN", "sTT"]),
    split=st.sampled_from([1, 2]),
    check=checks(chunk=4, most_k=200),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_problem_is_computed_exactly(
    emulated: EmulatedDevice, name: str, split: int, check: Check, seed: int
) -> None:
    of = variant(name)
    config = small(of, emulated, cluster_k=split)
    bench(emulated, FAMILY, config, of).exact(check, np.random.default_rng(seed))


FAULTS = {
    "a barrier is left out": ("BARRIER();\n                    trip", "trip"),
    "copies are not waited for": ("wait_for_groups<STAGES - 2>();\n                    B", "B"),
    "the first copies are not waited for": ("wait_for_groups<STAGES - 2>();\n    B", "B"),
    "a copy is for the wrong stage": ("into = stage;", ""),
    "zeros beyond k are left out": ("&& l < depth", ""),
    "a neighbour's columns are stored, too": ("column < c.n_first || column >=", "column >="),
    "a neighbour's rows are stored, too": ("row + e >= c.m_first && row", "row"),
    "a block leaves while others read": ("cluster_barrier(); /* nobody l", "; /* nobody l"),
    "sums are read before they are there": (
        "barrier_of_parts();\n    const int columns",
        "const int columns",
    ),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_emulator_finds(emulated: EmulatedDevice, fault: str) -> None:
    """Each fault of ordering, put into the text, fails the check that candidates pass."""
    old, new = FAULTS[fault]
    of = variant("sTN")
    config = small(of, emulated, cluster_k=2)
    fault_is_found(emulated, faulty(SimtAsync, old, new), config, of)


def test_the_emulator_says_what_is_read_outside(emulated: EmulatedDevice, tmp_path: Path) -> None:
    of = variant("sTN")
    unchecked = faulty(SimtAsync, "inside ? from : x.first, inside", "from, 1")
    stray = bench(emulated, unchecked, small(of, emulated), of)
    with pytest.raises(LaunchError, match="outside every array"):
        stray.exact(Check(3, 3, 3), np.random.default_rng(0))
