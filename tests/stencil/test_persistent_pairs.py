"""Double-double sums that blocks share along k: right to the last bit, and IEEE where infinite."""

from __future__ import annotations

import numpy as np
import pytest

from tests.double_double.oracle import plain
from tests.stencil.emulator import EmulatedDevice
from tests.stencil.test_persistent import SHARING, bench, needs_compiler
from tilewright.double_double import joined
from tilewright.precision import DOUBLE_DOUBLE
from tilewright.tuning.matrices import Matrix
from tilewright.tuning.verify import Check, screen


@needs_compiler
@pytest.mark.parametrize(("name", "stream_k"), [("eTN", 1), ("fNT", 2)])
def test_shared_sums_of_pairs(emulated: EmulatedDevice, name: str, stream_k: int) -> None:
    run = bench(emulated, name, 3, **{**SHARING, "stream_k": stream_k})
    run.exact(Check(90, 70, 250), np.random.default_rng(1))
    run.exact(Check(33, 65, 97, 2, 3), np.random.default_rng(2))
    screen(emulated, run.kernel, run.stencil, run.config, run.variant)
    rng = np.random.default_rng(7)
    a, b = rng.integers(1, 9, (37, 170)) * 1.0, rng.integers(1, 9, (170, 35)) * 1.0
    a[3, 5], a[4, 60], b[7, 2], b[66, 3] = np.inf, -np.inf, np.nan, 0
    a[9, 0] = a[9, 169] = 1e308
    a[4, 66] = b[7, 4] = np.inf
    a[9, 1:169] = 0
    row, of = DOUBLE_DOUBLE["e"], run.variant

    def laid(x: np.ndarray, transposed: bool) -> Matrix:
        x = x.T if transposed else x
        return Matrix.place(joined(x, np.zeros_like(x), row))

    c = Matrix.result(np.zeros((37, 35), row.dtype))
    given = laid(a, of.trans_a.transposed), laid(b, of.trans_b.transposed)
    got, right = c.view(run.run(Check(37, 35, 170), *given, c)), plain(a, b)
    np.testing.assert_array_equal(got["hi"], right)
    assert (got["lo"][~np.isfinite(right)] == 0).all()
