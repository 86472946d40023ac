"""Which copies the stencil of asynchronous copies can have; `test_contract` runs them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.stencil.contract import faulty, has_mode
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.portable_harness import variant
from tests.stencil.ways import SIMT, simt
from tilewright.backend import LaunchError
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.verify import Check

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


def test_long_runs_are_whole() -> None:
    device = architecture_spec("sm_90a")
    of = variant("sTN")
    config = SIMT.default(of, device).replace(block_k=16, unroll_k=16, run_bytes=64)
    space = SIMT.space(of, device)
    assert config in space
    short = config.replace(block_k=8, unroll_k=8)
    assert "long runs along k" in [c.name for c in space.violated(short)]
    assert config not in SIMT.space(variant("sNT"), device)  # nothing is transposed


def test_scalar_copies_are_for_what_runs_along_m_or_n() -> None:
    device = architecture_spec("sm_90a")
    for name, sound in {"sNN": True, "sTN": False, "zNT": False, "cTT": True}.items():
        of = variant(name)
        assert has_mode(SIMT, SIMT.default(of, device), of, device, "scalar") is sound


@needs_compiler
def test_the_emulator_says_what_is_read_outside(emulated: EmulatedDevice) -> None:
    unchecked = faulty(SimtAsync, "inside ? from : x.first, inside", "from, 1")
    stray = simt("sTN").bench(emulated, family=unchecked)
    with pytest.raises(LaunchError, match="outside every array"):
        stray.exact(Check(3, 3, 3), np.random.default_rng(0))
