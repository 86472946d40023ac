"""cuBLAS through its C interface, from the wheel or the system, on the workload's memory."""

from __future__ import annotations

import ctypes
import ctypes.util
import glob
import os
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.backend import LiveDevice
from tilewright.bench.peers.base import Peer, UnavailableError
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.tuning.measure import Workload

__all__ = [
    "KINDS",
    "CuBLAS",
    "Handle",
    "blas_handle",
    "grouped_kinds",
    "library_file",
    "prepared",
    "prepared_batch",
    "prepared_update",
]

# cublas_api.h: cublasOperation_t, and CUBLAS_DEFAULT_MATH, in which it is fastest and keeps to the
# precision's arithmetic: TF32 and emulations have to be asked for.
_OPERATIONS = {Trans.N: 0, Trans.T: 1, Trans.C: 2}
_DEFAULT_MATH = 0
_LOWER = 0  # CUBLAS_FILL_MODE_LOWER

# What cublasGemmEx multiplies: cudaDataType of A and B, and of C (library_types.h), the
# cublasComputeType_t of sums (cublas_api.h), and NumPy's type of the scalars.
KINDS: dict[str, tuple[int, int, int, str]] = {
    "bf16": (14, 14, 68, "f4"), "bf16 to float32": (14, 0, 68, "f4"), "fp16": (2, 2, 68, "f4"),
    "tf32": (0, 0, 77, "f4"), "int8": (3, 10, 72, "i4"),
}  # fmt: skip
_DEFAULT_ALGORITHM = -1


def grouped_kinds(letter: str) -> tuple[int, int, str] | None:
    """Return cudaDataType, cublasComputeType_t and the scalars' type of a grouped call, if any."""
    plain = {"s": (0, 68, "f4"), "d": (1, 70, "f8")}
    of = KINDS.get(letter)
    if of is None or letter not in ("bf16", "fp16"):
        return plain.get(letter)
    return of[0], of[2], of[3]


def _library() -> ctypes.CDLL:
    """Load cuBLAS, the newest major version first; the wheels' before the system's."""
    site = sysconfig.get_path("purelib")
    for version in (13, 12):
        name = f"libcublas.so.{version}"
        wheels = glob.glob(os.path.join(site, "nvidia", "*", "lib", name))
        wheels += glob.glob(os.path.join(site, "nvidia", "cu*", "lib", name))
        for candidate in (*wheels, name, f"/usr/local/cuda/lib64/{name}"):
            try:
                return ctypes.CDLL(candidate)
            except OSError:
                continue
    raise UnavailableError("cublas is not installed; pip install nvidia-cublas")


def library_file() -> str:
    """Return the name or path by which cuBLAS is loaded.

    Raises
    ------
    UnavailableError
        If there is none.
    """
    return _library()._name


@dataclass(frozen=True)
class Handle:
    """A handle of cuBLAS, whose calls go to the stream that it was made for."""

    api: Any
    handle: Any
    workspace: Any


def blas_handle(workspace: int, stream: int = 0) -> Handle:
    """Return a handle in the default math mode.

    Parameters
    ----------
    workspace : int
        Bytes of CuPy's memory that it may use; 0: what it takes by itself.
    stream : int
        The address of the stream that its calls go to; 0: the current context's legacy default one.

    Raises
    ------
    UnavailableError
        If there is no cuBLAS.
    """
    import cupy

    api, handle = _library(), ctypes.c_void_p()
    if api.cublasCreate_v2(ctypes.byref(handle)) or api.cublasSetMathMode(handle, _DEFAULT_MATH):
        raise UnavailableError("cublas made no handle; see nvidia-smi")
    # First, because it takes away a workspace that was given.
    if stream and api.cublasSetStream_v2(handle, ctypes.c_void_p(stream)):
        raise UnavailableError("cublas took no stream; see nvidia-smi")
    held = cupy.cuda.alloc(workspace) if workspace else None
    if held is not None:
        at = ctypes.c_void_p(held.ptr)
        if api.cublasSetWorkspace_v2(handle, at, ctypes.c_size_t(workspace)):
            raise UnavailableError(f"cublas took no workspace of {workspace} bytes")
    return Handle(api, handle, held)


def prepared(
    handle: Handle,
    letter: str,
    side: tuple[int, int, int],
    ops: tuple[Trans, Trans],
    order: str,
    addresses: Sequence[int],
) -> Callable[[], int]:
    """Return a call of cuBLAS on arrays without gaps, its arguments prepared.

    Parameters
    ----------
    handle : Handle
        By `blas_handle`.
    letter : str
        s, d, c or z; or one of `KINDS`.
    side, ops : tuple
        m, n and k, and the operations.
    order : str
        "F"; or "C", whose rows are the columns of C^T = op(B)^T op(A)^T.
    addresses : sequence of int
        Of A, B and C.

    Returns
    -------
    callable
        Enqueues the product; returns 0, or cuBLAS's status.
    """
    (m, n, k), (op_a, op_b), (a, b, c) = side, ops, addresses
    if order == "C":
        m, n, a, b, op_a, op_b = n, m, b, a, op_b, op_a
    lds = [max(1, k if op_a.transposed else m), max(1, n if op_b.transposed else k), max(1, m)]
    places = list(zip((a, b, c), lds, strict=True))
    return _product(handle.api, handle.handle, letter, (m, n, k), (op_a, op_b), places)


