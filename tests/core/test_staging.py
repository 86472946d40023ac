"""Lines between pageable memory and a device, through buffers (staging.c)."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_int, c_void_p

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.backend.cuda.functions import MEMORY_HOST, Copy2D
from tilewright.core import library
from tilewright.serve.streamed.buffers import Lines, Staging

pytestmark = pytest.mark.skipif(library() is None, reason="needs the core's library")

# A device whose addresses are the host's, and whose copies end at once.
PUSH = CFUNCTYPE(c_int, c_void_p)(lambda context: 0)
POP = CFUNCTYPE(c_int, c_void_p)(lambda context: 0)
EVENT = CFUNCTYPE(c_int, c_void_p)(lambda event: 0)


@CFUNCTYPE(c_int, POINTER(Copy2D), c_void_p)
def copy(plane, stream):
    plane = plane[0]
    begins = [
        getattr(plane, side + ("Host" if kind == MEMORY_HOST else "Device"))
        for side, kind in (("src", plane.srcMemoryType), ("dst", plane.dstMemoryType))
    ]
    assert min(plane.srcPitch, plane.dstPitch) >= plane.WidthInBytes
    for line in range(plane.Height):
        source, to = begins[0] + line * plane.srcPitch, begins[1] + line * plane.dstPitch
        ctypes.memmove(to, source, plane.WidthInBytes)
    return 0


RECORD = CFUNCTYPE(c_int, c_void_p, c_void_p)(lambda event, stream: 0)
REFUSE = CFUNCTYPE(c_int, c_void_p, c_void_p)(lambda event, stream: 719)


def staged(name, device, pitch, host, size, threads, record=RECORD):
    """Return the status of a copy between the lines of two byte arrays."""
    buffers = np.full(2 * threads * size, 0xEE, np.uint8)
    events = (c_void_p * (2 * threads))()
    called = [ctypes.cast(x, c_void_p).value for x in (PUSH, POP, copy, record, EVENT)]
    staging = Staging(
        *called, None, None, buffers.ctypes.data, ctypes.addressof(events), size, threads
    )
    lines = Lines(
        device.ctypes.data, pitch, host.ctypes.data, host.strides[0], host.shape[1], len(host)
    )
    # As the package calls it: other threads run Python meanwhile, here the device's functions.
    function = getattr(ctypes.CDLL(library()._name), f"tilewright_stage_{name}")
    return function(ctypes.byref(staging), ctypes.byref(lines))


@given(
    count=st.integers(0, 40), width=st.integers(0, 300), gap=st.integers(0, 70),
    size=st.sampled_from([64, 100, 256, 4096]), threads=st.integers(1, 5), flipped=st.booleans(),
)  # fmt: skip
def test_lines_arrive_and_come_back(count, width, gap, size, threads, flipped):
    rng = np.random.default_rng(count * 1000 + width)
    whole = rng.integers(0, 256, (count, width + gap), dtype=np.uint8)
    host = whole[::-1, gap:] if flipped else whole[:, gap:]
    pitch = width + 17
    device = np.zeros(count * pitch + 1, np.uint8)
    assert staged("to_device", device, pitch, host, size, threads) == 0
    there = device[: count * pitch].reshape(count, pitch)
    assert np.array_equal(there[:, :width], host)
    assert not there[:, width:].any()  # what lies between lines is another one's
    expected, before = host.copy(), whole.copy()
    host[...] = 0
    assert staged("to_host", device, pitch, host, size, threads) == 0
    assert np.array_equal(host, expected)
    assert np.array_equal(whole, before)


def test_the_first_refusal_is_told():
    host, device = np.ones((50, 64), np.uint8), np.zeros(50 * 64, np.uint8)
    for name in ("to_device", "to_host"):
        assert staged(name, device, 64, host, 128, 3, REFUSE) == 719
