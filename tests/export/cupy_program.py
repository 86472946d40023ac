"""A program of CuPy's, run with the library preloaded: products have the bits of ``tw.gemm``."""

from __future__ import annotations

import ctypes

import cupy

import tilewright as tw


def drawn(dtype: str, *shape: int) -> cupy.ndarray:
    """Return random numbers."""
    x = cupy.random.standard_normal(shape)
    return (x + 1j * cupy.random.standard_normal(shape) if dtype[0] == "c" else x).astype(dtype)


def check(dtype: str, accuracy: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    """Multiply by cuBLAS's names, and by ours."""
    x, y = drawn(dtype, *a), drawn(dtype, *b)
    made = cupy.matmul(x, y)
    assert bool(cupy.array_equal(made, tw.gemm(x, y, accuracy=accuracy))), (dtype, a, b)
    wide = "c16" if dtype[0] == "c" else "f8"
    if dtype in ("f4", "c8"):
        error = abs(made - cupy.matmul(x.astype(wide), y.astype(wide)))
        assert bool((error <= 1e-5 * cupy.matmul(abs(x), abs(y))).all()), (dtype, a, b)


for dtype, accuracy in (("f4", "fp32"), ("f8", "fp64"), ("c8", "fp32"), ("c16", "fp64")):
    for sides in ((4096, 4096, 4096), (3001, 2002, 2503), (100, 200, 300), (1, 64, 64)):
        m, n, k = sides
        check(dtype, accuracy, (m, k), (k, n))
    check(dtype, accuracy, (7, 130, 96), (7, 96, 64))
    check(dtype, accuracy, (3, 65, 33), (3, 33, 129))

# Into a graph go products of sizes that were never computed before; CuPy itself captures none.
names, cublas = ctypes.CDLL(None), ctypes.CDLL("libcublas.so.13")
handle = ctypes.c_void_p(cupy.cuda.device.get_cublas_handle())
scalars = (ctypes.c_float * 2)(1, 0)


def multiply(a: cupy.ndarray, b: cupy.ndarray, c: cupy.ndarray, stream: cupy.cuda.Stream) -> None:
    """Call cuBLAS as a linked program does: c <- a b of float32 in rows."""
    (m, k), n = a.shape, b.shape[1]
    assert cublas.cublasSetStream_v2(handle, ctypes.c_void_p(stream.ptr)) == 0
    places = [ctypes.c_void_p(x.data.ptr) for x in (a, b, c)]
    alpha, beta = ctypes.byref(scalars), ctypes.byref(scalars, 4)
    status = names.cublasSgemm_v2(
        handle, 0, 0, n, m, k, alpha, places[1], n, places[0], k, beta, places[2], n
    )
    assert status == 0


operands = [(drawn("f4", m, k), drawn("f4", k, n)) for m, n, k in ((777, 896, 640), (2304,) * 3)]
results = [cupy.empty((a.shape[0], b.shape[1]), "f4") for a, b in operands]
stream = cupy.cuda.Stream(non_blocking=True)
cupy.cuda.Device().synchronize()
with stream:
    stream.begin_capture()
    for (a, b), c in zip(operands, results, strict=True):
        multiply(a, b, c, stream)
    graph = stream.end_capture()
for _ in range(2):
    for a, b in operands:
        a[:], b[:] = drawn("f4", *a.shape), drawn("f4", *b.shape)
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    for (a, b), c in zip(operands, results, strict=True):
        assert bool(cupy.array_equal(c, cupy.matmul(a, b)))