def prepared_batch(
    handle: Handle, letter: str, side: tuple[int, int, int], batch: int, addresses: Sequence[int]
) -> Callable[[], int]:
    """Return a call of cuBLAS on row-major arrays of so many products behind each other.

    Parameters and what the call returns are as of `prepared`.
    """
    (n, m, k), (b, a, c) = side, addresses  # C^T = B^T A^T
    places = ((a, m, m * k), (b, k, k * n), (c, m, m * n))
    ops = Trans.N, Trans.N
    return _product(handle.api, handle.handle, letter, (m, n, k), ops, places, batch)


def _product(
    api: Any,
    handle: Any,
    letter: str,
    side: tuple[int, int, int],
    ops: tuple[Trans, Trans],
    places: Sequence[tuple[int, ...]],
    batch: int = 0,
) -> Callable[[], int]:
    """Return a call on column-major matrices.

    `places` are addresses, leading dimensions and, of a batch, steps to the next matrix.
    """
    whole, at, kind = ctypes.c_int64, ctypes.c_void_p, ctypes.c_int
    of = KINDS.get(letter)
    scalars = np.array([1, 0], precision(letter).dtype if of is None else of[3])
    alpha, beta = (at(scalars.ctypes.data + i * scalars.itemsize) for i in range(2))
    a, b, c = ((at(x), *map(whole, lengths)) for x, *lengths in places)
    head = (handle, *(_OPERATIONS[op] for op in ops), *map(whole, side), alpha)
    many, last = ("StridedBatched", (whole(batch),)) if batch else ("", ())
    arguments: tuple[Any, ...]
    if of is None:
        name = f"cublas{letter.upper()}gemm{many or '_v2'}_64"
        arguments = (*head, *a, *b, beta, *c, *last)
    else:
        name = f"cublasGemm{many}Ex_64"
        a, b, c = (
            (x[0], kind(t), *x[1:]) for x, t in zip((a, b, c), (of[0], *of[:2]), strict=True)
        )
        arguments = (*head, *a, *b, beta, *c, *last, kind(of[2]), kind(_DEFAULT_ALGORITHM))
    function = getattr(api, name)

    def call() -> int:
        return int(function(*arguments))

    call.scalars = scalars  # type: ignore[attr-defined]  # held for its address
    return call


def prepared_update(
    handle: Handle, letter: str, n: int, k: int, trans: Trans, addresses: tuple[int, int],
    *, hermitian: bool,
) -> Callable[[], int]:  # fmt: skip
    """Return a call of cublas?syrk or cublas?herk, its arguments prepared.

    The lower triangle, of column-major arrays without gaps.

    Parameters
    ----------
    handle, letter, trans
        As of `prepared`; letter is s, d, c or z.
    n, k : int
        Of C, and of the sums.
    addresses : tuple of int
        Of A and C.
    hermitian : bool
        Whether it is herk, whose scalars are real.
    """
    whole, at = ctypes.c_int64, ctypes.c_void_p
    of = precision(letter)
    scalars = np.array([1, 0], of.real_dtype if hermitian else of.dtype)
    alpha, beta = (at(scalars.ctypes.data + i * scalars.itemsize) for i in range(2))
    kind = "herk" if hermitian else "syrk"
    function = getattr(handle.api, f"cublas{letter.upper()}{kind}_v2_64")
    lda = max(1, k if trans.transposed else n)
    arguments = (
        handle.handle, _LOWER, _OPERATIONS[trans], whole(n), whole(k), alpha, at(addresses[0]),
        whole(lda), beta, at(addresses[1]), whole(max(1, n)),
    )  # fmt: skip

    def call() -> int:
        return int(function(*arguments))

    call.scalars = scalars  # type: ignore[attr-defined]  # held for its address
    return call


class CuBLAS(Peer):
    """cublas?gemm on the device's stream, timed by events."""

    name = "cublas"

    _live: Any

    def __init__(self, live: LiveDevice) -> None:
        if live.backend != "cuda":
            raise UnavailableError(f"cublas runs on CUDA devices, not on {live.id}")
        self._live = live
        self._api = _library()
        self._handle = ctypes.c_void_p()
        with self._live.current():
            self._check(self._api.cublasCreate_v2(ctypes.byref(self._handle)), "cublasCreate")
            stream = ctypes.c_void_p(self._live.stream)
            self._check(self._api.cublasSetStream_v2(self._handle, stream), "cublasSetStream")
            self._check(self._api.cublasSetMathMode(self._handle, _DEFAULT_MATH), "math mode")
        number = ctypes.c_int()
        self._check(self._api.cublasGetVersion_v2(self._handle, ctypes.byref(number)), "version")
        value = number.value
        self.version = f"{value // 10000}.{value // 100 % 100}.{value % 100}"

    @staticmethod
    def _check(status: int, what: str) -> None:
        if status != 0:
            raise UnavailableError(f"cublas: {what} returned status {status}")

    def prepare(self, workload: Workload) -> Callable[[], int]:
        """Return a function that multiplies once and returns the device's nanoseconds."""
        memory = [workload.memory[name] for name in "abc"]
        return self.timed(workload.problem, workload.problem.precision.letter, memory)

    def timed(self, problem: Problem, letter: str, memory: Sequence[Any]) -> Callable[[], int]:
        """Return `prepare`'s function for A, B and C in device memory, `letter` as of `prepared`.

        Raises
        ------
        UnavailableError
            From the function: cuBLAS refuses the product.
        """
        p = problem
        places = list(zip(memory, (p.lda, p.ldb, p.ldc), strict=True))
        ops = p.trans_a, p.trans_b
        call = _product(self._api, self._handle, letter, (p.m, p.n, p.k), ops, places)

        def run() -> int:
            event = self._live.between_events(
                lambda: self._check(call(), "gemm"), name="cublas", held=1
            )
            return int(event.nanoseconds())

        return run


PEER = CuBLAS
