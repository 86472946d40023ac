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
lt = ctypes.CDLL(sys.argv[2], mode=ctypes.RTLD_LOCAL)
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


def batch(name: str, kind: str, *typed: int, lie: str = "behind", k: int = K) -> list[bool]:
    """Call a function for three products; return as `product` does."""
    rng, many = np.random.default_rng(2), 3
    a, b = rng.integers(-3, 4, (many, M, k)), rng.integers(-3, 4, (many, k, N))
    if lie == "same a":
        a[:] = a[0]
    # Columns of one product behind those of the other; C's own are too, or it meets itself.
    left, right = (np.ascontiguousarray(x.transpose(0, 2, 1).astype(kind)) for x in (a, b))
    c = np.full((many, N, M), 7, kind)
    steps = [0 if lie == "same a" else M * k, k * N, M * N if lie != "met" else M]
    alpha, beta = (np.array([x], kind) for x in (1, 0.5))
    integer = ctypes.c_int64 if name.endswith("_64") else ctypes.c_int
    point = [ctypes.c_void_p(x.ctypes.data) for x in (alpha, left, right, beta, c)]
    at = [ctypes.c_int(x) for x in typed[:1]]
    more = [[ctypes.c_longlong(x)] for x in steps]
    if "Strided" not in name:  # arrays of pointers, which are read by the device alone elsewhere
        told = [np.array([one.ctypes.data for one in x], "u8") for x in (left, right, c)]
        places = [ctypes.c_void_p(x.ctypes.data) for x in told]
        point[1], point[2], point[4], more = *places, [[], [], []]
    status = getattr(names, name)(
        handle, 0, 0, integer(M), integer(N), integer(k), point[0],
        point[1], *at, integer(M), *more[0], point[2], *at, integer(k), *more[1], point[3],
        point[4], *at, integer(M), *more[2], integer(many), *map(ctypes.c_int, typed[1:]),
    )  # fmt: skip
    assert status == 0
    made = (a @ b).transpose(0, 2, 1)
    return [np.array_equal(c, made + 3.5), np.array_equal(c, made + 0.5)]


def beyond_a_plan() -> list[bool]:
    """Call a function for more products than a plan has, of a number each; return as `product`."""
    many = 64 * 65535 + 1
    a, c = np.ones(many, "f4"), np.full(many, 7, "f4")
    alpha, beta = (np.array([x], "f4") for x in (1, 0.5))
    one = [ctypes.c_int(1), ctypes.c_longlong(1)]
    point = [ctypes.c_void_p(x.ctypes.data) for x in (alpha, a, beta, c)]
    status = names.cublasSgemmStridedBatched(
        handle, 0, 0, 1, 1, 1, *point[:2], *one, point[1], *one, *point[2:], *one, many
    )
    assert status == 0
    return [bool((c == 4.5).all()), bool((c == 1.5).all())]


def by_lt(
    m: int, n: int, k: int, compute: int = 68, epilogue: int = 1, beta: float = 0.5,
    pointers: int = 0,
) -> list[bool]:  # fmt: skip
    """Call cublasLt's product of float32, transposed A; return as `product` does."""
    rng = np.random.default_rng(3)
    a, b = rng.integers(-3, 4, (k, m)).astype("f4"), rng.integers(-3, 4, (k, n)).astype("f4")
    left, right = np.asfortranarray(a), np.asfortranarray(b)
    c, bias = np.full((m, n), 7, "f4", order="F"), np.arange(m, dtype="f4")
    how, layouts = (ctypes.c_int64 * 32)(), []
    how[2] = pointers
    how[0], how[3], how[6], how[7], how[8], how[26] = compute, 1, 2, epilogue, bias.ctypes.data, -1
    for rows, columns in ((k, m), (k, n), (m, n)):
        layouts.append((ctypes.c_int64 * 8)(0, 0, rows, columns, rows, 1, 0))
    of_a, of_b, of_c = layouts
    point = [ctypes.c_void_p(x.ctypes.data) for x in (left, right, c)]
    scalars = [np.array([x], "f4") for x in (1, beta)]
    alpha, added = (ctypes.c_void_p(x.ctypes.data) for x in scalars)
    status = names.cublasLtMatmul(
        handle, how, alpha, point[0], of_a, point[1], of_b, added, point[2], of_c, point[2], of_c,
        None, None, ctypes.c_size_t(0), None,
    )  # fmt: skip
    assert status == 0
    made, plus = a.T @ b, bias[:, None] if epilogue == 4 else 0
    return [np.array_equal(c, made + beta * 7 + plus), np.array_equal(c, made + beta)]


said = {
    "single": product("cublasSgemm_v2", "f4", "TN"),
    "complex": product("cublasZgemm_v2", "c16", "CT"),
    "long": product("cublasDgemm_v2_64", "f8"),
    "typed": product("cublasGemmEx", "f4", "NT", 0, 68, -1),
    "tf32 asked": product("cublasGemmEx", "f4", "NN", 0, 77, -1),
    "no kernel": product("cublasCgemm_v2_64", "c8"),
    "batch": batch("cublasSgemmStridedBatched", "f4"),
    "long batch": batch("cublasDgemmStridedBatched_64", "f8"),
    "typed batch": batch("cublasGemmStridedBatchedEx", "f4", 0, 68, -1),
    "batch of long sums": batch("cublasDgemmStridedBatched_64", "f8", k=105),
    "folded batch": batch("cublasSgemmStridedBatched", "f4", lie="same a"),
    "no kernel for a batch": batch("cublasCgemmStridedBatched_64", "c8"),
    "batch by pointers": batch("cublasDgemmBatched_64", "f8"),
    "batch of two plans": beyond_a_plan(),
    "lt": by_lt(5, 4, 3),
    "lt's bias": by_lt(64, 64, 14000, epilogue=4, beta=0),
    "lt's short bias": by_lt(5, 4, 3, epilogue=4, beta=0),
    "lt in tf32": by_lt(5, 4, 3, compute=77),
    "lt's scalars on the device": by_lt(5, 4, 3, pointers=ON_DEVICE),
    "lt's relu": by_lt(5, 4, 3, epilogue=2),
}
cublas.cublasSetMathMode(handle, TF32)
said["tf32"] = product("cublasSgemm_v2", "f4")
cublas.cublasSetMathMode(handle, 0)
cublas.cublasSetPointerMode_v2(handle, ON_DEVICE)
said["scalars on the device"] = product("cublasSgemm_v2", "f4")
print(json.dumps(said))
