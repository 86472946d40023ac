"""Products of matrices in the host's memory, tile by tile through another one."""

from __future__ import annotations

import re
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.backend import BackendError, OutOfMemoryError
from tilewright.serve import host_blas
from tilewright.serve.arrays import numpy as on_numpy
from tilewright.serve.streamed import progress, serve, tiling
from tilewright.serve.streamed.transport import InOrder


class Threaded(InOrder):
    """A device that copies finished tiles while it computes others, as CUDA's do."""

    overlaps = True


class Sliced:
    """An array that gives and takes parts, as Zarr's and h5py's do."""

    def __init__(self, array):
        self._array = array
        self.shape, self.dtype, self.taken = array.shape, array.dtype, []

    def __getitem__(self, part):
        self.taken.append(part)
        return self._array[part].copy()

    def __setitem__(self, part, values):
        self._array[part] = values


@pytest.fixture(autouse=True, params=[InOrder, Threaded])
def apart(request, monkeypatch):
    """The first OpenCL device, as if its memory were its own."""
    monkeypatch.setattr(on_numpy, "is_shared", lambda live: False)
    monkeypatch.setattr(serve, "InOrder", request.param)
    with host_blas.left_out():
        yield


def drawn(rng, shape, dtype, order):
    x = rng.standard_normal(shape).astype(dtype)
    if x.dtype.kind == "c":
        x.imag = rng.standard_normal(shape)
    return np.asarray(x, order=order)


def applied(x, trans):
    wide = x.astype(np.complex128)
    return {"N": wide, "T": wide.T, "C": wide.conj().T}[trans]


@settings(max_examples=25)
@given(
    sizes=st.tuples(*[st.integers(1, 90)] * 3),
    dtype=st.sampled_from(["f4", "f8", "c8", "c16"]),
    trans=st.tuples(*[st.sampled_from("NTC")] * 2),
    orders=st.text("CF", min_size=3, max_size=3),
    beta=st.sampled_from([0, 0.5]),
    kib=st.sampled_from([64, 256, 4096]),
    seed=st.integers(0, 99),
)
def test_limits_change_no_result(sizes, dtype, trans, orders, beta, kib, seed):
    (m, n, k), rng = sizes, np.random.default_rng(seed)
    a = drawn(rng, (m, k) if trans[0] == "N" else (k, m), dtype, orders[0])
    b = drawn(rng, (k, n) if trans[1] == "N" else (n, k), dtype, orders[1])
    c = drawn(rng, (m, n), dtype, orders[2])
    expected = 2 * (applied(a, trans[0]) @ applied(b, trans[1])) + beta * c
    size = 2 * (abs(applied(a, trans[0])) @ abs(applied(b, trans[1]))) + abs(c)
    if not beta:
        c.fill(np.nan)
    tw.gemm(
        a, b, c, alpha=2, beta=beta, trans_a=trans[0], trans_b=trans[1],
        max_device_memory=kib << 10,
    )  # fmt: skip
    assert (abs(c - expected) <= 8 * (k + 2) * np.finfo(dtype).eps * size).all()


@settings(max_examples=15)
@given(
    sizes=st.tuples(*[st.integers(1, 60)] * 3),
    trans=st.tuples(*[st.sampled_from("NT")] * 2),
    orders=st.text("CF", min_size=3, max_size=3),
    beta=st.sampled_from([0, 0.5]),
    balance=st.sampled_from([0.5, 2, 50]),
    seed=st.integers(0, 99),
)
def test_slabs_and_strips_change_no_result(sizes, trans, orders, beta, balance, seed):
    (m, n, k), rng = sizes, np.random.default_rng(seed)
    a = drawn(rng, (m, k) if trans[0] == "N" else (k, m), "f8", orders[0])
    b = drawn(rng, (k, n) if trans[1] == "N" else (n, k), "f8", orders[1])
    c = drawn(rng, (m, n), "f8", orders[2])
    expected = applied(a, trans[0]).real @ applied(b, trans[1]).real + beta * c
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("_UNIT", 2), ("_LEAST_STRIP", 4), ("_LEAST_SLAB", 2)):
            patch.setattr(tiling, name, value)
        # Nothing is kept of these.
        patch.setattr(serve.Tiling, "of", classmethod(serve.Tiling.of.__wrapped__))
        patch.setattr(serve, "_BALANCE", balance)
        if not beta:
            c.fill(np.nan)
        tw.gemm(a, b, c, beta=beta, trans_a=trans[0], trans_b=trans[1], max_device_memory=1 << 20)
    assert np.allclose(c, expected, rtol=1e-12, atol=1e-12)


