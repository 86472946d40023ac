"""accuracy="fp64": what serves it, what it says of that, and BLAS semantics throughout."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.backend import GemmCall, Operand
from tilewright.hardware.catalogue import catalogue_device
from tilewright.problem import Problem, Trans
from tilewright.serve.laid_out import A, C, Space
from tilewright.serve.routes.lay_out import lay_out
from tilewright.serve.routes.residues.cuts import workspace_bytes
from tilewright.serve.routes.residues.options import Residues
from tilewright.serve.routes.residues.worth import best_cut
from tilewright.serve.triangle import Triangle
from tilewright.serve.unproved import serve_unproved

DEVICE = "opencl"
OPERATIONS = {"N": lambda x: x, "T": lambda x: x.T, "C": lambda x: x.conj().T}


def drawn(rng, rows, columns, dtype, order="C"):
    x = rng.standard_normal((rows, columns))
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal((rows, columns))
    return np.array(x, dtype, order=order)


def test_where_no_tensor_cores_are_known_ieee_serves():
    rng = np.random.default_rng(0)
    a, b = drawn(rng, 30, 40, "f8"), drawn(rng, 40, 50, "f8")
    told = tw.Decision()
    c = tw.gemm(a, b, accuracy="fp64", report=told, device=DEVICE)
    np.testing.assert_array_equal(c, tw.gemm(a, b, device=DEVICE))
    assert told.variant == "ieee"
    assert "tensor cores" in told.reason


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.parametrize(("trans", "order"), [("NN", "CF"), ("TC", "FC"), ("CT", "CC")])
def test_residues_serve_every_operation_and_order(dtype, trans, order):
    rng = np.random.default_rng(1)
    m, n, k = 70, 50, 200
    a = drawn(rng, *((m, k) if trans[0] == "N" else (k, m)), dtype, order[0])
    b = drawn(rng, *((k, n) if trans[1] == "N" else (n, k)), dtype)
    c, told = drawn(rng, m, n, dtype, order[1]), tw.Decision()
    x, y = (OPERATIONS[t](v).astype(np.clongdouble) for v, t in zip((a, b), trans, strict=True))
    alpha = 2 - 1j if dtype == "c16" else 2
    right, size = alpha * (x @ y) + 0.5 * c, abs(alpha) * (abs(x) @ abs(y)) + abs(c)
    with serve_unproved():
        tw.gemm(
            a, b, c, alpha=alpha, beta=0.5, trans_a=trans[0], trans_b=trans[1], accuracy="fp64",
            report=told, device=DEVICE,
        )  # fmt: skip
    assert told.variant == "residues"
    assert np.max(abs(c - right) / size) < 2.0**-51


def test_a_report_says_how_many_moduli_and_what_they_promise():
    rng = np.random.default_rng(2)
    a, b, told = drawn(rng, 40, 300, "f8"), drawn(rng, 300, 40, "f8"), tw.Decision()
    with serve_unproved():
        c = tw.gemm(a, b, accuracy="fp64", report=told, device=DEVICE)
        again = tw.gemm(a, b, accuracy="fp64", device=DEVICE)
    np.testing.assert_array_equal(c, again)
    found = told.as_dict()
    assert (found["variant"], found["moduli"], found["k"]) == ("residues", 14, 300)
    exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
    assert np.max(abs(c - exact) / (abs(a) @ abs(b))) <= found["error_bound"] < 2.0**-47
    assert "allowed" in told.explain()
    a[3, 4] = np.inf
    with serve_unproved():
        lost = tw.gemm(a, b, accuracy="fp64", report=told, device=DEVICE)
    assert told.variant == "ieee"
    assert "not finite" in told.reason
    assert not np.isfinite(lost[3]).any()
    assert np.isfinite(lost[4]).all()
    wild = drawn(rng, 40, 300, "f8") * np.exp(20 * rng.standard_normal((40, 300)))
    with serve_unproved():
        kept = tw.gemm(wild, b, accuracy="fp64", report=told, device=DEVICE)
    assert told.variant == "ieee"
    assert "too far apart" in told.reason
    np.testing.assert_allclose(kept, wild @ b, rtol=1e-9)


def test_products_of_single_terms_are_rounded_once():
    """Each is an integer of 53 bits in its row's scale, so that nothing is lost before that."""
    told = tw.Decision()
    for a in (np.array([[3.0], [5.0]]), np.array([[0.1], [1e9 / 7], [0.3]])):
        with serve_unproved():
            c = tw.gemm(a, a.T, accuracy="fp64", report=told, device=DEVICE)
        np.testing.assert_array_equal(c, a * a.T)
        assert told.variant == "residues"
        assert told.as_dict()["error_bound"] == 2.0**-53


