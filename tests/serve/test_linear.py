"""LU on top of gemm(): HPL's own criterion, and SciPy-like factors."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.serve import linear


@pytest.fixture(params=["by LAPACK", "by products"], autouse=True)
def solver(request, monkeypatch):
    """With SciPy's LAPACK, and as where SciPy is not installed."""
    if request.param == "by LAPACK":
        pytest.importorskip("scipy")
    else:
        monkeypatch.setattr(linear, "_routine", lambda name, dtype: None)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("n", [1, 7, 130, 257])
def test_hpl_accepts_the_solution(dtype, n):
    rng = np.random.default_rng(n)
    a = (rng.random((n, n)) - 0.5).astype(dtype)
    if a.dtype.kind == "c":
        a = a + 1j * (rng.random((n, n)) - 0.5).astype(a.real.dtype)
    b = a[:, 0] + 1
    x = tw.lu_solve(tw.lu_factor(a), b)
    assert tw.scaled_residual(a, x, b) < 16
    # The criterion can refuse: a solution off by a half is not one.
    if n > 1:
        assert tw.scaled_residual(a, x * a.real.dtype.type(1.5), b) > 16


def test_factors_multiply_to_the_permuted_matrix():
    rng = np.random.default_rng(3)
    a = rng.standard_normal((150, 150))
    lu, pivots = tw.lu_factor(a)
    permuted = a.copy()
    for i, pivot in enumerate(pivots):
        permuted[[i, pivot]] = permuted[[pivot, i]]
    lower, upper = np.tril(lu, -1) + np.eye(150), np.triu(lu)
    assert np.allclose(lower @ upper, permuted)
    assert np.abs(lower).max() <= 1  # partial pivoting bounds every multiplier


def test_singular_and_malformed_matrices_are_refused():
    with pytest.raises(np.linalg.LinAlgError, match="pivot 1"):
        tw.lu_factor(np.ones((3, 3)))
    with pytest.raises(ValueError, match="not square"):
        tw.lu_factor(np.ones((3, 4)))
    with pytest.raises(ValueError, match="b is complex"):
        tw.lu_solve(tw.lu_factor(np.eye(3)), np.ones(3) * 1j)
    assert tw.scaled_residual(np.eye(3), np.zeros(3), np.zeros(3)) == 0
    with pytest.raises(ValueError, match=r"b\.shape"):
        tw.lu_solve(tw.lu_factor(np.eye(3)), np.ones(4))
    with pytest.raises(ValueError, match=r"b\.shape"):
        tw.lu_solve(tw.lu_factor(np.eye(3)), np.ones((3, 2, 1)))


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("sides", [0, 1, 40])
def test_several_right_hand_sides_are_solved_as_one_by_one(pairs, sides):
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((70, 70)), rng.standard_normal((70, sides))
    if pairs:
        a, b = tw.DoubleDouble(a), tw.DoubleDouble(b)
    factored, kept = tw.lu_factor(a), b.copy()
    x = tw.lu_solve(factored, b)
    assert x.shape == (70, sides)
    each = [tw.scaled_residual(a, x[:, at], b[:, at]) for at in range(sides)]
    assert tw.scaled_residual(a, x, b) == max(each, default=0) < 16
    for at in range(0, sides, 13):
        one = tw.lu_solve(factored, b[:, at])
        assert tw.scaled_residual(a, one, b[:, at]) < 16
    assert np.array_equal(b.words if pairs else b, kept.words if pairs else kept)


@pytest.mark.parametrize("trans", ["T", "C"])
@pytest.mark.parametrize("kind", ["f4", "c16", "pairs"])
def test_transposed_systems_are_solved(kind, trans):
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((90, 90)), rng.standard_normal((90, 3))
    if kind == "pairs":
        a, b = tw.DoubleDouble(a), tw.DoubleDouble(b)
    else:
        a, b = a.astype(kind) * (1 + 1j if kind == "c16" else 1), b.astype(kind)
    x = tw.lu_solve(tw.lu_factor(a), b, trans=trans)
    op = a.conj().T if trans == "C" else a.T
    assert tw.scaled_residual(op, x[:, 1], b[:, 1]) < 16


def test_rows_are_exchanged_as_pivots_say():
    """Of a permutation, whose pivots move rows more than once."""
    order = np.random.default_rng(2).permutation(90)
    a = np.eye(90)[order]
    lu, pivots = tw.lu_factor(a)
    assert np.array_equal(lu, np.eye(90))
    right = np.arange(90.0)
    assert np.array_equal(tw.lu_solve((lu, pivots), a @ right), right)


