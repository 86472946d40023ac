"""cuBLAS through its C interface, from the wheel or the system, on the workload's memory."""

from __future__ import annotations

import ctypes
import ctypes.util
import glob
import os
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.backend import LiveDevice
from tilewright.bench.peers.base import Peer, UnavailableError
from tilewright.problem import Trans
from tilewright.tuning.measure import Workload

__all__ = ["OPERATIONS", "CuBLAS", "Handle", "blas_handle"]

# cublas_api.h: cublasOperation_t, and CUBLAS_DEFAULT_MATH, in which it is fastest and keeps to the
# precision's arithmetic: TF32 and emulations have to be asked for.
OPERATIONS = {Trans.N: 0, Trans.T: 1, Trans.C: 2}
_DEFAULT_MATH = 0


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


@dataclass(frozen=True)
class Handle:
    """A handle of cuBLAS on the legacy default stream of the current context."""

    api: Any
    handle: Any
    workspace: Any


def blas_handle(workspace: int) -> Handle:
    """Return a handle in the default math mode.

    Parameters
    ----------
    workspace : int
        Bytes of CuPy's memory that it may use; 0: what it takes by itself.

    Raises
    ------
    UnavailableError
        If there is no cuBLAS.
    """
    import cupy

    api, handle = _library(), ctypes.c_void_p()
    if api.cublasCreate_v2(ctypes.byref(handle)) or api.cublasSetMathMode(handle, _DEFAULT_MATH):
        raise UnavailableError("cublas made no handle; see nvidia-smi")
    held = cupy.cuda.alloc(workspace) if workspace else None
    if held is not None:
        at = ctypes.c_void_p(held.ptr)
        if api.cublasSetWorkspace_v2(handle, at, ctypes.c_size_t(workspace)):
            raise UnavailableError(f"cublas took no workspace of {workspace} bytes")
    return Handle(api, handle, held)


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
        p = workload.problem
        function = getattr(self._api, f"cublas{p.precision.letter.upper()}gemm_v2_64")
        # Scalars are passed by address: a NumPy array keeps them alive with the closure.
        scalars = np.array([1, 0], p.precision.dtype)
        alpha = ctypes.c_void_p(scalars.ctypes.data)
        beta = ctypes.c_void_p(scalars.ctypes.data + scalars.itemsize)
        whole = ctypes.c_int64
        a, b, c = (ctypes.c_void_p(workload.memory[name]) for name in "abc")
        arguments = (
            *(self._handle, OPERATIONS[p.trans_a], OPERATIONS[p.trans_b]),
            *(whole(p.m), whole(p.n), whole(p.k), alpha),
            *(a, whole(p.lda), b, whole(p.ldb), beta, c, whole(p.ldc)),
        )

        def run() -> int:
            assert scalars.size == 2  # held for its address
            event = self._live.between_events(
                lambda: self._check(function(*arguments), "gemm"), name="cublas", held=1
            )
            return int(event.nanoseconds())

        return run
