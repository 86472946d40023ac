"""Batches of accuracy="fp32": one chain for all products, each with a decision of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilewright as tw
from tests.serve.routes.split.test_chain_on_cuda import CHAIN, EmulatedStream
from tests.stencil.emulator import compiler
from tests.stencil.split.plainly import errors
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.problem import Problem
from tilewright.serve import calls
from tilewright.serve.routes.split.promise import FLOOR
from tilewright.serve.routes.split.worth import is_worth_together
from tilewright.serve.unproved import serve_unproved

H100 = replace(architecture_spec("sm_90a"), multiprocessors=132)
PRODUCTS = 5


@pytest.fixture
def laid(monkeypatch):
    """What is laid out: names of kernels, and what is repeated."""
    found = []

    def lay_out(*arguments, **options):
        made = original(*arguments, **options)
        found.append(([kernel.entry for kernel, _, _ in made.steps], made.repeats))
        return made

    original = calls.lay_out
    monkeypatch.setattr(calls, "lay_out", lay_out)
    calls.forget_plans()
    return found


def batch(seed, m, n, k):
    """Return operands of which product 1 is refused, 2 has an infinity and 3 is for BF16."""
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal((PRODUCTS, *s)).astype(np.float32) for s in ((m, k), (k, n)))
    a[1, 5, 6] *= 2.0**40
    a[2, 3, 4] = np.inf
    a[3], b[3] = np.round(a[3] * 1000), np.round(b[3] * 1000)
    return a, b


def stored(x, trans, row_major):
    """Return the same products' matrices as they may lie, some way apart."""
    x = x if trans == "N" else x.transpose(0, 2, 1)
    whole = np.full((PRODUCTS, *(np.array(x.shape[1:] if row_major else x.shape[:0:-1]) + 4)), 7.0)
    part = whole.astype(np.float32)[:, :-4, :-4]
    part = part if row_major else part.transpose(0, 2, 1)
    part[:] = x
    return part


@pytest.mark.parametrize(
    ("trans", "row_major", "has_c"), [("NT", False, True), ("TN", True, False)]
)
def test_each_product_is_served_as_its_own_numbers_ask(laid, trans, row_major, has_c):
    a, b = batch(0, 44, 40, 160)
    before = np.full((PRODUCTS, 44, 40), 3.0, np.float32)
    c, told = before.copy() if has_c else None, tw.Decision()
    with serve_unproved(), np.errstate(invalid="ignore"):
        c = tw.gemm(
            stored(a, trans[0], row_major), stored(b, trans[1], row_major), c,
            alpha=2, beta=float(has_c), trans_a=trans[0], trans_b=trans[1], accuracy="fp32",
            report=told, device="opencl",
        )  # fmt: skip
    assert laid == [([*CHAIN, "model", "model", "gemm"], ())]
    assert told.variant == "fp16x3"  # the last product's
    assert not np.isfinite(c[2, 3]).any()
    assert np.isfinite(np.delete(c[2], 3, axis=0)).all()
    for x, y, z in zip(a[[0, 1, 3, 4]], b[[0, 1, 3, 4]], c[[0, 1, 3, 4]], strict=True):
        right = 2 * x.astype(float) @ y.astype(float) + 3 * has_c
        size = 2 * abs(x.astype(float)) @ abs(y) + 3 * has_c
        assert np.max(abs(z - right) / size) < FLOOR


def test_what_has_no_memory_in_one_chain_is_several(laid, monkeypatch):
    a, b = batch(0, 44, 40, 160)
    monkeypatch.setattr("tilewright.serve.routes.split.serve._MOST_BYTES", 2 * 6 * 84 * 160)
    with serve_unproved(), np.errstate(invalid="ignore"):
        parts = tw.gemm(a, b, accuracy="fp32", device="opencl")
        monkeypatch.undo()
        calls.forget_plans()
        whole = tw.gemm(a, b, accuracy="fp32", device="opencl")
    assert len(laid[0][0]) == 3 * 6
    for one in (0, 3, 4):
        assert errors(parts[one], a[one], b[one])[0] < 2**-21
        assert errors(whole[one], a[one], b[one])[0] < 2**-21
    np.testing.assert_array_equal(parts[1], whole[1])


def test_one_chain_is_for_batches_that_fill_the_device_and_are_worth_it():
    def worth(n, products):
        return is_worth_together(Problem(n, n, n, "s"), products, H100)

    assert worth(512, 64)
    assert worth(1024, 20)
    assert not worth(64, 4096)
    assert not worth(512, 2)


@pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")
def test_blocks_go_through_the_products_that_are_theirs(tmp_path):
    """As CUDA runs it, on emulated hardware."""
    emulated = EmulatedStream(tmp_path)
    a, b = batch(1, 72, 64, 96)
    with serve_unproved(), np.errstate(invalid="ignore"):
        c = tw.gemm(a, b, accuracy="fp32", device=emulated)
    assert emulated.launched == [*CHAIN, "gemm", "gemm", "gemm"]
    for one in (0, 3, 4):
        assert errors(c[one], a[one], b[one])[0] < 2**-21
    ieee = tw.gemm(a[1], b[1], device=emulated)
    np.testing.assert_array_equal(c[1], ieee)
    assert np.isfinite(np.delete(c[2], 3, axis=0)).all()
