"""Products that are cut along k: pieces are added in C."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.serve import calls
from tilewright.serve.routes import direct


@pytest.fixture
def cut(monkeypatch):
    """Cut every product's k after 64 and 128."""

    def pieces(device, problem, aligned):
        at = sorted({0, min(64, problem.k), min(128, problem.k), problem.k})
        return list(itertools.pairwise(at)) or [(0, 0)]

    monkeypatch.setattr(direct, "pieces_of_k", pieces)
    calls.forget_plans()
    yield
    calls.forget_plans()


@settings(max_examples=12)
@given(st.data())
def test_a_product_in_pieces_is_the_product(cut, data):
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    dtype = draw(st.sampled_from(["f4", "c16"]))
    m, n, k = (draw(st.integers(1, most)) for most in (40, 40, 200))
    ops = draw(st.text("NTC", min_size=2, max_size=2))
    alpha, beta = draw(st.sampled_from([1, -2, 0])), draw(st.sampled_from([0, 1, 3]))
    orders = draw(st.text("CF", min_size=3, max_size=3))

    def integers(shape, order):
        x = rng.integers(-3, 4, shape).astype(dtype)
        x = x + 1j * rng.integers(-3, 4, shape) if x.dtype.kind == "c" else x
        return np.array(x, dtype, order=order)

    a = integers((m, k) if ops[0] == "N" else (k, m), orders[0])
    b = integers((k, n) if ops[1] == "N" else (n, k), orders[1])
    old = integers((m, n), orders[2])
    x, y = ({"N": z, "T": z.T, "C": z.conj().T}[op] for z, op in zip((a, b), ops, strict=True))
    right = alpha * (x @ y) + beta * old
    c = old if beta else np.full_like(old, np.nan)
    tw.gemm(a, b, c, alpha=alpha, beta=beta, trans_a=ops[0], trans_b=ops[1], device="opencl")
    np.testing.assert_array_equal(c, right)
