"""Rank-k updates: a triangle of a product with its own transpose, and nothing of the other one."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.problem import Problem
from tilewright.serve.host_blas import left_out
from tilewright.serve.routes import rank_k
from tilewright.serve.unproved import serve_unproved
from tilewright.stencil.geometry import Geometry

DTYPES = ("f4", "f8", "c8", "c16")


def within(n, uplo):
    lower = np.tri(n, dtype=bool)
    return lower if uplo == "L" else lower.T


def integers(rng, shape, dtype):
    """Return small integers, whose sums of products are exact."""
    found = rng.integers(-3, 4, shape).astype(dtype)
    return found + 1j * rng.integers(-3, 4, shape) if found.dtype.kind == "c" else found


def drawn(rng, shape, dtype):
    found = rng.standard_normal(shape).astype(dtype)
    return found + 1j * rng.standard_normal(shape) if found.dtype.kind == "c" else found


def operated(a, trans):
    return {"N": a, "T": a.T, "C": a.conj().T}[trans]


@st.composite
def updates(draw):
    """Return an update's options, and what draws its matrices."""
    hermitian = draw(st.booleans())
    return {
        "hermitian": hermitian,
        "dtype": draw(st.sampled_from(DTYPES)),
        "n": draw(st.integers(0, 300)),
        "k": draw(st.integers(0, 40)),
        "trans": draw(st.sampled_from("NC" if hermitian else "NT")),
        "uplo": draw(st.sampled_from("LUlu")),
        "orders": draw(st.tuples(st.sampled_from("CF"), st.sampled_from("CF"))),
        "pads": draw(st.tuples(st.sampled_from([0, 3]), st.sampled_from([0, 3]))),
        "alpha": draw(st.sampled_from([1, 0, -0.5])),
        "beta": draw(st.sampled_from([0, 1, -2])),
        "seed": draw(st.integers(0, 2**32 - 1)),
    }


def padded(rng, shape, dtype, order, pad):
    whole = np.asarray(integers(rng, [side + pad for side in shape], dtype), dtype, order=order)
    return whole[pad:, pad:]


def update_matches(x, device=None):
    """Compare one update with NumPy's product; the other triangle holds NaN all along."""
    rng, n, dtype = np.random.default_rng(x["seed"]), x["n"], np.dtype(x["dtype"])
    shape = (n, x["k"]) if x["trans"] == "N" else (x["k"], n)
    a = padded(rng, shape, dtype, x["orders"][0], x["pads"][0])
    c = padded(rng, (n, n), dtype, x["orders"][1], x["pads"][1])
    op = operated(a, x["trans"])
    product = x["alpha"] * (op @ (op.conj().T if x["hermitian"] else op.T))
    right = product + (x["beta"] * c if x["beta"] else 0)
    if x["hermitian"] and dtype.kind == "c":
        np.einsum("ii->i", right).imag[...] = 0
    mask = within(n, x["uplo"].upper())
    c[~mask] = np.nan
    if x["beta"] == 0:
        c[mask] = np.nan
    if x["alpha"] == 0:
        a[...] = np.nan
    update = tw.herk if x["hermitian"] else tw.syrk
    options = {"alpha": x["alpha"], "trans": x["trans"], "uplo": x["uplo"], "device": device}
    assert update(a, c, beta=x["beta"], **options) is c
    if (x["alpha"] == 0 or x["k"] == 0) and x["beta"] == 1:  # nothing is done
        return
    np.testing.assert_array_equal(c[mask], right[mask])
    assert np.isnan(c[~mask]).all()
    made = update(a, **options)
    np.testing.assert_array_equal(made, product)


@settings(max_examples=25)
@given(updates())
def test_a_triangle_is_updated_by_kernels(x):
    update_matches(x, "opencl")