def test_whoever_asks_is_told_how_far_a_product_is():
    told = []
    a = np.ones((64, 16))
    with progress.told(lambda done, of: told.append((done, of))):
        tw.gemm(a, a.T.copy(), max_device_memory=28 << 10)
    assert told[-1] == (16, 16)
    assert told == sorted(told)
    tw.gemm(a, a.T.copy(), max_device_memory=28 << 10)
    assert told[-1] == (16, 16)


@pytest.mark.parametrize("trans", ["N", "T"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_operands_that_are_not_read_may_hold_anything(trans, order):
    c = np.ones((70, 50), order=order)
    a, b = np.full((70, 40), np.nan), np.full((40, 50), np.nan)
    asked = {"trans_a": trans, "trans_b": trans, "max_device_memory": 64 << 10}
    turned = [x.T if trans == "T" else x for x in (a, b, a[:, :0], b[:0])]
    tw.gemm(*turned[:2], c, alpha=0, beta=3, **asked)
    assert (c == 3).all()
    tw.gemm(*turned[2:], c, beta=2, **asked)
    assert (c == 6).all()


def test_parts_of_other_arrays_are_read_and_written():
    rng = np.random.default_rng(1)
    a, b, c = (rng.standard_normal(shape) for shape in ((90, 60), (70, 60), (90, 70)))
    expected = a @ b.T + c
    target = Sliced(c)
    made = tw.gemm(Sliced(a), b, target, beta=1, trans_b="T", max_device_memory=64 << 10)
    assert made is target
    assert np.allclose(c, expected)
    new = tw.gemm(Sliced(a), Sliced(b), trans_b="T")
    assert np.allclose(new, a @ b.T)


def test_parts_that_are_no_arrays_of_their_shape_are_refused():
    class Square(Sliced):
        def __getitem__(self, part):
            return np.ones((3, 3)) if self.shape[0] == 4 else [None]

    for shape in ((4, 5), (5, 5)):
        with pytest.raises(ValueError, match=r"a part of a Square is no array of shape \(\d, 5\)"):
            tw.gemm(Square(np.ones(shape)), np.ones((5, 2)))


class Broken(Exception):
    pass


@pytest.mark.parametrize("error", [KeyboardInterrupt, BackendError, Broken])
def test_what_was_computed_is_told_where_a_call_ends_early(error, monkeypatch):
    calls = []

    def fail(self, request, *about):
        calls.append(request)
        if len(calls) == 5:
            raise error("no more")
        return Base.multiply(self, request, *about)

    Base = serve.InOrder
    monkeypatch.setattr(serve, "InOrder", type("Failing", (Base,), {"multiply": fail}))
    a = np.ones((64, 16))
    c = np.full((64, 64), -1.0)
    with pytest.raises(error) as caught:
        tw.gemm(a, a.T.copy(), c, max_device_memory=28 << 10)
    told = " ".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "4 of 16 tiles of c are computed" in told
    assert (c == 16).sum() == 4 * 16 * 16
    assert (c == -1).sum() == 12 * 16 * 16


def test_a_tile_that_cannot_be_written_ends_the_call():
    class Full(Sliced):
        def __setitem__(self, part, values):
            raise OSError(28, "No space left on device")

    a = np.ones((64, 16))
    with pytest.raises(OSError, match="No space left") as caught:
        tw.gemm(a, a.T.copy(), Full(np.zeros((64, 64))), max_device_memory=28 << 10)
    assert "0 of 16 tiles" in caught.value.__notes__[0]


def test_a_part_that_cannot_be_read_ends_the_call():
    class Damaged(Sliced):
        def __getitem__(self, part):
            if part[0].start >= 32:
                raise OSError(5, "Input/output error")
            return super().__getitem__(part)

    a, c = np.ones((64, 16)), np.full((64, 64), -1.0)
    with pytest.raises(OSError, match="Input/output error") as caught:
        tw.gemm(Damaged(a), a.T.copy(), c, max_device_memory=28 << 10)
    assert re.search(r"of 16 tiles of c are computed", caught.value.__notes__[0])
    assert (c[32:] == -1).all()
    assert set(np.unique(c[:32])) <= {-1.0, 16.0}


def test_refused_memory_leaves_c_as_it_was(monkeypatch):
    def refuse(self, sizes):
        raise OutOfMemoryError("no room")

    monkeypatch.setattr(serve.InOrder, "allocate", refuse)
    a, c = np.ones((64, 16)), np.full((64, 64), 7.0)
    with pytest.raises(OutOfMemoryError, match="no room; 0 of 16 tiles of c are computed"):
        tw.gemm(a, a.T.copy(), c, max_device_memory=28 << 10)
    assert (c == 7).all()


def test_memory_is_kept_while_a_thread_copies_even_if_the_wait_is_interrupted(monkeypatch):
    at_close = []

    class Slow(Threaded):
        def fetch(self, *about):
            time.sleep(0.05)
            return super().fetch(*about)

        def close(self):
            at_close.extend(x.name for x in threading.enumerate())
            super().close()

    join, waits = threading.Thread.join, []

    def interrupted(self, timeout=None):
        waits.append(self)
        if len(waits) < 3:
            raise KeyboardInterrupt
        join(self, timeout)

    monkeypatch.setattr(serve, "InOrder", Slow)
    monkeypatch.setattr(threading.Thread, "join", interrupted)
    a = np.ones((64, 16))
    with pytest.raises(KeyboardInterrupt):
        tw.gemm(a, a.T.copy(), max_device_memory=28 << 10)
    assert len(waits) >= 3
    assert "tilewright-download" not in at_close
    assert not any(x.name.startswith("tilewright") for x in threading.enumerate())


def test_what_cannot_be_written_or_told_of_is_refused():
    a, c = np.ones((64, 16)), np.zeros((64, 64))
    c.flags.writeable = False
    with pytest.raises(ValueError, match="c is read-only"):
        tw.gemm(Sliced(a), a.T.copy(), c)
    with pytest.raises(ValueError, match="report and certify are of one product"):
        tw.gemm(a, a.T.copy(), report=tw.Decision(), max_device_memory=28 << 10)


def test_a_host_reads_no_part_of_operands_that_do_not_count(monkeypatch):
    monkeypatch.setattr(on_numpy, "is_shared", lambda live: True)
    a, c = Sliced(np.full((64, 16), np.nan)), np.ones((64, 64))
    tw.gemm(a, Sliced(np.full((16, 64), np.nan)), c, alpha=0, beta=3)
    assert (c == 3).all()
    assert all(a._array[part].size == 0 for part in a.taken)


def test_a_host_tells_which_tiles_are_whole_where_a_part_cannot_be_read(monkeypatch):
    monkeypatch.setattr(on_numpy, "is_shared", lambda live: True)

    class Damaged(Sliced):
        def __getitem__(self, part):
            if part[0].start:
                raise OSError(5, "Input/output error")
            return super().__getitem__(part)

    c = np.zeros((640, 64))
    with pytest.raises(OSError, match="Input/output error") as caught:
        tw.gemm(Damaged(np.ones((640, 64))), np.ones((64, 64)), c, max_host_memory=256 << 10)
    assert re.match(r"\d+ of \d+ tiles of c are computed", caught.value.__notes__[0])
    assert (c[0] == 64).all()
    assert not c[-1].any()


def test_limits_are_checked():
    a = np.ones((8, 8))
    with pytest.raises(ValueError, match=r"max_device_memory=0 is not a number of bytes"):
        tw.gemm(a, a, max_device_memory=0)
    with pytest.raises(ValueError, match=r"max_host_memory='1' is not a number of bytes"):
        tw.gemm(a, a, max_host_memory="1")
    with pytest.raises(ValueError, match=r"max_host_memory=True is not a number of bytes"):
        tw.gemm(a, a, max_host_memory=True)
    for name in ("max_device_memory", "max_host_memory"):
        with pytest.raises(ValueError, match=f"{name}=1024 is for float32 and wider arrays"):
            tw.gemm(a.astype("f2"), a.astype("f2"), **{name: 1024})
