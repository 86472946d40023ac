"""The cycle model against Nsight Compute, before and after rescheduling.

    python benchmarks/schedule_model.py --seconds 90 --json FILE           needs an H100 and ncu
    python benchmarks/schedule_model.py --prepare --seconds 300 --json FILE    only predictions
    python benchmarks/schedule_model.py --table --json FILE                only prints FILE
    python benchmarks/schedule_model.py --repredict --seconds 900 --json FILE  after a change of the
                                                                           model; needs no device

Each kernel runs on one full wave of thread blocks at two depths k, as the compiler left it and
rescheduled.  Busy cycles of the FMA pipe and cycles of the deeper run, less those of the other, are
the loop's alone, without prologue and epilogue: that is what the model predicts.  All kernels are
counted in one process.  Wanted: within 3 points for at least 10 kernels, both times.  Codes that
schedule_proof.py searched on this machine are taken from the cache.

`--repredict` compiles and reschedules the file's kernels again, with the same build of NVRTC, and
puts what the model says of them now beside what it said when they were counted.  The terms that the
instructions alone give must be those of the file: else the code is not what was counted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import ship
from model_shares import (
    AT_FIRST,
    CYCLES,
    FMA,
    POINTS,
    PREDICTED,
    WANTED,
    WHEN,
    Row,
    shares,
    within,
)
from schedule_proof import (
    CASES,
    FAMILY,
    at_level,
    job,
    loop_length,
    prepared,
    relatives,
    variant_of,
)
from tilewright.backend.cuda.compiler import nvrtc_version
from tilewright.paths import write_atomically
from tilewright.problem import Problem
from tilewright.sass.scheduler_version import SCHEDULER_VERSION
from tilewright.space import Config
from tilewright.stencil import unscheduled
from tilewright.stencil.schedule import LEVELS

LEVEL = "all"
EACH = 5  # of each transpose: a few more than are wanted, since some are refused
DEPTHS = (2048, 4096)
# Multiprocessors of an H100 as rows and columns of thread blocks.
GRID = (12, 11)


def chosen_jobs() -> list[Row]:
    """Return SGEMM kernels whose blocks work alone: winners and short loops of each transpose."""
    log = ship.load("hopper_s.json")["log"]
    level = next(at for at, one in enumerate(LEVELS) if one is not None and one.name == LEVEL)
    turns = []
    for trans in CASES:
        found = ship.searched(log, trans)
        won = {key for key, sizes in ship.raced(log, trans).items() if 4096 in sizes}
        shapes = ship.best_of_shapes(found)
        short = sorted(shapes, key=lambda key: (loop_length(shapes[key][0]), key))
        alone = [key for key in (*sorted(won), *short) if found[key][0]["split_k"] == 1]
        values = [found[key][0] for key in dict.fromkeys(alone)]
        values = [values[0], *relatives(values[0]), *values[1:]][:EACH]
        turns.append([at_level(job("s", trans, one), level) for one in values])
    return [row for turn in itertools.zip_longest(*turns) for row in turn if row is not None]


def prepare(rows: list[Row], until: float, workers: int) -> list[Row]:
    """Compile, reschedule and predict in several processes, until time is up."""
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    futures = [pool.submit(prepared, row) for row in rows]
    try:
        while time.time() < until and not all(one.done() for one in futures):
            time.sleep(0.2)
        return [one.result() if one.done() else row for one, row in zip(futures, rows, strict=True)]
    finally:
        for process in list((pool._processes or {}).values()):  # those in the middle of a search
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)


def launch(path: Path) -> None:
    """Run every kernel at both depths, counted, in the order of the file's rows."""
    from tilewright.backend import device
    from tilewright.bench.profiled import counted
    from tilewright.tuning.measure import Workload

    live: Any = device("cuda:0")
    rows = ready(json.loads(path.read_text())["rows"])
    most = max(max(problem(row, k).m, problem(row, k).n) * k for row in rows for k in DEPTHS)
    area = max(problem(row, 1).m * problem(row, 1).n for row in rows)
    drawn = np.random.default_rng(0).standard_normal(most, dtype=np.float32)
    memory = {"a": live.upload(drawn), "b": live.upload(drawn[::-1].copy())}
    memory["c"] = live.allocate(4 * area)
    for row in rows:
        for config in configs(row):
            kernel = live.compile(FAMILY.source(config, variant_of(row), "cuda"))
            for k in DEPTHS:
                load = Workload(live, problem(row, k), memory)
                load.run(kernel, FAMILY, config)
                with counted(live):
                    load.run(kernel, FAMILY, config)


def ready(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["status"] == "prepared"]


def configs(row: Row) -> tuple[Config, Config]:
    config = Config(FAMILY.name, row["config"])
    return unscheduled(config), config


def problem(row: Row, k: int) -> Problem:
    """Return a problem of one full wave of thread blocks."""
    values = row["config"]
    m = GRID[0] * values["block_m"] * values["resident"]
    return Problem(m, GRID[1] * values["block_n"], k, "s", *row["trans"])


