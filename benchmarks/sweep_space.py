"""Record spaces: configs checked bit for bit and timed on a GPU, as many as the time allows.

    python benchmarks/sweep_space.py s NN 40 benchmarks/spaces/h100
    python benchmarks/sweep_space.py s NN,NT,TN,TT 540 benchmarks/spaces/h100 --tilings

Letter, transposes, seconds, and the folder of the T4 files to write; what these hold is not
recorded again, so that a long sweep is done in several runs.  Without ``--tilings`` configs are
drawn uniformly from everything that the hardware allows, thresholds aside, so that pruning can be
judged; with it all tilings of `sweep_cases.TILINGS` are tried in random order.

All cores compile, in processes of their own; one process checks and times (`sweep_timer`), and is
started anew where a kernel takes the device from it.  Every config is timed on several shapes
whose columns are aligned, so that one kernel serves them all.  Rows are kept as they come, in
``rows.jsonl``: a run that is ended from outside loses nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import multiprocessing
import os
import signal
import sys
import time
from collections import defaultdict, deque
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from sweep_cases import SHAPES, Case, case_of, compiled
from sweep_timer import serve
from tilewright.backend.cuda.compiler import nvrtc_version
from tilewright.backend.cuda.device import device_at
from tilewright.portfolio.find import shipped_for
from tilewright.space import Config

# Seconds until a kernel counts as hanging; requests that the process that times has beforehand, so
# that it never waits; configs that are compiled and wait, for each core; leaders of a case that
# race in the end, for how many seconds, and how many the races of all cases and the files take.
HANGING, AHEAD, WAITING, LEADERS, RACE, FINISHING = 8.0, 3, 4, 20, 3.0, 42.0
NICE = 5
INVALID = {"compile_error": "compile", "launch_error": "runtime", "timeout": "timeout"}


class Sweep:
    """Compiles and times until there is no time, or nothing left.

    Parameters
    ----------
    cases : list of Case
        What is recorded, each case in proportion to what it has left.
    folder : Path
        Where the files are.
    """

    def __init__(self, cases: list[Case], folder: Path) -> None:
        self.cases, self.folder = cases, folder
        self.rows = _rows(folder / "rows.jsonl", len(cases))
        known = {(at, _told(row["config"])) for at, rows in self.rows.items() for row in rows}
        for at, case in enumerate(cases):
            known |= {(at, _told(one["configuration"])) for one in _results(folder, case)}
        left = [
            [one for one in asked.configs() if (at, _told(asked.space._whole(one))) not in known]
            for at, asked in enumerate(cases)
        ]
        places = [(at + 0.5) / len(of) for of in left for at in range(len(of))]
        every = [(case, config) for case, of in enumerate(left) for config in of]
        order = sorted(range(len(every)), key=places.__getitem__)
        self.draws = iter([every[at] for at in order])
        self.context = multiprocessing.get_context("spawn")
        folder.mkdir(parents=True, exist_ok=True)
        self.file = (folder / "rows.jsonl").open("a", buffering=1)
        self.running: dict[Future[Any], tuple[int, Config]] = {}
        self.ready: deque[tuple[int, Config, dict[str, Any]]] = deque()
        self.asked: deque[tuple[int, Config, dict[str, Any]]] = deque()
        self.cores = len(os.sched_getaffinity(0))
        self.spent: dict[str, float] = defaultdict(float)
        self.process: Any = None
        self.up, self.since = False, 0.0

    def run(self, until: float) -> None:
        """Record configs until a time of the monotonic clock."""
        began = time.monotonic()
        workers = self.cores  # the process that times waits for the device mostly
        pool = ProcessPoolExecutor(workers, self.context, os.nice, (NICE,))
        self.start()
        while time.monotonic() < until:
            while len(self.running) < 2 * workers and len(self.ready) < WAITING * self.cores:
                drawn = next(self.draws, None)
                if drawn is None:
                    break
                self.running[pool.submit(compiled, self.cases[drawn[0]].key, drawn[1])] = drawn
            self.take_compiled()
            while self.up and self.ready and len(self.asked) < AHEAD:
                if not self.asked:
                    self.since = time.monotonic()
                self.asked.append(self.ready.popleft())
                with contextlib.suppress(OSError):  # it died: `listen` sees that
                    self.pipe.send(("take", *self.asked[-1][:2]))
            self.listen()
            if not (self.running or self.ready or self.asked):
                break
        self.spent["wall"] = time.monotonic() - began
        for one in self.running:
            one.cancel()
        for worker in pool._processes.values():
            worker.kill()

    def start(self) -> None:
        """Start the process that times."""
        self.pipe, there = self.context.Pipe()
        self.process = self.context.Process(
            target=serve, args=([one.key for one in self.cases], there), daemon=True
        )
        self.process.start()
        there.close()
        self.up = False

    def take_compiled(self) -> None:
        """Put what was compiled among what is to be timed."""
        for future in [one for one in self.running if one.done()]:
            case, config = self.running.pop(future)
            features, error = future.result()
            self.spent["compiling"] += features["seconds"]
            row = {"config": self.cases[case].space._whole(config), "features": features,
                   "created": datetime.now(UTC).isoformat()}  # fmt: skip
            if error:
                self.keep(case, row | {"status": "compile_error", "reason": error})
            else:
                self.ready.append((case, config, row))

    def listen(self) -> None:
        """Take an answer of the process that times; start it anew where it died or hangs."""
        try:
            answer = self.pipe.recv() if self.pipe.poll(0.005) else None
        except (EOFError, OSError):
            answer = {"status": "launch_error", "reason": "the process died", "last": True}
        now = time.monotonic()
        if answer is None and self.asked and now - self.since > HANGING:
            answer = {"status": "timeout", "reason": "hung", "last": True}
        if answer == "ready":
            self.up, self.since = True, now
        elif answer is not None and self.asked:
            case, _, row = self.asked.popleft()
            self.since = now
            self.keep(case, row | answer)
        elif answer is not None:
            raise RuntimeError(f"the process that times: {answer['reason']}")
        if not self.process.is_alive() or (isinstance(answer, dict) and answer.get("last")):
            self.process.kill()
            self.ready.extendleft(reversed(self.asked))
            self.asked.clear()
            self.start()

    def keep(self, case: int, row: dict[str, Any]) -> None:
        """Keep a row, and write it."""
        for name, key in (("timing", "seconds"), ("kernels", "kernels")):
            self.spent[name] += row.get(key, 0.0)
        self.rows[case].append(row)
        self.file.write(json.dumps({"case": case, **row}) + "\n")

    def race(self, until: float) -> list[dict[str, Any]]:
        """Time the fastest of each case, what ships, and cuBLAS in turns, until a time at most."""
        found: list[dict[str, Any]] = []
        while self.asked and time.monotonic() < until:  # what was sent before comes first
            self.listen()
        ships = [_serving(case) for case in self.cases]
        leaders = [
            [*_fastest(case, _results(self.folder, case)), *serving]
            for case, serving in zip(self.cases, ships, strict=True)
        ]
        keys = [one.key for one, of in zip(self.cases, leaders, strict=True) for _ in of]
        with ProcessPoolExecutor(self.cores, self.context) as pool:  # an earlier run's, too
            list(pool.map(compiled, keys, [one for of in leaders for one in of]))
        for at, (case, fastest) in enumerate(zip(self.cases, leaders, strict=True)):
            try:
                self.pipe.send(("race", at, fastest, RACE))
                answer: Any = "ready"
                while answer == "ready" and self.pipe.poll(max(0.0, until - time.monotonic())):
                    answer = self.pipe.recv()
                if answer == "ready":
                    os.kill(self.process.pid, signal.SIGABRT)  # with faulthandler: where it hangs
                    break
                found.append({"case": case.name, "ships": len(ships[at]), **answer})
            except (EOFError, OSError):  # it died of a leader
                self.start()
        return found


def _told(config: Any) -> str:
    return json.dumps(dict(config), sort_keys=True)


def _rows(path: Path, cases: int) -> dict[int, list[dict[str, Any]]]:
    """Return the rows of a run that was ended from outside."""
    found: dict[int, list[dict[str, Any]]] = {case: [] for case in range(cases)}
    for line in path.read_text().splitlines() if path.exists() else ():
        row = json.loads(line)
        found[row.pop("case")].append(row)
    return found


def _results(folder: Path, case: Case) -> list[dict[str, Any]]:
    """Return what a case's T4 file holds; nothing where there is none."""
    path = folder / f"{case.name}.json.gz"
    return list(json.loads(gzip.decompress(path.read_bytes()))["results"]) if path.exists() else []


