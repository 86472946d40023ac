"""Double-double sums that blocks share along k: right to the last bit, and IEEE where infinite."""

from __future__ import annotations

import numpy as np
import pytest

from tests.double_double.oracle import spoils_as_a_plain_loop
from tests.stencil.emulator import EmulatedDevice
from tests.stencil.simt_async.test_persistent import SHARING, bench, needs_compiler
from tilewright.tuning.verify import Check, screen


@needs_compiler
@pytest.mark.parametrize(("name", "stream_k"), [("eTN", 1), ("fNT", 2)])
def test_shared_sums_of_pairs(emulated: EmulatedDevice, name: str, stream_k: int) -> None:
    run = bench(emulated, name, 3, **{**SHARING, "stream_k": stream_k})
    run.exact(Check(90, 70, 250), np.random.default_rng(1))
    run.exact(Check(33, 65, 97, 2, 3), np.random.default_rng(2))
    screen(emulated, run.kernel, run.stencil, run.config, run.variant)
    spoils_as_a_plain_loop(run, 170)
