"""Batches of accuracy="fp32" on a GPU: every route in one chain."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.serve.arrays.test_device import imported
from tilewright.serve.routes.split.promise import FLOOR

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:::cupy")]


@pytest.fixture
def cupy(cuda):
    return imported("cupy")


@pytest.mark.parametrize(("trans", "k"), [("NN", 640), ("TT", 640), ("TN", 8256)])
def test_products_of_a_batch_are_served_as_their_numbers_ask(cupy, laid, trans, k):
    rng = np.random.default_rng(3)
    shapes = [(26, 512, k), (26, k, 576)]
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    a[1, 5, 6] *= 2.0**40  # refused
    a[2], b[2] = np.round(a[2] * 1000), np.round(b[2] * 1000)  # for BF16
    a[3, 7, 8] = np.inf
    given = [
        cupy.asarray(np.ascontiguousarray(x.transpose(0, 2, 1)) if op == "T" else x)
        for x, op in zip((a, b), trans, strict=True)
    ]
    c = cupy.full((26, 512, 576), np.nan, np.float32)
    tw.gemm(*given, c, alpha=2, trans_a=trans[0], trans_b=trans[1], accuracy="fp32")
    assert laid[0].repeats == ()  # one chain for all
    made = c.get()
    assert not np.isfinite(made[3, 7]).any()
    assert np.isfinite(np.delete(made[3], 7, axis=0)).all()
    for at in (0, 1, 2, 24, 25):
        right = 2 * (a[at].astype(float) @ b[at].astype(float))
        size = 2 * (abs(a[at]).astype(float) @ abs(b[at]))
        bound = FLOOR if at != 1 else k * 2.0**-24
        assert np.max(abs(made[at] - right) / size) < bound
