"""Tuned GEMM on CPU OpenCL devices beside NumPy's OpenBLAS and CLBlast, in one process.

    python benchmarks/cpu_gemm.py [--precision s,d] [--size 1024] [--budget 90s] [--json FILE]

For every CPU device present: tunes (starting from stored results), then times the tuned
kernel, NumPy and, where libclblast is installed, CLBlast in turns on the same random
matrices.  All three are timed by the host's clock around one call that waits, so launch
overheads count; CLBlast's and our matrices lie in device memory, which on PoCL is the
host's.  Between peers the script sleeps until OpenBLAS's spinning threads have gone.
"""

from __future__ import annotations

import argparse
import ctypes
import ctypes.util
import json
import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from tilewright.backend import devices
from tilewright.paths import write_atomically
from tilewright.problem import Problem
from tilewright.stencil import Variant, stencil
from tilewright.tuning.measure import Workload
from tilewright.tuning.peak import measured_peak
from tilewright.tuning.tuner import tune

ROUNDS = 31
SPIN_SECONDS = 0.06


class CLBlast:
    """CLBlast's C interface through ctypes, on our device memory."""

    def __init__(self):
        name = ctypes.util.find_library("clblast")
        if name is None:
            raise OSError("libclblast is not installed")
        self.library = ctypes.CDLL(name)

    def call(self, workload):
        """Return a function that multiplies the workload's matrices once and waits."""
        p = workload.problem
        scalar = ctypes.c_float if p.precision.letter == "s" else ctypes.c_double
        function = getattr(self.library, f"CLBlast{p.precision.letter.upper()}gemm")
        size = ctypes.c_size_t
        queue = ctypes.c_void_p(workload.device.queue.int_ptr)
        trans = {"N": 111, "T": 112}
        a, b, c = (ctypes.c_void_p(workload.memory[x].int_ptr) for x in "abc")

        def run():
            status = function(
                102, trans[p.trans_a], trans[p.trans_b],  # column-major
                size(p.m), size(p.n), size(p.k), scalar(1.0),
                a, size(0), size(p.lda), b, size(0), size(p.ldb), scalar(0.0),
                c, size(0), size(p.ldc), ctypes.byref(queue), None,
            )  # fmt: skip
            if status != 0:
                raise RuntimeError(f"CLBlast returned {status}")
            workload.device.finish()

        return run


def timed(call):
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def compare(live, problem, budget):
    """Tune, then time all peers in turns; return the rates and what they were taken with."""
    result = tune(problem, live, budget=budget)
    config = result.winner.config
    family = stencil(config.stencil)
    kernel = live.compile(family.source(config, Variant.of(problem), live.dialect))
    workload = Workload(live, problem)
    rng = np.random.default_rng(0)
    a, b = (
        rng.standard_normal((problem.m, problem.m)).astype(problem.precision.dtype)
        for _ in range(2)
    )
    out = np.empty_like(a)
    calls = {
        "tilewright": lambda: workload.run(kernel, family, config),
        "numpy": lambda: np.matmul(a, b, out=out),
    }
    try:
        calls["clblast"] = CLBlast().call(workload)
    except OSError as missing:
        print(f"   {missing}")
    seconds = {name: [] for name in calls}
    for name, call in calls.items():
        timed(call)
        if name == "clblast":
            timed(call)
    for _ in range(ROUNDS):
        for name, call in calls.items():
            timed(call)  # wakes this peer's threads up; not counted
            seconds[name].append(timed(call))
            time.sleep(SPIN_SECONDS)
    workload.close()
    rates = {name: problem.flops / float(np.median(s)) for name, s in seconds.items()}
    return {
        "problem": str(problem),
        "device": live.spec.name,
        "platform": live.platform,
        "config": {"stencil": config.stencil, **config},
        "candidates": result.tried + result.resumed,
        "candidates_per_second": result.candidates_per_second,
        "peak_flops_per_second": measured_peak(live, problem.precision),
        "flops_per_second": rates,
        "seconds": seconds,
    }


def environment():
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "clock": "host, one call that waits; medians",
        "rounds": ROUNDS,
        "cache": "warm",
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--precision", default="s,d")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--budget", default="90s")
    parser.add_argument("--json")
    options = parser.parse_args()
    results = []
    for live in devices():
        if live.spec.kind != "cpu":
            continue
        for letter in options.precision.split(","):
            problem = Problem(options.size, options.size, options.size, letter)
            found = compare(live, problem, options.budget)
            results.append(found)
            rates = found["flops_per_second"]
            ours = rates["tilewright"]
            print(f"{live.platform.split('(')[1].split(',')[0]}: {problem}")
            for name, rate in rates.items():
                print(f"   {name:12} {rate / 1e9:7.1f} GFLOP/s   ours is {ours / rate:.2f} of it")
            speed = found["candidates_per_second"]
            print(f"   tuned at {speed:.1f} candidates a second", flush=True)
    if options.json:
        text = json.dumps({"environment": environment(), "results": results}, indent=1)
        write_atomically(options.json, text.encode())


if __name__ == "__main__":
    main()
