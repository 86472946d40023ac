r"""Fit what things cost (`tilewright.library.cycles`); needs no GPU.

    python benchmarks/shipped/choice_fit.py [--precision d] [--folds 5]
    python benchmarks/shipped/choice_fit.py --only-report

Reads benchmarks/shipped/data/portfolio.json, or that of another precision: some dozens of configs
of each case, timed on each of its shapes.  Prints the costs of least error, ready for `cycles.py`,
and how far off times are: with the costs that are there, with the fitted ones, and at shapes that
a fit has not seen.  These are
left out in turns, with all their launches, whatever the transposes.  ``--only-report`` says how
good the costs in `cycles.py` are, and how often they tell the faster of two configs that were timed
on the same problem.

A fit is by least squares of log(expected / measured), robust (soft L1, at 10 %).  A launch counts
the less the slower it is beside the best of its problem, as what is far from it is not chosen.
Costs that these times cannot tell are held (`HELD`), and some they tell badly: `launch` and `begin`
but for their sum, and `segment`, as a test with known costs shows.  Where a fit starts makes no
difference.  "Off" is |log(expected / measured)|.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import ship
from hopper.portfolio_space import FAMILIES
from numpy.typing import NDArray
from scipy.optimize import least_squares

from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.hardware import DeviceSpec
from tilewright.hardware.catalogue import recognised
from tilewright.library.cycles import COSTS, Costs, Work, work
from tilewright.problem import Problem
from tilewright.space import Config

Floats = NDArray[np.float64]
Sides = tuple[int, int, int]
Taken = tuple[Problem, Work, float]

GHZ = 1.9
MULTIPROCESSORS = 132
ROBUST = 0.1
# A launch that takes twice the best time of its problem counts an eighth.
SLOWER_COUNTS = -3
# Times the best: what a choice is among.
NEAR = 1.1
# Configs whose times differ by less than this are as good as each other.
ALIKE = 1.05
# Nothing was copied with checks, and a staged element cannot be told from a stored one.
HELD = ("check", "staged")
# A cost below NOTHING is one that the fit brought to nothing; the least of the others is 0.06.  So
# is a SMALL one without which the fit's loss does not GROW by so much: a fit stops anywhere near a
# bound along which nothing changes.
NOTHING, SMALL, GROW = 1e-2, 10, 1e-5


# ---- What was timed --------------------------------------------------------------------------


@dataclass(frozen=True)
class Launches:
    """Launches that were timed, an element of each array.

    Parameters
    ----------
    does : dict
        What they do: an array for each name in `Work`.
    ns : array
        What they took.
    problem : array
        A number for their problem.
    sides : array
        A number for its m, n and k, the same for all transposes.
    """

    does: dict[str, Floats]
    ns: Floats
    problem: NDArray[np.int64]
    sides: NDArray[np.int64]

    @classmethod
    def of(cls, taken: Iterable[Taken]) -> Launches:
        """Return launches of problems, with what each does and took."""
        problems, works, ns = zip(*taken, strict=True)
        table = np.array([astuple(one) for one in works], np.float64)
        names = (one.name for one in fields(Work))
        return cls(
            dict(zip(names, table.T, strict=True)),
            np.array(ns, np.float64),
            numbered((one.trans, sides_of(one)) for one in problems),
            numbered(sides_of(one) for one in problems),
        )

    def only(self, which: NDArray[Any]) -> Launches:
        """Return some of them."""
        does = {name: values[which] for name, values in self.does.items()}
        return Launches(does, self.ns[which], self.problem[which], self.sides[which])

    @cached_property
    def slower(self) -> Floats:
        """Times over the least of the same problem."""
        best = np.full(self.problem.max() + 1, np.inf)
        np.minimum.at(best, self.problem, self.ns)
        return self.ns / best[self.problem]

    def off(self, costs: Costs) -> Floats:
        """Return the logarithm of expected over measured."""
        return np.log(expected(self.does, costs) / GHZ / self.ns)


def sides_of(problem: Problem) -> Sides:
    """Return m, n and k."""
    return problem.m, problem.n, problem.k


def numbered(keys: Iterable[Any]) -> NDArray[np.int64]:
    """Return a number for each key, the same for the same."""
    known: dict[Any, int] = {}
    return np.array([known.setdefault(key, len(known)) for key in keys])


def expected(does: dict[str, Floats], costs: Costs) -> Floats:
    """Return the cycles of many launches: `cycles` for arrays, as a test compares."""
    d, c = does, costs
    step = d["multiplied"] / 128 + c.copy * d["copies"] + c.check * d["checked"]
    warps = np.maximum(1, d["warps"])
    idle = np.maximum(1, 4 / warps) + c.hiding / warps
    busy = np.hypot(d["steps"] * step * idle, c.latency * d["waits"])
    busy += c.begin + c.store * d["tiles"] * d["area"] + c.turn * d["turns"]
    busy += c.meet * d["waves"] + c.staged * d["staged"]
    busy += np.where(d["sliced"] > 0, c.second + 2 * d["sliced"] / c.l2, 0)
    busy += d["parts"] * (c.part + c.part_element * d["of_thread"])
    waiting = d["l2"] / c.l2 + (d["memory"] + c.segment * d["segments"]) / c.memory
    return c.launch + np.hypot(busy, waiting)


def problem_of(row: dict[str, Any], letter: str = "s") -> Problem:
    """Return the problem of a row."""
    return Problem(row["m"], row["n"], row["k"], letter, *row["trans"])


def known_costs(letter: str) -> Costs:
    """Return the costs that the package has for what serves a precision; single's, if it has none.

    Those are where a fit begins.
    """
    return COSTS.get((FAMILIES[letter], letter), COSTS["simt_async", "s"])


def counted(config: Config, problem: Problem) -> Work:
    """Return what a launch of a config does, whether it is fitted to the problem yet or not.

    What ran was fitted, as `gemm` does it.  `work` takes that for granted, and fitting as many as
    these takes longer than all the rest.  It takes 77 launches to be staged that had no room to
    be, as a choice does; errors are the same without them.
    """
    return work(config, problem, config.integer("resident"), MULTIPROCESSORS)


def portfolio(letter: str = "s") -> Iterator[Taken]:
    """Yield the launches of a precision's portfolio."""
    found = ship.load(ship.PORTFOLIOS[letter])
    configs = {
        trans: [Config(FAMILIES[letter], one) for one in ones]
        for trans, ones in found["configs"].items()
    }
    for row in found["rows"]:
        problem = problem_of(row, letter)
        for config, ns in zip(configs[row["trans"]], row["ns"], strict=True):
            if ns is not None:
                yield problem, counted(config, problem), ns