def _fastest(case: Case, results: list[dict[str, Any]]) -> list[Config]:
    """Return the leaders on the first shape."""
    sides = dict(zip("mnk", SHAPES[0], strict=True))
    here = [x for x in results if sides.items() <= x["tilewright"]["problem"].items()]
    right = [x for x in here if x["correctness"]]
    right.sort(key=lambda x: float(x["measurements"][0]["value"]))
    return [case.space._named(x["configuration"]) for x in right[:LEADERS]]


def _serving(case: Case) -> list[Config]:
    """Return the config that ships for the first shape, if it is of the stencil."""
    portfolio = shipped_for(90, case.variant.precision.letter)
    kernels = portfolio.of_variant(case.variant) if portfolio else ()
    won = [one.config for one in kernels if SHAPES[0] in one.won]
    return [one for one in won if one.stencil == case.family.name]


def entries(asked: Case, row: dict[str, Any], device: str) -> list[dict[str, Any]]:
    """Return a config's T4 results, one for each shape."""
    made = []
    features = {name: value for name, value in row["features"].items() if name != "seconds"}
    for at, problem in enumerate(asked.problems):
        times, right = row["results"][at] if row["status"] == "ok" else ([], False)
        why = INVALID.get(row["status"], "correct" if right else "correctness")
        failed = "CompilationFailedConfig" if why == "compile" else "RuntimeFailedConfig"
        value = median(times) / 1e6 if why == "correct" else failed
        of = {name: getattr(problem, name) for name in "mnk"}
        of |= {"precision": problem.precision.letter}
        of |= {name: str(getattr(problem, name)) for name in ("trans_a", "trans_b")}
        made.append({
            "configuration": row["config"], "objectives": ["time"],
            "times": {
                "compilation": 1e3 * row["features"]["seconds"],
                "benchmark": 1e3 * row.get("seconds", 0.0) / len(asked.problems),
                "runtimes": [one / 1e6 for one in times],
            },
            "invalidity": why, "correctness": int(why == "correct"),
            "measurements": [
                {"name": "time", "value": value, "unit": "ms"},
                *({"name": x, "value": y, "unit": "static"} for x, y in features.items()),
            ],
            "timestamp": row["created"],
            "tilewright": {"stencil": asked.family.name, "device_name": device, "problem": of},
        })  # fmt: skip
    return made


