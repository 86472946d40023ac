"""What sweeps of compiled kernels say, and lists of them to time again; needs no GPU.

    python benchmarks/sweeps.py
    python benchmarks/sweeps.py --size 1025 --trans NN --best 40 --only FILE

Reads benchmarks/results/h100/sweeps.json.  Prints a line a sweep: how many kernels, and the
median's time over the best's; then a line for each race in turns that the best went on to: the
fastest of them, what served then as the compiler made it, and cuBLAS.  With ``--only`` it writes
the best of one sweep, fitted to its size as `gemm` fits them, as a list of which ``hopper.py --only
FILE --sizes SIZE`` checks, times and races every kernel on a GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from choice_fit import device
from hopper.portfolio_space import CASES
from hopper.timer import fit
from ship import load
from tilewright.paths import write_atomically
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import unscheduled

FAMILY, LETTER = "simt_async", "s"
Row = dict[str, Any]


def configs(sweep: Row) -> list[tuple[float, Config]]:
    """Return a sweep's times in ns and configs, the fastest first."""
    return [
        (row[0], Config(FAMILY, dict(zip(sweep["names"], row[1:], strict=True))))
        for row in sorted(sweep["rows"])
    ]


def swept(sweeps: Iterable[Row]) -> Iterator[str]:
    """Yield a line for each sweep."""
    for sweep in sweeps:
        times = [ns for ns, _ in configs(sweep)]
        yield (
            f"{sweep['trans']} {sweep['size']}: {len(times)} kernels, the best {times[0] / 1e3:.1f}"
            f" us, the median {statistics.median(times) / times[0]:.3f} times that"
        )


def in_turns(races: Iterable[Row]) -> Iterator[str]:
    """Yield a line for each race: the best of the sweep beside what served and cuBLAS."""
    for race in races:
        times = {Config(FAMILY, row["config"]): row["ns"] for row in race["turns"]}
        served = {unscheduled(one) for one in times if one.get("schedule", 0)}
        best = min(ns for one, ns in times.items() if unscheduled(one) not in served)
        serving = race["chosen_ns"] or min((times[one] for one in served), default=None)
        beside = f"{best / serving:.3f} of what served, " if serving else ""
        yield (
            f"{race['trans']} {race['size']} in turns: the best {best / 1e3:.1f} us, {beside}"
            f"{race['cublas_ns'] / best:.3f} times as fast as cuBLAS"
        )


def named(sweeps: Iterable[Row], size: int, trans: str, best: int) -> list[Row]:
    """Return the best of a sweep as `hopper.py --only` reads them.

    Raises
    ------
    ValueError
        If there is no such sweep.
    """
    for sweep in sweeps:
        if (sweep["size"], sweep["trans"]) == (size, trans):
            problem, spec = Problem(size, size, size, LETTER, *trans), device()
            found = [fit(one, problem, spec) for _, one in configs(sweep)[:best]]
            return [
                {"precision": LETTER, "trans": trans, "stencil": FAMILY, "config": dict(one)}
                for one in dict.fromkeys(found)
            ]
    raise ValueError(f"there is no sweep of {trans} at {size}; run without --only to see all")


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("--size", type=int, default=4096, help="side of the squares")
    parse.add_argument("--trans", choices=CASES, default="NN")
    parse.add_argument("--best", type=int, default=40, help="how many, the fastest first")
    parse.add_argument("--only", type=Path, help="where to write the list")
    given = parse.parse_args()
    made = load("sweeps.json")
    if given.only is None:
        print("\n".join((*swept(made["sweeps"]), *in_turns(made["turns"]))))
        return
    if given.best < 1:
        parse.error(f"--best {given.best} names no kernel; give 1 or more")
    try:
        rows = named(made["sweeps"], given.size, given.trans, given.best)
        write_atomically(given.only, json.dumps(rows, indent=1).encode())
    except ValueError as error:
        parse.error(str(error))
    except OSError as error:
        parse.error(f"--only: {error}")


if __name__ == "__main__":
    main()
