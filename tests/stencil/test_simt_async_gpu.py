"""The stencil of asynchronous copies on a GPU: every variant, what ships and drawn configs."""

from __future__ import annotations

import pytest

from tilewright.backend import LiveDevice
from tilewright.precision import PRECISIONS
from tilewright.problem import transposes_of
from tilewright.stencil import Variant
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.verify import certify, screen

FAMILY = SimtAsync()
VARIANTS = [Variant(p, *trans) for p in PRECISIONS.values() for trans in transposes_of(p)]

pytestmark = pytest.mark.gpu


@pytest.fixture
def copying(cuda: LiveDevice) -> LiveDevice:
    if not FAMILY.suits(cuda.spec):
        pytest.skip(f"{cuda} does not copy asynchronously")
    return cuda


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_default_keeps_the_contract_and_drawn_configs_are_right(
    copying: LiveDevice, variant: Variant
) -> None:
    config = FAMILY.default(variant, copying.spec)
    kernel = copying.compile(FAMILY.source(config, variant, copying.dialect))
    certify(copying, kernel, FAMILY, config, variant)
    drawn = FAMILY.space(variant, copying.spec).sample(2, seed=26)
    split = [c for c in FAMILY.starts(variant, copying.spec) if c.integer("split_k") > 1]
    for other in (*drawn, *split[:1]):
        if other in FAMILY.space(variant, copying.spec):
            kernel = copying.compile(FAMILY.source(other, variant, copying.dialect))
            screen(copying, kernel, FAMILY, other, variant)


@pytest.mark.parametrize("size", [512, 1000])
def test_the_same_bits_every_time(copying: LiveDevice, size: int) -> None:
    """Blocks of a cluster add up in the order of k, whichever comes first."""
    import numpy as np

    from tilewright.problem import Problem
    from tilewright.tuning.measure import Workload

    problem = Problem(size, size, size, "s", "T", "N")
    of = Variant.of(problem)
    config = next(c for c in FAMILY.starts(of, copying.spec) if c.integer("split_k") > 1)
    if config not in FAMILY.space(of, copying.spec):
        pytest.skip("this device has no clusters")
    kernel = copying.compile(FAMILY.source(config, of, copying.dialect))
    load = Workload(copying, problem)
    results = []
    for _ in range(5):
        load.run(kernel, FAMILY, config)
        c = np.empty(size * size, np.float32)
        copying.download(load.memory["c"], c)
        results.append(c.tobytes())
    load.close()
    assert len(set(results)) == 1
