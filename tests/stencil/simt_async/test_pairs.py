"""Double-double in the stencil of asynchronous copies, its text run on the CPU."""

from __future__ import annotations

import pytest

from tests.double_double.oracle import spoils_as_a_plain_loop
from tests.stencil.contract import bench, compiled, computes_the_product, fault_is_found, faulty
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.portable_harness import variant
from tests.stencil.simt_async.test_stencil import FAMILY, small
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.stencil import stencils_for
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.verify import WrongResultError, certify, error_bound

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


def test_the_contract_is_kept_bit_for_bit(emulated: EmulatedDevice) -> None:
    """Integers of 82 bits, scalars, ragged sizes; errors of random data are bounded."""
    of = variant("eNT")
    config = small(of, emulated)
    kernel = compiled(emulated, FAMILY, config, of)
    assert 0 < certify(emulated, kernel, FAMILY, config, of) < error_bound(100, 2.0**-101, False)


@pytest.mark.parametrize(
    ("name", "changes"),
    [("eTN", {"cluster_k": 4, "block_k": 8, "stages": 2}), ("fNN", {"cluster_k": 2})],
)
def test_blocks_of_a_cluster_add_up_pairs(
    emulated: EmulatedDevice, name: str, changes: dict[str, int]
) -> None:
    of = variant(name)
    config = small(of, emulated, **changes)
    computes_the_product(emulated, FAMILY, config, of)


@pytest.mark.slow
def test_what_tuning_starts_with_is_right(emulated: EmulatedDevice) -> None:
    of = variant("fTT")
    space = FAMILY.space(of, emulated.spec)
    config = next(config for config in FAMILY.starts(of, emulated.spec) if config in space)
    computes_the_product(emulated, FAMILY, config, of)


@pytest.mark.parametrize("name", ["eNN", "eNT", "fTN", "fTT"])
def test_tuning_has_starts_with_and_without_clusters(name: str) -> None:
    of, device = variant(name), architecture_spec("sm_90a")
    found = [c for c in FAMILY.starts(of, device) if c in FAMILY.space(of, device)]
    assert {1, 2} <= {config.integer("cluster_k") for config in found}
    assert FAMILY.default(of, architecture_spec("sm_80")).integer("cluster_k") == 1


@pytest.mark.parametrize(("name", "split"), [("eNT", 2), ("fTN", 1)])
def test_inf_and_nan_are_those_of_a_plain_loop(
    emulated: EmulatedDevice, name: str, split: int
) -> None:
    of = variant(name)
    run = bench(emulated, FAMILY, small(of, emulated, cluster_k=split), of)
    spoils_as_a_plain_loop(run, 70)


FAULTS = {
    "a low word is not written": ("v.r[1] = e[i].y;", "v.r[1] = 0.0;"),
    "the error of a sum is lost": ("plus(t.y, v.y)", "t.y"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_checks_find(emulated: EmulatedDevice, fault: str) -> None:
    old, new = FAULTS[fault]
    of = variant("eNT")
    config = small(of, emulated, cluster_k=2)
    fault_is_found(emulated, faulty(SimtAsync, old, new), config, of, (WrongResultError,))


def test_it_comes_before_the_portable_stencil(emulated: EmulatedDevice) -> None:
    found = [family.name for family in stencils_for(emulated.spec, variant("eNN"))]
    assert found.index("simt_async") < found.index("portable")
    assert not FAMILY.computes(variant("wNN"))
