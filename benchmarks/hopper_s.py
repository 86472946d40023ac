r"""SGEMM by the stencil of asynchronous copies beside cuBLAS: search, race, table.

    python benchmarks/hopper_s.py --seconds 165 --json FILE        needs a CUDA device
    python benchmarks/hopper_s.py --list                           the candidates; no GPU

Candidates are compiled by a pool of processes while others are checked and timed; a process
of its own measures, so that a kernel that crashes or hangs costs only itself.  Every result
is appended to FILE.log at once and FILE is written after each part; the table comes last.
Ratios are of medians of one A B A B run: ours, cuBLAS, ours, cuBLAS.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures import TimeoutError as LateError
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.paths import write_atomically
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.space import Config
from tilewright.stencil import Variant
from tilewright.stencil.simt_async import SimtAsync

CASES = ("NN", "NT", "TN", "TT")
SIZES = (512, 1024, 2048, 4096, 8192, 16384)
# What the stencil is to be, as a multiple of cuBLAS's speed.
WANTED = {512: 1.3, 1024: 1.2, 2048: 1.1, 4096: 1.11, 8192: 1.11, 16384: 1.08}
FINALISTS = 4
# A candidate that hangs is given up after so many seconds without a word.
SILENCE = 40
FAMILY = SimtAsync()

DEPTH = ("block_k", "unroll_k", "stages")
NAMES = ("block_m", "block_n", "tile_m", "tile_n", "lanes_m", "resident")
# Thread tiles of 128 elements first: fewest reads of shared memory a multiply-add.
LARGE = (
    (128, 128, 8, 16, 8, 2), (128, 128, 16, 8, 4, 2), (128, 256, 8, 16, 8, 1),
    (256, 128, 16, 8, 4, 1), (256, 128, 8, 16, 8, 1), (128, 64, 8, 16, 8, 4),
    (128, 128, 8, 8, 8, 2),
)  # fmt: skip
SMALL = (
    (128, 64, 8, 8, 8, 2), (64, 128, 8, 8, 4, 2), (64, 64, 8, 8, 8, 4), (128, 128, 8, 8, 8, 2),
    (64, 64, 8, 4, 4, 3), (64, 32, 4, 4, 8, 4), (128, 128, 8, 16, 8, 2), (32, 32, 4, 4, 4, 4),
)  # fmt: skip


def variant_of(trans: str) -> Variant:
    return Variant(precision("s"), Trans(trans[0]), Trans(trans[1]))


def candidates(trans: str) -> list[Config]:
    """Return points of the space, large and small ones in turns, the likeliest first."""
    space = FAMILY.space(variant_of(trans), architecture_spec("sm_90a"))

    def points(shapes: Any, *choices: tuple[str, Any]) -> Iterator[Config]:
        names = [name for name, _ in choices]
        fixed = {
            "copy_groups": 2,
            "raster_rows": 8,
            "split_k": 1,
            "b_first": 0,
            "turn": 0,
            "k_vectors": 0,
        }
        for chosen in itertools.product(*(values for _, values in choices)):
            point = {**fixed, **dict(zip(names, chosen, strict=True))}
            depth = dict(zip(DEPTH, point.pop("depth"), strict=True))
            for shape in shapes:
                block = dict(zip(NAMES, shape, strict=True))
                # Along the shorter side of a thread's tile, unless it is the other one's turn.
                walk = (block["tile_m"] > block["tile_n"]) ^ (point["turn"] % 2)
                block["walk"] = walk + point["turn"] // 2 * 2
                values = {**point, **depth, **block}
                config = Config(FAMILY.name, {k: v for k, v in values.items() if k != "turn"})
                if config in space:
                    yield config

    best, depths = LARGE[:4], ((8, 8, 3), (16, 16, 2), (16, 8, 2))
    both = ("b_first", (0, 1))
    large = list(points(LARGE, both, ("depth", depths)))
    # Points that no operand of these transposes makes differ are not in the space.
    wide = [
        *points(LARGE, ("k_vectors", (1,)), both, ("depth", ((16, 16, 2), (8, 8, 2)))),
        *points(LARGE[:2], ("k_vectors", (1,)), ("depth", ((8, 8, 3), (16, 8, 2)))),
    ]
    large = [x for pair in itertools.zip_longest(large, wide) for x in pair if x is not None]
    large += points(best, ("copy_groups", (1, 4)), both, ("depth", depths[:2]))
    large += points(best, ("depth", ((8, 8, 4), (16, 8, 3), (32, 8, 2), (16, 4, 2))))
    large += points(best[:2], ("raster_rows", (0, 4, 16)), ("depth", depths[:1]))
    large += points(best, ("turn", (2, 1)), both, ("depth", depths[:2]))
    small = list(points(SMALL, ("split_k", (4, 2, 1, 8)), ("depth", ((16, 8, 3),))))
    small += points(SMALL[:5], ("k_vectors", (1,)), ("split_k", (4, 2)), ("depth", ((16, 8, 3),)))
    small += points(SMALL[:5], ("split_k", (2, 4)), ("depth", ((32, 8, 2), (8, 8, 5))))
    mixed = [x for pair in itertools.zip_longest(large, small) for x in pair if x is not None]
    return list(dict.fromkeys(mixed))


def compile_one(trans: str, values: dict[str, Any], arch: str) -> str:
    """Put a candidate's cubin into the disk cache; return why not, or nothing."""
    from tilewright.backend.cache import KernelCache
    from tilewright.backend.cuda.compiler import cached_cubin

    try:
        config = Config(FAMILY.name, values)
        cached_cubin(FAMILY.source(config, variant_of(trans), "cuda"), arch, KernelCache())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


