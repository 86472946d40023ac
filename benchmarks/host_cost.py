"""What a call costs the host: tw.gemm and cupy.matmul on the same arrays, in one run.

    python benchmarks/host_cost.py [--size N] [--precision s] [--json FILE]

The device must never be the one that is waited for: matrices are small, and the queue is
emptied between batches.  Batches alternate A B A B; the median over batches of the mean
cost of a call is reported, in microseconds.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from pathlib import Path

import cupy
import numpy as np

import tilewright as tw
from tilewright.precision import precision
from tilewright.version import VERSION

# Fewer launches than a CUDA stream queues (1024): more would wait for the device.
CALLS = 200


def microseconds(call) -> float:
    """Return the mean cost of a call in a batch, the device's work not included."""
    cupy.cuda.Device().synchronize()
    started = time.perf_counter()
    for _ in range(CALLS):
        call()
    took = time.perf_counter() - started
    cupy.cuda.Device().synchronize()
    return took / CALLS * 1e6


def alternating(calls: dict, batches: int) -> dict[str, list[float]]:
    times = {name: [] for name in calls}
    for call in calls.values():
        microseconds(call)
    for _ in range(batches):
        for name, call in calls.items():
            times[name].append(microseconds(call))
    return times


def cases(size: int, letter: str) -> dict:
    """Return what is compared: with a result to write to, and with a new one."""
    dtype = precision(letter).dtype
    rng = np.random.default_rng(0)
    a, b, c = (cupy.asarray(rng.standard_normal((size, size)).astype(dtype)) for _ in range(3))
    tw.gemm(a, b, c)
    assert cupy.allclose(c, a @ b, rtol=1e-3, atol=1e-3)
    return {
        "tilewright, c given": lambda: tw.gemm(a, b, c),
        "cupy, out given": lambda: cupy.matmul(a, b, out=c),
        "tilewright, c new": lambda: tw.gemm(a, b),
        "cupy, result new": lambda: cupy.matmul(a, b),
        "tilewright, alpha and beta": lambda: tw.gemm(a, b, c, alpha=0.5, beta=0.5),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--precision", default="s")
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--json", type=Path, help="file to write")
    options = parser.parse_args()
    times = alternating(cases(options.size, options.precision), options.batches)
    medians = {name: statistics.median(row) for name, row in times.items()}
    for name, row in times.items():
        print(f"{name:28} {medians[name]:7.2f} us   least {min(row):7.2f} us")
    met = (
        max(medians["tilewright, c given"], medians["tilewright, c new"]) < 10
        and medians["tilewright, c given"] <= medians["cupy, out given"]
        and medians["tilewright, c new"] <= medians["cupy, result new"]
    )
    print("bar (at most CuPy's, and under 10 us):", "met" if met else "MISSED")
    if options.json:
        found = tw.devices()[0]
        report = {
            "device": found.spec.name,
            "environment": found.environment(),
            "host": platform.processor() or platform.machine(),
            "python": platform.python_version(),
            "cupy": cupy.__version__,
            "tilewright": VERSION,
            "size": options.size,
            "precision": options.precision,
            "calls_per_batch": CALLS,
            "median_us": medians,
            "times_us": times,
            "met": met,
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
