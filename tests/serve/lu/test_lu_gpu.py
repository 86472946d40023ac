"""Factors and solutions on a CUDA device, beside SciPy's."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw

linalg = pytest.importorskip("scipy.linalg")

pytestmark = pytest.mark.gpu


@pytest.fixture(params=["numpy", "cupy", "torch"])
def arrays(request, cuda):
    """Return what brings NumPy's arrays to a library's, and back."""
    if request.param == "numpy":
        return (lambda x: x), np.asarray, {"device": cuda}
    library = pytest.importorskip(request.param)
    if request.param == "cupy":
        return library.asarray, library.asnumpy, {}
    return (lambda x: library.tensor(x, device="cuda")), (lambda x: x.cpu().numpy()), {}


def drawn(rng, shape, dtype):
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("n", [1, 130, 1301])
def test_systems_are_solved_as_lapack_does(arrays, dtype, n):
    there, back, options = arrays
    rng = np.random.default_rng(n)
    a = drawn(rng, (n, n), dtype)
    lu, pivots = factors = tw.lu_factor(there(a), **options)
    expected, found = linalg.lu_factor(a)
    eps = np.finfo(dtype).eps
    if eps < 1e-10:  # in single precision two candidates may be as large as each other
        assert np.array_equal(back(pivots), found)
        assert np.abs(back(lu) - expected).max() < 100 * n * eps * np.abs(expected).max()
    for trans, sides in (("N", 1), ("T", 5), ("C", 300)):
        b = drawn(rng, (n, sides) if sides > 1 else (n,), dtype)
        x = back(tw.lu_solve(factors, there(b), trans=trans, **options))
        assert x.shape == b.shape
        op = {"N": a, "T": a.T, "C": a.conj().T}[trans]
        for column in range(0, sides, 99):
            one = (x, b) if sides == 1 else (x[:, column], b[:, column])
            assert tw.scaled_residual(op, *one) < 16


def test_a_matrix_is_overwritten_only_where_that_is_allowed(cuda):
    cupy = pytest.importorskip("cupy")
    a = cupy.random.standard_normal((260, 260))
    kept = a.copy()
    lu, _ = tw.lu_factor(a)
    assert (a == kept).all()
    here, _ = tw.lu_factor(a, overwrite_a=True)
    assert here is a
    assert (a == lu).all()


def test_what_cannot_be_factored_is_refused(cuda):
    cupy = pytest.importorskip("cupy")
    with pytest.raises(np.linalg.LinAlgError, match="pivot 1 is exactly zero"):
        tw.lu_factor(cupy.ones((200, 200)))
    with pytest.raises(ValueError, match="not square"):
        tw.lu_factor(cupy.ones((2, 3)))
    with pytest.raises(ValueError, match="has no say"):
        tw.lu_factor(cupy.ones((3, 3)), device="cuda:0")
    factors = tw.lu_factor(cupy.eye(3))
    with pytest.raises(ValueError, match=r"b\.dtype=float32"):
        tw.lu_solve(factors, cupy.ones(3, "f4"))
    with pytest.raises(ValueError, match=r"b\.shape"):
        tw.lu_solve(factors, cupy.ones(4))
