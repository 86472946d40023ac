r"""Fit what things cost in single precision (`tilewright.library.cycles`); needs no GPU.

    python benchmarks/choice_fit.py [--only-report] [--folds 5]

Reads the runs of shapes200.py in benchmarks/results/h100 (`RUNS`: three of one config for each
shape, and one of several for those that were slow) and the squares of hopper_s.json; prints the
fitted costs, how far off times are with them, how often the faster of two configs is told that a
run timed for a shape, and what would be chosen for shapes that were slower than cuBLAS in the last
run of all.  A fit is by least squares of log(time), robust (soft L1, at 10 %); a square counts 0.3
of a shape.  Clocks of long kernels agree between the runs within 1 %; short ones took some
microseconds more in the first and the last, ours and cuBLAS's, so that their launches have a cost
of their own (`LONGER`).  Costs that a fit cannot tell from others are held (`HELD`).  With
``--folds`` shapes are left out in turns, in all runs, and met by what the others say.
A median is of |log(expected / measured)|.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
from dataclasses import astuple, dataclass, fields, replace

import numpy as np
from scipy.optimize import least_squares

import ship
from hopper.cases import variant_of
from shapes200 import WITHOUT, WORST, mean, without
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.hardware.catalogue import recognised
from tilewright.library.cycles import COSTS, Costs, Work, cycles, work
from tilewright.library.shipped import shipped
from tilewright.library.waves import Timed, expected_ns, timed_nearby
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Variant, stencil
from tilewright.stencil.asynchronous.division import MOST_SINGLE

# Each with the shares of a tile, at most, that kernels had then.
RUNS = (
    ("shapes200_first.json", 64), ("shapes200_second.json", MOST_SINGLE),
    ("shapes200_third.json", MOST_SINGLE), (ship.BESIDE, MOST_SINGLE),
)  # fmt: skip
# The last of all shapes, which the fit has not seen.
WHOLE, UNSEEN = "shapes200.json", -1
GHZ = 1.9
MULTIPROCESSORS = 132
SQUARES_COUNT, ROBUST = 0.3, 0.1
# Cycles that a launch took longer in the first run and in that of many configs in turns, as fitted
# beside the costs: what has not run for long finds neither its text nor its operands at hand.
LONGER = {0: 4160, 3: 10300}
# Configs whose times differ by less than this are as good as each other.
ALIKE = 0.05
HELD = ("launch", "part", "staged")


@dataclass(frozen=True)
class Taken:
    """A launch that was timed: of one of `RUNS` by its number, of the search, or `UNSEEN`."""

    run: int
    problem: Problem
    config: Config
    does: Work
    ns: float

    @property
    def weight(self):
        """How much it counts."""
        return SQUARES_COUNT if self.run == len(RUNS) else 1.0

    def off(self, costs=COSTS, longer=LONGER):
        """Return the logarithm of expected over measured."""
        return math.log((cycles(self.does, costs) + longer.get(self.run, 0)) / GHZ / self.ns)


def problem_of(row):
    return Problem(row["m"], row["n"], row["k"], "s", *row["trans"])


def launched(run, config, problem, ns, shares):
    """Return a launch with its work, as it was timed."""
    resident = config.integer("resident")
    named = {name: bool(config.get(name, 0)) for name in ("guarded", "staged")}
    does = work(config, problem, resident, MULTIPROCESSORS, shares, **named)
    return Taken(run, problem, config, does, ns)


def ours(row):
    """Return the median of our times, in ns."""
    return statistics.median(row["ns"]["tilewright"])


def loaded(name):
    """Return a run's rows that have times."""
    return [row for row in ship.load(name)["rows"] if "ratio" in row]


def launches_of(run, name, shares):
    """Return the launches of a run, its choices' twins and what was timed beside them."""
    for row in loaded(name):
        config = Config(row["stencil"], row["config"])
        if config.stencil != "simt_async":
            continue
        found = {"tilewright": config}
        found |= {name: without(config, parameter) for name, parameter in WITHOUT.items()}
        others = row.get("others", {})
        found |= {key: Config("simt_async", values) for key, values in others.items()}
        for key, one in found.items():
            if key in row["ns"]:
                ns = statistics.median(row["ns"][key])
                yield launched(run, one, problem_of(row), ns, shares)


