"""Rescheduled kernels on a device: the same bits as the compiler's own code, and what they gain.

    python benchmarks/shipped/schedule_proof.py --seconds 60 --json FILE           needs an H100
    python benchmarks/shipped/schedule_proof.py --keep OLD --json FILE   what OLD has not proved
    python benchmarks/shipped/schedule_proof.py --prepare --json FILE    only the search
    python benchmarks/shipped/schedule_proof.py --table --json FILE                only prints FILE

Kernels of every transpose, the winners of hopper_s.json among them, are compiled and rescheduled by
a pool of processes while those that are ready run in a process of their own:

1. every class of sizes, scalars, leading dimensions and offsets (tuning.verify.classes) on random
   data: all of C's memory has its twin's bits;
2. many launches of five sizes, C compared on the device after each: first alone, then while another
   stream copies through memory and a third one runs another kernel;
3. winners only: both in turns, A B A B, at 1024, 2048, 4096 and 8192.

A kernel that crashes or hangs is a row with a reason.  FILE is written after each row.  A level is
proved where no kernel differed or failed and enough ran (backend.cuda.proofs.earned); proofs go to
--proofs, the package's own file unless another is named; `git diff` shows them.  The code of
winners that are faster than their twins goes to FILE's folder, scheduled_code/KEY.xz.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import json
import lzma
import multiprocessing
import os
import queue
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import ship
from hopper.cases import cases_of
from hopper.here import first_gpu

from tilewright.backend.cache import KernelCache
from tilewright.backend.cuda import proofs
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import cached_cubin, nvrtc_version
from tilewright.backend.cuda.rescheduling import RefusedScheduleError, schedule_key
from tilewright.paths import write_atomically
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.sass import compare, read_cubin
from tilewright.sass.scheduler_version import SCHEDULER_VERSION
from tilewright.space import Config
from tilewright.stencil import Variant, unscheduled
from tilewright.stencil.schedule import LEVELS, SCHEDULE, schedule_of
from tilewright.stencil.simt_async import SimtAsync

FAMILY = SimtAsync()
ARCH = "sm_90a"
CASES = ("NN", "NT", "TN", "TT")
OTHERS = 3  # configs of a transpose besides the winner
COMPLEX = 2  # of CGEMM, for each transpose
LAUNCHES = 32
TIMED, ROUNDS = (1024, 2048, 4096, 8192), 11
FEWER = 5  # rounds of the largest, whose times differ least
SILENCE = 25.0  # seconds without a word after which the device's process is given up
Row = dict[str, Any]
Sides = tuple[int, int, int]


def kept(path: Path) -> list[Row]:
    """Return an earlier run's rows of kernels that gave their twins' bits, with its date.

    Raises
    ------
    ValueError
        If it was of another scheduler or toolkit, which make other kernels.
    """
    record = json.loads(path.read_text())
    made = (record["scheduler"], record["toolkit"], record["architecture"])
    if made != (SCHEDULER_VERSION, nvrtc_version(), ARCH):
        raise ValueError(f"{path} is of scheduler, toolkit and architecture {made}; run all anew")
    about = {name: record["environment"][name] for name in ("date", "commit")}
    return [{**about, **row} for row in record["rows"] if row["status"] == "same"]


def with_kept(rows: list[Row], known: list[Row]) -> list[Row]:
    """Return rows with those that are known in their places, and the others of these behind."""
    found = {(row["id"], row["trans"], row["precision"]): row for row in known}
    made = [found.pop((row["id"], row["trans"], row["precision"]), row) for row in rows]
    return [*made, *found.values()]


def variant_of(row: Row) -> Variant:
    return Variant(precision(row["precision"]), *(Trans(letter) for letter in row["trans"]))


def jobs() -> list[Row]:
    """Return what is to be proved: what won rescheduled, then other winners, then the rest."""
    log = ship.load("hopper_s.json")["log"]
    first, more = [], []
    for trans in CASES:
        found = ship.searched(log, trans)
        won = winners(log, trans)
        shapes = ship.best_of_shapes(found)
        short = sorted(shapes, key=lambda key: (loop_length(shapes[key][0]), key))
        first += [job("s", trans, found[key][0], True) for key in sorted(won)]
        more += [job("s", trans, one) for key in sorted(won) for one in relatives(found[key][0])]
        # The shortest loops, whose search takes seconds, and two of those between.
        spread = [*short[:OTHERS], short[len(short) // 3], short[len(short) // 2]]
        more += [job("s", trans, shapes[key][0]) for key in dict.fromkeys(spread) if key not in won]
        more += [job("c", trans, config) for config in complex_starts(trans)]
    log = ship.load("hopper_c.json")["log"]
    for trans in cases_of("c"):
        found = ship.searched(log, trans)
        first += [job("c", trans, found[key][0], True) for key in sorted(winners(log, trans))]
    every = (*first, *sorted(more, key=lambda row: loop_length(row["config"])))
    levels = [level for level, one in enumerate(LEVELS) if one is not None]
    rescheduled = [row for row in first if SCHEDULE in row["config"]]
    of = {letter: [r for r in rescheduled if r["precision"] == letter] for letter in "sc"}
    turns = itertools.zip_longest(of["s"], of["c"])
    won = [at_level(row, row["config"][SCHEDULE]) for pair in turns for row in pair if row]
    each = [*won, *(at_level(row, level) for row in every for level in levels)]
    found: dict[tuple[str, str, str], Row] = {}
    for row in each:
        found.setdefault((row["precision"], row["trans"], row["id"]), row)
    return list(found.values())


def winners(log: list[Row], trans: str) -> set[str]:
    """Return what won at one of the sizes that rescheduled kernels are timed at."""
    return {key for key, sizes in ship.raced(log, trans).items() if sizes.keys() & set(TIMED)}


def relatives(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a winner with a short loop, twice: the search of a quarter takes a quarter."""
    # A tile that comes in boxes has the loop's whole text.
    short = {"unroll_k": 4} | ({"block_k": 4} if values.get("tma") else {})
    return [{**values, **short, "b_first": order} for order in (0, 1)]


