"""NumPy's matmul: whatever BLAS it was built with, on the host's cores."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import LiveDevice
from tilewright.bench.peers.base import Peer
from tilewright.problem import Trans
from tilewright.tuning.measure import Workload, random_matrix

__all__ = ["NumPy"]


class NumPy(Peer):
    """``numpy.matmul`` on arrays of the workload's shapes, column-major as BLAS sees them."""

    name = "numpy"
    on_host = True

    def __init__(self, live: LiveDevice) -> None:
        blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        self.version = f"{np.__version__} ({blas['name']} {blas['version']})"

    def prepare(self, workload: Workload) -> Callable[[], int]:
        """Return a function that multiplies once and returns the host's nanoseconds."""
        p = workload.problem
        rng = np.random.default_rng(0)

        def matrix(rows: int, columns: int, trans: Trans) -> NDArray[Any]:
            shape = (columns, rows) if trans.transposed else (rows, columns)
            x = random_matrix(rng, rows * columns, p).reshape(shape, order="F")
            x = x.T if trans.transposed else x
            return x.conj() if trans.conjugated else x

        a, b = matrix(p.m, p.k, p.trans_a), matrix(p.k, p.n, p.trans_b)
        out = np.empty((p.m, p.n), p.precision.dtype, order="F")

        def run() -> int:
            started = time.perf_counter_ns()
            np.matmul(a, b, out=out)
            return time.perf_counter_ns() - started

        return run


PEER = NumPy
