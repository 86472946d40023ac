"""The stencil of short sums on GPUs: alignment that the emulator has no misaligned store for."""

from __future__ import annotations

import numpy as np
import pytest

from tests.stencil.contract import bench
from tests.stencil.portable_harness import variant
from tilewright.backend import LiveDevice, devices
from tilewright.stencil.outer import Outer
from tilewright.tuning.verify import Check, certify

FAMILY = Outer()
GPUS = [d for d in devices() if d.backend == "cuda"]

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not GPUS, reason="needs a GPU")]


@pytest.fixture(params=GPUS, ids=lambda d: d.id)
def live(request: pytest.FixtureRequest) -> LiveDevice:
    return request.param


@pytest.mark.parametrize(
    "name",
    ["sNN", "sTT", "dNT", "dTN", "cCN", "cNT", "zNC", "zTN", "bf16NN", "fp16TT", "bf16_f32TN"],
)
def test_every_start_keeps_the_contract(live: LiveDevice, name: str) -> None:
    of = variant(name)
    for config in FAMILY.starts(of, live.spec):
        kernel = live.compile(FAMILY.source(config, of, live.dialect))
        certify(live, kernel, FAMILY, config, of)


@pytest.mark.parametrize("name", ["sNN", "dTT", "cTN", "zNT", "bf16NT", "fp16TN", "fp16_f32NN"])
def test_large_results_whose_columns_begin_anywhere(live: LiveDevice, name: str) -> None:
    of = variant(name)
    for config in FAMILY.space(of, live.spec):
        run = bench(live, FAMILY, config, of)
        for padding, m in enumerate((2047, 2048, 2049, 2050)):
            check = Check(m, 1111, 3, -2, 3, padding=padding, offset=m % 8)
            run.exact(check, np.random.default_rng(m))
