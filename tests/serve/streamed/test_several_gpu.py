"""Products that CUDA devices share: matrices on the host, on one of them, or on several.

Where there is one GPU, it is two devices that reach none of each other's memory.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.backend import BackendError, LiveDevice, devices

pytestmark = pytest.mark.gpu


@pytest.fixture
def pair(cuda: LiveDevice, monkeypatch) -> list[LiveDevice]:
    """Two CUDA devices, or all there are."""
    from tilewright.backend.cuda.device import CUDADevice
    from tilewright.serve.streamed.placed import PlacedMatrix

    found = [one for one in devices() if one.backend == "cuda"]
    if len(found) == 1:
        found.append(CUDADevice(0))
        is_on = PlacedMatrix.is_on
        monkeypatch.setattr(
            PlacedMatrix, "is_on", lambda self, live: live is cuda and is_on(self, live)
        )
    return found


def placed(x, live):
    cupy = pytest.importorskip("cupy")
    with cupy.cuda.Device(live.ordinal):
        return cupy.asarray(x)


@pytest.mark.parametrize(
    ("dtype", "accuracy"), [("f4", "ieee"), ("f8", "ieee"), ("c8", "ieee"), ("f4", "fp32")]
)
def test_bits_depend_on_no_number_of_devices(pair, dtype, accuracy):
    rng = np.random.default_rng([ord(x) for x in dtype + accuracy])
    for at in range(12):
        m, n, k = (int(2**x) for x in rng.uniform(6, 11.3, 3))
        trans = rng.choice(list("NT"), 2)
        a, b, c = (
            rng.standard_normal(shape).astype(dtype)
            for shape in (
                (m, k) if trans[0] == "N" else (k, m), (k, n) if trans[1] == "N" else (n, k), (m, n)
            )
        )  # fmt: skip
        if accuracy == "fp32" and at % 3 == 1:  # faint elements: parts of BF16, or none
            a *= (2.0 ** rng.integers(-30, 30, a.shape)).astype(dtype)
        beta = float(rng.choice([0, 0.5]))
        kept = np.where(beta, c, np.nan).astype(dtype)
        options = {
            "beta": beta, "trans_a": str(trans[0]), "trans_b": str(trans[1]), "accuracy": accuracy,
            "max_device_memory": int(rng.integers(1 << 21, 1 << 24)),
        }  # fmt: skip
        first = tw.gemm(a, b, kept.copy(), device=pair[:1], **options)
        x, y = (v if t == "N" else v.T for v, t in zip((a, b), trans, strict=True))
        wide = np.clongdouble if first.dtype.kind == "c" else np.longdouble
        rows = rng.integers(0, m, 8)
        size = abs(x[rows]).astype("f8") @ abs(y).astype("f8") + abs(c[rows])
        exact = x[rows].astype(wide) @ y.astype(wide) + beta * c[rows]
        promise = max(8 * (k + 2) * np.finfo(dtype).eps, 2.0**-19 if accuracy == "fp32" else 0)
        assert (abs(first[rows] - exact) <= promise * size).all()
        assert np.array_equal(first, tw.gemm(a, b, kept.copy(), device=pair, **options))
        del options["max_device_memory"]
        x, y, z = (placed(v, pair[0]) for v in (a, b, kept))
        whole = tw.gemm(x, y, z, device=pair[:1], **options).get()
        assert (abs(whole[rows] - exact) <= promise * size).all()
        for where in [*np.eye(3, dtype=int), *rng.integers(0, len(pair), (4, 3))]:
            x, y, z = (placed(v, pair[on]) for v, on in zip((a, b, kept), where, strict=True))
            assert np.array_equal(whole, tw.gemm(x, y, z, device=pair, **options).get())


def test_what_a_lost_device_had_is_computed(pair, monkeypatch):
    from tilewright.serve.streamed.overlapped import Overlapped

    multiply, calls = Overlapped.multiply, []

    def lost(self, *rest):
        if self.live is pair[1]:
            calls.append(rest)
            if len(calls) == 3:
                raise BackendError("gone")
        return multiply(self, *rest)

    monkeypatch.setattr(Overlapped, "multiply", lost)
    a = np.ones((9000, 3000), "f4")
    with pytest.warns(RuntimeWarning, match="failed, and others computed what it had: gone"):
        made = tw.gemm(a, a, trans_b="T", device=pair)
    assert (made == 3000).all()


def test_matrices_follow_what_streams_have(pair):
    cupy = pytest.importorskip("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        a = cupy.ones((6000, 6000), "f4")
        for _ in range(20):
            a = a + 1
        c = tw.gemm(a, a, device=pair)
        assert (c == 21 * 21 * 6000).all()


def test_bits_that_depend_on_no_batch_are_one_devices(pair):
    x = placed(np.ones((64, 64), np.float32), pair[0])
    with pytest.raises(ValueError, match="device is a list, and accuracy='batch_invariant'"):
        tw.gemm(x, x, accuracy="batch_invariant", device=pair)