def test_batches_and_rank_k_updates():
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((3, 20, 90)), rng.standard_normal((90, 30))
    with serve_unproved():
        c = tw.gemm(a, b, accuracy="fp64", device=DEVICE)
        half = tw.syrk(a[0], accuracy="fp64", device=DEVICE)
    np.testing.assert_allclose(c, a @ b, atol=1e-13)
    np.testing.assert_allclose(half, a[0] @ a[0].T, atol=1e-13)


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("dtype", "update", "trans", "uplo"),
    [
        ("f8", tw.syrk, "N", "L"), ("f8", tw.herk, "C", "U"), ("c16", tw.herk, "N", "L"),
        ("c16", tw.herk, "C", "U"), ("c16", tw.syrk, "T", "U"),
    ],
)  # fmt: skip
def test_updates_have_the_bits_of_products(dtype, update, trans, uplo):
    """The other triangle is left alone, and a Hermitian diagonal's imaginary part is not read."""
    rng = np.random.default_rng(4)
    n = 90
    a = rng.standard_normal((n, 33)) + (1j * rng.standard_normal((n, 33)) if dtype == "c16" else 0)
    a = np.asarray(a if trans == "N" else a.T, order="F")
    turned = "T" if update is tw.syrk else "C"
    mask = np.tri(n, dtype=bool) if uplo == "L" else np.tri(n, dtype=bool).T
    c = np.where(mask, rng.standard_normal((n, n)), np.nan).astype(dtype)
    whole, options = np.where(mask, c, 0), {"accuracy": "fp64", "device": DEVICE}
    ops = {"trans_a": trans, "trans_b": turned if trans == "N" else "N"}
    if dtype == "c16" and update is tw.herk:
        np.einsum("ii->i", c.imag)[...] = np.nan
    with serve_unproved():
        update(a, c, beta=2, trans=trans, uplo=uplo, **options)
        tw.gemm(a, a, whole, beta=2, **ops, **options)
        made = update(a, trans=trans, uplo=uplo, **options)
        right = tw.gemm(a, a, **ops, **options)
    if dtype == "c16" and update is tw.herk:
        for x in (whole, right):
            np.einsum("ii->i", x.imag)[...] = 0
    np.testing.assert_array_equal(c[mask], whole[mask])
    assert np.isnan(c[~mask]).all()
    np.testing.assert_array_equal(made[mask], right[mask])
    np.testing.assert_array_equal(made, made.conj().T if update is tw.herk else made.T)


def test_updates_take_less_workspace_by_shorter_sums_or_are_native(live):
    """A triangle is not cut into tiles."""
    problem = Problem(2000, 2000, 40000, "d", Trans.N, Trans.T)
    spec = catalogue_device("h100").spec
    whole = best_cut(spec, problem, Residues(), triangle=True)
    size = workspace_bytes(problem, whole, False)
    less = best_cut(spec, problem, Residues(max_workspace=size // 2), triangle=True)
    assert (less.m, less.n) == (2000, 2000)
    assert less.k < whole.k
    assert workspace_bytes(problem, less, False) <= size // 2
    assert best_cut(spec, problem, Residues(max_workspace=size // 20), triangle=True) is None
    small, a = Problem(80, 80, 40, "d", Trans.N, Trans.T), Operand(A, 0, 80)
    call = GemmCall(small.precision, 80, 80, 40, 1, a, a, 0, Operand(C, 0, 80))
    with serve_unproved():
        laid = [
            lay_out(live, small, call, "fp64", Space(), triangle=Triangle(True),
                    residues=Residues(max_workspace=most))
            for most in (None, 1000)
        ]  # fmt: skip
    assert [one.arithmetic for one in laid] == ["fp64", ""]
    assert "1000" in laid[1].why


def test_updates_that_residues_may_not_compute_are_native():
    a = np.full((40, 9), 1.0)
    a[3, 4] = np.inf
    with serve_unproved():
        made = tw.syrk(a, accuracy="fp64", device=DEVICE)
    np.testing.assert_array_equal(made, tw.syrk(a, device=DEVICE))


def test_empty_products_and_scalars_of_zero():
    a, b = np.full((4, 3), np.nan), np.full((3, 5), np.nan)
    c = np.ones((4, 5))
    with serve_unproved():
        tw.gemm(a, b, c, alpha=0, beta=2, accuracy="fp64", device=DEVICE)
        np.testing.assert_array_equal(c, 2)
        tw.gemm(a[:, :0], b[:0], c, beta=0, accuracy="fp64", device=DEVICE)
    np.testing.assert_array_equal(c, 0)