def write(folder: Path, asked: Case, rows: list[dict[str, Any]], device: str) -> None:
    """Write a case's T4 file, behind what is there."""
    path = folder / f"{asked.name}.json.gz"
    made = [entry for row in rows for entry in entries(asked, row, device)]
    about = {"timeunit": "milliseconds", "device": device, "autotuner": "tilewright",
             "compiler": f"NVRTC {nvrtc_version()}"}  # fmt: skip
    document = {
        "schema_version": "1.0.0",
        "metadata": about,
        "results": [*_results(folder, asked), *made],
    }
    path.write_bytes(gzip.compress(json.dumps(document).encode(), mtime=0))


def summary(sweep: Sweep, raced: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how the run went: counts, where the time went, funnels and the races."""
    cases = []
    for case, asked in enumerate(sweep.cases):
        rows = sweep.rows[case]
        funnel = asked.space.funnel()
        cases.append({
            "case": asked.name, "tried": len(rows),
            "timed": sum(row["status"] == "ok" for row in rows),
            "wrong": sum(not right for row in rows for _, right in row.get("results", ())),
            "raw_size": funnel.raw_size, "funnel": [asdict(stage) for stage in funnel],
        })  # fmt: skip
    return {"cores": sweep.cores, "seconds": dict(sweep.spent), "cases": cases, "races": raced}


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    reader.add_argument("letter")
    reader.add_argument("trans")
    reader.add_argument("seconds", type=float)
    reader.add_argument("folder", type=Path)
    reader.add_argument("--tilings", action="store_true")
    given = reader.parse_args()
    until = time.monotonic() + given.seconds
    cases = [case_of(given.letter, trans, given.tilings) for trans in given.trans.split(",")]
    sweep = Sweep(cases, given.folder)
    last = FINISHING * given.tilings
    sweep.run(until - last)
    live = device_at(0)
    device, now = str(live.spec.name), datetime.now(UTC)
    for case, asked in enumerate(cases):
        write(given.folder, asked, sweep.rows[case], device)
    (given.folder / "rows.jsonl").unlink()
    made = {"device": device, "driver": live.driver, "compiler": f"NVRTC {nvrtc_version()}",
            "date": now.isoformat(timespec="seconds")}  # fmt: skip
    raced = sweep.race(until) if given.tilings else []
    told = made | summary(sweep, raced)
    run = given.folder / f"sweep_{now:%H%M}.json"
    run.write_text(json.dumps(told, indent=1) + "\n")
    for one in told["cases"]:
        print(one["case"], one["tried"], "tried,", one["timed"], "timed,", one["wrong"], "wrong")
    wall = told["seconds"]["wall"]
    shares = {name: round(value / wall, 3) for name, value in told["seconds"].items()}
    print(f"{wall:.0f} s; shares of it: {shares}")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
