"""The stencil on tensor cores for doubles on a GPU: every variant, what ships, order of sums."""

from __future__ import annotations

import pytest

from tests.stencil.contract import compiled, computes_the_product, has_mode, same_bits_every_time
from tests.stencil.portable_harness import variant
from tilewright.backend import LiveDevice
from tilewright.precision import precision
from tilewright.problem import Problem, Trans, transposes_of
from tilewright.stencil import Variant
from tilewright.stencil.mma_f64 import MmaF64
from tilewright.tuning.verify import certify

FAMILY = MmaF64()
PRECISIONS = [precision(letter) for letter in "dz"]
VARIANTS = [Variant(p, *trans) for p in PRECISIONS for trans in transposes_of(p)]

pytestmark = pytest.mark.gpu


@pytest.fixture
def live(cuda: LiveDevice) -> LiveDevice:
    if not FAMILY.suits(cuda.spec):
        pytest.skip(f"{cuda} has no tensor cores for doubles")
    return cuda


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_default_keeps_the_contract_and_others_are_right(
    live: LiveDevice, variant: Variant
) -> None:
    space = FAMILY.space(variant, live.spec)
    config = FAMILY.default(variant, live.spec)
    kernel = compiled(live, FAMILY, config, variant)
    certify(live, kernel, FAMILY, config, variant)
    shipped = [c for c in FAMILY.starts(variant, live.spec) if c in space]
    for other in (*space.sample(2, seed=26), *shipped):
        computes_the_product(live, FAMILY, other, variant)


@pytest.mark.parametrize("trans", ["NN", "NT", "TN", "TT"])
def test_columns_may_begin_anywhere(live: LiveDevice, trans: str) -> None:
    of = Variant(precision("d"), *map(Trans, trans))
    config = FAMILY.default(of, live.spec)
    certify(live, compiled(live, FAMILY, config, of, "scalar"), FAMILY, config, of)
    computes_the_product(live, FAMILY, config.replace(persistent=1, stream_k=2), of, "scalar")


@pytest.mark.parametrize("name", ["dNN", "dNT", "dTN", "dTT", "zCN"])
@pytest.mark.parametrize("mode", ["clamped", "scalar+clamped"])
def test_sides_shorter_than_a_block_are_right(live: LiveDevice, name: str, mode: str) -> None:
    of = variant(name)
    config = FAMILY.default(of, live.spec)
    if not has_mode(FAMILY, config, of, live.spec, mode):
        pytest.skip("nothing to copy by elements")
    certify(live, compiled(live, FAMILY, config, of, mode), FAMILY, config, of)
    computes_the_product(live, FAMILY, config, of, mode)
    computes_the_product(live, FAMILY, config.replace(persistent=1, stream_k=2), of, mode)


@pytest.mark.parametrize("trans", ["NN", "NT", "TN", "TT"])
def test_results_may_be_staged(live: LiveDevice, trans: str) -> None:
    of = Variant(precision("d"), *map(Trans, trans))
    config = FAMILY.default(of, live.spec)
    certify(live, compiled(live, FAMILY, config, of, "staged"), FAMILY, config, of)
    computes_the_product(live, FAMILY, config.replace(persistent=1, stream_k=2), of, "staged")


@pytest.mark.parametrize("letter", "dz")
@pytest.mark.parametrize("split", [1, 2])
def test_the_same_bits_every_time(live: LiveDevice, letter: str, split: int) -> None:
    """Blocks of a cluster add up in the order of k, whichever comes first."""
    problem = Problem(500, 500, 500, letter, "T", "N")
    of = Variant.of(problem)
    config = FAMILY.default(of, live.spec).replace(cluster_k=split)
    same_bits_every_time(live, FAMILY, config, problem)