# ---- What it costs ---------------------------------------------------------------------------


def fit(launches: Launches, start: Costs) -> Costs:
    """Return the costs of least error, to three digits, none of them negative.

    What no launch pays stays as it was.
    """
    free = [
        one.name
        for one in fields(Costs)
        if one.name not in HELD and paid(launches, start, one.name)
    ]
    counts = launches.slower ** (SLOWER_COUNTS / 2)

    def told(values: Iterable[float]) -> Costs:
        return replace(start, **dict(zip(free, map(float, values), strict=True)))

    def off(values: Floats) -> Floats:
        return counts * launches.off(told(values))

    first = [getattr(start, name) for name in free]
    found = least_squares(
        off, first, bounds=(0, np.inf), x_scale="jac", loss="soft_l1", f_scale=ROBUST
    )

    def loss(values: Floats) -> float:
        """Return what is least, SciPy's soft_l1."""
        return float(np.sum(np.sqrt(1 + (off(values) / ROBUST) ** 2) - 1))

    least = loss(found.x)

    def counts_for(at: int) -> bool:
        if not NOTHING <= found.x[at] <= SMALL:
            return bool(found.x[at] > SMALL)
        return loss(np.where(np.arange(len(free)) == at, 0.0, found.x)) > least * (1 + GROW)

    return told(float(f"{x:.3g}") if counts_for(at) else 0.0 for at, x in enumerate(found.x))


