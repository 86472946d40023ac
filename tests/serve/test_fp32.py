"""accuracy="fp32": what serves it, what it says of that, and BLAS semantics throughout."""

from __future__ import annotations

import threading
from contextlib import nullcontext

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.backend import BackendError, OutOfMemoryError
from tilewright.serve import scratch as scratches
from tilewright.serve.calls import forget_plans
from tilewright.serve.unproved import serve_unproved

DEVICE = "opencl"
letters = st.sampled_from("NTC")
layouts = st.sampled_from(["C", "F", "padded"])


def operands(seed=0, m=64, n=48, k=160):
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))


def test_until_it_is_proved_ieee_serves():
    a, b = operands()
    told = tw.Decision()
    c = tw.gemm(a, b, accuracy="fp32", report=told, device=DEVICE)
    np.testing.assert_array_equal(c, tw.gemm(a, b, device=DEVICE))
    assert told.variant == "ieee"
    assert "proved" in told.reason
    np.testing.assert_array_equal(tw.gemm(a, b, accuracy="tf32", device=DEVICE), c)


def test_a_report_says_why():
    a, b = operands()
    told = tw.Decision()
    with serve_unproved():
        tw.gemm(a, b, accuracy="fp32", report=told, device=DEVICE)
    assert told.variant == "fp16x3"
    found = told.as_dict()
    assert found["k"] == 160
    assert 128 <= found["wide_terms"] <= found["terms"] <= 160
    assert "sure to count in every sum" in told.explain()
    assert repr(told).startswith("<Decision fp16x3")
    # The same report serves the next call; a's and b's columns are not mixed up.
    b = b.copy()
    b[3:9, 4] = 2.0**-30
    with serve_unproved():
        tw.gemm(a, b, accuracy="fp32", report=told, device=DEVICE)
    assert told.as_dict()["cut_b"] >= 6 > told.as_dict()["cut_a"]
    assert told.variant == "bf16x6"
    assert "too small for FP16" in told.reason
    tw.gemm(a, b, report=told, device=DEVICE)
    assert (told.variant, told.reason) == ("ieee", "accuracy is 'ieee'")


@pytest.mark.parametrize(
    ("shape", "why"),
    [((40, 40, 63), "k=63 is less than 64"), ((8, 8, 200), "8 x 8 results")],
)
def test_small_products_are_not_split(shape, why):
    a, b = operands(0, *shape)
    told = tw.Decision()
    with serve_unproved():
        tw.gemm(a, b, accuracy="fp32", report=told, device=DEVICE)
    assert why in told.reason
    assert told.variant == "ieee"


@pytest.mark.parametrize("trans", ["NN", "TC", "CT", "CC", "NC"])
@pytest.mark.parametrize("row_major", [False, True])
def test_complex_products_are_real_ones_of_twice_the_size(trans, row_major):
    rng = np.random.default_rng(6)
    m, n, k = 37, 41, 90

    def drawn(*shape):
        x = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
        return np.array(x, np.complex64, order="C" if row_major else "F")

    a = drawn(m, k) if trans[0] == "N" else drawn(k, m)
    b = drawn(k, n) if trans[1] == "N" else drawn(n, k)
    c, told = drawn(m, n), tw.Decision()
    x, y = (
        {"N": v, "T": v.T, "C": v.conj().T}[t].astype(complex)
        for v, t in zip((a, b), trans, strict=True)
    )
    right, size = -(x @ y) + 2 * c, abs(x) @ abs(y) + abs(c)
    with serve_unproved():
        tw.gemm(
            a, b, c, alpha=-1, beta=2, trans_a=trans[0], trans_b=trans[1], accuracy="fp32",
            report=told, device=DEVICE,
        )  # fmt: skip
    assert told.variant == "fp16x3"
    assert told.as_dict()["k"] == 2 * k
    assert np.max(np.abs(c - right) / size) < 2**-21


