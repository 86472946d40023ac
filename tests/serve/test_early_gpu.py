"""Calls whose operands are what the calls before them gave, as fast as they can be enqueued."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw

pytestmark = pytest.mark.gpu

# Of a chain: so long that launches wait for one another all the time.
STEPS = 40


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "float16"])
@pytest.mark.parametrize(
    "sides", [(96, 96), (300, 7), (1001, 24), (2048, 1536), (12000, 3)], ids=str
)
def test_each_call_waits_for_the_one_before(cuda, dtype, sides):
    """Launches may begin early: they read what is not there yet unless kernels wait."""
    cupy = pytest.importorskip("cupy")
    n, columns = sides
    rng = np.random.default_rng(n)
    a = cupy.asarray((rng.standard_normal((n, n)) / np.sqrt(n)).astype(dtype))
    first = cupy.asarray(rng.standard_normal((n, columns)).astype(dtype))

    def chain(synchronised: bool):
        x = first
        for _ in range(STEPS):
            x = tw.gemm(a, x)
            if synchronised:
                cupy.cuda.Device().synchronize()
        return cupy.asnumpy(x)

    expected = chain(True)
    assert np.isfinite(expected).all()
    for _ in range(3):
        assert chain(False).tobytes() == expected.tobytes()
