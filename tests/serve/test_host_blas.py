"""When NumPy's BLAS serves NumPy arrays, and what it does not keep of the contract by itself.

`test_gemm` has the contract, of this route, too.
"""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tests.serve.test_gemm import draw_matrix, laid_out, layouts, letters
from tilewright.backend import BackendError
from tilewright.precision import PRECISIONS
from tilewright.problem import Problem, Trans
from tilewright.serve import host_blas
from tilewright.tuning import host_blas as races

relaxed = settings(max_examples=60)


@pytest.fixture
def blas(monkeypatch, cpu):
    """A CPU's device on which BLAS serves; a launch there is an error."""
    monkeypatch.setattr(host_blas, "_serves", True)

    def refuse(*_, **__):
        raise BackendError("a kernel was launched")

    monkeypatch.setattr(cpu, "launch", refuse)
    return cpu


@relaxed
@given(
    letter=st.sampled_from("sdcz"),
    shape=st.tuples(*[st.sampled_from([1, 2, 3, 16, 17, 90])] * 3),
    trans=st.tuples(letters, letters),
    layout=layouts,
    seed=st.integers(0, 99),
)
def test_a_call_has_equal_bits_however_much_is_looked_at(blas, letter, shape, trans, layout, seed):
    """Defaults need the shortest look; neither their types nor a given C changes a bit."""
    m, n, k = shape
    rng = np.random.default_rng(seed)
    a = draw_matrix(rng, (m, k) if trans[0] == "N" else (k, m), PRECISIONS[letter].dtype)
    b = draw_matrix(rng, (k, n) if trans[1] == "N" else (n, k), PRECISIONS[letter].dtype)
    a = laid_out(a, layout)
    names = {"trans_a": trans[0], "trans_b": trans[1], "device": blas}
    first = tw.gemm(a, b, **names)
    assert first.tobytes() == tw.gemm(a, b, np.empty_like(first), **names).tobytes()
    assert first.tobytes() == tw.gemm(a, b, alpha=1 + 0j, beta=0j, **names).tobytes()
    assert (2 * first).tobytes() == tw.gemm(a, b, alpha=2, **names).tobytes()


@pytest.mark.parametrize("kind", ["c8", "c16"])
@pytest.mark.parametrize("value", [np.inf, np.finfo(np.float32).max, np.nan])
@pytest.mark.parametrize("spoilt", ["a", "b"])
def test_infinities_of_a_complex_product_stay_however_wide_it_is(blas, kind, value, spoilt):
    rng = np.random.default_rng(0)
    given = {"a": draw_matrix(rng, (90, 2), kind) + 9, "b": draw_matrix(rng, (2, 90), kind) + 9}
    given[spoilt][1, 1] = value
    with np.errstate(all="ignore"):
        right = sum(given["a"][:, [at]] * given["b"][[at]] for at in range(2))
    zeros = np.zeros_like(right)
    for c in (None, laid_out(zeros, "padded rows"), laid_out(zeros, "column")):
        got = tw.gemm(given["a"], given["b"], c, device=blas)
        for mine, loop in ((got.real, right.real), (got.imag, right.imag)):
            finite = np.isfinite(loop)
            np.testing.assert_array_equal(mine[~finite], loop[~finite])
            np.testing.assert_allclose(mine[finite], loop[finite], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["f4", "c16"])
def test_a_conjugate_without_a_transpose(blas, kind):
    a = draw_matrix(np.random.default_rng(0), (5, 5), kind)
    got = tw.gemm(a, a, trans_a=Trans.R, trans_b=Trans.C, device=blas)
    assert np.allclose(got, a.conj() @ a.conj().T, rtol=1e-5)


def test_a_scalar_too_small_for_the_arrays_is_zero(blas):
    c = np.full((2, 2), np.nan, np.float32)
    ones = np.ones((2, 2), np.float32)
    assert np.array_equal(tw.gemm(ones, ones, c, beta=1e-60, device=blas), 2 * ones)
    a = np.full((2, 2), np.nan, np.float32)
    assert not tw.gemm(a, a, alpha=1e-60, device=blas).any()


@pytest.mark.parametrize("kind", ["f4", "f8", "c8", "c16"])
def test_arrays_that_blas_takes_in_no_way(blas, kind):
    whole = np.zeros(9 * np.dtype(kind).itemsize + 1, "u1")
    a, c = whole[1:].view(kind).reshape(3, 3), whole.copy()[1:].view(kind).reshape(3, 3)
    a[...] = np.arange(9).reshape(3, 3)
    eye = np.eye(3, dtype=kind)
    assert np.array_equal(tw.gemm(a, eye, c, device=blas), a)
    assert np.array_equal(tw.gemm(a.view(np.matrix), eye, c.view(np.matrix), device=blas), a)
    same = np.broadcast_to(np.ones(1, kind), (3, 3))
    assert np.array_equal(tw.gemm(same, same, device=blas), np.full((3, 3), 3))


def test_without_memory_for_a_product_beside_c_one_line_says_so(blas, monkeypatch):
    def refused(*_):
        raise MemoryError("Unable to allocate")

    monkeypatch.setattr("tilewright.serve.host_products._product", refused)
    a, c = np.ones((6, 6)), np.ones((6, 6))
    with pytest.raises(MemoryError, match=r"c has 6 x 6 elements, .* multiply parts$"):
        tw.gemm(a, a, c, beta=2, device=blas)
    assert (c == 1).all()


