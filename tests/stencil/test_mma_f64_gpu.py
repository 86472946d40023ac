"""The stencil on matrix units for doubles on a GPU: every variant, what ships, order of sums."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.backend import LiveDevice
from tilewright.precision import precision
from tilewright.problem import Problem, transposes_of
from tilewright.stencil import Variant
from tilewright.stencil.mma_f64 import MmaF64
from tilewright.tuning.measure import Workload
from tilewright.tuning.verify import certify, screen

FAMILY = MmaF64()
PRECISIONS = [precision(letter) for letter in "dz"]
VARIANTS = [Variant(p, *trans) for p in PRECISIONS for trans in transposes_of(p)]

pytestmark = pytest.mark.gpu


@pytest.fixture
def live(cuda: LiveDevice) -> LiveDevice:
    if not FAMILY.suits(cuda.spec):
        pytest.skip(f"{cuda} has no matrix units for doubles")
    return cuda


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_default_keeps_the_contract_and_others_are_right(
    live: LiveDevice, variant: Variant
) -> None:
    space = FAMILY.space(variant, live.spec)
    config = FAMILY.default(variant, live.spec)
    kernel = live.compile(FAMILY.source(config, variant, live.dialect))
    certify(live, kernel, FAMILY, config, variant)
    shipped = [c for c in FAMILY.starts(variant, live.spec) if c in space]
    for other in (*space.sample(2, seed=26), *shipped):
        kernel = live.compile(FAMILY.source(other, variant, live.dialect))
        screen(live, kernel, FAMILY, other, variant)


@pytest.mark.parametrize("letter", "dz")
@pytest.mark.parametrize("split", [1, 2])
def test_the_same_bits_every_time(live: LiveDevice, letter: str, split: int) -> None:
    """Blocks of a cluster add up in the order of k, whichever comes first."""
    problem = Problem(500, 500, 500, letter, "T", "N")
    of = Variant.of(problem)
    config = FAMILY.default(of, live.spec).replace(split_k=split)
    if config not in FAMILY.space(of, live.spec):
        pytest.skip("this device has no clusters")
    kernel = live.compile(FAMILY.source(config, of, live.dialect))
    load = Workload(live, problem)
    results = []
    for _ in range(5):
        load.run(kernel, FAMILY, config)
        c = np.empty(500 * 500, of.precision.dtype)
        live.download(load.memory["c"], c)
        results.append(c.tobytes())
    load.close()
    assert len(set(results)) == 1
