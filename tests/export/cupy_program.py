"""A program of CuPy's, run with the library preloaded: products have the bits of ``tw.gemm``."""

from __future__ import annotations

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

# Into a graph go products of sizes that were never computed before.
a, b, c = drawn("f4", 777, 640), drawn("f4", 640, 896), cupy.empty((777, 896), "f4")
large, made = drawn("f4", 2304, 2304), cupy.empty((2304, 2304), "f4")
stream = cupy.cuda.Stream(non_blocking=True)
with stream:
    cupy.matmul(drawn("f4", 8, 8), drawn("f4", 8, 8))
    stream.synchronize()
    stream.begin_capture()
    cupy.matmul(a, b, out=c)
    cupy.matmul(large, large, out=made)
    graph = stream.end_capture()
    for _ in range(2):
        a[:], large[:] = drawn("f4", *a.shape), drawn("f4", *large.shape)
        graph.launch(stream)
        stream.synchronize()
        assert bool(cupy.array_equal(c, cupy.matmul(a, b)))
        assert bool(cupy.array_equal(made, cupy.matmul(large, large)))
