"""The portable stencil on a GPU, through CUDA and through its OpenCL driver: all 26 variants."""

from __future__ import annotations

import pytest

from tilewright.backend import devices
from tilewright.precision import PRECISIONS
from tilewright.problem import transposes_of
from tilewright.stencil import Variant
from tilewright.stencil.portable import Portable
from tilewright.tuning.verify import certify, screen

PORTABLE = Portable()
GPUS = [d for d in devices() if d.spec.kind == "gpu"]
VARIANTS = [Variant(p, *trans) for p in PRECISIONS.values() for trans in transposes_of(p)]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not GPUS, reason="needs a GPU"),
]


@pytest.mark.parametrize("live", GPUS, ids=lambda d: d.id)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_default_keeps_the_contract_and_drawn_configs_are_right(live, variant):
    config = PORTABLE.default(variant, live.spec)
    kernel = live.compile(PORTABLE.source(config, variant, live.dialect))
    certify(live, kernel, PORTABLE, config, variant)
    for drawn in PORTABLE.space(variant, live.spec).sample(3, seed=26):
        kernel = live.compile(PORTABLE.source(drawn, variant, live.dialect))
        screen(live, kernel, PORTABLE, drawn, variant)