@pytest.mark.parametrize("pairs", [False, True])
def test_the_criterion_tells_what_it_cannot_judge(pairs):
    def made(x):
        return tw.DoubleDouble(x) if pairs else np.asarray(x, float)

    eye, ones = np.eye(3), np.ones(3)
    for bad in (np.nan, np.inf):
        with np.errstate(invalid="ignore"):
            assert np.isnan(tw.scaled_residual(made(eye), made(bad * ones), made(ones)))
            assert np.isnan(tw.scaled_residual(made(bad * ones * eye + 0), made(ones), made(ones)))
    # Numbers near the end of the range are judged, too.
    large, right, solution = 2.0**1000 * eye, 2.0**300 * ones, 2.0**-700 * ones
    assert tw.scaled_residual(made(large), made(solution), made(right)) == 0
    assert tw.scaled_residual(made(large), made(1.5 * solution), made(right)) > 16
    assert tw.scaled_residual(made(np.zeros((0, 0))), made([]), made([])) == 0
    with pytest.raises(ValueError, match=r"x\.shape=\(3, 1\) should be \(3,\)"):
        tw.scaled_residual(made(eye), made(ones[:, None]), made(ones))
    with pytest.raises(ValueError, match=r"b\.shape=\(\) should be \(3,\)"):
        tw.scaled_residual(made(eye), made(ones), made(5.0))
    with pytest.raises(ValueError, match=r"a\.shape=\(3,\) is not square"):
        tw.scaled_residual(made(ones), made(ones), made(ones))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ((np.eye(3), [0, 1, 3]), r"factored\[1\]=\[0, 1, 3\] names rows beyond 0 to 2"),
        ((np.eye(3), np.array([0, 1, -1])), r"factored\[1\]=.* names rows"),
        ((np.eye(3), [0, 1]), r"factored\[1\]=\[0, 1\] should be 3 integers"),
        ((np.eye(3), [[0], [1, 2]]), "should be 3 integers"),
        ((np.eye(3), np.zeros(3)), "should be 3 integers"),
        ((np.eye(3), None), "should be 3 integers"),
        ((np.ones((2, 3)), [0, 1]), r"factored\[0\]\.shape=\(2, 3\)"),
        ((np.eye(3, dtype="i4"), [0, 1, 2]), r"factored\[0\]\.dtype=int32"),
        (([[1.0]], [0]), r"factored\[0\] is a list"),
        (np.eye(3), r"factored=array\(\[\[1\., 0\., 0\.\], \[0.* is no pair"),
        (None, "factored=None is no pair"),
    ],
)
def test_what_no_factors_are_is_refused(wrong, words):
    """LAPACK would exchange rows outside of the right-hand side."""
    with pytest.raises((ValueError, TypeError), match=words):
        tw.lu_solve(wrong, np.ones(3))


def test_infinity_and_nan_are_results_where_numpy_would_raise():
    a = np.eye(20)
    a[3, 4] = np.inf
    with np.errstate(all="raise"):
        factored = tw.lu_factor(a + a.T)
        assert not np.isfinite(tw.lu_solve(factored, np.full(20, np.nan))).any()


def test_right_hand_sides_of_no_numbers_are_refused():
    with pytest.raises(ValueError, match=r"b\.dtype=object is of no numbers"):
        tw.lu_solve(tw.lu_factor(np.eye(2)), np.array([None, None]))
    for dtype in ([("x", "f8")], "V8"):
        with pytest.raises(ValueError, match=r"b\.dtype=.* is of no numbers"):
            tw.lu_solve(tw.lu_factor(np.eye(2)), np.zeros(2, dtype))


def test_lists_and_integers_are_refused_by_name():
    with pytest.raises(TypeError, match="a is a list"):
        tw.lu_factor([[1.0]])
    with pytest.raises(ValueError, match=r"a\.dtype=int64"):
        tw.lu_factor(np.eye(3, dtype=np.int64))
    with pytest.raises(TypeError, match="b is a list"):
        tw.lu_solve(tw.lu_factor(np.eye(3)), [1.0, 2, 3])


@pytest.mark.parametrize("make", [np.asarray, tw.DoubleDouble])
def test_nan_in_a_column_is_no_zero_pivot(make):
    lu, _ = tw.lu_factor(make(np.array([[0.0, 1], [np.nan, 1]])))
    assert np.isnan(lu.words if isinstance(lu, tw.DoubleDouble) else lu).any()
    with pytest.raises(np.linalg.LinAlgError, match="pivot 0 is exactly zero"):
        tw.lu_factor(make(np.array([[0.0, np.nan], [0, 1]])))


def test_masked_arrays_are_refused():
    a, b = np.eye(2), np.ones(2)
    masked, side = np.ma.masked_array(a, a > 0), np.ma.masked_array(b, b > 0)
    factored = tw.lu_factor(a)
    for call in (
        lambda: tw.lu_factor(masked),
        lambda: tw.lu_solve(factored, side),
        lambda: tw.lu_solve((masked, factored[1]), b),
        lambda: tw.scaled_residual(masked, b, b),
        lambda: tw.scaled_residual(a, b, side),
    ):
        with pytest.raises(TypeError, match="masked arrays"):
            call()


@pytest.mark.parametrize("pairs", [False, True])
def test_a_conjugated_matrix_that_is_not_transposed_is_refused(pairs):
    a = np.eye(2) + 1j
    factors = tw.lu_factor(tw.DoubleDouble(a) if pairs else a)
    with pytest.raises(ValueError, match="trans='R'"):
        tw.lu_solve(factors, np.ones(2, "c16"), trans=tw.Trans.R)
