"""CLBlast through its C interface, on the workload's own device memory."""

from __future__ import annotations

import ctypes
import ctypes.util
import time
from collections.abc import Callable
from typing import Any

from tilewright.backend import LiveDevice
from tilewright.bench.peers.base import Peer, UnavailableError
from tilewright.problem import Trans
from tilewright.tuning.measure import Workload

__all__ = ["CLBlast"]

# clblast_c.h: CLBlastLayoutColMajor and the values of CLBlastTranspose.
_COLUMN_MAJOR = 102
_TRANSPOSES = {Trans.N: 111, Trans.T: 112, Trans.C: 113}


class CLBlast(Peer):
    """CLBlast as installed on the system, with whatever tuning it ships for the device."""

    name = "clblast"
    version = "system library"  # its C interface does not tell

    def __init__(self, live: LiveDevice) -> None:
        path = ctypes.util.find_library("clblast")
        if path is None:
            raise UnavailableError("clblast is not installed (Debian: libclblast1)")
        if live.backend != "opencl":
            raise UnavailableError(f"clblast runs on OpenCL devices, not on {live.id}")
        self._library = ctypes.CDLL(path)

    def prepare(self, workload: Workload) -> Callable[[], int]:
        """Return a function that multiplies once and returns the host's nanoseconds."""
        p = workload.problem
        if p.precision.is_complex:
            raise UnavailableError("clblast is compared in real precisions only")
        live: Any = workload.device
        scalar = ctypes.c_float if p.precision.real_bytes == 4 else ctypes.c_double
        function = getattr(self._library, f"CLBlast{p.precision.letter.upper()}gemm")
        size = ctypes.c_size_t
        queue = ctypes.c_void_p(live.queue.int_ptr)
        a, b, c = (ctypes.c_void_p(workload.memory[name].int_ptr) for name in "abc")
        arguments = (
            *(_COLUMN_MAJOR, _TRANSPOSES[p.trans_a], _TRANSPOSES[p.trans_b]),
            *(size(p.m), size(p.n), size(p.k), scalar(1.0)),
            *(a, size(0), size(p.lda), b, size(0), size(p.ldb), scalar(0.0)),
            *(c, size(0), size(p.ldc), ctypes.byref(queue), None),
        )

        def run() -> int:
            started = time.perf_counter_ns()
            status = function(*arguments)
            if status != 0:
                raise UnavailableError(f"clblast returned status {status} for {p}")
            live.finish()
            return time.perf_counter_ns() - started

        return run


PEER = CLBlast
