"""The remainder of k as the end of its tile: sources for sizes of any kind, run on the CPU.

The other steps of that tile lie before the matrix, where there may be anything or nothing: they are
zeros in shared memory, and nothing is read for them (`simt_async/copies.cuh`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.stencil.contract import bench, fails_by_fault, thorough_but
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.mma_f64 import test_stencil as test_mma_f64
from tests.stencil.portable_harness import variant
from tests.stencil.simt_async import test_stencil as test_simt_async
from tests.stencil.simt_async.test_persistent import SHARING, TINY
from tests.stencil.test_staged import called
from tilewright.stencil import Stencil
from tilewright.stencil.mma_f64 import MmaF64
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.verify import Bench, Check

SIMT, MMA = SimtAsync(), MmaF64()

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")

# Each way of copying, alone and with who clamps, shares or layers.
WAYS: list[dict[str, Any]] = [
    {"name": "sNT", "mode": "scalar"},
    {"name": "sTN", "mode": "staged"},
    {"name": "sNN", "mode": "scalar", "cluster_k": 2},
    {"name": "sNT", "mode": "clamped+staged"},
    {"name": "sTT", "mode": "scalar+clamped+staged"},
    {"name": "cNC", "mode": "staged"},
    {"name": "dNT", "family": MMA, "mode": "scalar"},
    {"name": "dTN", "family": MMA, "mode": "scalar+clamped"},
    {"name": "sNN", "mode": "scalar+staged", "parallel_split_k": 1},
    {"name": "sNT", "mode": "scalar", **TINY, **SHARING},
    {"name": "sTT", "mode": "staged", "warps_k": 2},
]


def made(
    live: EmulatedDevice, name: str, mode: str, family: Stencil = SIMT, **choice: int
) -> Bench:
    of = variant(name)
    small = test_mma_f64.small if isinstance(family, MmaF64) else test_simt_async.small
    return bench(live, family, small(of, live, **choice), of, mode)


@pytest.mark.every(2)
@pytest.mark.parametrize("way", thorough_but(WAYS[:8], WAYS), ids=called)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    k=st.integers(0, 70),
    sides=st.sampled_from([(64, 32), (131, 67), (21, 50), (36, 20)]),
    beta=st.sampled_from([0, 1]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_remainder_is_multiplied(
    emulated: EmulatedDevice,
    way: dict[str, Any],
    k: int,
    sides: tuple[int, int],
    beta: int,
    seed: int,
) -> None:
    """No remainder, one of each length, and a k of less than a tile, in C's columns of any kind."""
    run = made(emulated, **way)
    for pad in (0, 1, 4):
        check = Check(*sides, k, beta=beta, padding=pad, offset=pad % 4)
        run.exact(check, np.random.default_rng(seed))


FAULTS = {
    "steps before the matrix are read": ("first_step + beyond >= absent", "true"),
    "a step of the remainder is left out": ("beyond >= absent", "beyond > absent"),
    "the first tile begins with the matrix": (
        "RESTS_END ? mine.first_depth + (mine.begin - 1) * BLOCK_K", "RESTS_END ? 0"
    ),
}  # fmt: skip


@pytest.mark.every(2)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("way", [WAYS[0], WAYS[1], WAYS[5]], ids=called)
def test_the_emulator_finds(emulated: EmulatedDevice, way: dict[str, Any], fault: str) -> None:
    """Each fault, put into the text, fails a check that the text passes."""

    def check(family: Stencil) -> None:
        run = made(emulated, **way, family=family)
        run.exact(Check(64, 64, 45), np.random.default_rng(3))

    fails_by_fault(check, SimtAsync, *FAULTS[fault])
