"""The stencil on matrix units for doubles, its text run on the CPU: every way through it is right.

The emulator multiplies what the 32 lanes of a warp hold, once all of them have come to it; else
it is as for `simt_async`, whose way through a tile this stencil shares.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.portable_harness import variant
from tilewright.backend import LaunchError
from tilewright.precision import precision
from tilewright.problem import transposes_of
from tilewright.space import Config
from tilewright.stencil import Source, Variant
from tilewright.stencil.mma_f64 import MmaF64
from tilewright.tuning.verify import Bench, Check, WrongResultError, certify, screen

FAMILY = MmaF64()
VARIANTS = [letter + a + b for letter in "dz" for a, b in transposes_of(precision(letter))]
CERTIFIED = ("dNN", "dNT", "dTN", "dTT")

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> EmulatedDevice:
    return EmulatedDevice(tmp_path_factory.mktemp("kernels"), multiprocessors=8)


def small(of: Variant, live: EmulatedDevice, **changes: int) -> Config:
    """Return a config of four warps, two by two, each with several instructions both ways."""
    whole = 8 if of.precision.is_complex else 16
    values = {
        "block_m": 64, "block_n": 32, "warp_m": 32, "warp_n": 16, "mma_m": 16, "mma_k": 4,
        "block_k": whole, "stages": 3, "ahead": 1, "turns": 4, "walk": 0, "resident": 1,
        "split_k": 1, "raster_rows": 4,
    }  # fmt: skip
    return FAMILY.space(of, live.spec).config(
        {**values, **changes}, kinds=("divisibility", "hardware")
    )


def bench(live: EmulatedDevice, config: Config, of: Variant, family: MmaF64 = FAMILY) -> Bench:
    kernel = live.compile(family.source(config, of, "cuda"))
    return Bench(live, kernel, family, config, of)


@pytest.mark.parametrize(
    "name",
    [
        *CERTIFIED,
        *(pytest.param(n, marks=pytest.mark.slow) for n in VARIANTS if n not in CERTIFIED),
    ],
)
def test_the_contract_is_kept(emulated: EmulatedDevice, name: str) -> None:
    """All classes of alpha and beta, ragged sizes, paddings, offsets, NaN and Inf, rounding."""
    of = variant(name)
    config = small(of, emulated)
    certify(emulated, bench(emulated, config, of).kernel, FAMILY, config, of)


# Instructions of each length, with fragments of each sort; what a step takes turns with.
CHOICES: list[dict[str, Any]] = [
    {"name": "dNN", "mma_k": 8, "ahead": 0, "turns": 1, "stages": 2},
    {"name": "dNT", "mma_k": 8, "turns": 16, "walk": 1},
    {"name": "dTN", "mma_k": 16, "block_k": 32, "ahead": 0, "stages": 4},
    {"name": "dNN", "mma_k": 16, "block_k": 32, "turns": 8, "raster_rows": 0},
    {"name": "dTT", "mma_m": 8, "split_k": 2, "warp_m": 16, "warp_n": 32},
    {"name": "zNR", "mma_m": 8, "turns": 2},
    {"name": "zTC", "mma_k": 8, "block_k": 16, "split_k": 4, "walk": 1},
    {"name": "zCR", "ahead": 0, "stages": 2, "warp_m": 16, "warp_n": 32},
    {"name": "zNC", "turns": 8},
    {"name": "dTN", "persistent": 1, "stream_k": 1},
]


@pytest.mark.parametrize(
    "choice", [pytest.param(c, marks=pytest.mark.slow) if n % 2 else c for n, c in
               enumerate(CHOICES)], ids=str
)  # fmt: skip
def test_every_choice_computes_the_product(
    emulated: EmulatedDevice, choice: dict[str, Any]
) -> None:
    of = variant(choice["name"])
    config = small(of, emulated, **{key: v for key, v in choice.items() if key != "name"})
    screen(emulated, bench(emulated, config, of).kernel, FAMILY, config, of)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dNN", "dTT", "zNT", "zCN"])
def test_what_ships_is_right(emulated: EmulatedDevice, name: str) -> None:
    of = variant(name)
    for config in FAMILY.starts(of, emulated.spec):
        screen(emulated, bench(emulated, config, of).kernel, FAMILY, config, of)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from(["dNN", "dNT", "dTN", "dTT"]),
    sizes=st.tuples(st.integers(1, 150), st.integers(1, 90), st.integers(0, 120)),
    aligned=st.booleans(),
    scalars=st.tuples(st.sampled_from([0, 1, -2]), st.sampled_from([0, 1, 3])),
    padding=st.integers(0, 9),
    offset=st.integers(0, 9),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_problem_is_computed_exactly(
    emulated: EmulatedDevice,
    name: str,
    sizes: tuple[int, int, int],
    aligned: bool,
    scalars: tuple[int, int],
    padding: int,
    offset: int,
    seed: int,
) -> None:
    """Aligned sizes take the way without checks for inner blocks, others do not."""
    of = variant(name)
    if aligned:
        sizes = tuple(-(-size // 2) * 2 for size in sizes)
        padding, offset = padding // 2 * 2, offset // 2 * 2
    alpha, beta = scalars
    check = Check(*sizes, alpha, beta, padding, offset, nan_in_c=beta == 0)
    bench(emulated, small(of, emulated), of).exact(check, np.random.default_rng(seed))


FAULTS = {
    "a lane reads another one's rows": (
        "dNT", "return (t * PITCH + side + lane_g()", "return (t * PITCH + side + (lane_g() ^ 1)"
    ),
    "A's steps along k are in another order than B's": (
        "dNN", "PAIRED_K ? at / 2 * 8 + at % 2 : at * 4", "at * 4"
    ),
    "a sum goes to its neighbour's column": ("dNT", "4 + 2 * e + j % 2", "4 + e + 2 * (j % 2)"),
    "rows of a plane are not in the order of lanes": (
        "dTN", "side % CHUNK * 8 + side % 16 / CHUNK", "side % 16"
    ),
    "a conjugate has the wrong sign": (
        "zCN", "CONJ_A == CONJ_B ? negative(im) : im", "negative(im)"
    ),
    "some lanes do not multiply": ("dNT", "MMA_M / 8) mma(", "MMA_M / 8) if (lane_t()) mma("),
    "a barrier is left out": ("dTN", "BARRIER();\n                    trip", "trip"),
    "copies are not waited for": (
        "dNN", "wait_for_groups<STAGES - 2>();\n                    B", "B"
    ),
}  # fmt: skip


# The way through a tile is `simt_async`'s, and its faults are found there every time.
SHARED_FAULTS = ("a barrier is left out", "copies are not waited for")


@pytest.mark.parametrize(
    "fault",
    [pytest.param(f, marks=pytest.mark.slow) if f in SHARED_FAULTS else f for f in FAULTS],
)
def test_the_emulator_finds(emulated: EmulatedDevice, fault: str) -> None:
    """Each fault, put into the text, fails the check that candidates pass."""
    name, old, new = FAULTS[fault]

    class Faulty(MmaF64):
        def source(self, config, variant, dialect):  # type: ignore[no-untyped-def]
            made = super().source(config, variant, dialect)
            assert old in made.text
            text = made.text.replace(old, new)
            return Source(text, made.defines, made.entry, made.dynamic_shared_bytes)

    of = variant(name)
    config = small(of, emulated, stages=2, turns=1)
    faulty = bench(emulated, config, of, Faulty())
    with pytest.raises((WrongResultError, LaunchError)):
        screen(emulated, faulty.kernel, faulty.stencil, config, of)
