"""Products of Dask arrays: right, and the same bits whichever workers compute them."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.dask import matmul

da = pytest.importorskip("dask.array")


def drawn(shape, dtype, chunks):
    rng = np.random.default_rng(shape)
    x = rng.standard_normal(shape).astype(dtype)
    if x.dtype.kind == "c":
        x.imag = rng.standard_normal(shape)
    return x, da.from_array(x, chunks=chunks)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_blocks_of_any_length_make_the_product(dtype):
    (a, x), (b, y) = drawn((50, 130), dtype, (21, 30)), drawn((130, 40), dtype, (45, 17))
    made = matmul(x, y)
    assert made.shape == (50, 40)
    assert made.dtype == a.dtype
    assert made.chunks == (x.chunks[0], y.chunks[1])
    found = made.compute(scheduler="synchronous")
    size = abs(a) @ abs(b)
    assert (abs(found - a.astype("c16") @ b) <= 300 * np.finfo(dtype).eps * size).all()


def test_bits_do_not_depend_on_the_workers():
    (_, x), (_, y) = drawn((40, 200), "f4", (20, 23)), drawn((200, 30), "f4", (23, 10))
    made = matmul(x, y)
    first = made.compute(scheduler="synchronous")
    for workers in (1, 4):
        assert np.array_equal(first, made.compute(scheduler="threads", num_workers=workers))


def test_a_lost_worker_costs_only_its_tasks():
    distributed = pytest.importorskip("distributed")
    (a, x), (b, y) = drawn((60, 80), "f8", 20), drawn((80, 60), "f8", 20)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    cluster = distributed.LocalCluster(processes=True, silence_logs=50, **options)
    with cluster, distributed.Client(cluster) as client:
        future = client.compute(matmul(x, y))
        next(iter(cluster.workers.values())).process.process.kill()
        assert np.allclose(future.result(timeout=120), a @ b)


def test_what_does_not_fit_is_refused():
    x = da.ones((8, 8))
    with pytest.raises(TypeError, match="a is a ndarray"):
        matmul(np.ones((8, 8)), x)
    with pytest.raises(ValueError, match=r"b\.shape=\(4, 8\) does not fit"):
        matmul(x, x[:4])
    with pytest.raises(ValueError, match=r"b\.dtype=float32 but a\.dtype=float64"):
        matmul(x, x.astype("f4"))
    with pytest.raises(ValueError, match="accuracy='exact' is unknown"):
        matmul(x, x, accuracy="exact")
    with pytest.raises(ValueError, match=r"a\.shape=\(8,\) is not a matrix"):
        matmul(x[0], x)
    with pytest.raises(ValueError, match=r"a\.dtype=int64"):
        matmul(x.astype(int), x.astype(int))
    unknown = x[:, x[0] > 0]
    with pytest.raises(ValueError, match=r"a\.shape=\(8, nan\) has an unknown .* a\.compute_chunk"):
        matmul(unknown, x)
    with pytest.raises(ValueError, match=r"use one of ieee, fp64$"):
        matmul(x, x, accuracy="batch_invariant")


def test_gemm_refuses_unknown_sizes_and_masks():
    x = da.ones((8, 8), dtype="f4", chunks=4)
    for operands, name in (((x[x[:, 0] > 0], x), "a"), ((x, x[:, x[0] > 0]), "b")):
        for multiply in (tw.gemm, tw.matmul):
            with pytest.raises(ValueError, match=rf"{name}\.shape=.* is unknown; call {name}\."):
                multiply(*operands)
    with pytest.raises(TypeError, match=r"^a is masked; masked arrays are not taken"):
        tw.gemm(da.ma.masked_greater(x, 0), x)
