"""Double-double products by residues: what serves them, what it says, and BLAS semantics."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

import tilewright as tw
from tilewright.hardware.catalogue import catalogue_device
from tilewright.precision import precision
from tilewright.problem import Problem
from tilewright.serve.routes.residues.options import PLAIN
from tilewright.serve.routes.residues.worth import best_cut, is_worth
from tilewright.serve.unproved import serve_unproved

DEVICE = "opencl"
_exact = np.vectorize(lambda *words: sum(map(Fraction, words)), otypes=[object])


def exact(x):
    return _exact(x.hi, x.lo)


def drawn(rng, rows, columns):
    x = rng.standard_normal((2, rows, columns))
    return tw.DoubleDouble(x[0], x[1] * 2.0**-56)


def test_where_no_tensor_cores_are_known_the_kernel_serves():
    rng = np.random.default_rng(0)
    a, b, told = drawn(rng, 5, 6), drawn(rng, 6, 7), tw.Decision()
    tw.gemm(a, b, report=told, device=DEVICE)
    assert told.variant == "ieee"
    assert "tensor cores" in told.reason


@pytest.mark.parametrize(("trans", "accuracy"), [("NN", "ieee"), ("TC", "accurate")])
def test_residues_serve_accurate_products(trans, accuracy):
    rng = np.random.default_rng(1)
    m, n, k = 35, 20, 100
    a = drawn(rng, *((m, k) if trans[0] == "N" else (k, m)))
    b = drawn(rng, *((k, n) if trans[1] == "N" else (n, k)))
    c, told, third = drawn(rng, m, n), tw.Decision(), tw.DoubleDouble(1) / 3
    x, y, old = (exact(v) for v in (a, b, c))
    x, y = (v if t == "N" else v.T for v, t in zip((x, y), trans, strict=True))
    right, size = exact(third) * x.dot(y) + old / 2, abs(x).dot(abs(y)) + abs(old)
    with serve_unproved():
        tw.gemm(
            a, b, c, alpha=third, beta=0.5, trans_a=trans[0], trans_b=trans[1], accuracy=accuracy,
            report=told, device=DEVICE,
        )  # fmt: skip
    found = told.as_dict()
    assert (found["variant"], found["moduli"], found["k"]) == ("residues", 30, k)
    assert found["error_bound"] <= 2.0**-104
    assert "allowed" in told.explain()
    assert np.max(abs(exact(c) - right) / size) < 2.0**-105


def test_complex_products_and_tiles_of_little_workspace():
    rng = np.random.default_rng(4)
    a, b, told = (
        drawn(rng, 30, 60) + 1j * drawn(rng, 30, 60),
        drawn(rng, 60, 20) * (1 - 2j),
        tw.Decision(),
    )
    with serve_unproved():
        c = tw.gemm(a, b, report=told, device=DEVICE)
        assert told.variant == "residues"
        little = tw.gemm(a, b, accuracy="accurate", max_workspace=10, report=told, device=DEVICE)
    assert told.variant == "ieee"
    assert "workspace" in told.reason
    (ar, ai), (br, bi) = ((exact(x.real), exact(x.imag)) for x in (a, b))
    right = ar.dot(br) - ai.dot(bi), ar.dot(bi) + ai.dot(br)
    for got in (c, little):
        for part, one in zip((got.real, got.imag), right, strict=True):
            assert np.max(abs(exact(part) - one)) < 2.0**-96


def test_fast_products_have_kernels_of_their_own_and_updates_are_blocks():
    rng = np.random.default_rng(2)
    a, b, told = drawn(rng, 8, 9), drawn(rng, 9, 8), tw.Decision()
    with serve_unproved():
        tw.gemm(a, b, accuracy="fast", report=told, device=DEVICE)
        assert told.variant == "ieee"
        half, whole = tw.syrk(a, device=DEVICE), tw.gemm(a, a, trans_b="T", device=DEVICE)
    low = np.tril_indices(8)
    np.testing.assert_array_equal(half.words[low], whole.words[low])


def test_what_is_not_finite_reaches_its_row_alone():
    rng = np.random.default_rng(3)
    a, b, told = drawn(rng, 8, 90), drawn(rng, 90, 5), tw.Decision()
    a[3, 4] = np.inf
    with serve_unproved():
        c = tw.gemm(a, b, report=told, device=DEVICE)
    assert told.variant == "ieee"
    assert not np.isfinite(c.hi[3]).any()
    assert np.isfinite(np.delete(c.hi, 3, 0)).all()


@pytest.mark.parametrize("letter", ["e", "w"])
@pytest.mark.parametrize(("side", "worth"), [(128, False), (2048, True)])
def test_small_products_of_a_batch_stay_with_one_kernel(letter, side, worth):
    live = SimpleNamespace(spec=catalogue_device("h100").spec)
    problem = Problem(side, side, side, precision(letter))
    cut = best_cut(live.spec, problem, PLAIN)
    assert is_worth(live, problem, None, cut, together=True) == worth
