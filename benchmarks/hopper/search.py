"""The process that measures: candidates as compilers finish them, then races."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .bench import SEARCHED, Bench, row_of
from .candidates import candidates
from .log import Log
from .named import named_in
from .pool import Job, compiled

# The share of the time that is for the search; the rest is for races.
SHARE = 0.66

# So many of an earlier search's best of each case come before all others, which keep their order:
# enough to compare with, few enough that what is new is reached.
FROM_SEED = 3


def in_turns(lists: Iterable[Iterable[Any]]) -> list[Any]:
    """Return the first of each list, then the second of each, and so on."""
    turns = itertools.zip_longest(*lists)
    return [one for turn in turns for one in turn if one is not None]


def ranked(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return the ids of one case's candidates by the best place that each has at any size."""
    places: dict[str, int] = {}
    timed = [row for row in rows if row["ns"]]
    for size in {size for row in timed for size in row["ns"]}:
        there = sorted((row for row in timed if size in row["ns"]), key=lambda row: row["ns"][size])
        for place, row in enumerate(there):
            places[row["id"]] = min(place, places.get(row["id"], place))
    return sorted(places, key=places.__getitem__)


def jobs_of(
    letter: str, cases: list[str], log: Log, seed: Path | None = None, only: Path | None = None
) -> list[Job]:
    """Return what is still to be tried: all cases in turns, the likeliest first.

    Those are the best of an earlier file, where there is one.  With `only`, the rows of that file
    and nothing else: ``trans``, ``stencil`` and ``config``, rescheduled ones among them, which
    are in no list of candidates because each is searched for minutes.
    """
    known = {(row["trans"], row["id"]) for kind in ("started", "tried") for row in log.of(kind)}
    earlier = json.loads(seed.read_bytes())["log"] if seed else []
    lists = []
    named = named_in(only, letter, cases) if only else {}
    for trans in cases:
        if only:
            lists.append([(letter, trans, one) for one in named[trans]])
            continue
        of_case = [r for r in earlier if r["kind"] == "tried" and r["trans"] == trans]
        place = {key: at for at, key in enumerate(ranked(of_case)[:FROM_SEED])}
        found = sorted(candidates(letter, trans), key=lambda one: place.get(one.id, FROM_SEED))
        lists.append([(letter, trans, one) for one in found])
    return [job for job in in_turns(lists) if (job[1], job[2].id) not in known]


def try_all(bench: Bench, jobs: list[Job], sizes: Sequence[int], stop: float, workers: int) -> None:
    """Compile, check and time until a time."""
    started = time.time()
    searched = tuple(size for size in sizes if size <= SEARCHED) or (max(sizes),)
    ready = compiled(bench.live.arch, jobs, workers, stop)
    for number, (_, trans, config, reason) in enumerate(ready):
        if reason:
            row = row_of(bench.letter, trans, config)
            bench.log.add(kind="tried", **row, ns={}, reason=reason)
        else:
            bench.try_one(trans, config, searched)
        if number % 25 == 0:
            print(f"{time.time() - started:5.0f} s: {number} candidates", flush=True)


def measure(
    log: Log,
    letter: str,
    cases: list[str],
    sizes: Sequence[int],
    until: float,
    workers: int,
    seed: Path | None = None,
    only: Path | None = None,
) -> None:
    """Search until two thirds of the time are over, then race.

    Parameters
    ----------
    log : Log
        Rows of an earlier process that was cut off are not made again.
    letter : str
        Precision.
    cases : list of str
        Transposes.
    sizes : sequence of int
        Sides of square problems.
    until : float
        When to stop, as `time.time` counts.
    workers : int
        Compilers beside this process.
    seed : Path, optional
        An earlier file, whose best candidates are tried first.
    only : Path, optional
        A file of candidates to try instead.
    """
    stop = time.time() + SHARE * (until - time.time())
    jobs = jobs_of(letter, cases, log, seed, only)
    bench = Bench(log, letter, max(sizes))
    print(f"{bench.live}, {len(jobs)} candidates, {workers} compilers", flush=True)
    try_all(bench, jobs, sizes, stop, workers)
    raced = {(row["trans"], row["size"]) for row in log.of("final")}
    for size, trans in itertools.product(sizes, cases):
        if (trans, size) not in raced and time.time() < until:
            final(bench, trans, size)


def final(bench: Bench, trans: str, size: int) -> None:
    """Race; a race that fails is a row with a reason unless the device is lost."""
    try:
        bench.final(trans, size)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        bench.log.add(kind="final", precision=bench.letter, trans=trans, size=size, reason=reason)
        if getattr(bench.live, "lost", None):
            raise
