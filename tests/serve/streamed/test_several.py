"""Products that several devices share: contexts on one, as if their memory were apart."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.backend import BackendError, device
from tilewright.backend.opencl.device import OpenCLDevice
from tilewright.precision import precision
from tilewright.serve.streamed import serve
from tilewright.serve.streamed.schedule import Schedule, shares_of
from tilewright.serve.streamed.tiling import Tiling
from tilewright.serve.streamed.transport import InOrder


class Threaded(InOrder):
    """A device that copies finished tiles while it computes others, as CUDA's do."""

    overlaps = True


@pytest.fixture(autouse=True, params=[InOrder, Threaded])
def copies(request, monkeypatch):
    monkeypatch.setattr(serve, "InOrder", request.param)


@pytest.fixture(scope="module")
def contexts():
    """Three contexts, each with queues and kernels of its own."""
    cl = pytest.importorskip("pyopencl")
    found = device("opencl").raw
    return [OpenCLDevice(found, f"context {n}", cl.Context([found])) for n in "012"]


def drawn(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in shapes]


@settings(max_examples=10)
@given(
    sizes=st.tuples(*[st.integers(1, 120)] * 3), beta=st.sampled_from([0, 0.5]),
    kib=st.sampled_from([64, 4096]), seed=st.integers(0, 99),
)  # fmt: skip
def test_bits_depend_on_no_number_of_devices(contexts, sizes, beta, kib, seed):
    m, n, k = sizes
    a, b, c = drawn(seed, (m, k), (k, n), (m, n))
    made = [
        tw.gemm(a, b, c.copy(), beta=beta, device=contexts[:count], max_device_memory=kib << 10)
        for count in (1, 2, 3)
    ]
    assert np.array_equal(made[0], made[1])
    assert np.array_equal(made[0], made[2])
    size = abs(a) @ abs(b) + abs(c)
    exact = a.astype("longdouble") @ b.astype("longdouble") + beta * c
    assert (abs(made[0] - exact) <= 8 * (k + 2) * np.finfo("f8").eps * size).all()


def failing(base, at, error, meet=None):
    """A transport of which the context named fails at its n-th product."""

    class Failing(base):
        def multiply(self, request, *about):
            self.count = getattr(self, "count", 0) + 1
            if meet is not None and self.count == 1:
                meet.wait(100)
            if at.get(self.live.id) == self.count:
                raise error
            return super().multiply(request, *about)

    return Failing


@pytest.mark.parametrize("beta", [0, 2])
def test_others_compute_what_a_lost_device_had(contexts, monkeypatch, beta):
    meet = threading.Barrier(2)  # each has a tile
    base = failing(serve.InOrder, {"context 1": 1}, BackendError("gone"), meet)
    monkeypatch.setattr(serve, "InOrder", base)
    a, b, c = drawn(1, (64, 16), (16, 64), (64, 64))
    expected = a @ b + beta * c
    with pytest.warns(RuntimeWarning, match="context 1 failed, and others computed .*: gone"):
        tw.gemm(a, b, c, beta=beta, device=contexts[:2], max_device_memory=28 << 10)
    assert np.allclose(c, expected)


def test_what_is_whole_is_told_where_all_are_lost(contexts, monkeypatch):
    base = failing(serve.InOrder, {"context 0": 3, "context 1": 3}, BackendError("gone"))
    monkeypatch.setattr(serve, "InOrder", base)
    a, b = drawn(1, (64, 16), (16, 64))
    c = np.full((64, 64), -1.0)
    with pytest.raises(BackendError, match=r"gone; \d of 16 tiles of c are computed"):
        tw.gemm(a, b, c, device=contexts[:2], max_device_memory=28 << 10)
    right = np.isclose(c, a @ b)
    assert (right | (c == -1)).all()
    assert (c == -1).sum() >= 12 * 256


def test_what_is_no_fault_of_a_device_stops_all(contexts, monkeypatch):
    meet = threading.Barrier(2)
    full = OSError(28, "No space left on device")
    base = failing(serve.InOrder, {"context 1": 1}, full, meet)
    monkeypatch.setattr(serve, "InOrder", base)
    a, b = drawn(1, (64, 16), (16, 64))
    before = threading.active_count()
    with pytest.raises(OSError, match="No space left") as caught:
        tw.gemm(a, b, device=contexts[:2], max_device_memory=28 << 10)
    assert "of 16 tiles" in caught.value.__notes__[0]
    assert threading.active_count() == before


@pytest.mark.parametrize(("letter", "tile_by_tile"), [("d", True), ("z", True), ("e", False)])
def test_pairs_of_doubles_are_copied_whole(letter, tile_by_tile):
    request = SimpleNamespace(
        limits=None, report=None, m=4096, n=4096, k=4096, precision=precision(letter)
    )
    assert serve.is_wanted(SimpleNamespace(backend="cuda"), request) == tile_by_tile


def test_devices_are_named_once_and_several_do_what_they_can(contexts):
    a = np.ones((8, 8), "f4")
    with pytest.raises(ValueError, match=r"device=\[\] names none"):
        tw.gemm(a, a, device=[])
    with pytest.raises(ValueError, match="device names context 0 twice"):
        tw.gemm(a, a, device=(contexts[0], contexts[0]))
    with pytest.raises(ValueError, match="'no such' is not here"):
        tw.gemm(a, a, device=["no such"])
    with pytest.raises(ValueError, match="float32 and wider arrays, not float16"):
        tw.gemm(a.astype("f2"), a.astype("f2"), device=contexts)
    with pytest.raises(ValueError, match="syrk and herk take one device"):
        tw.syrk(a, device=contexts)
    stack = np.ones((3, 8, 8), "f4")
    assert (tw.gemm(stack, a, device=contexts) == 8).all()


@given(st.integers(1, 40_000), st.integers(1, 40_000), st.integers(1, 8), st.integers(24, 36))
def test_each_tile_is_one_devices_and_shares_are_alike(m, n, devices, bits):
    tiling = Tiling.of(m, n, 64, 4, 2**bits)
    shares = shares_of(tiling, devices)
    assert sorted(x for one in shares for x in one) == sorted(tiling.places())
    assert len(shares) == devices


def test_who_has_none_left_takes_the_last_of_others():
    found = Schedule([[(0, 0), (1, 0)], [(0, 1), (1, 1), (2, 1)]])
    for one in [(0, 0), (1, 0), (2, 1)]:
        assert found.offer(0) == one
        found.finish(0, one)
    assert found.offer(1) == (0, 1)
    found.lose(1, BackendError("gone"))
    assert found.offer(0) == (0, 1)
