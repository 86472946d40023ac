"""Products of arrays of more than two dimensions, beside NumPy's matmul."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.backend import OutOfMemoryError
from tilewright.precision import PRECISIONS
from tilewright.problem import Trans
from tilewright.serve import host_blas
from tilewright.serve.arrange import arrange
from tilewright.serve.ordered import OrderedPlan
from tilewright.serve.plan import WorkspaceError
from tilewright.tuning.verify import error_bound

relaxed = settings(max_examples=60)
letters = st.sampled_from("NTC")
sides = st.integers(0, 40)
batches = st.lists(st.integers(0, 4), max_size=3).map(tuple)


@pytest.fixture(autouse=True, params=["kernels", "host BLAS"])
def served(request, monkeypatch):
    """The contract is one, whoever serves on a CPU."""
    monkeypatch.setattr(host_blas, "_serves", request.param == "host BLAS")


def drawn(rng, shape, dtype):
    x = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


@st.composite
def broadcast_to(draw, batch):
    """Return a shape that broadcasts to a batch's, if the other operand has all of it."""
    kept = batch[draw(st.integers(0, len(batch))) :]
    return tuple(1 if draw(st.booleans()) else size for size in kept)


@st.composite
def laid(draw, values):
    """Return an array equal to values, whose memory lies in some other way."""
    order = draw(st.permutations(range(values.ndim)))
    moved = np.ascontiguousarray(values.transpose(order))
    whole = np.full([size + draw(st.integers(0, 1)) for size in moved.shape], np.nan, values.dtype)
    inside = whole[tuple(slice(0, size) for size in moved.shape)]
    step = tuple(slice(None, None, draw(st.sampled_from([1, 1, -1]))) for _ in moved.shape)
    inside[step] = moved
    return inside[step].transpose(np.argsort(order))


def op(letter, x):
    y = x if letter == "N" else x.swapaxes(-1, -2)
    return y.conj() if letter == "C" else y


def assert_right(got, a, b, c, alpha, beta, dtype):
    of = next(one for one in PRECISIONS.values() if one.dtype == dtype)
    wide = np.clongdouble if of.is_complex else np.longdouble
    x, y = a.astype(wide), b.astype(wide)
    right, size = alpha * (x @ y), abs(alpha) * (np.abs(x) @ np.abs(y))
    if beta != 0:
        right, size = right + beta * c.astype(wide), size + np.abs(beta * c.astype(wide))
    bound = error_bound(a.shape[-1] + 2, of.unit_roundoff, of.is_complex)
    assert got.shape == right.shape
    assert (np.abs(got - right) <= bound * size).all()


@relaxed
@given(st.data())
def test_agrees_with_matmul(live, data):
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dtype = np.dtype(draw(st.sampled_from(["f4", "f8", "c8", "c16"])))
    m, n, k, batch = draw(sides), draw(sides), draw(sides), draw(batches)
    trans_a, trans_b = draw(letters), draw(letters)
    of_a, of_b = batch, draw(broadcast_to(batch))
    if draw(st.booleans()):
        of_a, of_b = of_b, of_a
    a = draw(laid(drawn(rng, (*of_a, *((m, k) if trans_a == "N" else (k, m))), dtype)))
    b = draw(laid(drawn(rng, (*of_b, *((k, n) if trans_b == "N" else (n, k))), dtype)))
    alpha, beta = draw(st.sampled_from([1, 0, -0.5])), draw(st.sampled_from([0, 1, 2]))
    shape = (*np.broadcast_shapes(of_a, of_b), m, n)
    before = drawn(rng, shape, dtype) if beta else np.full(shape, np.nan, dtype)
    c = draw(laid(before)) if beta or draw(st.booleans()) else None
    got = tw.gemm(a, b, c, alpha=alpha, beta=beta, trans_a=trans_a, trans_b=trans_b, device=live.id)
    assert c is None or got is c
    x, y = op(trans_a, a), op(trans_b, b)
    assert_right(got, x, y, before, alpha, beta, dtype)


def test_calls_again_are_right(live):
    rng = np.random.default_rng(1)
    for _ in range(3):
        a, b = drawn(rng, (3, 2, 20, 30), "f4"), drawn(rng, (2, 30, 17), "f4")
        assert_right(tw.gemm(a, b, device=live.id), a, b, None, 1, 0, np.dtype("f4"))