def count(path: Path, rows: list[Row], seconds: float) -> str:
    """Let Nsight Compute look at `launch`; enter what it counted; return why not, or nothing."""
    from tilewright.bench.counters import COUNTERS, parse_ncu
    from tilewright.bench.profile import ProfileError, find_ncu, ncu_command, why_it_failed

    metrics = [one.metric for one in COUNTERS if one.name in (FMA, CYCLES)]
    child = [sys.executable, __file__, "--launch", "--json", str(path)]
    try:
        command = ncu_command(find_ncu(), metrics, "warm", child)
        found = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=max(1.0, seconds)
        )
    except (ProfileError, subprocess.TimeoutExpired) as error:
        return str(error).splitlines()[0]
    text = found.stdout + found.stderr
    try:
        kernels = [one["counters"] for one in parse_ncu(found.stdout)]
    except ValueError:
        return why_it_failed(text)
    each = len(WHEN) * len(DEPTHS)
    for at, row in enumerate(ready(rows)):
        mine = kernels[each * at : each * (at + 1)]
        if len(mine) == each:
            row["counted"] = {when: mine[2 * i : 2 * i + 2] for i, when in enumerate(WHEN)}
    return "" if len(kernels) == each * len(ready(rows)) else why_it_failed(text)


def repredict(path: Path, until: float, workers: int) -> str:
    """Enter what the model says now of the kernels that were counted; return why not, or nothing.

    All of them or none: a file holds the predictions of one model.
    """
    from tilewright.bench.record import environment_record

    record = json.loads(path.read_text())
    if (built := nvrtc_version()) != record["toolkit"]:
        return f"NVRTC {built} makes other code than {record['toolkit']}, which was counted"
    rows = [row for row in record["rows"] if "counted" in row]
    fresh = [{**row, "status": "late", "reason": "there was no time for it"} for row in rows]
    made = prepare(fresh, until, workers)
    for row, now in zip(rows, made, strict=True):
        if now["status"] != "prepared":
            return f"{row['id']} {row['trans']}: {now['reason']}"
        if terms(now) != terms(row):
            return f"{row['id']} {row['trans']}: the code is not what was counted"
    for row, now in zip(rows, made, strict=True):
        row.setdefault(AT_FIRST, row[PREDICTED])
        row[PREDICTED] = now[PREDICTED]
    record["repredicted"] = {**environment_record(), "scheduler": SCHEDULER_VERSION}
    write_atomically(path, json.dumps(record, indent=1).encode())
    return ""


def terms(row: Row) -> list[dict[str, float]]:
    return [row[PREDICTED][when]["terms"] for when in WHEN]


def write(path: Path, rows: list[Row], reason: str = "") -> None:
    from tilewright.bench.record import environment_record
    from tilewright.bench.sweep import Method

    record = {
        "environment": environment_record(Method(1)), "toolkit": nvrtc_version(),
        "reason": reason, "rows": rows,
    }  # fmt: skip
    write_atomically(path, json.dumps(record, indent=1).encode())


def table(path: Path) -> None:
    record = json.loads(path.read_text())
    print("kernel             FMA pipe in the loop, %: predicted / counted   before      after")
    for row in record["rows"]:
        start = f"s{row['trans']} {row['level']} {row['id']}"
        if "predicted" not in row:
            print(f"{start}  {row['status']}: {row['reason'][:80]}")
        elif "counted" not in row:
            pair = [100 * row["predicted"][when]["pipe_share"] for when in WHEN]
            print(f"{start}  {pair[0]:.1f} -> {pair[1]:.1f} predicted, not counted")
        else:
            pairs = (f"{p:.1f} / {c:.1f} ({p - c:+.1f})" for p, c in shares(row))
            print(f"{start}  " + "   ".join(pairs))
    of = sum("counted" in row for row in record["rows"])
    for words, told in (("", PREDICTED), ("as it was when they were counted, ", AT_FIRST)):
        near = within(record["rows"], told)
        print(f"{words}within {POINTS:g} points: {near[0]} before and {near[1]} after, of {of};"
              f" wanted {WANTED}")  # fmt: skip
    if record["reason"]:
        print(f"not all was counted: {record['reason']}")


def main() -> None:
    """Prepare, count, write, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prepare", action="store_true", help="count nothing; needs no device")
    parser.add_argument("--table", action="store_true", help="only print what the file holds")
    parser.add_argument("--repredict", action="store_true", help="by the model as it is now")
    parser.add_argument("--launch", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=None)
    given = parser.parse_args()
    if given.launch:
        launch(given.json)
        return
    until = time.time() + given.seconds
    workers = given.workers or get_context().cpu_count()
    if given.repredict:
        if reason := repredict(given.json, until, workers):
            sys.exit(f"{given.json} is as it was: {reason}")
    elif not given.table:
        nvrtc_version()
        # Counting takes Python's start and a second for each kernel.
        stop = until if given.prepare else until - 0.5 * given.seconds
        rows = prepare(chosen_jobs(), stop, workers)
        write(given.json, rows)
        if not given.prepare and ready(rows):
            reason = count(given.json, rows, until - time.time())
            write(given.json, rows, reason)
    table(given.json)


if __name__ == "__main__":
    main()