def measured():
    """Return launches of the runs, and of the search's squares."""
    for run, (name, shares) in enumerate(RUNS):
        yield from launches_of(run, name, shares)
    log = ship.load("hopper_s.json")["log"]
    for trans in ship.CASES:
        variant = variant_of("s", trans)
        for config, times in ship.searched(log, trans).values():
            for n, ns in times.items():
                problem = Problem(n, n, n, "s", variant.trans_a, variant.trans_b)
                yield launched(len(RUNS), config, problem, ns, RUNS[0][1])


def fit(data):
    """Return the costs of least error, from today's, and what launches of some runs took longer."""
    names = [one.name for one in fields(Costs)]
    free = [at for at, name in enumerate(names) if name not in HELD]
    free += range(len(names), len(names) + len(LONGER))
    start = np.log([*astuple(COSTS), *LONGER.values()])
    weights = np.array([one.weight for one in data])

    def told(logarithms):
        every = start.copy()
        every[free] = logarithms
        values = [float(value) for value in np.exp(every)]
        longer = dict(zip(LONGER, values[len(names) :], strict=True))
        return Costs(*values[: len(names)]), longer

    def off(logarithms):
        return weights * np.array([one.off(*told(logarithms)) for one in data])

    found = least_squares(off, start[free], loss="soft_l1", f_scale=ROBUST)
    costs, longer = told(found.x)
    rounded = Costs(*(float(f"{value:.3g}") for value in astuple(costs)))
    return rounded, {run: float(f"{value:.3g}") for run, value in longer.items()}


def report_folds(data, folds):
    """Print how far off shapes are that a fit has not seen."""
    shapes = sorted({str(one.problem) for one in data if one.weight == 1})
    of = dict(zip(np.random.default_rng(0).permutation(shapes), range(len(shapes)), strict=True))
    off = []
    for fold in range(folds):
        apart = [one for one in data if one.weight == 1 and of[str(one.problem)] % folds == fold]
        left = {id(one) for one in apart}
        found = fit([one for one in data if id(one) not in left])
        off += [abs(one.off(*found)) for one in apart]
    print(f"left out, {folds} folds: median {statistics.median(off):.3f}, ", end="")
    print(f"mean {statistics.mean(off):.3f}")


def report_errors(data):
    """Print how far off the costs of the package are."""
    unseen = list(launches_of(UNSEEN, WHOLE, MOST_SINGLE))
    names = {**{run: name for run, (name, _) in enumerate(RUNS)}, len(RUNS): "squares"}
    for run, name in {**names, UNSEEN: f"{WHOLE} (unseen)"}.items():
        off = [abs(one.off()) for one in [*data, *unseen] if one.run == run]
        print(f"{name}: {len(off)}, median {statistics.median(off):.3f}, ", end="")
        print(f"mean {statistics.mean(off):.3f}, worst {max(off):.2f}")


def report_order(data):
    """Print how often the faster of two configs is the one expected to be, in runs of several."""
    by_shape, right, pairs = {}, 0, 0
    for one in data:
        if one.run < len(RUNS):
            by_shape.setdefault((one.run, one.problem), []).append(one)
    for found in by_shape.values():
        for one, other in itertools.combinations(found, 2):
            took = math.log(one.ns / other.ns)
            if abs(took) > ALIKE:
                pairs += 1
                right += (cycles(one.does) > cycles(other.does)) == (took > 0)
    print(f"the faster of two that differ by more than {ALIKE:.0%}: {right} of {pairs} told")


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
    """Whether it is this config, its copies fitted as they are today."""
    return config == stencil(one.config.stencil).fitted(one.config, problem)


def report_choices(rows):
    """Print what would be chosen now, and against what cuBLAS took."""
    spec, lines, ratios = device(), [], []
    off = []
    for row in rows:
        there = carried(spec, row)
        if there:
            off.append(abs(math.log(there / ours(row))))
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
    parse.add_argument("--only-report", action="store_true", help="of the package's costs")
    parse.add_argument("--folds", type=int, default=0, help="shapes left out in so many parts")
    given = parse.parse_args()
    data = list(measured())
    if not given.only_report:
        print(*fit(data))
    if given.folds:
        report_folds(data, given.folds)
    report_errors(data)
    report_order(data)
    report_choices(loaded(WHOLE))


if __name__ == "__main__":
    main()
