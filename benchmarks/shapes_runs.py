r"""How a run of shapes200.py stands beside earlier ones of the same shapes; needs no GPU.

    python benchmarks/shapes_runs.py [FILE EARLIER ...]
    python benchmarks/shapes_runs.py --by-time [FILE ...]

Files are names in benchmarks/results/h100 (by default the sixth run, then the three before),
or paths.  Prints of each earlier run by how much cuBLAS's times and ours have changed, ours also
apart by whether the config is another; then what ratios FILE would have against the least of
cuBLAS's times in all of them: cuBLAS itself takes several per cent longer in some runs; and those
that it has where cuBLAS was not disturbed: at a few shapes of some runs it takes many times as
long as in the others, and a mean of 200 ratios moves by a per cent with one of them.  With
``--by-time`` all files' shapes (by default the last runs of three seeds) are put together, and told
apart by how long cuBLAS takes: what the host takes of a call is in short times most.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shapes200 import WORST, mean
from ship import RESULTS, load

DEFAULT = (
    "shapes200_sixth.json", "shapes200_fifth.json", "shapes200.json", "shapes200_third.json",
)  # fmt: skip
SEEDS = (
    "shapes200_rescheduled.json",
    "shapes200_rescheduled_1.json",
    "shapes200_rescheduled_2.json",
)
# Times the least of cuBLAS's times: beyond that it was disturbed, as runs differ by some per cent.
DISTURBED = 1.3
# Microseconds that cuBLAS takes at least.
FROM = (0, 50, 100, 500)
Shapes = dict[tuple[str, int, int, int], dict[str, Any]]


def shapes_of(name: str) -> Shapes:
    """Return the random shapes of a run that were timed: case and sizes to rows.

    Raises
    ------
    argparse.ArgumentTypeError
        If there is no such file, or it is no run.
    """
    try:
        rows = load(Path(name).resolve() if Path(name).is_file() else RESULTS / name)["rows"]
        return {
            (row["trans"], row["m"], row["n"], row["k"]): row
            for row in rows
            if row["kind"] == "shape" and "ns" in row
        }
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{name} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise argparse.ArgumentTypeError(
            f"{name} is no run; give what shapes200.py wrote"
        ) from None


def took(row: dict[str, Any], whose: str) -> float:
    """Return the median time of "tilewright" or "cublas" in ns."""
    return statistics.median(row["ns"][whose])


def changed(new: Shapes, old: Shapes, whose: str, keys: Iterable[Any]) -> float:
    """Return the geometric mean of new times over old ones; NaN of none."""
    ratios = [took(new[key], whose) / took(old[key], whose) for key in keys]
    return mean(ratios) or math.nan


def against_the_least(runs: list[Shapes]) -> list[float]:
    """Return the first run's ratios against the least of cuBLAS's times in all runs."""
    return [least_of_cublas(runs, key) / took(row, "tilewright") for key, row in runs[0].items()]


def undisturbed(runs: list[Shapes]) -> list[float]:
    """Return the first run's own ratios where cuBLAS took no longer than it does elsewhere."""
    return [
        took(row, "cublas") / took(row, "tilewright")
        for key, row in runs[0].items()
        if took(row, "cublas") <= DISTURBED * least_of_cublas(runs, key)
    ]


def least_of_cublas(runs: list[Shapes], key: tuple[str, int, int, int]) -> float:
    """Return the least of cuBLAS's times for a shape in all runs that have it."""
    return min(took(run[key], "cublas") for run in runs if key in run)


def by_time(runs: list[Shapes]) -> Iterable[str]:
    """Yield a line for each class of cuBLAS's times."""
    rows = [row for run in runs for row in run.values()]
    ratios = [
        (took(row, "cublas") / 1e3, took(row, "cublas") / took(row, "tilewright")) for row in rows
    ]
    for low, high in itertools.pairwise((*FROM, math.inf)):
        of = [ratio for us, ratio in ratios if low <= us < high]
        if of:
            yield (
                f"{low} to {high} us: {len(of)} shapes, geometric mean {mean(of):.3f}, ahead in"
                f" {sum(ratio > 1 for ratio in of)}, {sum(ratio < WORST for ratio in of)} below"
                f" {WORST}, least {min(of):.3f}"
            )


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("files", nargs="*", type=shapes_of, help="a run, then earlier ones")
    parse.add_argument("--by-time", action="store_true", help="by how long cuBLAS takes")
    given = parse.parse_args()
    if given.by_time:
        print("\n".join(by_time(given.files or [shapes_of(name) for name in SEEDS])))
        return
    runs = given.files or [shapes_of(name) for name in DEFAULT]
    new = runs[0]
    for number, old in enumerate(runs[1:], 1):
        both = [key for key in new if key in old]
        same = [key for key in both if new[key]["config"] == old[key]["config"]]
        other = [key for key in both if new[key]["config"] != old[key]["config"]]
        print(
            f"beside earlier run {number}, {len(both)} shapes: cuBLAS took"
            f" {changed(new, old, 'cublas', both):.3f} of its time, ours"
            f" {changed(new, old, 'tilewright', both):.3f};"
            f" {changed(new, old, 'tilewright', same):.3f} where the config is the same"
            f" ({len(same)}), {changed(new, old, 'tilewright', other):.3f} where it is not"
        )
    ratios = against_the_least(runs)
    print(
        f"against the least of cuBLAS's times: geometric mean {mean(ratios):.3f},"
        f" {sum(ratio < WORST for ratio in ratios)} below {WORST}"
    )
    own = undisturbed(runs)
    print(
        f"where cuBLAS was not disturbed: {len(own)} shapes, geometric mean {mean(own):.3f},"
        f" {sum(ratio < WORST for ratio in own)} below {WORST}"
    )


if __name__ == "__main__":
    main()