def loop_length(config: Any) -> int:
    """Return about how many multiply-adds the loop's text has."""
    return int(np.prod([config[name] for name in ("unroll_k", "tile_m", "tile_n")]))


def complex_starts(trans: str) -> list[dict[str, Any]]:
    variant = Variant(precision("c"), Trans(trans[0]), Trans(trans[1]))
    space = FAMILY.space(variant, architecture_spec(ARCH))
    return [dict(one) for one in FAMILY.starts(variant, architecture_spec(ARCH)) if one in space][
        :COMPLEX
    ]


def job(letter: str, trans: str, values: dict[str, Any], timed: bool = False) -> Row:
    return {
        "stencil": FAMILY.name, "precision": letter, "trans": trans, "config": dict(values),
        "timed": timed,
    }  # fmt: skip


def at_level(row: Row, level: int) -> Row:
    config = Config(FAMILY.name, {**row["config"], SCHEDULE: level})
    found = LEVELS[level]
    assert found is not None
    made = {**row, "config": dict(config), "id": config.id, "level": found.name}
    return {**made, "status": "late", "reason": "there was no time for it"}


# ---- Processes without the device: compile, reschedule, predict ------------------------------


def prepared(row: Row) -> Row:
    """Return a row with what the search found, whose code is in the disk cache from now on."""
    began = time.perf_counter()
    try:
        found = _prepared(row)
    except RefusedScheduleError as error:
        found = {"status": "refused", "reason": str(error)}
    except Exception as error:
        found = {"status": "refused", "reason": f"{type(error).__name__}: {error}".splitlines()[0]}
    return {**row, **found, "search_seconds": time.perf_counter() - began}


def _prepared(row: Row) -> Row:
    config = Config(FAMILY.name, row["config"])
    cache, found = KernelCache(), []
    for one in (unscheduled(config), config):
        source = FAMILY.source(one, variant_of(row), "cuda")
        made = cached_cubin(source, ARCH, cache)
        found.append(read_cubin(made.code).kernel(made.lowered[source.entry]))
    seen = compare(*found, None, source.dynamic_shared_bytes).as_dict()
    level = schedule_of(config)
    assert level is not None
    key = schedule_key(found[0].code, found[0].arch, level)
    return {
        "status": "prepared", "reason": "it did not run", "key": key,
        "predicted": seen["predicted"], "changes": seen["changes"],
    }  # fmt: skip


