r"""Products on Hopper's matrix units beside cuBLAS: tune, race, accuracy, table.

   python -m benchmarks.tensor_starts.tensor --seconds 200 --json FILE --seed EARLIER   needs a GPU
   python -m benchmarks.tensor_starts.tensor --list                                     no GPU

Plain formats (f16, bf16, tf32) race cuBLAS in the same format; single precision from parts
(fp16x3, tf32x3, bf16x6, bf16x9) races cuBLAS SGEMM, with the split of A and B counted and, in
another column, not.  Candidates are compiled by a pool of processes; a process of its own
measures, so that a kernel that crashes or hangs costs only itself.  What is timed is enqueued
while the stream is held: times are the device's, not the host's.  Every result is appended to
FILE.log at once, FILE is written after each part, and the tables come last.  EARLIER is such a
FILE: what was best there is tried first.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.tensor_starts.hopper.log import Log
from benchmarks.tensor_starts.hopper.watching import watch
from benchmarks.tensor_starts.tensor_measure import Measuring, compile_all

from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.bench.tensor.accuracy import DATA
from tilewright.bench.tensor.cases import Case, candidates, tuned_as
from tilewright.paths import write_atomically

TRANS = ("NN", "NT", "TN", "TT")
# The most wanted first: what the time is too short for is left out at the end.
ARITHMETICS = ("fp16x3", "bf16", "tf32", "f16", "bf16x6")
# What accuracy is compared of besides.
JUDGED = ("tf32x3", "bf16x9")
SIZES = (4096, 8192, 2048, 1024, 16384)
# What is raced at some of the sizes, after all that is raced at all of them.
SOME = {"bf16x6": (4096, 8192), "tf32x3": (4096,), "bf16x9": (4096,)}
TUNED_AT = (4096, 2048, 1024)
# Rounds of tuning, if there is time: seeds and starts, then neighbours.
ROUNDS = 3
PARTS = ("tune", "race", "accuracy")
# Shares of the time, when all three parts are asked for; what is left goes to the next.
SHARES = {"tune": 0.35, "race": 0.55, "accuracy": 0.1}


def measure(given: argparse.Namespace, log: Log) -> None:
    """Do the parts that are asked for, each until its time is up."""
    from tilewright.backend import device

    cases = given.cases
    bench = Measuring(log, given.live or device("cuda:0"), given.seeds)
    known = {row["id"] + row["case"] for row in log.of("started")}
    left = sum(SHARES[part] for part in given.parts)
    for part in given.parts:
        until = time.time() + (given.until - time.time()) * SHARES[part] / left
        left -= SHARES[part]
        bench.say(f"{part}, {until - time.time():.0f} s")
        if part == "tune":
            tune(bench, list(dict.fromkeys(map(tuned_as, cases))), given, known, until)
        elif part == "race":
            # What a process began and did not end crashed it: not again.
            done = {(row["case"], row["size"]) for row in log.of("racing")}
            for size, some in races(cases, given.sizes):
                bench.race(size, [c for c in some if (str(c), size) not in done], until)
        else:
            done = {(row["data"], row["size"]) for row in log.of("judging")}
            for size, data in itertools.product(given.accuracy_sizes, DATA):
                if (data, size) not in done and time.time() < until:
                    bench.accuracy(size, data, given.judged)
        write(given.json, log)
    bench.say("done")


def races(cases: list[Case], sizes: list[int]) -> list[tuple[int, list[Case]]]:
    """Return sizes and what is raced there: first what is raced at all of them."""
    everywhere = [case for case in cases if case.arithmetic not in SOME]
    few = [case for case in cases if case.arithmetic in SOME]
    if set(sizes).isdisjoint(SIZES):  # somebody's own
        return [(size, cases) for size in sizes]
    found = [(size, everywhere) for size in sizes]
    return found + [(size, [c for c in few if size in SOME[c.arithmetic]]) for size in sizes]


def tune(
    bench: Measuring, cases: list[Case], given: argparse.Namespace, known: set[str], until: float
) -> None:
    """Try seeds and starts of every case, then the neighbours of the best, round after round."""
    sizes = [size for size in TUNED_AT if size in given.sizes] or given.sizes[:1]
    for turn in range(ROUNDS):
        lists = []
        for case, size in itertools.product(cases, sizes):
            if turn and size not in SOME.get(case.arithmetic, sizes):
                continue  # it is not raced there
            around = bench.best(case, size)
            if turn == 0 or around is not None:
                found = candidates(case, bench.live.spec, around if turn else None)
                first = [] if turn else bench.seeded(case, size)
                both = dict.fromkeys([*first, *found])
                fresh = [config for config in both if config.id + str(case) not in known]
                most = given.around if turn else given.each
                lists.append([(case, config) for config in fresh[:most]])
        jobs = [job for row in itertools.zip_longest(*lists) for job in row if job is not None]
        jobs = list(dict.fromkeys(jobs))
        known |= {config.id + str(case) for case, config in jobs}
        if not jobs or time.time() > until:
            return
        bench.say(f"round {turn}: {len(jobs)} candidates")
        ready = compile_all(bench.live, jobs, given.workers, until)
        for number, (case, config, reason) in enumerate(ready, 1):
            bench.attempt(case, config, sizes, reason)
            if number % 25 == 0:
                bench.say(f"{number} candidates")


def listed(cases: list[Case]) -> None:
    """Print the first candidates of every case."""
    spec = architecture_spec("sm_90a")
    for case in cases:
        first = candidates(case, spec)
        more = {n for start in first for n in candidates(case, spec, start)} - set(first)
        print(f"{case}: {len(first)} starts, {len(more)} neighbours; variant {case.variant}")


def table(log: Log, sizes: list[int]) -> None:
    """Print what was raced, errors, and what failed."""
    tried = log.of("tried")
    failed = [row for row in tried if row["reason"]]
    print(f"{len(tried)} candidates tried, {len(failed)} failed")
    ended = {(row["case"], row["size"]) for row in log.of("race")}
    for row in log.of("racing"):
        if (row["case"], row["size"]) not in ended:
            print(f"  {row['case']} {row['size']}: its race crashed or hung")
    for row in log.of("race"):
        if "reason" in row:
            print(f"  {row['case']} {row['size']}: {row['reason'][:150]}")
    for reason in sorted({row["reason"][:150] for row in failed})[:8]:
        print(f"  {reason}")
    for row in log.of("accuracy"):
        cells = ", ".join(f"{name} {e['eta']:.1e} {e['median_relative']:.1e}"
                          for name, e in row["errors"].items())  # fmt: skip
        print(f"{row['data']:>8} {row['size']}: eta, median relative: {cells}")
    races = {(row["case"], row["size"]): row for row in log.of("race") if row.get("ratio")}
    names = sorted({case for case, _ in races}, key=lambda n: (n.split()[1], n))
    print("TFLOP/s of ours / cuBLAS (ratio; * as wanted)")
    print(f"{'':>10}" + "".join(f"{size:>22}" for size in sorted(sizes)))
    for name in names:
        cells = []
        for size in sorted(sizes):
            row = races.get((name, size))
            mark = "*" if row and row["wanted"] and row["ratio"] >= row["wanted"] else " "
            cells.append(f"{row['tflops']['tilewright']:6.1f}/{row['tflops']['cublas']:6.1f}"
                         f" {row['ratio']:5.2f}{mark}" if row else "-")  # fmt: skip
        print(f"{name:>10}" + "".join(f"{cell:>22}" for cell in cells))


def shares(log: Log) -> None:
    """Print the best times without shared tiles and with either kind of them."""
    best: dict[tuple[str, int], dict[int, float]] = {}
    for row in log.of("tried"):
        for size, ns in {} if row["reason"] else row["ns"].items():
            found = best.setdefault((row["case"], int(size)), {})
            kind = row["config"].get("stream_k", 0)
            found[kind] = min(ns, found.get(kind, ns))
    for (case, size), found in best.items():
        if len(found) > 1:
            cells = ", ".join(f"{kind}: {ns / 1e3:.1f}" for kind, ns in sorted(found.items()))
            print(f"{case:>10} {size}: us by stream_k, {cells}")


def write(path: Path, log: Log) -> None:
    """Write what is known so far."""
    from tilewright.bench.record import environment_record
    from tilewright.bench.sweep import Method

    made: dict[str, Any] = {"environment": environment_record(Method(21)), "log": log.rows}
    made["timing"] = "device events; enqueued while a kernel holds the stream; operands in cache"
    for row in log.of("device"):
        made["device"] = row["device"]
    write_atomically(path, json.dumps(made, indent=1).encode())


def parsed(arguments: list[str]) -> argparse.Namespace:
    """Return the options, checked."""
    parse = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parse.add_argument("--seconds", type=float, default=600)
    parse.add_argument("--json", type=Path, default=Path("tensor.json"))
    parse.add_argument("--parts", default=",".join(PARTS))
    parse.add_argument("--arithmetics", default=",".join(ARITHMETICS))
    parse.add_argument("--trans", default=",".join(TRANS))
    parse.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parse.add_argument("--accuracy-sizes", default="4096")
    parse.add_argument("--each", type=int, default=24, help="first candidates of a case and size")
    parse.add_argument("--around", type=int, default=5, help="neighbours of the best in a round")
    parse.add_argument("--seed", type=Path, help="an earlier result of this benchmark")
    parse.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parse.add_argument("--list", action="store_true")
    parse.add_argument("--until", type=float, help=argparse.SUPPRESS)
    given = parse.parse_args(arguments)
    given.seeds = json.loads(given.seed.read_text())["log"] if given.seed else []
    given.arithmetics = given.arithmetics.split(",")
    given.sizes = [int(size) for size in given.sizes.split(",")]
    given.accuracy_sizes = [int(size) for size in given.accuracy_sizes.split(",")]
    given.judged = [*given.arithmetics, *(() if given.arithmetics != list(ARITHMETICS) else JUDGED)]
    given.parts = [part for part in PARTS if part in given.parts.split(",")]
    pairs = itertools.product(given.arithmetics, given.trans.split(","))
    given.cases = [Case(*pair) for pair in pairs]
    given.live = None
    return given


def main(arguments: list[str]) -> int:
    given = parsed(arguments)
    if given.list:
        listed(given.cases)
        return 0
    path = given.json.with_suffix(".log")
    if given.until:
        measure(given, Log(path))
        return 0
    path.unlink(missing_ok=True)
    until = time.time() + given.seconds
    command = [
        sys.executable,
        "-m",
        "benchmarks.tensor_starts.tensor",
        *arguments,
        "--until",
        str(until),
    ]
    rows = -1
    while time.time() < until and not watch(command, path, until, partial(write, given.json)):
        log = Log(path)
        if len(log.rows) == rows or not log.rows:
            break  # it fails before it tries anything
        done = {(row["case"], row["id"]) for row in log.of("tried")}
        for row in log.of("started"):
            if (row["case"], row["id"]) not in done:
                log.add(**{**row, "kind": "tried", "ns": {}, "reason": "it crashed or hung"})
        rows = len(log.rows)
        write(given.json, log)
    log = Log(path)
    write(given.json, log)
    table(log, given.sizes)
    shares(log)
    return 0 if log.of("race") or log.of("accuracy") or log.of("tried") else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