def paid(launches: Launches, costs: Costs, name: str) -> bool:
    """Return whether any launch's time depends on a cost."""
    other = replace(costs, **{name: 2 * getattr(costs, name) + 1})
    return bool(np.any(expected(launches.does, costs) != expected(launches.does, other)))


def left_out(launches: Launches, folds: int, start: Costs) -> Floats:
    """Return how far off each is by a fit to the launches of other shapes."""
    off = np.empty(len(launches.ns))
    fold = np.random.default_rng(0).permutation(launches.sides.max() + 1)[launches.sides] % folds
    for at in range(folds):
        off[fold == at] = launches.only(fold == at).off(fit(launches.only(fold != at), start))
    return off


# ---- What is said ----------------------------------------------------------------------------


def pasted(costs: Costs, letter: str) -> str:
    """Return costs as they stand in `cycles.py`."""
    values = ", ".join(f"{one.name}={getattr(costs, one.name):g}" for one in fields(Costs))
    indented = textwrap.fill(f"{values},", 100, initial_indent=" " * 8, subsequent_indent=" " * 8)
    return f'    ("{FAMILIES[letter]}", "{letter}"): Costs(\n{indented}\n    ),'


def say(what: str, off: Floats) -> None:
    """Print how far off so many launches are."""
    median, rms = np.median(np.abs(off)), np.sqrt(np.mean(off**2))
    print(f"{what}: {len(off)} launches, median {median:.1%}, rms {rms:.1%}")


def report_fit(launches: Launches, folds: int, letter: str) -> None:
    """Print the fitted costs, and how far off times are before and after."""
    start = known_costs(letter)
    found = fit(launches, start)
    print(pasted(found, letter))
    say("before", launches.off(start))
    say("after", launches.off(found))
    say(f"at shapes left out, {folds} folds", left_out(launches, folds, start))


def told_apart(launches: Launches, costs: Costs) -> tuple[int, int]:
    """Return of how many pairs of configs the faster one is told, and how many there are.

    Of those timed on the same problem whose times differ; two that are expected to take as long
    as each other are not told apart.
    """
    right = pairs = 0
    ahead = expected(launches.does, costs)
    for problem in np.unique(launches.problem):
        at = np.flatnonzero(launches.problem == problem)
        one, other = at[np.array(np.triu_indices(len(at), 1))]
        took = np.log(launches.ns[one] / launches.ns[other])
        differ = np.abs(took) > np.log(ALIKE)
        pairs += int(differ.sum())
        right += int((differ & (np.sign(ahead[one] - ahead[other]) == np.sign(took))).sum())
    return right, pairs


def report(launches: Launches, letter: str = "s") -> None:
    """Print how good the costs in `cycles.py` are."""
    known = known_costs(letter)
    near = launches.only(launches.slower <= NEAR)
    among = f"within {NEAR - 1:.0%} of the best"
    say("portfolio", launches.off(known))
    say(f"portfolio, {among}", near.off(known))
    for what, some in (("all", launches), (among, near)):
        right, pairs = told_apart(some, known)
        print(f"pairs that differ by more than {ALIKE - 1:.0%}, {what}: ", end="")
        print(f"the faster is told of {right} of {pairs} ({right / pairs:.1%})")


def device() -> DeviceSpec:
    """Return the H100 of the shipped table."""
    known = recognised("NVIDIA H100 80GB HBM3")
    spec = replace(architecture_spec(ship.ARCH), multiprocessors=MULTIPROCESSORS)
    return replace(spec, name=known.name) if known else spec


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("--precision", choices=sorted(FAMILIES), default="s")
    parse.add_argument("--only-report", action="store_true", help="of the costs in cycles.py")
    parse.add_argument("--folds", type=int, default=5, help="so many parts of the shapes in turns")
    given = parse.parse_args()
    if given.folds < 2:
        parse.error("--folds: a fit needs shapes that are not left out; give 2 or more")
    taken = list(portfolio(given.precision))
    launches = Launches.of(taken)
    if given.only_report:
        report(launches, given.precision)
    else:
        report_fit(launches, given.folds, given.precision)


if __name__ == "__main__":
    main()
