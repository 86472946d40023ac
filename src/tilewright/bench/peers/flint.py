"""python-flint's arb_mat: ball arithmetic of 128 bits, FLINT's own algorithms and threads."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.backend import LiveDevice
from tilewright.bench.peers.base import Peer, UnavailableError
from tilewright.problem import Problem
from tilewright.tuning.measure import Workload, random_matrix

__all__ = ["Flint"]

# The bits that people who need about 32 digits give it: a pair of doubles has 107.
_BITS = 128


class Flint(Peer):
    """``arb_mat * arb_mat`` on the host's cores; real double-double problems only."""

    name = "flint"

    def __init__(self, live: LiveDevice) -> None:
        try:
            import flint
        except ImportError:
            raise UnavailableError("flint is not installed; pip install python-flint") from None
        self._flint: Any = flint
        self.version = f"{flint.__FLINT_VERSION__} (arb_mat, {_BITS} bits)"

    def check(self, problem: Problem) -> None:
        """Refuse what is not real and double-double."""
        if problem.precision.parts != 2 or problem.precision.is_complex:
            raise UnavailableError("flint is compared in real double-double only")

    def prepare(self, workload: Workload) -> Callable[[], int]:
        """Return a function that multiplies once and returns the host's nanoseconds."""
        p, flint = workload.problem, self._flint
        rng = np.random.default_rng(0)

        def matrix(rows: int, columns: int) -> Any:
            x = random_matrix(rng, rows * columns, p).reshape(rows, columns)
            exact = [[flint.arb(h) + flint.arb(lo) for h, lo in row.tolist()] for row in x]
            return flint.arb_mat(exact)

        def within(call: Callable[[], Any]) -> Any:
            """Call with the bits and threads that are ours alone to set."""
            before = flint.ctx.prec, flint.ctx.threads
            flint.ctx.prec, flint.ctx.threads = _BITS, os.cpu_count() or 1
            try:
                return call()
            finally:
                flint.ctx.prec, flint.ctx.threads = before

        a, b = within(lambda: (matrix(p.m, p.k), matrix(p.k, p.n)))

        def run() -> int:
            started = time.perf_counter_ns()
            within(lambda: a * b)
            return time.perf_counter_ns() - started

        return run


PEER = Flint
