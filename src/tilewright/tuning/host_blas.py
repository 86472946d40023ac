"""NumPy's BLAS in the races of a CPU: its times decide where a tuned kernel serves.

A file a device, beside the measurements, keeps one time a problem::

    [["s", "NN", 1024, 1024, 1024, 4230000], ...]    precision, transposes, m, n, k, nanoseconds
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

import numpy as np

from tilewright.backend import LiveDevice
from tilewright.paths import data_dir, private_directory, write_atomically
from tilewright.problem import Problem
from tilewright.tuning.measure import random_matrix
from tilewright.tuning.noise import OutsideLoad, noise

__all__ = ["Race", "race", "times"]

Race = tuple[str, str, int, int, int]
"""Precision's letter, transposes, m, n and k, as kernels see them."""

# Enough for `noise` to tell what others took of the cores.
_SECONDS, _LEAST = 1.0, 5

# The first products wake BLAS's threads and touch C's pages.
_WARM_UP = 2


def race(live: LiveDevice, problem: Problem) -> None:
    """Time BLAS on a problem, and keep the time; whoever tunes has the device to himself.

    A doubtful time is not kept: BLAS's threads wait actively, so that others on the cores make it
    several times as slow, and no kernel is to serve on a quiet machine for that.  Where a time
    cannot be kept, BLAS goes on serving: no reason to lose what was tuned.
    """
    outside = OutsideLoad()
    taken = _timed(problem)
    if noise({"BLAS": taken}, outside.share()):
        return
    letter, sizes = problem.precision.letter, (problem.m, problem.n, problem.k)
    known = times(live.portfolio_key) | {(letter, problem.trans, *sizes): min(taken)}
    rows = json.dumps([[*one, ns] for one, ns in sorted(known.items())])
    with contextlib.suppress(OSError):
        private_directory(_path(live.portfolio_key).parent)
        write_atomically(_path(live.portfolio_key), rows.encode())


def times(key: str) -> dict[Race, int]:
    """Return what BLAS took, in nanoseconds, beside the device of a `portfolio_key`.

    Nothing where nothing was kept, or it cannot be read: no kernel is known to be faster then.
    """
    try:
        rows = json.loads(_path(key).read_bytes())
        return {(str(p), str(t), int(m), int(n), int(k)): int(ns) for p, t, m, n, k, ns in rows}
    except (OSError, ValueError, TypeError, OverflowError, RecursionError):
        return {}


def _path(key: str) -> Path:
    return data_dir() / "host_blas" / f"{key}.json"


def _timed(problem: Problem) -> list[int]:
    """Return the nanoseconds of products."""
    p, rng = problem, np.random.default_rng(0)
    a, b = (
        random_matrix(rng, rows * columns, p).reshape(
            (rows, columns), order="C" if op.transposed else "F"
        )
        for rows, columns, op in ((p.m, p.k, p.trans_a), (p.k, p.n, p.trans_b))
    )
    out, taken = np.empty((p.m, p.n), a.dtype, order="F"), list[int]()
    began = time.perf_counter()
    while len(taken) < _LEAST + _WARM_UP or time.perf_counter() - began < _SECONDS:
        started = time.perf_counter_ns()
        np.matmul(a, b, out=out)
        taken.append(time.perf_counter_ns() - started)
    return taken[_WARM_UP:]
