"""Double-double in the stencil of asynchronous copies, its text run on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from tests.double_double.oracle import spoils_as_a_plain_loop
from tests.stencil.contract import compiled, computes_the_product
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.portable_harness import variant
from tests.stencil.ways import SHARING, SIMT, TINY, simt, small_simt
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.stencil import stencils_for
from tilewright.tuning.verify import Check, certify, error_bound, screen

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


def test_the_contract_is_kept_bit_for_bit(emulated: EmulatedDevice) -> None:
    """Integers of 82 bits, scalars, ragged sizes; errors of random data are bounded."""
    of = variant("eNT")
    config = small_simt(of, emulated)
    kernel = compiled(emulated, SIMT, config, of)
    assert 0 < certify(emulated, kernel, SIMT, config, of) < error_bound(100, 2.0**-101, False)


def test_what_tuning_starts_with_is_right(emulated: EmulatedDevice) -> None:
    of = variant("fTT")
    space = SIMT.space(of, emulated.spec)
    config = next(config for config in SIMT.starts(of, emulated.spec) if config in space)
    computes_the_product(emulated, SIMT, config, of)


@pytest.mark.parametrize("name", ["eNN", "eNT", "fTN", "fTT"])
def test_tuning_has_starts_with_and_without_clusters(name: str) -> None:
    of, device = variant(name), architecture_spec("sm_90a")
    found = [c for c in SIMT.starts(of, device) if c in SIMT.space(of, device)]
    assert {1, 2} <= {config.integer("cluster_k") for config in found}
    assert SIMT.default(of, architecture_spec("sm_80")).integer("cluster_k") == 1


@pytest.mark.parametrize(("name", "split"), [("eNT", 2), ("fTN", 1)])
def test_inf_and_nan_are_those_of_a_plain_loop(
    emulated: EmulatedDevice, name: str, split: int
) -> None:
    run = simt(name, cluster_k=split).bench(emulated)
    spoils_as_a_plain_loop(run, 70)


@pytest.mark.parametrize(("name", "stream_k"), [("eTN", 1), ("fNT", 2)])
def test_shared_sums_of_pairs(emulated: EmulatedDevice, name: str, stream_k: int) -> None:
    run = simt(name, **{**TINY, **SHARING, "stream_k": stream_k}).bench(emulated, 3)
    run.exact(Check(90, 70, 250), np.random.default_rng(1))
    run.exact(Check(33, 65, 97, 2, 3), np.random.default_rng(2))
    screen(emulated, run.kernel, run.stencil, run.config, run.variant)
    spoils_as_a_plain_loop(run, 170)


def test_it_comes_before_the_portable_stencil(emulated: EmulatedDevice) -> None:
    found = [family.name for family in stencils_for(emulated.spec, variant("eNN"))]
    assert found.index("simt_async") < found.index("portable")
    assert not SIMT.computes(variant("wNN"))