# ---- The process that has the device ---------------------------------------------------------


def serve(todo: Any, answers: Any) -> None:
    """Prove rows until there are none left."""
    live: Any = first_gpu()
    answers.put(("device", {"device": live.spec.name, "driver": live.driver, "arch": live.arch}))
    while (row := todo.get()) is not None:
        answers.put(("started", row))
        answers.put(("done", proved(live, row)))
        if live.lost is not None:
            return


def proved(live: Any, row: Row) -> Row:
    """Return a row with what was compared and timed."""
    from tilewright.tuning.verify import WrongResultError

    began, done = time.perf_counter(), {"launches": 0, "elements": 0}
    try:
        found = _proved(live, row, done)
    except WrongResultError as error:
        found = {"status": "wrong", "reason": str(error)}
    except Exception as error:
        found = {"status": "failed", "reason": f"{type(error).__name__}: {error}".splitlines()[0]}
    return {**row, **done, **found, "device_seconds": time.perf_counter() - began}


def _proved(live: Any, row: Row, done: dict[str, int]) -> Row:
    from tilewright.bench.proving import (
        PROBLEMS,
        Twins,
        disturbed,
        laid_down,
        many_launches,
        quiet,
    )
    from tilewright.tuning.same_bits import same_bits
    from tilewright.tuning.verify import classes, screen

    config, variant = Config(FAMILY.name, row["config"]), variant_of(row)
    twin = unscheduled(config)
    plain, made = (live.compile(FAMILY.source(one, variant, "cuda")) for one in (twin, config))
    screen(live, made, FAMILY, config, variant)
    done["elements"] += same_bits(live, (plain, made), FAMILY, config, variant)
    done["launches"] += len(classes(config))
    twins = Twins(FAMILY, config, plain, made)
    with disturbed(live, twins, row["trans"], row["precision"]) as feed:
        for (m, n, k), beside in ((p, f) for f in (quiet, feed) for p in PROBLEMS):
            problem = laid_down(Problem(m, n, k, row["precision"], *row["trans"]), twins)
            found = many_launches(live, twins, problem, row.get("each", LAUNCHES), feed=beside)
            done["launches"] += found.launches
            done["elements"] += found.elements
    found = {"ns": timed(live, row, twins, shapes_of(row)) if row["timed"] else {}}
    if row.get("staged"):
        values = Config(FAMILY.name, {**twin, "staged": 1})
        staged = live.compile(FAMILY.source(values, variant, "cuda"))
        screen(live, staged, FAMILY, values, variant)
        both = dataclasses.replace(twins, plain=staged)
        found["ns_staged"] = timed(live, row, both, named(row["staged"]))
    return {"status": "same", "reason": "", **found}


def shapes_of(row: Row) -> dict[str, Sides]:
    """Return what a kernel is timed at: squares, or shapes of its own, by name."""
    squares = {str(size): (size, size, size) for size in TIMED}
    return named(row["shapes"]) if "shapes" in row else squares


def named(shapes: list[list[int]]) -> dict[str, Sides]:
    """Return shapes by all three sizes."""
    return {"x".join(map(str, shape)): (shape[0], shape[1], shape[2]) for shape in shapes}


def timed(live: Any, row: Row, twins: Any, shapes: dict[str, Sides]) -> dict[str, list[list[int]]]:
    """Return times of the compiler's own and the rescheduled kernel, in turns, by shape."""
    from tilewright.tuning.measure import Workload, interleaved

    letter = row["precision"]
    memory = operands(live, letter)
    pair = [(one, FAMILY, twins.config) for one in (twins.plain, twins.made)]
    found = {}
    for name, shape in shapes.items():
        load = Workload(live, Problem(*shape, letter, *row["trans"]), memory)
        rounds = FEWER if min(shape) >= max(TIMED) else ROUNDS
        found[name] = [list(x) for x in interleaved(load, pair, 0.0, rounds)]
    return found