@settings(max_examples=25)
@given(updates())
def test_a_triangle_is_updated_by_the_hosts_blas(x):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tilewright.serve.host_blas._serves", True)
        update_matches(x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hermitian", [False, True])
def test_both_triangles_of_a_new_matrix_mirror_each_other(live, dtype, hermitian):
    rng = np.random.default_rng(1)
    a = rng.standard_normal((270, 31)).astype(dtype)
    if a.dtype.kind == "c":
        a = a + 1j * rng.standard_normal(a.shape).astype(a.real.dtype)
    made = (tw.herk if hermitian else tw.syrk)(a, device=live)
    np.testing.assert_array_equal(made, made.conj().T if hermitian else made.T)
    np.testing.assert_allclose(made, a @ (a.conj().T if hermitian else a.T), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("is_complex", [False, True])
def test_double_double_matrices_are_updated(live, is_complex):
    rng = np.random.default_rng(2)
    a = rng.standard_normal((140, 9)) + (1j * rng.standard_normal((140, 9)) if is_complex else 0)
    x = tw.DoubleDouble(a) / 3
    c = tw.DoubleDouble(np.eye(140) * (1 + 0j if is_complex else 1)) / 7
    kept = c.words.copy()
    assert tw.herk(x, c, beta=0.5, device=live) is c
    right = tw.gemm(x, x, tw.DoubleDouble.of_words(kept.copy(), is_complex), beta=0.5,
                    trans_b="C", device=live)  # fmt: skip
    mask = within(140, "L") & ~np.eye(140, dtype=bool)
    np.testing.assert_array_equal(c.words[mask], right.words[mask])
    np.testing.assert_array_equal(c.words[~within(140, "L")], kept[~within(140, "L")])


@pytest.mark.parametrize("out", [None, "float32"])
def test_16_bit_matrices_are_rounded_once(out):
    rng = np.random.default_rng(3)
    a = rng.standard_normal((90, 40)).astype(np.float16)
    made = tw.syrk(a, out_dtype=out, device="opencl")
    wide = tw.syrk(a.astype(np.float32), device="opencl")
    np.testing.assert_array_equal(made, wide.astype(out or np.float16))
    c = np.full((90, 90), np.nan, np.float16)
    tw.syrk(a, c, uplo="U", device="opencl")
    assert np.isnan(c[~within(90, "U")]).all()
    assert not np.isnan(c[within(90, "U")]).any()


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_what_residues_refuse_is_updated_by_blocks(live, monkeypatch, dtype, uplo):
    monkeypatch.setattr(rank_k, "LEAST_SIDE", 64)
    rng = np.random.default_rng(6)
    a = drawn(rng, (190, 70), dtype)
    a[3] *= 2.0**-500  # a side so short that residues leave it
    c = np.ones((190, 190), dtype)
    c[~within(190, uplo)] = np.nan
    told = tw.Decision()
    with serve_unproved():
        tw.gemm(a, a, trans_b="C", accuracy="fp64", report=told, device=live)
        tw.herk(a, c, beta=-1, uplo=uplo, accuracy="fp64", device=live)
        made = tw.herk(a, uplo=uplo, accuracy="fp64", device=live)
    assert told.variant == "ieee"
    right = a @ a.conj().T
    scale = abs(a) @ abs(a.T) + 1
    assert (abs(c - (right - 1)) < 1e-14 * scale)[within(190, uplo)].all()
    assert np.isnan(c[~within(190, uplo)]).all()
    assert (abs(made - right) < 1e-14 * scale).all()


@pytest.mark.every(2)
@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_a_triangle_of_pairs_is_put_together_from_residues(live, is_complex, uplo):
    rng = np.random.default_rng(7)
    a, start = (drawn(rng, (70, side), "c16" if is_complex else "f8") for side in (33, 70))
    x, c = tw.DoubleDouble(a) / 3, tw.DoubleDouble(start) / 7
    kept, mask = c.words.copy(), within(70, uplo)
    with serve_unproved():
        right = tw.gemm(x, x, tw.DoubleDouble.of_words(kept.copy(), is_complex), beta=0.5,
                        trans_b="C", device=live).words  # fmt: skip
        whole = tw.gemm(x, x, trans_b="C", device=live).words
        if is_complex:
            right[range(70), range(70), 1] = 0
            c.words[range(70), range(70), 1] = np.nan
        tw.herk(x, c, beta=0.5, uplo=uplo, device=live)
        made = tw.herk(x, uplo=uplo, device=live).words
    np.testing.assert_array_equal(c.words[mask], right[mask])
    np.testing.assert_array_equal(c.words[~mask], kept[~mask])
    np.testing.assert_array_equal(made, whole)


@pytest.mark.every(2)
@pytest.mark.parametrize("faint", [0, 20, 60])
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_a_triangle_of_parts_is_what_the_guard_lets_the_whole_product_be(live, faint, uplo):
    """Of a matrix that is both operands what is faint counts twice."""
    rng = np.random.default_rng(8)
    a, old = (drawn(rng, (130, side), "f4") for side in (160, 130))
    a[:, :faint] *= np.float32(2.0**-30)
    c = np.where(within(130, uplo), old, np.float32(np.nan))
    told = tw.Decision()
    with serve_unproved():
        right = tw.gemm(a, a, old.copy(), beta=2, trans_b="T", accuracy="fp32", report=told,
                        device=live)  # fmt: skip
        whole = tw.gemm(a, a, trans_b="T", accuracy="fp32", device=live)
        tw.syrk(a, c, beta=2, uplo=uplo, accuracy="fp32", device=live)
        made = tw.syrk(a, uplo=uplo, accuracy="fp32", device=live)
    assert told.variant == {0: "fp16x3", 20: "bf16x6", 60: "ieee"}[faint]
    np.testing.assert_array_equal(c[within(130, uplo)], right[within(130, uplo)])
    assert np.isnan(c[~within(130, uplo)]).all()
    np.testing.assert_array_equal(made, made.T)
    mirrors = [np.tril(whole) + np.tril(whole, -1).T, np.triu(whole) + np.triu(whole, 1).T]
    assert any((made == one).all() for one in mirrors)


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", ["f4", "c8"])
def test_parts_of_single_precision_are_multiplied(live, dtype):
    """By the model of tensor cores, as the whole product is; complex ones block by block."""
    rng = np.random.default_rng(4)
    a = integers(rng, (300, 70), np.dtype(dtype)).astype(dtype)
    c = np.full((300, 300), np.nan, dtype)
    with serve_unproved():
        tw.herk(a, c, accuracy="fp32", device=live)
        made = tw.herk(a, accuracy="fp16x3", device=live)
    right = a @ a.conj().T
    np.testing.assert_array_equal(c[within(300, "L")], right[within(300, "L")])
    assert np.isnan(c[~within(300, "L")]).all()
    np.testing.assert_array_equal(made, right)


def test_arrays_that_share_memory_are_refused(live):
    a = np.ones((8, 16), np.float32)
    with pytest.raises(ValueError, match="c overlaps a"):
        tw.syrk(a, a[:, :8], device=live)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"uplo": "X"}, "uplo='X'"),
        ({"uplo": None}, "uplo=None"),
        ({"trans": "X"}, "trans='X'"),
        ({"trans": "C"}, "trans='C' is not for complex data"),
        ({"beta": 1}, "beta=1 needs c"),
        ({"c": np.zeros((3, 4), "c8")}, r"c\.shape"),
        ({"c": np.zeros((3, 3), "c16")}, r"c\.dtype"),
        ({"accuracy": "exact"}, "accuracy='exact'"),
        ({"out_dtype": "float32"}, "out_dtype='float32'"),
    ],
)
def test_wrong_arguments_are_named(wrong, what):
    with pytest.raises(ValueError, match=what):
        tw.syrk(np.ones((3, 4), "c8"), **wrong)


