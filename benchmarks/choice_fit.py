r"""Fit what things cost in single precision (`tilewright.library.cycles`); needs no GPU.

    python benchmarks/choice_fit.py [--shapes FILE] [--only-report]

Reads FILE, a run of shapes200.py (benchmarks/results/h100/shapes200_first.json: the one before
these costs, whose choices are as far off as a fit wants), and the squares of hopper_s.json;
prints the fitted costs, how far off times are with them, and what would be chosen for shapes
that were slower than cuBLAS.  A fit is by least squares of log(time), robust (soft L1, at
10 %); a square counts 0.3 of a shape.  A median is of |log(expected / measured)|.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

import ship
from hopper.cases import variant_of
from shapes200 import WORST, mean
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.hardware.catalogue import recognised
from tilewright.library.cycles import COSTS, Costs, cycles, work
from tilewright.library.shipped import shipped
from tilewright.library.waves import Timed, expected_ns, timed_nearby
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Variant, stencil

SHAPES = ship.RESULTS / "shapes200_first.json"
GHZ = 1.9
MULTIPROCESSORS = 132
SQUARES_COUNT, ROBUST = 0.3, 0.1
# Shares of a tile, at most, when these were timed.
SHARES_THEN = 64


def problem_of(row):
    return Problem(row["m"], row["n"], row["k"], "s", *row["trans"])


def launched(config, problem):
    """Return the work of a launch as it was timed."""
    resident = config.integer("resident")
    return work(config, problem, resident, MULTIPROCESSORS, SHARES_THEN)


def measured(rows):
    """Return (work, ns, weight) of shapes, and of the search's squares."""
    for row in rows:
        config = Config(row["stencil"], row["config"])
        if config.stencil == "simt_async":
            ns = statistics.median(row["ns"]["tilewright"])
            yield launched(config, problem_of(row)), ns, 1.0
    log = ship.load("hopper_s.json")["log"]
    for trans in ship.CASES:
        for config, times in ship.searched(log, trans).values():
            for n, ns in times.items():
                variant = variant_of("s", trans)
                problem = Problem(n, n, n, "s", variant.trans_a, variant.trans_b)
                yield launched(config, problem), ns, SQUARES_COUNT


def fit(data):
    """Return the costs of least error, from today's."""
    taken = np.log([ns * GHZ for _, ns, _ in data])
    weights = np.array([weight for _, _, weight in data])

    def off(logarithms):
        costs = Costs(*map(float, np.exp(logarithms)))
        return weights * (np.log([cycles(does, costs) for does, _, _ in data]) - taken)

    found = least_squares(off, np.log(astuple(COSTS)), loss="soft_l1", f_scale=ROBUST)
    return Costs(*(float(f"{value:.3g}") for value in np.exp(found.x)))


def report_errors(data):
    """Print how far off the costs of the package are."""
    for name, weight in (("shapes", 1.0), ("squares", SQUARES_COUNT)):
        off = [
            abs(math.log(cycles(does) / GHZ / ns)) for does, ns, counts in data if counts == weight
        ]
        print(f"{name}: {len(off)}, median {statistics.median(off):.3f}, worst {max(off):.2f}")


def device():
    """Return the H100 of the shipped table."""
    known = recognised("NVIDIA H100 80GB HBM3")
    spec = replace(architecture_spec(ship.ARCH), multiprocessors=MULTIPROCESSORS)
    return replace(spec, name=known.name) if known else spec


def chosen(spec, problem):
    """Return the config that the table offers for a problem, and its expected time."""
    table = shipped(spec, Variant.of(problem))
    rows = timed_nearby(table.rows, problem)
    times = [expected_ns(row, problem, spec, MULTIPROCESSORS) for row in rows]
    return rows[times.index(min(times))].config, min(times)


def carried(spec, row):
    """Return what is expected of the config that ran, from the search's times of it."""
    problem, config = problem_of(row), Config(row["stencil"], row["config"])
    table = shipped(spec, Variant.of(problem))
    same = [one for one in table.rows if fits(one, config, problem, spec)]
    return expected_ns(Timed(config, same[0].ns), problem, spec, MULTIPROCESSORS) if same else None


def fits(one, config, problem, spec):
    """Whether it is this config, before copies were fitted."""
    family = stencil(one.config.stencil)
    return config == one.config or config == family.fitted(one.config, problem)


def report_choices(rows):
    """Print what would be chosen now, and against what cuBLAS took."""
    spec, lines, ratios = device(), [], []
    off = []
    for row in rows:
        there = carried(spec, row)
        if there:
            off.append(abs(math.log(there / statistics.median(row["ns"]["tilewright"]))))
        if row["kind"] != "shape":
            continue
        config, ns = chosen(spec, problem_of(row))
        ratio = statistics.median(row["ns"]["cublas"]) / ns
        ratios.append(ratio)
        if row["ratio"] < WORST:
            lines.append((ratio, row, config))
    print(f"carried from squares: {len(off)}, median {statistics.median(off):.3f}, ", end="")
    print(f"worst {max(off):.2f}")
    print(f"below {WORST} when timed: {len(lines)}; ratios then, and expected now:")
    for ratio, row, config in sorted(lines, key=lambda line: line[0]):
        shape = f"{row['trans']} {row['m']:5}x{row['n']:5}x{row['k']:5}"
        how = " ".join(
            f"{name} {config.get(name, 0)}"
            for name in ("resident", "split_k", "persistent", "stream_k")
        )
        print(
            f"  {shape} {row['ratio']:.2f} {ratio:.2f}  "
            f"{config['block_m']}x{config['block_n']} {how}"
        )
    below = sum(ratio < WORST for ratio in ratios)
    print(f"expected of all: mean {mean(ratios):.3f}, {below} below {WORST}")


def main():
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("--shapes", type=Path, default=SHAPES)
    parse.add_argument("--only-report", action="store_true", help="of the package's costs")
    given = parse.parse_args()
    rows = [row for row in json.loads(given.shapes.read_text())["rows"] if "ratio" in row]
    data = list(measured(rows))
    if not given.only_report:
        print(fit(data))
    report_errors(data)
    report_choices(rows)


if __name__ == "__main__":
    main()
