"""Rescheduled kernels of what serves random shapes: the same bits on a device, and what they gain.

    python benchmarks/schedule_fitted.py --pick 150 --json FILE      which kernels; needs no GPU
    python benchmarks/schedule_fitted.py --prepare --seconds 900 --json FILE     only the search
    python benchmarks/schedule_fitted.py --seconds 300 --json FILE         needs an H100
    python benchmarks/schedule_fitted.py --table --json FILE               only prints FILE

Races are won by kernels of squares; random shapes are served by others, with copies that suit
their leading dimensions, as the compiler left them.  ``--pick`` draws shapes as shapes200.py does,
of a seed that no test has, a third of them aligned, asks `gemm`'s choice what would serve each, and
writes those kernels that serve most of them, with some of their shapes.  Each is proved as
schedule_proof.py does it (whose search, processes and rows these are) and timed beside its twin on
these shapes, A B A B.  Kernels of levels that are proved alone can serve: see `ship.py`.  The code
of those that gain goes to the package (`backend/cuda/scheduled_code`), a file a key.
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from choice_fit import device
from hopper.absent import Absent
from hopper.cases import cases_of
from hopper.named import json_file
from schedule_proof import FAMILY, Device, Row, at_level, job, table, work, write
from shapes200 import LEAST, MOST
from ship import RESCHEDULED_K, SCHEDULED_CODE, saved_time, saves
from tilewright.backend.cache import KernelCache
from tilewright.backend.cuda.compiler import nvrtc_version
from tilewright.hardware import DeviceSpec
from tilewright.library.choose import fitted, timed_choice
from tilewright.paths import write_atomically
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Variant, unscheduled
from tilewright.stencil.schedule import LEVELS, SCHEDULE

SEED, DRAWN = 7, 6000
ALIGNED = 8  # elements that a third of the shapes' sides are multiples of
LEVEL = next(at for at, one in enumerate(LEVELS) if one is not None and one.name == "walked")
SHAPES = 3  # of each kernel, by their time: at a sixth, the middle and five sixths
# A kernel of 10 us is half its launch and its first copies, which no order of products shortens.
FIXED_NS = 10_000
# A level is proved with 32 (schedule_proof.py); these are more kernels of it.
LAUNCHES = 8


@dataclass(frozen=True)
class Served:
    """A shape, what its product is expected to take, and whether its results are staged."""

    ns: float
    problem: Problem
    staged: bool


def drawn(letter: str) -> Iterator[Problem]:
    """Yield random shapes of all cases."""
    rng = np.random.default_rng(SEED)
    sides = np.exp(rng.uniform(np.log(LEAST), np.log(MOST), (DRAWN, 3))).round().astype(int)
    sides[::3] = -(-sides[::3] // ALIGNED) * ALIGNED
    for side, trans in zip(sides, itertools.cycle(cases_of(letter)), strict=False):
        yield Problem(*map(int, side), letter, *trans)


def picked(letter: str, count: int) -> list[Row]:
    """Return the kernels that would save most time of random shapes, with shapes of each.

    What serves with staged results is never rescheduled: its twin without is, in its stead.
    """
    model = Absent(device())
    serves: dict[tuple[str, Config], list[Served]] = defaultdict(list)
    for problem in drawn(letter):
        choice, ns = timed_choice(model, problem)
        config = fitted(choice, problem, model.spec).config
        plain = config.without("staged")
        if may_be_rescheduled(plain, problem, model.spec) and ns is not None:
            trans = f"{problem.trans_a.value}{problem.trans_b.value}"
            serves[trans, plain].append(Served(ns, problem, plain != config))
    rows = [
        at_level(job(letter, trans, dict(config), timed=True), LEVEL)
        | {
            "each": LAUNCHES,
            "shapes": some(one for one in found if not one.staged),
            "staged": some(one for one in found if one.staged),
            "serves": len(found),
            "weight": sum(max(0.0, 1 - FIXED_NS / one.ns) for one in found),
        }
        for (trans, config), found in serves.items()
    ]
    return sorted(rows, key=lambda row: -row["weight"])[:count]


def may_be_rescheduled(config: Config, problem: Problem, spec: DeviceSpec) -> bool:
    """Whether a config is the compiler's own code, and has a twin in the space."""
    made = config.replace(**{SCHEDULE: LEVEL})
    own = config.stencil == FAMILY.name and unscheduled(config) == config
    return own and made in FAMILY.space(Variant.of(problem), spec)


