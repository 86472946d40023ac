"""Double-double in the stencil of asynchronous copies, its text run on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from tests.double_double.oracle import plain
from tests.stencil.contract import bench, compiled, computes_the_product, fault_is_found, faulty
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.portable_harness import variant
from tests.stencil.test_simt_async import FAMILY, small
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.double_double import joined
from tilewright.precision import DOUBLE_DOUBLE
from tilewright.stencil import stencils_for
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.matrices import Matrix
from tilewright.tuning.verify import Check, WrongResultError, certify, error_bound

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


def test_the_contract_is_kept_bit_for_bit(emulated: EmulatedDevice) -> None:
    """Integers of 82 bits, scalars, ragged sizes; errors of random data are bounded."""
    of = variant("eNT")
    config = small(of, emulated)
    kernel = compiled(emulated, FAMILY, config, of)
    assert 0 < certify(emulated, kernel, FAMILY, config, of) < error_bound(100, 2.0**-101, False)


@pytest.mark.parametrize(
    ("name", "changes"),
    [("eTN", {"split_k": 4, "block_k": 8, "stages": 2}), ("fNN", {"split_k": 2})],
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
    assert {1, 2} <= {config.integer("split_k") for config in found}
    assert FAMILY.default(of, architecture_spec("sm_80")).integer("split_k") == 1


@pytest.mark.parametrize(("name", "split"), [("eNT", 2), ("fTN", 1)])
def test_inf_and_nan_are_those_of_a_plain_loop(
    emulated: EmulatedDevice, name: str, split: int
) -> None:
    of = variant(name)
    run = bench(emulated, FAMILY, small(of, emulated, split_k=split), of)
    rng = np.random.default_rng(7)
    a, b = rng.integers(1, 9, (37, 70)) * 1.0, rng.integers(1, 9, (70, 35)) * 1.0
    a[3, 5], a[4, 60], b[7, 2], b[66, 3] = np.inf, -np.inf, np.nan, 0
    a[9, 0] = a[9, 69] = 1e308
    a[4, 66] = b[7, 4] = np.inf
    a[11, 7] = a[9, 1:69] = 0
    row = DOUBLE_DOUBLE["e"]

    def laid(x: np.ndarray, transposed: bool) -> Matrix:
        x = x.T if transposed else x
        return Matrix.place(joined(x, np.zeros_like(x), row))

    c = Matrix.result(np.zeros((37, 35), row.dtype))
    given = laid(a, of.trans_a.transposed), laid(b, of.trans_b.transposed)
    got = c.view(run.run(Check(37, 35, 70), *given, c))
    right = plain(a, b)
    np.testing.assert_array_equal(got["hi"], right)
    assert (got["lo"][~np.isfinite(right)] == 0).all()
    assert np.isinf(right).sum() > 30
    assert np.isnan(right).sum() > 30


FAULTS = {
    "a low word is not written": ("v.r[1] = e[i].y;", "v.r[1] = 0.0;"),
    "the error of a sum is lost": ("plus(t.y, v.y)", "t.y"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_checks_find(emulated: EmulatedDevice, fault: str) -> None:
    old, new = FAULTS[fault]
    of = variant("eNT")
    config = small(of, emulated, split_k=2)
    fault_is_found(emulated, faulty(SimtAsync, old, new), config, of, (WrongResultError,))


def test_it_is_not_served_before_it_ran_on_a_device(emulated: EmulatedDevice) -> None:
    found = [family.name for family in stencils_for(emulated.spec, DOUBLE_DOUBLE["e"])]
    assert found.index("portable") < found.index("simt_async")
    assert not FAMILY.computes(DOUBLE_DOUBLE["w"])
