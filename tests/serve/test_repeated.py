"""Calls like one made before on OpenCL devices: nothing is chosen anew, nothing is overlooked."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import tilewright as tw
from tilewright.backend import BackendError
from tilewright.portfolio import reload
from tilewright.serve import calls, gemm, host_blas
from tilewright.serve.calls import forget_plans


def counted(monkeypatch, module, name):
    """Return a list with an entry for each call of a module's function from here on."""
    found, function = [], getattr(module, name)

    def counting(*arguments, **options):
        found.append(arguments)
        return function(*arguments, **options)

    monkeypatch.setattr(module, name, counting)
    return found


@pytest.fixture
def laid(monkeypatch):
    """The calls that are laid out from here on; none was before."""
    forget_plans()
    return counted(monkeypatch, calls, "lay_out")


@pytest.fixture
def looked_at(monkeypatch):
    """The calls that have their closer look from here on."""
    return counted(monkeypatch, gemm, "check_given")


@pytest.fixture(params=["numpy", "pyopencl"])
def put(request, live, monkeypatch):
    """Return what puts an array of NumPy's where a device takes it, in the same layout."""
    if request.param == "numpy":
        if live.spec.kind != "cpu":
            pytest.skip("arrays travel to this device, which is looked at anew each time")
        monkeypatch.setenv("TILEWRIGHT_DEVICE", live.id)
        return lambda x: x.copy(order="K")
    queue = cl.CommandQueue(cl.Context([live.raw]))
    return lambda x: cla.to_device(queue, x)


def host(x):
    return x if isinstance(x, np.ndarray) else x.get()


def drawn(rng, shape, dtype, order="C"):
    return np.asarray(rng.integers(-9, 9, shape).astype(dtype), order=order)


def op(letter, x):
    return {"N": x, "T": x.T, "C": x.conj().T}[letter]


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("orders", ["CCC", "FCF", "CFC"])
@pytest.mark.parametrize("trans", ["NN", "TC"])
def test_results_are_right_cold_and_warm(put, laid, looked_at, dtype, orders, trans):
    rng, (m, n, k) = np.random.default_rng(0), (9, 14, 11)
    shapes = [s[::-1] if t != "N" else s for s, t in zip(((m, k), (k, n)), trans, strict=True)]
    for turn, (alpha, beta) in enumerate([(1, 0), (1, 0), (-2.5, 0), (2, 3), (1, -1), (1, 0)]):
        a, b = (drawn(rng, s, dtype, o) for s, o in zip(shapes, orders[:2], strict=True))
        old = drawn(rng, (m, n), dtype, orders[2])
        if beta == 0:
            old[...] = np.nan
        c = put(old)
        names = {"trans_a": trans[0], "trans_b": trans[1]}
        assert tw.gemm(put(a), put(b), c, alpha=alpha, beta=beta, **names) is c
        right = alpha * (op(trans[0], a) @ op(trans[1], b)) + (beta * old if beta else 0)
        np.testing.assert_array_equal(host(c), right)
        assert len(looked_at) == len(laid) == 1, turn
    plain = op(trans[0], a) @ op(trans[1], b)
    for _ in range(2):
        np.testing.assert_array_equal(host(tw.gemm(put(a), put(b), **names)), plain)


def test_a_scalar_that_changes_what_is_read_has_its_closer_look(put, laid):
    a = np.arange(12.0).reshape(3, 4)
    nan = np.full((3, 4), np.nan)
    for _ in range(2):
        c = put(np.ones((3, 3)))
        tw.gemm(put(a), put(a), c, trans_b="T")
        np.testing.assert_array_equal(host(c), a @ a.T)
        tw.gemm(put(nan), put(nan), c, alpha=0, beta=2, trans_b="T")
        np.testing.assert_array_equal(host(c), 2 * (a @ a.T))
    with pytest.raises(ValueError, match="beta='1' is text"):
        tw.gemm(put(a), put(a), c, trans_b="T", beta="1")
    with pytest.raises(ValueError, match="trans_b='X' is not a transpose"):
        tw.gemm(put(a), put(a), c, trans_b="X")
    assert len(laid) == 2


def test_what_fits_a_call_before_is_still_refused(put):
    whole = put(np.arange(96.0).reshape(12, 8))
    a, b, c = whole[:4, :4], whole[4:8, :4], whole[8:, :4]
    for _ in range(2):
        tw.gemm(a, b, c)
    with pytest.raises(ValueError, match="c overlaps b"):
        tw.gemm(a, b, whole[5:9, :4])
    with pytest.raises(ValueError, match="c overlaps a"):
        tw.gemm(a, b, whole[:4, :4])
    with pytest.raises(ValueError, match=r"b\.shape"):
        tw.gemm(a, whole[4:7, :4], c)
    with pytest.raises((TypeError, ValueError), match="device"):
        tw.gemm(a, b, c, device=3 if isinstance(a, np.ndarray) else "opencl:0")


