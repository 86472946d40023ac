"""gemm() on arrays that live on an OpenCL device: in place, on the caller's queue."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest

import tilewright as tw
from tilewright.backend import OutOfMemoryError


@pytest.fixture
def queue(live):
    """A queue in a context of the caller's own."""
    return cl.CommandQueue(cl.Context([live.raw]))


def test_result_stays_on_the_device(queue):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((40, 30)), rng.standard_normal((30, 50))
    got = tw.gemm(cla.to_device(queue, a), cla.to_device(queue, b))
    assert isinstance(got, cla.Array)
    assert got.context == queue.context
    assert np.allclose(got.get(), a @ b)


def test_views_with_offsets_and_padding_are_taken_as_they_are(queue):
    rng = np.random.default_rng(1)
    host = rng.standard_normal((60, 70)).astype("c16")
    whole = cla.to_device(queue, host)
    c = cla.to_device(queue, np.ones((20, 25), "c16"))
    tw.gemm(whole[5:35, 3:23], whole[20:45, 30:60], c, beta=2, trans_a="C", trans_b="C")
    right = host[5:35, 3:23].conj().T @ host[20:45, 30:60].conj().T + 2
    assert np.allclose(c.get(), right)


def test_other_arrays_beside_one_on_a_device_are_refused(queue):
    with pytest.raises(TypeError, match=r"a is pyopencl\.Array, b is numpy\.ndarray; give"):
        tw.gemm(cla.to_device(queue, np.ones((4, 4))), np.ones((4, 4)))
    strided = cla.to_device(queue, np.ones((4, 8)))[:, ::2]
    with pytest.raises(ValueError, match=r"a\.strides=\(64, 16\) is not a BLAS matrix; give whole"):
        tw.gemm(strided, strided)


@pytest.mark.filterwarnings("ignore::pyopencl.CompilerWarning")
def test_work_enqueued_before_is_waited_for(queue):
    a = cla.to_device(queue, np.ones((300, 300)))
    for _ in range(5):
        a = a + 1
    assert np.all(tw.gemm(a, a).get() == 36 * 300)


def test_a_result_without_room_is_refused_in_one_line(queue):
    a = cla.to_device(queue, np.ones((10**7, 1), "f4"))
    for _ in range(2):
        with pytest.raises(OutOfMemoryError, match=r"^c would be 10000000 x 10000000 of float32, "):
            tw.gemm(a, a, trans_b="T")


def test_other_errors_are_not_called_a_lack_of_room(queue, monkeypatch):
    a = cla.to_device(queue, np.ones((8, 8)))
    beyond = 2 * a.nbytes
    monkeypatch.setattr(cla, "empty", lambda *_: a.base_data.get_sub_region(beyond, 1))
    with pytest.raises(cl.LogicError, match="INVALID_VALUE"):
        tw.gemm(a, a)


def test_parts_of_a_buffer_overlap_where_they_share_memory(queue):
    host = np.arange(64.0).reshape(8, 8)
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4 * host.nbytes)

    def part(at, nbytes=host.nbytes):
        return cla.Array(queue, host.shape, "f8", data=buffer.get_sub_region(at, nbytes))

    a, b, same, other = part(0), cla.to_device(queue, host), part(0), part(2 * host.nbytes)
    a.set(host)
    whole = cla.Array(queue, host.shape, "f8", data=buffer)
    for c in (same, whole):
        with pytest.raises(ValueError, match="c overlaps a"):
            tw.gemm(a, b, c)
    tw.gemm(a, b, other)
    assert np.array_equal(other.get(), host @ host)


def test_what_cannot_be_taken_in_place_is_refused(queue):
    a = cla.to_device(queue, np.ones((8, 8)))
    with pytest.raises(ValueError, match=r"a\.strides"):
        tw.gemm(a[::2, ::2], a[:4, :4])
    with pytest.raises(ValueError, match="c overlaps b"):
        tw.gemm(a[:2, :4], a[2:6], a[4:6])
    with pytest.raises(ValueError, match="device"):
        tw.gemm(a, a, device="opencl:0")
