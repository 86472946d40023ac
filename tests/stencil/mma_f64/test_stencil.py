"""The stencil on tensor cores for doubles, its text run on the CPU: every way through it is right.

The emulator multiplies what the 32 lanes of a warp hold, once all of them have come to it; else
it is as for `simt_async`, whose way through a tile this stencil shares.
"""

from __future__ import annotations

from typing import Any

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
    thorough_but,
)
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.portable_harness import variant
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.precision import precision
from tilewright.problem import transposes_of
from tilewright.space import Config
from tilewright.stencil import Variant
from tilewright.stencil.mma_f64 import MmaF64
from tilewright.tuning.verify import Check, certify

FAMILY = MmaF64()
VARIANTS = [letter + a + b for letter in "dz" for a, b in transposes_of(precision(letter))]
CERTIFIED = ("dNN", "dNT", "dTN", "dTT")

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


def small(of: Variant, live: EmulatedDevice, **changes: int) -> Config:
    """Return a config of four warps, two by two, each with several instructions both ways."""
    whole = 8 if of.precision.is_complex else 16
    values = {
        "block_m": 64, "block_n": 32, "warp_m": 32, "warp_n": 16, "mma_m": 16, "mma_k": 4,
        "block_k": whole, "stages": 3, "double_buffered": 1, "interleave": 4,
        "serpentine_rows": 0, "min_blocks": 1,
        "cluster_k": 1, "swizzle_rows": 4,
    }  # fmt: skip
    return FAMILY.space(of, live.spec).config(
        {**values, **changes}, kinds=("divisibility", "hardware")
    )


@pytest.mark.every(4)
@pytest.mark.parametrize("tma", [0, 1])
@pytest.mark.parametrize("name", thorough_but(CERTIFIED, VARIANTS))
def test_the_contract_is_kept(emulated: EmulatedDevice, name: str, tma: int) -> None:
    """All classes of alpha and beta, ragged sizes, paddings, offsets, NaN and Inf, rounding."""
    of = variant(name)
    config = small(of, emulated, tma=tma)
    certify(emulated, compiled(emulated, FAMILY, config, of), FAMILY, config, of)