def some(found: Iterable[Served]) -> list[list[int]]:
    """Return a few shapes, from short to long."""
    ordered = [one.problem for one in sorted(found, key=lambda one: one.ns)]
    at = sorted({len(ordered) * (2 * i + 1) // (2 * SHAPES) for i in range(SHAPES)})
    return [[one.m, one.n, one.k] for one in (ordered[i] for i in at if ordered)]


def summary(rows: list[Row]) -> Iterator[str]:
    """Yield what was won, a precision at a time."""
    for letter in sorted({row["precision"] for row in rows}):
        same = [row for row in rows if row["precision"] == letter and row["status"] == "same"]
        found = [(saved_time(row["ns"]), row["weight"]) for row in same if row["ns"]]
        if len(found) > 1:
            saved, weights = zip(*found, strict=True)
            yield (
                f"{letter}: {len(same)} proved, {len(found)} timed: saved {np.median(saved):.1%} in"
                f" the median, {np.quantile(saved, 0.9):.1%} in a tenth, {min(saved):.1%} at least,"
                f" {np.average(saved, weights=weights):.1%} by what they serve;"
                f" {sum(map(saves, same))} serve"
            )
        staged = [(name, pair) for row in same for name, pair in row.get("ns_staged", {}).items()]
        for what, long in (("below", False), ("from", True)):
            of = {
                at: pair
                for at, (name, pair) in enumerate(staged)
                if (int(name.split("x")[2]) >= RESCHEDULED_K) is long
            }
            least = min((saved_time({0: pair}) for pair in of.values()), default=0.0)
            yield (
                f"{letter}: beside staged results, k {what} {RESCHEDULED_K}: {len(of)} shapes,"
                f" saved {saved_time(of):.1%} in the mean, {least:.1%} at least"
            )


def ship_code(rows: list[Row]) -> None:
    """Put the code of kernels that gained into the package.

    Raises
    ------
    FileNotFoundError
        If neither the cache nor the package has some: it was searched for elsewhere.
    """
    for row in rows:
        file = SCHEDULED_CODE / f"{row.get('key')}.xz"
        if saves(row) and not file.exists():
            code = KernelCache().load(row["key"])
            if code is None:
                raise FileNotFoundError(f"no code of {row['id']}; run --prepare here first")
            write_atomically(file, lzma.compress(code))


def main() -> None:
    """Pick, prepare, prove, ship, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--pick", type=int, metavar="N", help="write so many kernels; no search")
    what.add_argument("--prepare", action="store_true", help="only search; no device is needed")
    what.add_argument("--ship", action="store_true", help="put the code of what gained into src")
    what.add_argument("--table", action="store_true", help="only print what FILE holds")
    parser.add_argument("--precision", choices="sc", default="c", help="of what is picked")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    given = parser.parse_args()
    if given.pick is not None and given.pick < 1:
        parser.error(f"--pick {given.pick} kernels are none; give 1 or more")
    if given.pick is None:
        try:
            json_file(str(given.json))
        except argparse.ArgumentTypeError as error:
            parser.error(f"--json: {error}; --pick makes one")
    nvrtc_version()
    if given.pick is not None:
        write(given.json, picked(given.precision, given.pick), None)
    rows = json.loads(given.json.read_text())["rows"]
    if given.ship:
        ship_code(rows)
    elif given.pick is None and not given.table:
        until = time.time() + given.seconds
        work(rows, given.json, until, given.workers, None if given.prepare else Device())
    table(given.json)
    print("\n".join(summary(json.loads(given.json.read_text())["rows"])))


if __name__ == "__main__":
    main()