@functools.cache
def operands(live: Any, letter: str) -> dict[str, Any]:
    """Return matrices of the largest size, the same for all kernels of a precision."""
    from tilewright.tuning.matrices import normal

    drawn = normal(np.random.default_rng(0), (max(TIMED) ** 2 // 4,), precision(letter))
    memory = {name: live.allocate(4 * drawn.nbytes) for name in "abc"}
    for name, part in ((name, part) for name in "ab" for part in range(4)):
        live.write(memory[name], np.roll(drawn, 4097 * part), part * drawn.nbytes)
    return memory


class Device:
    """The process that has the device, started again after a crash."""

    def __init__(self, target: Any = serve, silence: float = SILENCE) -> None:
        self.target, self.silence = target, silence
        self.context = multiprocessing.get_context("spawn")
        self.facts: dict[str, str] = {}
        self.current: Row | None = None
        self.start()

    def start(self) -> None:
        """Start it; it knows no rows yet."""
        self.todo, self.answers = self.context.Queue(), self.context.Queue()
        arguments = (self.todo, self.answers)
        self.child = self.context.Process(target=self.target, args=arguments, daemon=True)
        self.child.start()
        self.heard, self.waiting, self.current = time.time(), [], None
        self.served = False  # whether it has the device

    def ask(self, row: Row) -> None:
        """Give it a row."""
        if not self.waiting:
            self.heard = max(self.heard, time.time())
        self.waiting.append(row)
        self.todo.put(row)

    def listen(self) -> list[Row]:
        """Return the rows that ended since the last call."""
        ended = []
        while True:
            try:
                kind, what = self.answers.get(timeout=0.1)
            except queue.Empty:
                break
            self.heard = time.time()
            if kind == "device":
                self.facts, self.served = what, True
            elif kind == "started":
                self.current = what
            else:
                self.current = None
                self.waiting.pop(0)
                ended.append(what)
        silent = self.waiting and time.time() - self.heard > self.silence
        if (silent or not self.child.is_alive()) and self.waiting:
            ended += self.restart("said nothing" if silent else f"ended: {self.child.exitcode}")
        return ended

    def restart(self, why: str) -> list[Row]:
        """End the process; return the row it was at, and give the others to a new one."""
        self.child.kill()
        self.child.join()
        waiting, at, served = self.waiting, self.current, self.served
        self.start()
        if not served:  # it could not even start: no row is to blame, and none will run
            reason = f"no device: it {why}"
            return [{**row, "status": "late", "reason": reason} for row in waiting]
        for row in waiting[at is not None :]:
            self.ask(row)
        return [] if at is None else [{**at, "status": "failed", "reason": f"the process {why}"}]


# ---- All of it -------------------------------------------------------------------------------


def work(rows: list[Row], path: Path, until: float, workers: int, device: Device | None) -> None:
    """Prepare rows in a pool and prove them as they come, until time is up."""
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    new = [at for at, row in enumerate(rows) if row["status"] != "same"]
    futures = {pool.submit(prepared, rows[at]): at for at in new}
    index = {(row["id"], row["trans"], row["precision"]): at for at, row in enumerate(rows)}
    write(path, rows, device)
    try:
        while time.time() < until and (futures or (device and device.waiting)):
            ended = [one for one in futures if one.done()]
            for one in ended:
                at = futures.pop(one)
                rows[at] = one.result()
                if device is not None and rows[at]["status"] == "prepared":
                    device.ask(rows[at])
            for row in device.listen() if device is not None else ():
                rows[index[row["id"], row["trans"], row["precision"]]] = row
                print(line(row), flush=True)
                ended.append(row)
            if ended:
                write(path, rows, device)
            elif device is None:
                time.sleep(0.2)
    finally:
        for process in list((pool._processes or {}).values()):  # those in the middle of a search
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        if device is not None:
            device.child.kill()


def write(path: Path, rows: list[Row], device: Device | None) -> None:
    """Write what is known so far."""
    from tilewright.bench.record import environment_record
    from tilewright.bench.sweep import Method

    record = {
        "environment": environment_record(Method(ROUNDS)), "scheduler": SCHEDULER_VERSION,
        "toolkit": nvrtc_version(), "architecture": ARCH,
        "device": None if device is None else device.facts, "rows": rows,
    }  # fmt: skip
    write_atomically(path, json.dumps(record, indent=1).encode())


def prove(path: Path, file: Path) -> None:
    """Write what the run proved, and the code of winners that gained."""
    record = json.loads(path.read_text())
    facts = record["device"] or {}
    if facts.get("arch") != ARCH:
        print(f"nothing is proved: the device is {facts.get('arch', 'missing')}, not {ARCH}")
        return
    run = proofs.Run(
        architecture=ARCH, toolkit=record["toolkit"], device=facts["device"],
        driver=facts["driver"], date=str(record["environment"]["date"]),
        commit=str(record["environment"]["commit"]), result=path.name,
    )  # fmt: skip
    found = proofs.earned(record["rows"], run)
    for one in found:
        print(f"proved: {one.stencil} {one.precision} {one.level}, {one.kernels} kernels,"
              f" {one.launches} launches, {one.elements:.2e} elements")  # fmt: skip
    if found:
        proofs.add_proofs(found, file)
    folder = path.parent / "scheduled_code"
    for row in record["rows"]:
        if row["status"] == "same" and any(gain > 0 for gain in gains(row).values()):
            code = KernelCache().load(row["key"])
            if code is not None:
                folder.mkdir(exist_ok=True)
                write_atomically(folder / f"{row['key']}.xz", lzma.compress(code))


def gains(row: Row) -> dict[str, float]:
    """Return the share of its twin's time that a kernel saved, by size: the median of rounds."""
    return {
        size: float(np.median([(a - b) / a for a, b in zip(*pair, strict=True)]))
        for size, pair in (row.get("ns") or {}).items()
    }


def line(row: Row) -> str:
    text = f"{row['precision']}{row['trans']} {row['level']:<6} {row['id']} {row['status']:<8}"
    if "predicted" in row:
        old, new = (row["predicted"][when]["pipe_share"] for when in ("before", "after"))
        text += f" {100 * old:.1f} -> {100 * new:.1f} %"
    if row["status"] == "same":
        text += f" {row['launches']:5} launches {row['elements']:.1e} elements"
        text += "".join(f" {size}: {100 * x:+.1f} %" for size, x in gains(row).items())
        return text
    return f"{text} {row['reason'][:90]}"


def table(path: Path) -> None:
    record = json.loads(path.read_text())
    print("kernel, level, config, outcome, pipe share predicted, compared, time saved at a size")
    for row in record["rows"]:
        print(line(row))
    count = {name: sum(row["status"] == name for row in record["rows"]) for name in
             ("same", "wrong", "failed", "refused", "prepared", "late")}  # fmt: skip
    print(", ".join(f"{number} {name}" for name, number in count.items()))


def main() -> None:
    """Prepare, prove, write, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prepare", action="store_true", help="only search; no device is needed")
    parser.add_argument("--table", action="store_true", help="only print what the file holds")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", type=Path, required=True)
    own = Path(proofs.__file__).with_name(proofs.PROOFS)
    parser.add_argument("--proofs", type=Path, default=own, help="where proofs are added")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    names = [one.name for one in LEVELS if one is not None]
    parser.add_argument("--levels", nargs="+", default=names, choices=names)
    parser.add_argument("--keep", type=Path, help="an earlier FILE, whose proved kernels stand")
    parser.add_argument("--most", type=int, default=10**9, help="only so many kernels")
    chosen = parser.parse_args()
    if not chosen.table:
        until = time.time() + chosen.seconds
        nvrtc_version()
        rows = [row for row in jobs() if row["level"] in chosen.levels][: chosen.most]
        if chosen.keep:
            rows = with_kept(rows, kept(chosen.keep))
        work(rows, chosen.json, until, chosen.workers, None if chosen.prepare else Device())
        if not chosen.prepare and chosen.json.exists():
            prove(chosen.json, chosen.proofs)
    table(chosen.json)


if __name__ == "__main__":
    main()