# Instructions of each length, with fragments of each sort; what a step takes turns with.
CHOICES: list[dict[str, Any]] = [
    {"name": "dNN", "mma_k": 8, "double_buffered": 0, "interleave": 1, "stages": 2},
    {"name": "dNT", "mma_k": 8, "interleave": 16, "serpentine_rows": 1},
    {"name": "dTN", "mma_k": 16, "block_k": 32, "double_buffered": 0, "stages": 4},
    {"name": "dNN", "mma_k": 16, "block_k": 32, "interleave": 8, "swizzle_rows": 0},
    {"name": "dTT", "mma_m": 8, "cluster_k": 2, "warp_m": 16, "warp_n": 32},
    {"name": "zNR", "mma_m": 8, "interleave": 2},
    {"name": "zTC", "mma_k": 8, "block_k": 16, "cluster_k": 4, "serpentine_rows": 1},
    {"name": "zCR", "double_buffered": 0, "stages": 2, "warp_m": 16, "warp_n": 32},
    {"name": "zNC", "interleave": 8},
    {"name": "dTN", "persistent": 1, "stream_k": 1},
    # Two warps copy eight rows at once, the others' places are between these in a plane.
    {"name": "dTN", "warp_m": 32, "warp_n": 32},
    {"name": "zTN", "warp_m": 32, "warp_n": 32},
]
# Who holds which columns of C differs by how B is read: in pairs, one by one, along k, by elements.
BOXED: list[dict[str, Any]] = [
    {"tma": 1, "name": "dNT", "mma_k": 8, "warp_n": 32, "interleave": 16},
    {
        "tma": 1,
        "name": "dTT",
        "mma_k": 16,
        "block_k": 32,
        "block_n": 64,
        "warp_n": 64,
        "warp_m": 16,
    },
    {"tma": 1, "name": "dTN", "mma_k": 8, "block_k": 32, "persistent": 1, "stream_k": 2},
    {"tma": 1, "name": "dNN", "mma_k": 8, "mode": "staged", "warp_m": 64, "persistent": 1},
    {"tma": 1, "name": "dNT", "mma_k": 8, "mode": "staged", "warp_n": 32, "interleave": 8},
    {"tma": 1, "name": "dTT", "mode": "staged", "stages": 2, "cluster_k": 2},
    {"tma": 1, "name": "dNN", "mma_m": 8, "parallel_split_k": 1},
    {"tma": 1, "name": "zNC", "mma_m": 8, "persistent": 1, "stream_k": 1},
    {"tma": 1, "name": "zTN", "block_k": 16, "mma_k": 8, "cluster_k": 2, "stages": 5},
    {"tma": 1, "name": "zCT", "parallel_split_k": 1, "serpentine_rows": 1},
]
# Sides that are three quarters of a power of two: rows of them are copied in parts.
SQUARE = {"block_m": 96, "block_n": 96, "warp_m": 48, "warp_n": 48}
ODD_SIDES: list[dict[str, Any]] = [
    {"name": "dNN", **SQUARE, "mode": "staged"},
    {"name": "dTT", **SQUARE, "persistent": 1, "stream_k": 1},
    {"name": "dTN", **SQUARE, "warps_k": 2, "block_k": 32},
    {"name": "dNT", **SQUARE, "block_m": 192, "tma": 1},
    {"name": "dNT", **SQUARE, "warp_m": 32, "mode": "clamped"},
    {"name": "dNN", "block_m": 96, "block_n": 64, "warp_m": 48, "warp_n": 32, "mma_k": 8},
    {"name": "dTT", **SQUARE, "block_m": 48, "block_n": 48, "warps_k": 2, "block_k": 32},
    {"name": "zTN", "block_m": 48, "block_n": 48, "warp_m": 24, "warp_n": 48, "block_k": 16},
    {"name": "zNC", "block_m": 96, "block_n": 96, "warp_m": 24, "warp_n": 48},
    {"name": "zTN", "block_m": 64, "block_n": 96, "warp_m": 32, "warp_n": 24, "tma": 1},
    {"name": "zCT", "block_m": 96, "warp_m": 24, "warp_n": 32, "parallel_split_k": 1},
]
# Operands along m, along n, and along k, wherever columns begin.
SCALAR = [
    {"name": "dNT", "mode": "scalar"},
    {"name": "dTN", "mode": "scalar", "persistent": 1, "stream_k": 2},
    {"name": "dNN", "mode": "scalar", "mma_k": 8},
    {"name": "dTN", "mode": "scalar", "warp_m": 32, "warp_n": 32},
    {"name": "dTT", "mode": "scalar", **SQUARE},
    {"name": "dNT", "mode": "scalar", **SQUARE, "warp_m": 32},
    {
        "name": "dNN",
        "mode": "scalar",
        **SQUARE,
        "block_m": 48,
        "block_n": 48,
        "warps_k": 2,
        "block_k": 32,
    },
]


def made(live: EmulatedDevice, choice: dict[str, Any]) -> tuple[Config, Variant, str]:
    """Return a choice's config of few threads, its variant and launch mode."""
    of, mode = variant(choice["name"]), choice.get("mode", "plain")
    changes = {key: value for key, value in choice.items() if key not in ("name", "mode")}
    return small(of, live, **changes), of, mode


@pytest.mark.every(6)
@pytest.mark.parametrize(
    "choice",
    thorough_but([*CHOICES[::2], *BOXED[::3], *ODD_SIDES[::2]], [*CHOICES, *BOXED, *ODD_SIDES]),
    ids=str,
)
def test_every_choice_computes_the_product(
    emulated: EmulatedDevice, choice: dict[str, Any]
) -> None:
    config, of, mode = made(emulated, choice)
    computes_the_product(emulated, FAMILY, config, of, mode)


@pytest.mark.every(3)
@pytest.mark.parametrize("choice", SCALAR, ids=str)
def test_columns_may_begin_anywhere(emulated: EmulatedDevice, choice: dict[str, Any]) -> None:
    config, of, mode = made(emulated, choice)
    computes_the_product(emulated, FAMILY, config, of, mode)
    for pad in (0, 1):
        check = Check(150, 97, 51, beta=1, padding=pad, offset=1)
        bench(emulated, FAMILY, config, of, mode).exact(check, np.random.default_rng(5))


