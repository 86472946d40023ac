"""A program that calls cuBLAS and knows nothing of what is preloaded; prints what it computed.

The cuBLAS of tests adds beta itself, not beta C, so that its results are known by it.
"""

from __future__ import annotations

import ctypes
import json
import sys

import numpy as np

cublas = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_LOCAL)
# As the loader binds a program's calls: the first library that has the name.
names = ctypes.CDLL(None)
handle = ctypes.c_void_p()
assert cublas.cublasCreate_v2(ctypes.byref(handle)) == 0

M, N, K = 5, 4, 3
TF32, ON_DEVICE = 3, 1


def product(name: str, kind: str, trans: str = "NN", *typed: int) -> list[bool]:
    """Call a function; return whether the result is ours, and whether it is cuBLAS's."""
    rng = np.random.default_rng(1)
    a, b = rng.integers(-3, 4, (M, K)).astype(kind), rng.integers(-3, 4, (K, N)).astype(kind)
    if np.dtype(kind).kind == "c":
        a, b = a + 1j * a[::-1], b - 1j * b[:, ::-1]
    stored = [x if op == "N" else x.T if op == "T" else x.conj().T
              for x, op in zip((a, b), trans, strict=True)]  # fmt: skip
    stored = [np.asfortranarray(x) for x in stored]
    c = np.full((M, N), 7, kind, order="F")
    alpha, beta = (np.array([x], kind) for x in (1, 0.5))
    integer = ctypes.c_int64 if name.endswith("_64") else ctypes.c_int
    point = [ctypes.c_void_p(x.ctypes.data) for x in (alpha, *stored, beta, c)]
    sides = [integer(x.strides[1] // x.itemsize) for x in (*stored, c)]
    types = [ctypes.c_int(x) for x in typed]
    at = types[:1]  # of a matrix, behind its address
    operations = [ctypes.c_int("NTC".index(op)) for op in trans]
    status = getattr(names, name)(
        handle, *operations, integer(M), integer(N), integer(K), point[0],
        point[1], *at, sides[0], point[2], *at, sides[1], point[3], point[4], *at, sides[2],
        *types[1:],
    )  # fmt: skip
    assert status == 0
    return [np.array_equal(c, a @ b + 3.5), np.array_equal(c, a @ b + 0.5)]


said = {
    "single": product("cublasSgemm_v2", "f4", "TN"),
    "complex": product("cublasZgemm_v2", "c16", "CT"),
    "long": product("cublasDgemm_v2_64", "f8"),
    "typed": product("cublasGemmEx", "f4", "NT", 0, 68, -1),
    "tf32 asked": product("cublasGemmEx", "f4", "NN", 0, 77, -1),
    "no kernel": product("cublasCgemm_v2_64", "c8"),
}
cublas.cublasSetMathMode(handle, TF32)
said["tf32"] = product("cublasSgemm_v2", "f4")
cublas.cublasSetMathMode(handle, 0)
cublas.cublasSetPointerMode_v2(handle, ON_DEVICE)
said["scalars on the device"] = product("cublasSgemm_v2", "f4")
print(json.dumps(said))