@pytest.mark.parametrize("turned", ["a", "b", "c"])
@pytest.mark.parametrize("order", [(0, 2, 1), (1, 0, 2), (2, 1, 0)])
def test_calls_again_take_arrays_in_any_order(live, turned, order):
    """One whose memory has no gaps, but is in neither C's nor Fortran's order."""
    rng = np.random.default_rng(4)
    given = {"a": drawn(rng, (3, 4, 5), "f4"), "b": drawn(rng, (3, 5, 6), "f4")}
    given["c"] = np.zeros((3, 4, 6), "f4")
    right = given["a"].astype("f8") @ given["b"]
    x = given[turned]
    given[turned] = np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
    for _ in range(3):
        given["c"][...] = np.nan
        np.testing.assert_allclose(tw.gemm(**given, device=live.id), right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("of_c", [(1, 4, 5), (2, 4, 6), (4, 5)])
def test_c_has_the_shape_of_the_whole_result(live, of_c):
    with pytest.raises(ValueError, match=r"c\.shape"):
        tw.gemm(np.ones((2, 4, 3)), np.ones((3, 5)), np.ones(of_c), device=live.id)


def test_batches_that_do_not_broadcast_are_refused(live):
    with pytest.raises(ValueError, match=r"b\.shape.* before the last two"):
        tw.gemm(np.ones((2, 4, 3)), np.ones((3, 3, 5)), device=live.id)


def test_vectors_are_refused(live):
    with pytest.raises(ValueError, match=r"a\.shape.*two dimensions or more"):
        tw.gemm(np.ones(3), np.ones((3, 5)), device=live.id)


def test_c_on_operands_or_itself_is_refused(live):
    x = np.ones((3, 4, 4))
    with pytest.raises(ValueError, match="c overlaps a"):
        tw.gemm(x[:2], np.ones((4, 4)), x[1:], device=live.id)
    once = np.broadcast_to(np.ones((4, 4)), (3, 4, 4)).copy()
    same = np.lib.stride_tricks.as_strided(once, (3, 4, 4), (0, 32, 8))
    with pytest.raises(ValueError, match="overlap"):
        tw.gemm(x, np.ones((4, 4)), same, device=live.id)


@pytest.mark.parametrize("kind", ["float16", "int8"])
def test_narrow_types(live, kind):
    rng = np.random.default_rng(2)
    a = rng.integers(-4, 5, (3, 2, 9, 11)).astype(kind)
    b = rng.integers(-4, 5, (2, 11, 7)).astype(kind)
    c = tw.gemm(a, b, device=live.id)
    right = a.astype("i4") @ b.astype("i4")
    assert c.dtype == ("int32" if kind == "int8" else kind)
    assert np.array_equal(c, right)


@pytest.mark.parametrize("kind", ["float16", "float32"])
def test_an_empty_batch_is_written_into_any_array(live, kind):
    a, b = np.ones((0, 4, 3), kind), np.ones((3, 5), kind)
    c = np.ones((0, 4, 10), kind)[..., ::2]
    assert tw.gemm(a, b, c, beta=1, device=live.id) is c


def test_a_batch_that_runs_out_of_memory_is_not_begun_again(live, monkeypatch):
    started = []

    def fail(self, *given):
        if started:
            raise WorkspaceError("no more")
        started.append(start(self, *given))
        return started[-1]

    start = OrderedPlan._start
    monkeypatch.setattr(OrderedPlan, "_start", fail)
    a, c = np.ones((3, 8, 8), "f4"), np.ones((3, 8, 8), "f4")
    with pytest.raises(OutOfMemoryError, match="no more; a part of the batch is computed"):
        tw.gemm(a, a, c, beta=1, accuracy="fp16x3", device=live)


def test_double_double(live):
    rng = np.random.default_rng(3)
    a, b = (tw.DoubleDouble(drawn(rng, shape, "f8")) for shape in ((3, 5, 6), (6, 4)))
    got = tw.gemm(a, b, device=live.id)
    each = [tw.gemm(tw.DoubleDouble(x), b, device=live.id).hi for x in a.hi]
    assert np.array_equal(got.hi, each)


# -- how a batch is arranged ------------------------------------------------------------


def arranged(a, b, trans_a=Trans.N, trans_b=Trans.N, c=None):
    shape = np.matmul(op(trans_a, a), op(trans_b, b)).shape
    return arrange(a, b, np.empty(shape) if c is None else c, trans_a, trans_b)


def test_tokens_times_weights_are_one_product():
    found = arranged(np.ones((4, 6, 8)), np.ones((8, 5)))
    assert (found.m, found.n, found.k, found.repeats) == (24, 5, 8, ())
    assert arranged(np.ones((4, 1, 8)), np.ones((5, 8)), trans_b=Trans.T).m == 4
    assert arranged(np.ones((2, 3, 4, 1, 8)), np.ones((8, 5))).m == 24


def test_columns_continue_too():
    b = np.ones((8, 4, 5)).transpose(1, 0, 2)  # behind each other in the rows of one matrix
    c = np.empty((6, 4, 5)).transpose(1, 0, 2)
    found = arranged(np.ones((6, 8)), b, c=c)
    assert (found.m, found.n, found.repeats) == (6, 20, ())


def test_dimensions_that_step_alike_are_one_repeat():
    found = arranged(np.ones((2, 3, 6, 8)), np.ones((2, 3, 8, 5)))
    assert found.repeats == ((6, 6 * 8 * 8, 8 * 5 * 8, 6 * 5 * 8),)
    # One operand is the same along one of them, and not transposed so that it would fold.
    found = arranged(np.ones((2, 3, 8, 6)), np.ones((3, 8, 5)), trans_a=Trans.T)
    assert [one[0] for one in found.repeats] == [2, 3]