def test_a_warp_multiplies_whole_instructions() -> None:
    """24 rows are three instructions of complex ones, whose parts have rows each."""
    device = architecture_spec("sm_90a")
    tall = {"block_m": 96, "block_n": 96, "warp_m": 24, "warp_n": 48, "block_k": 16, "mma_k": 4}

    def broken(name: str) -> list[str]:
        space = FAMILY.space(variant(name), device)
        return [
            one.name
            for one in space.violated(FAMILY.default(variant(name), device).replace(**tall))
        ]

    assert "whole instructions of a warp" in broken("dNT")
    assert "whole instructions of a warp" not in broken("zNT")


@pytest.mark.every(2)
@pytest.mark.thorough
@pytest.mark.parametrize("name", ["dNN", "dTT", "zNT", "zCN"])
def test_what_ships_is_right(emulated: EmulatedDevice, name: str) -> None:
    every_start_computes_the_product(emulated, FAMILY, variant(name))


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from(["dNN", "dNT", "dTN", "dTT"]),
    check=checks(chunk=2, most_k=120),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_problem_is_computed_exactly(
    emulated: EmulatedDevice, name: str, check: Check, seed: int
) -> None:
    of = variant(name)
    config = small(of, emulated)
    bench(emulated, FAMILY, config, of).exact(check, np.random.default_rng(seed))


FAULTS = {
    "a lane reads another one's rows": (
        "dNT", "((side + g * PAIR) * ELEM", "((side + (g ^ 1) * PAIR) * ELEM"
    ),
    "A's steps along k are in another order than B's": (
        "dNN", "(t * ELEM_BYTES ^ swizzle<1>(g))", "((3 - t) * ELEM_BYTES ^ swizzle<1>(g))"
    ),
    "units of a plane's row are read where others lie": ("dTN", "on % LINE)", "on % LINE * 0)"),
    "units along n are read where others lie": (
        "dNT", "k % DEEP : 8 * x)", "k % DEEP : 8 * (x ^ 1))"
    ),
    "a sum goes to its neighbour's column": ("dNT", "4 + 2 * e + j % 2", "4 + e + 2 * (j % 2)"),
    "rows of a plane are not in the order of lanes": (
        "dTN", "side % CHUNK * 8 + side % 16 / CHUNK", "side % 16"
    ),
    "rows of a thread lie where more threads' would": (
        "dTN", "return row_of_plane(r * ABREAST) * PLANE_ROW", "return r * ABREAST * PLANE_ROW"
    ),
    "a conjugate has the wrong sign": ("zCN", "TURNED_BACK ? im : negative(im)", "negative(im)"),
    "sums stay conjugates": ("zCC", "SUMS_CONJUGATE ? elem_conj(sum) : sum", "sum"),
    "some lanes do not multiply": ("dNT", "MMA_M / 8) mma(", "MMA_M / 8) if (lane_t()) mma("),
    "a barrier is left out": ("dTN", "BARRIER();\n                    trip", "trip"),
    "copies are not waited for": (
        "dNN", "wait_for_groups<STAGES - 2>();\n                    B", "B"
    ),
}  # fmt: skip


# The way through a tile is `simt_async`'s, and its faults are found there every time.
SHARED_FAULTS = {"a barrier is left out", "copies are not waited for"}


@pytest.mark.every(2)
@pytest.mark.parametrize("fault", thorough_but(FAULTS.keys() - SHARED_FAULTS, FAULTS))
def test_the_emulator_finds(emulated: EmulatedDevice, fault: str) -> None:
    """Each fault, put into the text, fails the check that candidates pass."""
    name, old, new = FAULTS[fault]
    of = variant(name)
    few = {"warp_m": 32, "warp_n": 32} if "r * ABREAST" in new else {}
    config = small(of, emulated, stages=2, interleave=1, **few)
    fault_is_found(emulated, faulty(MmaF64, old, new), config, of)