def test_complex_numbers_no_worse_than_ieee():
    rng = np.random.default_rng(7)
    a, b = (
        (rng.standard_normal(s) + 1j * rng.standard_normal(s)).astype(np.complex64)
        for s in ((40, 700), (700, 40))
    )
    right = a.astype(complex) @ b.astype(complex)
    got = tw.gemm(a, b, accuracy="fp16x3", device=DEVICE)
    plain = np.zeros((40, 40), np.complex64)
    for step in range(700):
        plain += a[:, step, None] * b[None, step]
    assert np.median(abs(got - right)) < np.median(abs(plain - right))
    told = tw.Decision()
    with serve_unproved():
        same = tw.gemm(a, b, alpha=1j, accuracy="fp32", report=told, device=DEVICE)
    np.testing.assert_array_equal(same, tw.gemm(a, b, alpha=1j, device=DEVICE))
    assert told.reason == "alpha or beta is complex"
    a[3, 4] = complex(np.inf, 1)
    with serve_unproved():
        lost = tw.gemm(a, b, accuracy="fp32", report=told, device=DEVICE)
    assert told.variant == "ieee"
    assert not np.isfinite(lost[3]).any()
    assert np.isfinite(lost[4]).all()


@pytest.mark.parametrize(
    ("dtype", "accuracy"),
    [("f4", "fp64"), ("f8", "fp32"), ("c16", "tf32"), ("c8", "fast"), ("f4", "fast")],
)
def test_unknown_accuracies_are_refused(dtype, accuracy):
    x = np.ones((3, 3), dtype)
    with pytest.raises(ValueError, match=f"accuracy='{accuracy}' is unknown for .GEMM; use one of"):
        tw.gemm(x, x, accuracy=accuracy, device=DEVICE)


def laid(x, layout):
    if layout != "padded":
        return np.array(x, order=layout)
    whole = np.full((x.shape[0] + 2, x.shape[1] + 3), np.nan, x.dtype)
    whole[1:-1, 2:-1] = x
    return whole[1:-1, 2:-1]


@settings(max_examples=25)
@given(
    accuracy=st.sampled_from(["fp32", "fp16x3"]),
    trans=st.tuples(letters, letters),
    layout=st.tuples(layouts, layouts, layouts),
    shape=st.tuples(st.integers(1, 90), st.integers(1, 90), st.integers(0, 200)),
    alpha=st.sampled_from([0, 1, -0.5]),
    beta=st.sampled_from([0, 1, 2]),
    seed=st.integers(0, 2**32 - 1),
)
def test_gemm_in_parts_is_blas(accuracy, trans, layout, shape, alpha, beta, seed):
    m, n, k = shape
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((m, k) if trans[0] == "N" else (k, m)).astype(np.float32)
    b = rng.standard_normal((k, n) if trans[1] == "N" else (n, k)).astype(np.float32)
    old = rng.standard_normal((m, n)).astype(np.float32)
    if beta == 0:
        old[...] = np.nan
    c = laid(old, layout[2])
    with serve_unproved():
        result = tw.gemm(
            laid(a, layout[0]), laid(b, layout[1]), c, alpha=alpha, beta=beta,
            trans_a=trans[0], trans_b=trans[1], accuracy=accuracy, device=DEVICE,
        )  # fmt: skip
    assert result is c
    x, y = (v if t == "N" else v.T for v, t in zip((a, b), trans, strict=True))
    x, y = x.astype(np.float64), y.astype(np.float64)
    right, size = alpha * (x @ y), abs(alpha) * (abs(x) @ abs(y))
    if beta:
        right, size = right + beta * old, size + abs(beta * old)
    # Three roundings beside the sum, whose own bound is docs/fp32_accurate.md's.
    assert np.all(np.abs(c - right) <= (2**-18 + 4 * 2**-24) * size)


def test_a_long_sum_is_cut_in_pieces(monkeypatch):
    from tilewright.serve.routes.split import chain

    a, b = operands(3, 40, 32, 200)
    c = np.ones((40, 32), np.float32)
    with serve_unproved():
        whole = tw.gemm(a, b, c.copy(), beta=3, alpha=2, accuracy="fp16x3", device=DEVICE)
        monkeypatch.setattr(chain, "MOST_K", 64)
        forget_plans()
        cut = tw.gemm(a, b, c.copy(), beta=3, alpha=2, accuracy="fp16x3", device=DEVICE)
    forget_plans()
    right = 2 * (a.astype(float) @ b) + 3
    for made in (whole, cut):
        assert np.abs(made - right).max() < 1e-4
    assert np.any(whole != cut)