def test_arrays_that_share_memory_with_one_another(put, looked_at):
    """A and B may be one, or parts of one matrix, whose memory is one piece to a device."""
    rng = np.random.default_rng(1)
    filled = drawn(rng, (10, 10), "f8")
    whole, c = put(filled), put(np.zeros((4, 4)))
    for _ in range(2):
        for at, to in ((0, 0), (0, 5), (3, 0), (5, 1)):
            tw.gemm(whole[at : at + 4, :4], whole[to : to + 4, 2:6], c)
            right = filled[at : at + 4, :4] @ filled[to : to + 4, 2:6]
            np.testing.assert_array_equal(host(c), right)
    one = whole[:4, :4]
    for _ in range(3):
        before = len(looked_at)
        tw.gemm(one, one, c)
        np.testing.assert_array_equal(host(c), filled[:4, :4] @ filled[:4, :4])
    assert len(looked_at) == before


def test_a_result_that_cannot_be_written_is_refused(cpu):
    a, c = np.eye(3), np.zeros((3, 3))
    for _ in range(2):
        tw.gemm(a, a, c, device=cpu)
    c.flags.writeable = False
    with pytest.raises(ValueError, match="c is read-only"):
        tw.gemm(a, a, c, device=cpu)
    with pytest.raises(TypeError, match="c is a list"):
        tw.gemm(a, a, [[0.0] * 3] * 3, device=cpu)


@pytest.mark.parametrize("dtype", ["f8", "c8"])
def test_operands_may_be_read_only(cpu, dtype):
    a, c = np.arange(9).astype(dtype).reshape(3, 3), np.zeros((3, 3), dtype)
    for x in (a, a.copy(), a[:, ::-1].copy()[:, ::-1]):
        x.flags.writeable = False
        for _ in range(3):
            tw.gemm(x, x, c, device=cpu)
            np.testing.assert_array_equal(c, a @ a)


def test_elements_off_their_size_are_copied(cpu):
    raw = np.zeros(9 * 8 + 4, "u1")
    a, c = raw[4:].view("c8").reshape(3, 3), np.zeros((3, 3), "c8")
    a[...] = np.arange(9).reshape(3, 3)
    eye = np.eye(3, dtype="c8")
    for x in (eye, a, eye, a):
        tw.gemm(x, eye, c, device=cpu)
        np.testing.assert_array_equal(c, x)


def test_blas_serves_again_what_kernels_served(cpu, monkeypatch):
    monkeypatch.setattr(host_blas, "_serves", True)
    a, c = np.full((3, 3), np.nan), np.ones((3, 3))
    with host_blas.left_out():
        for _ in range(2):
            tw.gemm(a, a, c, device=cpu)

    def refuse(*_, **__):
        raise BackendError("a kernel was launched")

    monkeypatch.setattr(cpu, "launch", refuse)
    tw.gemm(a, np.eye(3), np.ones((3, 3)), alpha=2.0**300, beta=1, device=cpu)
    with host_blas.left_out(), pytest.raises(BackendError):
        tw.gemm(a, a, c, device=cpu)


def test_what_is_built_later_serves_calls_after_a_reload(put, laid):
    a = put(np.eye(3))
    for turn in (1, 2):
        for _ in range(2):
            tw.gemm(a, a, put(np.eye(3)))
        assert len(laid) == turn
        reload()


def test_named_accuracies_are_laid_out_once(live, laid):
    a = np.ones((40, 80), np.float32)
    for _ in range(2):
        tw.gemm(a, a, accuracy="fp16x3", trans_b="T", device=live)
        tw.gemm(a, a, accuracy="fp32", trans_b="T", device=live)
    assert len(laid) == 2


def test_double_double_is_laid_out_once(live, laid):
    pairs = tw.DoubleDouble(np.arange(12.0).reshape(3, 4))
    for _ in range(2):
        made = tw.gemm(pairs, pairs, alpha=tw.DoubleDouble(3), trans_b="T", device=live)
        assert np.array_equal(made.hi, 3 * (pairs.hi @ pairs.hi.T))
    assert len(laid) == 1


@pytest.mark.parametrize(
    "properties", [0, cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE]
)
def test_calls_in_a_row_wait_for_one_another(live, properties):
    queue = cl.CommandQueue(cl.Context([live.raw]), properties=properties)
    x = np.array([[0.0, 1.0], [1.0, 1.0]])
    a, b, c = (cla.to_device(queue, np.eye(2)) for _ in range(3))
    a.set(x)
    for _ in range(20):  # Fibonacci's numbers
        tw.gemm(a, b, c)
        b, c = c, b
    assert b.get()[0, 1] == 6765
    for x in (a, b, c):  # besides what pyopencl adds for what it copies
        assert sum(type(event) is cl.Event for event in x.events) == 1
