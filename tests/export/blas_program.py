"""A program that multiplies by NumPy, SciPy and BLAS's names, whatever is preloaded.

Matrices hold small whole numbers, so that whoever multiplies has the same bits; prints which calls
were wrong.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
from typing import Any

import numpy as np
import scipy.linalg.blas
from numpy.typing import NDArray

KINDS = {"s": "f4", "d": "f8", "c": "c8", "z": "c16"}
FORTRAN = ("{}gemm_", "{}gemm_64_", "{}gemm64_", "scipy_{}gemm_", "scipy_{}gemm_64_")
C = ("cblas_{}gemm", "cblas_{}gemm64_", "cblas_{}gemm_64", "scipy_cblas_{}gemm",
     "scipy_cblas_{}gemm64_")  # fmt: skip
ORDERS, OPERATIONS = {"C": 101, "F": 102}, {"N": 111, "T": 112, "C": 113}
names = ctypes.CDLL(None)  # as the loader binds a program's calls


def matrix(rng: np.random.Generator, rows: int, columns: int, kind: str) -> NDArray[Any]:
    x: NDArray[Any] = rng.integers(-3, 4, (rows, columns)).astype(kind)
    return x + 1j * rng.integers(-3, 4, x.shape).astype(kind) if x.dtype.kind == "c" else x


def product(name: str, letter: str, order: str, trans: str) -> bool:
    """Call a function by its name; return whether C, and what lies between its lines, is right."""
    rng, kind = np.random.default_rng(1), KINDS[letter]
    m, n, k = 5, 4, 3

    def stored(x: NDArray[Any], op: str, pad: int) -> tuple[NDArray[Any], int]:
        lines = {"N": x, "T": x.T, "C": x.conj().T}[op]
        lines = np.ascontiguousarray(lines if order == "C" else lines.T)
        return np.pad(lines, ((0, 0), (0, pad)), constant_values=9), lines.shape[1] + pad

    a, b, c = (matrix(rng, *shape, kind) for shape in ((m, k), (k, n), (m, n)))
    want, _ = stored(2 * (a @ b) + 3 * c, "N", 3)
    (a, lda), (b, ldb), (c, ldc) = stored(a, trans[0], 1), stored(b, trans[1], 2), stored(c, "N", 3)
    alpha, beta = (np.array([x], kind) for x in (2, 3))
    integer = ctypes.c_int64 if "64" in name else ctypes.c_int
    numbers = [integer(x) for x in (m, n, k, lda, ldb, ldc)]
    by_address = [ctypes.c_void_p(x.ctypes.data) for x in (alpha, a, b, beta, c)]
    function = names[name.format(letter)]
    function.restype = None
    if "cblas" in name:
        if letter in "sd":
            real = ctypes.c_float if letter == "s" else ctypes.c_double
            by_address[0], by_address[3] = real(2), real(3)  # type: ignore[call-overload]
        first: list[Any] = [ORDERS[order], *(OPERATIONS[op] for op in trans)]
        last: list[Any] = []
    else:
        first, last = [op.encode() for op in trans], [ctypes.c_size_t(1), ctypes.c_size_t(1)]
        numbers = [ctypes.byref(x) for x in numbers]  # type: ignore[misc]
    of, at = by_address, numbers
    function(*first, *at[:3], of[0], of[1], at[3], of[2], at[4], of[3], of[4], at[5], *last)
    return np.array_equal(c, want)


def by_name() -> list[str]:
    """Call all names that take real numbers and complex128, each transpose by one of them."""
    wrong = []
    for letter in "sdz":
        for at, name in enumerate(FORTRAN + C):
            for order in "CF" if "cblas" in name else "F":
                for trans in ("NN", "TC", "CN", "NT") if at in (0, 5) else ("TN",):
                    if not product(name, letter, order, trans):
                        wrong.append(f"{name.format(letter)} {order} {trans}")
    return wrong


def by_numpy(sides: tuple[int, int, int], seed: int = 0, kinds: str = "sdcz") -> list[str]:
    m, n, k = sides
    wrong = []
    for letter in kinds:
        rng, kind = np.random.default_rng(seed), KINDS[letter]
        a, b = matrix(rng, m, k, kind), matrix(rng, k, n, kind)
        want = np.einsum("ik,kj->ij", a, b)
        for one in (a, np.asfortranarray(a)):
            for other in (b, np.asfortranarray(b)):
                if not np.array_equal(one @ other, want):
                    wrong.append(f"matmul {letter} {sides}")
        called = getattr(scipy.linalg.blas, f"{letter}gemm")
        if not np.array_equal(called(1, a.T, b.T, trans_a=1, trans_b=1), want):
            wrong.append(f"SciPy {letter} {sides}")
    return wrong


def large() -> list[str]:
    """Multiply what takes longer than to copy it."""
    x = np.ones((3000, 3000), "f4")
    np.matmul(x, x)
    return []


def in_threads() -> list[str]:
    wrong: list[str] = []

    def work(seed: int) -> None:
        for sides in ((17, 9, 33), (1, 40, 8), (12, 12, 12)):
            wrong.extend(by_numpy(sides, seed))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def in_a_fork() -> list[str]:
    by_numpy((8, 8, 8))
    x = np.ones((72, 72), "f4")
    for m in range(8, 72):  # more kinds of calls than are counted before some are written down
        for n in range(6, 72):
            np.matmul(x[:m, :8], x[:8, :n])
    pid = os.fork()
    if pid == 0:
        names.exit(len(by_numpy((9, 9, 9))))  # which writes what files hold
    return ["fork"] if os.waitpid(pid, 0)[1] else []


def wrong_argument() -> list[str]:
    """Give SciPy's BLAS a leading dimension that is too small; it says so on either output."""
    one, two = ctypes.c_int(1), ctypes.c_int(2)
    x = (ctypes.c_double * 4)()
    at = ctypes.byref
    names["scipy_dgemm_"](b"N", b"N", at(two), at(two), at(two), x, x, at(one), x, at(two), x, x,
                          at(two), ctypes.c_size_t(1), ctypes.c_size_t(1))  # fmt: skip
    return []


PARTS = {
    "names": by_name, "numpy": lambda: by_numpy((7, 5, 9)) + by_numpy((33, 1, 20)),
    "cut": lambda: by_numpy((300, 90, 530), kinds="sd") + by_numpy((90, 300, 260), kinds="z"),
    "large": large, "threads": in_threads, "fork": in_a_fork, "wrong": wrong_argument,
}  # fmt: skip
print(json.dumps(PARTS[sys.argv[1]]()))