def test_a_hermitian_update_has_real_scalars():
    a = np.ones((3, 4), "c8")
    for wrong in ({"alpha": 1j}, {"beta": 1j, "c": np.zeros((3, 3), "c8")}, {"trans": "T"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            tw.herk(a, **wrong)


@pytest.mark.parametrize(("alpha", "k"), [(0, 2), (1, 0)])
def test_a_hermitian_diagonal_is_real_where_nothing_is_multiplied(live, alpha, k):
    c = np.full((3, 3), 2 + 1j)
    np.fill_diagonal(c.imag, np.nan)
    tw.herk(np.ones((3, k), "c16"), c, alpha=alpha, beta=1, device=live)
    np.testing.assert_array_equal(np.tril(c), np.tril(np.full((3, 3), 2 + 1j), -1) + 2 * np.eye(3))


@pytest.mark.parametrize("uplo", ["L", "U"])
def test_integers_are_exact_and_leave_the_other_triangle(uplo):
    """Of sums that single precision does not hold, in pieces."""
    rng = np.random.default_rng(5)
    a = rng.integers(-128, 128, (2100, 70)).astype(np.int8)
    right = a.T.astype(np.int64) @ a
    np.testing.assert_array_equal(tw.syrk(a, trans="T", device="opencl"), right)
    c = rng.integers(-(2**30), 2**30, (70, 70)).astype(np.int32)
    wanted = np.where(within(70, uplo), 3 * right - 2 * c.astype(np.int64), c).astype(np.int32)
    tw.syrk(a, c, alpha=3, beta=-2, trans="T", uplo=uplo, device="opencl")
    np.testing.assert_array_equal(c, wanted)


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
def test_fp8_is_rounded_once_to_bfloat16(kind):
    types = pytest.importorskip("ml_dtypes")
    a = np.random.default_rng(8).standard_normal((70, 30)).astype(getattr(types, kind))
    wide = a.astype(np.float32)
    c = np.full((70, 70), np.nan, types.bfloat16)
    tw.syrk(a, c, device="opencl")
    right = tw.syrk(wide, device="opencl").astype(types.bfloat16)
    mask = within(70, "L")
    np.testing.assert_array_equal(c[mask].astype("f4"), right[mask].astype("f4"))
    assert np.isnan(c[~mask].astype("f4")).all()
    np.testing.assert_array_equal(tw.syrk(a, out_dtype="float32", device="opencl"), wide @ wide.T)


def test_what_spans_more_than_a_buffer_is_cut(live, monkeypatch):
    monkeypatch.setattr(type(live), "max_allocation", 200_000)
    rng = np.random.default_rng(6)
    for uplo in "LU":
        a = integers(rng, (400, 30), np.dtype("c8")).astype("c8")
        right = a @ a.conj().T
        np.testing.assert_array_equal(tw.herk(a, uplo=uplo, device=live), right)
        c = np.full((400, 400), np.nan, "c8")
        tw.herk(a, c, uplo=uplo, device=live)
        np.testing.assert_array_equal(c[within(400, uplo)], right[within(400, uplo)])
        assert np.isnan(c[~within(400, uplo)]).all()


def test_equal_calls_give_equal_bits(live):
    a = np.random.default_rng(7).standard_normal((520, 200)).astype("f4")
    c = np.zeros((520, 520), "f4")
    tw.syrk(a, c, device=live)
    for _ in range(3):
        again = np.zeros_like(c)
        tw.syrk(a, again, device=live)
        np.testing.assert_array_equal(again, c)


def test_host_blas_serves_where_it_does(monkeypatch):
    monkeypatch.setattr("tilewright.serve.host_blas._serves", True)
    monkeypatch.setattr(rank_k, "lay_out_triangle", None)
    tw.syrk(np.ones((4, 5)))
    with left_out(), pytest.raises(TypeError):
        tw.syrk(np.ones((4, 5)) * 2)


@pytest.mark.parametrize("update", [tw.syrk, tw.herk])
def test_short_numbers_are_real(update, monkeypatch):
    found = []
    monkeypatch.setattr(
        "tilewright.serve.narrow.serve.narrow_gemm", lambda *_, triangle: found.append(triangle)
    )
    update(np.ones((4, 3), "f2"), uplo="U")
    assert [(x.lower, x.hermitian, x.filled) for x in found] == [(False, False, True)]


@pytest.mark.parametrize(("n", "waves"), [(4096, 3), (3840, 2)])
def test_a_last_wave_of_few_tiles_counts(monkeypatch, n, waves):
    """Diagonal blocks are whole: 272 and 240 tiles, on 132 multiprocessors."""
    monkeypatch.setattr(rank_k, "choose", lambda *_: SimpleNamespace(ns=None))
    monkeypatch.setattr(rank_k, "begin_aligned", lambda _: True)
    problem = Problem(n, n, n, "s", "T", "N")
    half = replace(problem, m=n + 128, n=n // 2, lda=n + 128, ldc=n + 128)
    live = SimpleNamespace(spec=SimpleNamespace(multiprocessors=132))
    update = SimpleNamespace(
        _live=live, _problem=problem, _call=None, _triangle=SimpleNamespace(lower=True)
    )
    chosen = SimpleNamespace(geometry=Geometry(128, 256, (256, 1), resident=1), ns=2000.0)
    assert rank_k._Update._waves(update, chosen, half).ns == 1000.0 * waves
