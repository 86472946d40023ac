r"""How long SGEMM takes over k at fixed m and n: the slope is the loop's rate, the rest a launch.

    python benchmarks/depths.py --sizes 1024,2048,4096 --json FILE     needs a CUDA device
    ncu -k regex:gemm --section SourceCounters -o FILE python benchmarks/depths.py --once 2048
    ncu --import FILE --page source --csv > CSV
    python benchmarks/depths.py --samples CSV                          needs none

Kernels are those that won the races of benchmarks/results/h100/hopper_s.json at each size.  With
``--once K`` each runs once, for a profiler; ``--samples`` prints where warps of each kernel were
when Nsight Compute looked, before, in and behind the loop (what runs most often), and what they
waited for.
"""

from __future__ import annotations

import argparse
import collections
import csv
import io
import json
from functools import partial
from pathlib import Path

import numpy as np

import ship
from tilewright.paths import write_atomically
from tilewright.space import Config
from tilewright.stencil import stencil

DEPTHS, ROUNDS = (256, 512, 1024, 2048, 4096, 8192), 8
SAMPLES, TIMES = "# Samples", "Instructions Executed"


def winners(sizes):
    """Return case, size and config of each race that was won at these sizes."""
    log = ship.load("hopper_s.json")["log"]
    rows = [row for row in log if row["kind"] == "final" and row["size"] in sizes]
    return [(row["trans"], row["size"], Config(row["stencil"], row["config"])) for row in rows]


def measure(sizes, once):
    """Yield a row for each winner: its times and cuBLAS's in turns, in ns, by k."""
    from hopper.bench import Bench
    from hopper.log import Log
    from tilewright.problem import Problem
    from tilewright.tuning.measure import Workload

    bench = Bench(Log(Path("depths.log")), "s", max(*DEPTHS, *sizes))
    for trans, size, config in winners(sizes):
        kernel, family = bench.kernel(trans, config), stencil(config.stencil)
        row = {"trans": trans, "m": size, "n": size, "stencil": config.stencil}
        row |= {"config": dict(config), "k": [], "ns": [], "cublas": []}
        for k in (once,) if once else DEPTHS:
            load = Workload(bench.live, Problem(size, size, k, "s", *trans), bench.memory)
            calls = {"ns": partial(load.run, kernel, family, config)}
            if not once:
                calls["cublas"] = bench.cublas.prepare(load)
            rounds = range(1 if once else ROUNDS + 1)
            taken = [[call() for call in calls.values()] for _ in rounds]
            row["k"].append(k)
            # The first of several warms up.
            for name, ns in zip(calls, np.median(taken[-ROUNDS:], axis=0), strict=True):
                row[name].append(float(ns))
        yield row


def regions(text):
    """Return, for each kernel of a profiler's CSV, samples by region and by what warps did."""
    made = []
    for part in text.split('"Kernel Name"')[1:]:
        _, head, *rows = csv.reader(io.StringIO(part))
        rows = [dict(zip(head, row, strict=True)) for row in rows if len(row) == len(head)]
        most = max(int(row[TIMES]) for row in rows)
        loop = [at for at, row in enumerate(rows) if int(row[TIMES]) == most]
        first, end = loop[0], loop[-1] + 1
        ends = {"before": (0, first), "loop": (first, end), "after": (end, len(rows))}
        made.append({name: counted(rows[slice(*its)]) for name, its in ends.items()})
    return made


def counted(rows):
    """Return instructions and samples of a region, and what warps waited for, most often first."""
    reasons = collections.Counter()
    for row in rows:
        for name in row:
            if name.startswith("stall_") and "Not Issued" not in name:
                reasons[name.removeprefix("stall_")] += int(row[name])
    samples = sum(int(row[SAMPLES]) for row in rows)
    return {"instructions": len(rows), "samples": samples, "reasons": dict(reasons.most_common())}


def sizes_in(text):
    """Return the sizes that races were won at, for `argparse`."""
    known = {row["size"] for row in ship.load("hopper_s.json")["log"] if row["kind"] == "final"}
    if set(text.split(",")) - set(map(str, known)):
        raise argparse.ArgumentTypeError(f"{text!r} has others than {sorted(known)}")
    return [int(size) for size in text.split(",")]


def page_in(text):
    """Return the rows of a profiler's CSV, for `argparse`."""
    try:
        rows = regions(Path(text).read_text())
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError):
        rows = []
    if not rows:
        raise argparse.ArgumentTypeError(f"{text} is no page of samples; give what ncu wrote")
    return rows


def main():
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("--sizes", type=sizes_in, default="1024,2048,4096", help="of m and n")
    parse.add_argument("--once", type=int, help="run each kernel once, with this k")
    parse.add_argument("--samples", type=page_in, help="a profiler's CSV to count")
    parse.add_argument("--json", type=Path, help="where rows go")
    given = parse.parse_args()
    if given.samples:
        rows = given.samples
        for row in rows:
            total = sum(one["samples"] for one in row.values())
            print({name: round(one["samples"] / total, 3) for name, one in row.items()})
    else:
        rows = []
        for row in measure(given.sizes, given.once):
            rows.append(row)
            print(row["trans"], row["m"], row["ns"], row["cublas"], flush=True)
    if given.json:
        write_atomically(given.json, json.dumps({"rows": rows}, indent=1).encode())


if __name__ == "__main__":
    main()
