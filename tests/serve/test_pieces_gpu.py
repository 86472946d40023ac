"""Long sums over few tiles on a GPU: in pieces, as the kernels that ship ask."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.serve.arrays.test_device import imported

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:::cupy")]


@pytest.fixture
def cupy(cuda):
    return imported("cupy")


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_long_sums_over_few_tiles_are_right_in_pieces(cupy, laid, dtype):
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in ((485, 66_000), (66_000, 485)))
    c = tw.gemm(cupy.asarray(a), cupy.asarray(b)).get()
    assert len(laid[0].steps) > 1
    right, size = a.astype(float) @ b, abs(a).astype(float) @ abs(b)
    assert np.max(abs(c - right) / size) < 4 * np.finfo(dtype).eps
