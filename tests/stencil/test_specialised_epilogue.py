"""The specialised epilogue, run on the CPU.

It tests once what the plain one tests for each chunk, so that all cases are stored here: columns of
C aligned and not, beta 0 and not, alpha real and not; and blocks at every edge.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.stencil import test_staged
from tests.stencil.contract import CHECKS, compiled, fault_is_found, faulty, thorough_but
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.portable_harness import variant
from tests.stencil.simt_async import test_stencil as test_simt_async
from tests.stencil.simt_async.test_persistent import SHARING, STAYING, TINY
from tilewright.stencil.mma_f64 import MmaF64
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.matrices import Matrix
from tilewright.tuning.verify import Bench, Check, WrongResultError, certify, screen

MMA = MmaF64()

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


def bench(live: EmulatedDevice, name: str, **choice: Any) -> Bench:
    """Return a config of few threads with the specialised epilogue, compiled."""
    return test_staged.bench(live, name, **{"mode": "plain", "specialised_epilogue": 1, **choice})


@pytest.mark.parametrize("name", thorough_but(["sNT", "cCN"], ["sNT", "cCN", "dNN", "zTC"]))
def test_the_contract_is_kept(emulated: EmulatedDevice, name: str) -> None:
    """All classes of alpha and beta, ragged sizes, paddings, offsets, NaN and Inf."""
    run = bench(emulated, name, **({"family": MMA} if name[0] in "dz" else {}))
    certify(emulated, run.kernel, run.stencil, run.config, run.variant)


# Both ways lanes lie, results that are staged where columns are not aligned, and whoever shares a
# tile.
WAYS: list[dict[str, Any]] = [
    {"name": "sNN"},
    {"name": "sTN", "lanes_m": 4, "block_n": 64, "cluster_k": 4},
    {"name": "sNT", "lanes_m": 4, "block_n": 64, "warps_k": 2},
    {"name": "sTT", **TINY, **STAYING, "lanes_m": 4, "tile_m": 8, "tile_n": 4},
    {"name": "cTN", **TINY, **SHARING},
    {"name": "cNC", "mode": "staged"},
]


@pytest.mark.thorough
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
    run = bench(emulated, **way, blocks=blocks if "persistent" in way else None)
    run.exact(check, np.random.default_rng(seed))


# Other sizes of an element, sums that need care, layers beside clusters.
OTHERS: list[dict[str, Any]] = [
    {"name": "eNT"},
    {"name": "zNT", "family": MMA},
    {"name": "dTN", "family": MMA, "persistent": 1, "stream_k": 2},
    {"name": "dNN", "cluster_k": 2, "warps_k": 2, "block_k": 32},
    {"name": "fTN", "cluster_k": 2},
]


@pytest.mark.parametrize("choice", thorough_but(OTHERS[:2], OTHERS), ids=test_staged.called)
def test_every_choice_computes_the_product(
    emulated: EmulatedDevice, choice: dict[str, Any]
) -> None:
    run = bench(emulated, **choice)
    screen(emulated, run.kernel, run.stencil, run.config, run.variant)
    for pad in (0, 1, 2):
        check = Check(131, 67, 50, beta=3, padding=pad, offset=pad)
        run.exact(check, np.random.default_rng(pad))


@pytest.mark.parametrize(("name", "m"), [("sNN", 64), ("sNN", 67), ("cNT", 66)])
def test_bits_are_those_of_ways_side_by_side(emulated: EmulatedDevice, name: str, m: int) -> None:
    """Where no compiler fuses alpha and beta, who asks what changes nothing in C or beside it."""
    rng, check = np.random.default_rng(m), Check(m, 35, 40, beta=3)
    kind = variant(name).precision.dtype

    def drawn(rows: int, columns: int) -> Matrix:
        return Matrix.place(rng.standard_normal((rows, columns)).astype(kind))

    x, y = drawn(m, 40), drawn(40, 35) if name[2] == "N" else drawn(35, 40)
    c = rng.standard_normal((m, 35)).astype(kind)
    one, other = (
        bench(emulated, name, specialised_epilogue=way).run(check, x, y, Matrix.result(c)).tobytes()
        for way in (0, 1)
    )
    assert one == other


# None of these writes beyond C: the emulator runs in this process's memory.
FAULTS = {
    "rows and columns end one early": (
        "(unsigned int)(left - first)",
        "(unsigned int)(left - first - 1)",
    ),
    "a chunk goes where it is not aligned": ("CHUNK == 1 || c.wide, add", "true, add"),
    "C is left out": ("elem_add(v[e], elem_scale(c.beta, old[e]))", "v[e]"),
    "C counts though beta is 0": ("add = !elem_is_zero(c.beta)", "add = true"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_checks_find(emulated: EmulatedDevice, fault: str) -> None:
    old, new = FAULTS[fault]
    of, wrong = variant("sNT"), faulty(SimtAsync, old, new)
    fault_is_found(emulated, wrong, test_simt_async.small(of, emulated, specialised_epilogue=1), of)


def test_the_contract_finds_an_alpha_without_its_imaginary_part(emulated: EmulatedDevice) -> None:
    of, wrong = variant("cNT"), faulty(SimtAsync, "if (real_of(c.alpha, 1) == 0) {", "if (true) {")
    config = test_simt_async.small(of, emulated, specialised_epilogue=1)
    kernel = compiled(emulated, wrong, config, of)
    with pytest.raises(WrongResultError):
        certify(emulated, kernel, wrong, config, of)