# ---- The process that measures -------------------------------------------------------------


class Log:
    """Lines of JSON, appended and flushed: what a later process need not do again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = [json.loads(x) for x in path.read_text().splitlines()] if path.exists() else []

    def add(self, **row: Any) -> None:
        """Append a row."""
        self.rows.append(row)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the rows of a kind: device, started, tried or final."""
        return [row for row in self.rows if row["kind"] == kind]


class Bench:
    """Matrices of the largest size, which all problems share, and cuBLAS."""

    def __init__(self, log: Log, most: int) -> None:
        from tilewright.backend import device
        from tilewright.bench.peers.cublas import CuBLAS
        from tilewright.bench.record import device_record

        self.log, self.live = log, device("cuda:0")
        self.cublas = CuBLAS(self.live)
        log.add(kind="device", device=device_record(self.live, [self.cublas]))
        drawn = np.random.default_rng(0).standard_normal(min(most, 4096) ** 2, dtype=np.float32)
        self.memory = {name: self.live.allocate(4 * most**2) for name in "abc"}
        for name, at in itertools.product("ab", range(0, 4 * most**2, drawn.nbytes)):
            self.live.write(self.memory[name], np.roll(drawn, at // 4096), at)

    def workload(self, trans: str, size: int) -> Any:
        """Return a square problem on the shared matrices."""
        from tilewright.tuning.measure import Workload

        return Workload(self.live, Problem(size, size, size, "s", *trans), self.memory)

    def kernel(self, trans: str, config: Config) -> Any:
        """Return a candidate, compiled or from the cache."""
        return self.live.compile(FAMILY.source(config, variant_of(trans), "cuda"))

    def try_one(self, trans: str, config: Config, sizes: tuple[int, ...]) -> None:
        """Check a candidate, then time it where it may win."""
        from tilewright.tuning.verify import screen

        row = {"trans": trans, "id": config.id, "config": dict(config)}
        self.log.add(kind="started", **row)
        times: dict[int, float] = {}
        reason = ""
        try:
            kernel = self.kernel(trans, config)
            screen(self.live, kernel, FAMILY, config, variant_of(trans))
            for size in sizes:
                if size > 4096 and not self.close(trans, times):
                    break
                load = self.workload(trans, size)
                runs = [load.run(kernel, FAMILY, config) for _ in range(4 if size > 2048 else 8)]
                times[size] = float(np.median(runs[1:]))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            if getattr(self.live, "lost", None):
                self.log.add(kind="tried", reason=reason, ns={}, **row)
                raise
        self.log.add(kind="tried", reason=reason, ns=times, **row)

    def close(self, trans: str, times: dict[int, float]) -> bool:
        """Whether 4096 was within 4 % of the best, so that larger sizes are worth the time."""
        if 4096 not in times:
            return True
        known = [r["ns"].get("4096", r["ns"].get(4096)) for r in self.log.of("tried")
                 if r["trans"] == trans]  # fmt: skip
        return times[4096] <= 1.04 * min([x for x in known if x] or [float("inf")])

    def ranked(self, trans: str, size: int) -> list[Config]:
        """Return the best candidates at a size, or at the nearest that was timed."""
        tried = [r for r in self.log.of("tried") if r["trans"] == trans]
        found = []
        for row in tried:
            ns = {int(key): value for key, value in row["ns"].items()}
            if size in ns or (size > 8192 and 8192 in ns):
                config = Config(FAMILY.name, row["config"])
                found.append((ns.get(size, ns.get(8192, 0.0)), config))
        found.sort(key=lambda pair: pair[0])
        return [config for _, config in found[:FINALISTS]]

    def final(self, trans: str, size: int) -> None:
        """Race the best in turns, then the winner and cuBLAS in turns."""
        from tilewright.tuning.measure import interleaved

        best = self.ranked(trans, size)
        if not best:
            self.log.add(kind="final", trans=trans, size=size, reason="no candidate was timed")
            return
        load = self.workload(trans, size)
        kernels = [(self.kernel(trans, config), FAMILY, config) for config in best]
        raced = interleaved(load, kernels, 0.0, 3 if size > 8192 else 7)
        kernel, _, config = kernels[int(np.argmin([np.median(times) for times in raced]))]
        theirs = self.cublas.prepare(load)
        calls = {"tilewright": lambda: load.run(kernel, FAMILY, config), "cublas": theirs}
        rounds = 5 if size > 8192 else 11 if size > 4096 else 21
        times: dict[str, list[int]] = {name: [] for name in calls}
        for turn, (name, call) in itertools.product(range(rounds + 1), calls.items()):
            taken = call()
            if turn:  # the first warms up
                times[name].append(taken)
        flops = 2 * size**3
        rates = {name: flops / float(np.median(ns)) / 1e3 for name, ns in times.items()}
        self.log.add(
            kind="final", trans=trans, size=size, config=dict(config), id=config.id, ns=times,
            tflops=rates, ratio=rates["tilewright"] / rates["cublas"], wanted=WANTED.get(size),
        )  # fmt: skip
        print(f"{trans} {size:5}: {rates['tilewright']:.1f} against {rates['cublas']:.1f}",
              flush=True)  # fmt: skip


def compiled(
    arch: str, jobs: list[tuple[str, Config]], workers: int, until: float
) -> Iterator[tuple[str, Config, str]]:
    """Compile in other processes; yield each candidate when it is ready, until a time."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context)
    futures: dict[Future[str], tuple[str, Config]] = {
        pool.submit(compile_one, trans, dict(config), arch): (trans, config)
        for trans, config in jobs
    }
    try:
        for done in as_completed(futures, timeout=max(0.0, until - time.time())):
            yield (*futures[done], done.result())
            if time.time() > until:
                return
    except LateError:
        return
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def measure(log: Log, cases: list[str], sizes: list[int], until: float, workers: int) -> None:
    """Search until two thirds of the time are over, then race."""
    started = time.time()
    stop = started + 0.66 * (until - started)
    known = {(row["trans"], row["id"]) for row in log.of("started")}
    lists = [[(trans, config) for config in candidates(trans)] for trans in cases]
    jobs = [job for turn in itertools.zip_longest(*lists) for job in turn if job is not None]
    jobs = [(trans, config) for trans, config in jobs if (trans, config.id) not in known]
    bench = Bench(log, max(sizes))
    print(f"{bench.live}, {len(jobs)} candidates, {workers} compilers", flush=True)
    searched = tuple(size for size in sizes if size <= 8192) or (max(sizes),)
    for number, (trans, config, reason) in enumerate(
        compiled(bench.live.arch, jobs, workers, stop)
    ):
        if reason:
            log.add(kind="tried", trans=trans, id=config.id, config=dict(config), ns={},
                    reason=reason)  # fmt: skip
        else:
            bench.try_one(trans, config, searched)
        if number % 25 == 0:
            print(f"{time.time() - started:5.0f} s: {number} candidates", flush=True)
    raced = {(row["trans"], row["size"]) for row in log.of("final")}
    for size, trans in itertools.product(sizes, cases):
        if (trans, size) not in raced and time.time() < until:
            bench.final(trans, size)


# ---- The process that watches, and the table -----------------------------------------------


def watch(command: list[str], log: Path, until: float) -> bool:
    """Run the measuring process; False if it crashed or hung before the time was up."""
    child = subprocess.Popen(command)
    heard, seen = time.time(), -1
    while child.poll() is None:
        time.sleep(0.5)
        size = log.stat().st_size if log.exists() else 0
        if size != seen:
            heard, seen = time.time(), size
        if time.time() - heard > SILENCE or time.time() > until + 5:
            child.kill()
            child.wait()
    return child.returncode == 0


def write(path: Path, log: Log) -> None:
    """Write what is known so far."""
    from tilewright.bench.record import environment_record
    from tilewright.bench.sweep import Method

    made = {"environment": environment_record(Method(21)), "log": log.rows}
    for row in log.of("device"):
        made["device"] = row["device"]
    write_atomically(path, json.dumps(made, indent=1).encode())


def table(log: Log, sizes: list[int], cases: list[str]) -> None:
    """Print ratios, and what failed."""
    tried = log.of("tried")
    failed = [row for row in tried if row["reason"]]
    finals = {(row["trans"], row["size"]): row for row in log.of("final") if "ratio" in row}
    print(f"{len(tried)} candidates tried, {len(failed)} failed")
    for reason in sorted({row["reason"][:150] for row in failed})[:8]:
        print(f"  {reason}")
    print("best configs:")
    for (trans, size), row in sorted(finals.items()):
        print(f"  {trans} {size}: " + ", ".join(f"{k} {v}" for k, v in row["config"].items()))
    print(f"{'size':>6} {'wanted':>7} " + " ".join(f"{trans:>18}" for trans in cases))
    for size in sizes:
        cells = []
        for trans in cases:
            row = finals.get((trans, size))
            cells.append(
                f"{row['tflops']['tilewright']:5.1f}/{row['tflops']['cublas']:5.1f} "
                f"{row['ratio']:5.3f}{'*' if row['ratio'] >= WANTED.get(size, 1) else ' '}"
                if row else "-"
            )  # fmt: skip
        print(f"{size:6} {WANTED.get(size, 1):7.2f} " + " ".join(f"{cell:>18}" for cell in cells))


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("--seconds", type=float, default=165)
    parse.add_argument("--json", type=Path, default=Path("hopper_s.json"))
    parse.add_argument("--trans", default=",".join(CASES))
    parse.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parse.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parse.add_argument("--list", action="store_true")
    parse.add_argument("--until", type=float, help=argparse.SUPPRESS)
    given = parse.parse_args()
    cases, sizes = given.trans.split(","), [int(size) for size in given.sizes.split(",")]
    if given.list:
        for trans in cases:
            print(trans, len(candidates(trans)))
        return
    path = given.json.with_suffix(".log")
    if given.until:
        measure(Log(path), cases, sizes, given.until, given.workers)
        return
    path.unlink(missing_ok=True)
    until = time.time() + given.seconds
    command = [sys.executable, *sys.argv, "--until", str(until)]
    rows = -1
    while time.time() < until and not watch(command, path, until):
        log = Log(path)
        if len(log.rows) == rows or not log.rows:
            break  # it fails before it tries anything
        done = {(row["trans"], row["id"]) for row in log.of("tried")}
        for row in log.of("started"):
            if (row["trans"], row["id"]) not in done:
                reason = "the process crashed or hung"
                log.add(**{**row, "kind": "tried", "reason": reason, "ns": {}})
        rows = len(log.rows)
        write(given.json, log)
    log = Log(path)
    write(given.json, log)
    table(log, sizes, cases)


if __name__ == "__main__":
    main()