@pytest.mark.parametrize("accuracy", ["fp32", "tf32"])
def test_named_accuracies_are_ieee_arithmetic_and_say_so(blas, accuracy):
    a = draw_matrix(np.random.default_rng(0), (40, 40), "f4")
    told = tw.Decision()
    got = tw.gemm(a, a, accuracy=accuracy, report=told, device=blas)
    assert np.array_equal(got, tw.gemm(a, a, device=blas))
    assert told.variant == "ieee"
    assert "no tensor cores" in told.reason
    assert told.reason.endswith("; NumPy's BLAS computed it")
    tw.gemm(a, a, report=told, device=blas)
    assert told.reason == "accuracy is 'ieee'; NumPy's BLAS computed it"


def test_schemes_and_double_double_are_launched(blas):
    a = np.ones((4, 4), np.float32)
    pair = tw.DoubleDouble(a.astype(float))
    for x, accuracy in ((a, "fp16x3"), (pair, "fast")):
        with pytest.raises(BackendError, match="a kernel was launched"):
            tw.gemm(x, x, accuracy=accuracy, device=blas)


# -- which serves --------------------------------------------------------------------------


@pytest.fixture
def tuned(monkeypatch, tmp_path, cpu):
    """Return a function that lets a kernel have won a race, and BLAS have taken a time in it."""
    monkeypatch.setattr(host_blas, "_serves", True)
    monkeypatch.setenv("TILEWRIGHT_DATA_DIR", str(tmp_path))

    def forget():
        host_blas._least_of_kernels.cache_clear()
        host_blas._raced.cache_clear()

    forget()

    def race(size, kernel_ns, blas_ns, disturbed=()):
        kernel = SimpleNamespace(won={(size,) * 3: kernel_ns})
        monkeypatch.setattr(host_blas, "own", lambda *_: SimpleNamespace(kernels=[kernel]))
        monkeypatch.setattr(host_blas, "choose", lambda *_: SimpleNamespace(kernel=kernel))
        monkeypatch.setattr(races, "_timed", lambda _: [int(blas_ns)])
        monkeypatch.setattr(races, "noise", lambda *_: disturbed)
        races.race(cpu, Problem(size, size, size, "s"))
        forget()

    yield race
    forget()


def is_launched(live, monkeypatch, m, n, k, letter="s"):
    """Whether a kernel serves a product of row-major arrays."""
    launched = []
    monkeypatch.setattr("tilewright.serve.arrays.numpy._in_place", lambda *_: launched.append(1))
    dtype = PRECISIONS[letter].dtype
    tw.gemm(np.ones((m, k), dtype), np.ones((k, n), dtype), device=live)
    return bool(launched)


def test_tuned_kernels_serve_what_they_are_known_to_be_faster_at(monkeypatch, cpu, tuned):
    tuned(64, 1e6, 2e6)
    assert is_launched(cpu, monkeypatch, 64, 64, 64)
    assert is_launched(cpu, monkeypatch, 64, 200, 100)
    assert not is_launched(cpu, monkeypatch, 300, 63, 300)  # narrower than any race
    assert not is_launched(cpu, monkeypatch, 64, 64, 64, "d")  # nobody knows
    tuned(64, 1e6, 1.1e6)
    assert not is_launched(cpu, monkeypatch, 64, 64, 64)  # there is the launch
    assert is_launched(cpu, monkeypatch, 128, 128, 128)
    tuned(64, 1e6, 1e6)
    assert not is_launched(cpu, monkeypatch, 300, 300, 300)


def test_blas_serves_where_times_cannot_be_read(monkeypatch, cpu, tuned):
    tuned(64, 1e6, 2e6)
    path = races._path(cpu.portfolio_key)
    endless = '[["s", "NN", 1e999, 64, 64, 5]]'
    some = json.dumps([["s", "NN", "x", 64, 64, 1]])
    for damaged in ("", "{}", "[[1]]", some, endless, "[" * 100_000):
        path.write_text(damaged)
        host_blas._raced.cache_clear()
        assert not is_launched(cpu, monkeypatch, 64, 64, 64)


def test_a_race_keeps_what_is_known_of_others(cpu, tuned):
    tuned(64, 1, 5)
    tuned(32, 1, 6)
    known = races.times(cpu.portfolio_key)
    assert known == {("s", "NN", 64, 64, 64): 5, ("s", "NN", 32, 32, 32): 6}


def test_a_time_that_others_disturbed_is_not_kept(monkeypatch, cpu, tuned):
    tuned(64, 1e6, 9e6, disturbed=["others took the cores"])
    assert races.times(cpu.portfolio_key) == {}
    assert not is_launched(cpu, monkeypatch, 64, 64, 64)


def test_a_time_that_cannot_be_kept_costs_no_tuning(monkeypatch, cpu, tuned):
    tuned(300, 1e6, 9e6)
    kept = races.times(cpu.portfolio_key)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(races, "write_atomically", full)
    tuned(400, 1e6, 9e6)
    assert races.times(cpu.portfolio_key) == kept


def test_a_race_takes_a_products_time():
    taken = races._timed(Problem(50, 30, 20, "c", "T", "C"))
    assert 0 < min(taken) < 1e8


def test_a_wish_is_a_reason_against_it(monkeypatch, cpu):
    monkeypatch.setattr(host_blas, "_serves", True)
    assert not is_launched(cpu, monkeypatch, 2, 2, 2)
    with host_blas.left_out():
        assert is_launched(cpu, monkeypatch, 2, 2, 2)
    assert not is_launched(cpu, monkeypatch, 2, 2, 2)


def test_a_gpu_is_not_asked_to_wait_for_the_host(monkeypatch, cpu, tuned):
    monkeypatch.setattr(cpu, "spec", replace(cpu.spec, kind="gpu"))
    assert is_launched(cpu, monkeypatch, 2, 2, 2)