def test_equal_calls_give_equal_bits_from_any_thread():
    problems = [operands(seed, 40 + seed, 50, 130 + seed) for seed in range(4)]

    def run(a, b, out):
        for _ in range(3):
            with serve_unproved():
                out.append(tw.gemm(a, b, accuracy="fp32", device=DEVICE))

    results = [[] for _ in problems]
    threads = [
        threading.Thread(target=run, args=(*x, out))
        for x, out in zip(problems, results, strict=True)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    for (a, b), out in zip(problems, results, strict=True):
        with serve_unproved():
            alone = tw.gemm(a, b, accuracy="fp32", device=DEVICE)
        assert len(out) == 3
        for got in out:
            np.testing.assert_array_equal(got, alone)


def test_arrays_on_a_queue_of_the_callers(live):
    """Also out of order: every launch waits for the one before."""
    modes = cl.command_queue_properties
    context = cl.Context([live.raw])
    for properties in (0, modes.OUT_OF_ORDER_EXEC_MODE_ENABLE):
        queue = cl.CommandQueue(context, properties=properties)
        a, b = (cla.to_device(queue, x) for x in operands(1))
        told = tw.Decision()
        with serve_unproved():
            first = tw.gemm(a, b, accuracy="fp32", report=told)
            second = tw.gemm(a, first, accuracy="fp16x3", trans_a="T")
        assert told.variant == "fp16x3"
        x, y = operands(1)
        np.testing.assert_allclose(first.get(), x.astype(float) @ y, atol=1e-4)
        np.testing.assert_allclose(second.get(), x.T.astype(float) @ (x @ y), atol=2e-2)


def test_too_little_memory_is_no_reason_to_fail(monkeypatch):
    a, b = operands(2)
    right = tw.gemm(a, b, device=DEVICE)

    def refuse(self, name, size, **_):
        raise OutOfMemoryError(f"no {size} bytes for {name}")

    monkeypatch.setattr(scratches.Scratch, "need", refuse)
    told = tw.Decision()
    with serve_unproved():
        np.testing.assert_array_equal(
            tw.gemm(a, b, accuracy="fp32", report=told, device=DEVICE), right
        )
        assert "memory" in told.reason
        with pytest.raises(OutOfMemoryError):
            tw.gemm(a, b, accuracy="fp16x3", device=DEVICE)


@pytest.mark.parametrize("last", [0, 1, 3])
def test_a_call_that_fails_on_its_way_leaves_nothing_behind(monkeypatch, live, last):
    """The first pass has found large numbers; the next call must not take them for its own."""
    a, b = operands(4)
    with serve_unproved():
        right = tw.gemm(a, b, accuracy="fp32", device=live)
    launch, left = live.launch, [last + 1]

    def failing(*arguments):
        left[0] -= 1
        if not left[0]:
            raise BackendError("no more")
        return launch(*arguments)

    with serve_unproved(), monkeypatch.context() as patched:
        patched.setattr(live, "launch", failing)
        with pytest.raises(BackendError, match="no more"):
            tw.gemm(a * 2**20, b, accuracy="fp32", device=live)
    with serve_unproved():
        for _ in range(2):
            np.testing.assert_array_equal(tw.gemm(a, b, accuracy="fp32", device=live), right)


def test_sizes_may_change_between_calls():
    """What is zero between calls is so wherever the next call looks."""
    told = tw.Decision()
    for m, n in ((40, 300), (300, 41), (33, 32), (301, 303), (64, 48)):
        a, b = operands(5, m, n)
        for scale in (2.0**30, 1.0):
            with serve_unproved():
                c = tw.gemm(a * np.float32(scale), b, accuracy="fp32", report=told, device=DEVICE)
            assert told.variant == "fp16x3"
            right = (a.astype(float) * scale) @ b
            np.testing.assert_allclose(c, right, atol=1e-4 * scale)


def test_scratch_memory_of_old_queues_is_given_back(live):
    context = cl.Context([live.raw])
    kept = [cl.CommandQueue(context) for _ in range(10)]  # alive: their addresses differ
    for queue in kept:
        a, b = (cla.to_device(queue, x) for x in operands(1, 33, 32, 70))
        with serve_unproved():
            tw.gemm(a, b, accuracy="bf16x6").get()
    most = max(len(known) for known in scratches._all.values())
    assert 1 < most <= 8


@pytest.mark.gpu
@pytest.mark.parametrize("accuracy", ["fp32", "fp16x3", "bf16x6", "tf32x3", "ieee"])
@pytest.mark.parametrize("trans", ["NN", "NT", "TN", "TT"])
def test_on_cuda(cuda, accuracy, trans):
    """Where there are tensor cores, they: errors below single precision's own bound."""
    rng = np.random.default_rng(5)
    m, n, k = 523, 389, 1029
    a = rng.standard_normal((m, k) if trans[0] == "N" else (k, m)).astype(np.float32)
    b = rng.standard_normal((k, n) if trans[1] == "N" else (n, k)).astype(np.float32)
    with serve_unproved() if accuracy == "fp32" else nullcontext():
        told = tw.Decision()
        c = tw.gemm(
            a, b, trans_a=trans[0], trans_b=trans[1], accuracy=accuracy, report=told, device=cuda
        )
    assert told.variant == {"fp32": "fp16x3"}.get(accuracy, accuracy)
    x, y = (v if t == "N" else v.T for v, t in zip((a, b), trans, strict=True))
    x, y = x.astype(np.float64), y.astype(np.float64)
    eta = np.max(np.abs(c - x @ y) / (abs(x) @ abs(y)))
    assert eta < 2**-20


@pytest.mark.gpu
@pytest.mark.parametrize(("accuracy", "served"), [("fp32", "fp16x3"), ("tf32", "tf32")])
def test_hopper_is_proved(cuda, accuracy, served):
    """There "fp32" and "tf32" need nobody's leave; elsewhere they are IEEE arithmetic."""
    rng = np.random.default_rng(8)
    a, b = (rng.standard_normal((1300, 1300)).astype(np.float32) for _ in range(2))
    told = tw.Decision()
    c = tw.gemm(a, b, accuracy=accuracy, report=told, device=cuda)
    assert told.variant == (served if cuda.spec.compute_capability == 90 else "ieee")
    x, y = a.astype(np.float64), b.astype(np.float64)
    eta = np.max(np.abs(c - x @ y) / (abs(x) @ abs(y)))
    assert eta < (2**-20 if accuracy == "fp32" else 2**-9)


@pytest.mark.parametrize("accuracy", ["ieee", "fp32"])
def test_a_report_is_a_decision(accuracy):
    x = np.ones((2, 2), np.float32)
    with pytest.raises(TypeError, match=r"report=3 is no Decision; give tilewright.Decision\(\)"):
        tw.gemm(x, x, accuracy=accuracy, report=3)


@pytest.mark.parametrize("accuracy", ["fp16x3", "tf32x3", "bf16x6", "bf16x9", "tf32"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_no_scheme_makes_a_number_of_none(accuracy, value):
    ones, a = np.ones((20, 20), np.float32), np.ones((20, 20), np.float32)
    a[3, 5] = value
    with serve_unproved():
        c, d = tw.gemm(a, ones, accuracy=accuracy), tw.gemm(ones, a, accuracy=accuracy)
    # Parts of an infinity cancel to NaN; only a scheme of one part keeps it.
    stays = np.isinf if accuracy == "tf32" and np.isinf(value) else np.isnan
    assert stays(c[3]).all()
    assert stays(d[:, 5]).all()
    assert (np.delete(c, 3, axis=0) == 20).all()
    assert (np.delete(d, 5, axis=1) == 20).all()
