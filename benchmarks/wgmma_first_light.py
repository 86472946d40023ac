r"""First run of the tensor-core stencil on a device: which starts are right, how fast they are.

   python -m benchmarks.wgmma_first_light --seconds 90 --json FILE      needs a Hopper GPU
   python -m benchmarks.wgmma_first_light --list                        what would run; no GPU

Every start of every arithmetic, in two orders of the operands, is compared bit by bit with exact
sums (inner tiles, edges, a remainder of k), then timed at one size: the median of ten launches,
warm, on random numbers.  Kernels are compiled by a pool of processes beforehand; a process of its
own runs them, so that one that hangs or faults costs itself alone.  FILE is written after each.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import IO, Any

import numpy as np
from tests.stencil.wgmma_harness import FAMILY, Case, Run, lay_down, stored, variant

from tilewright.backend import Operand, device
from tilewright.backend.cache import KernelCache
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import cached_cubin
from tilewright.paths import write_atomically
from tilewright.stencil.wgmma import ARITHMETICS, Arithmetic, TensorCall

ARCH = "sm_90a"
# The most wanted first: what the time is too short for is left out.
EVERY = {
    "fp16x3": ARITHMETICS["fp16x3"],
    "bf16": Arithmetic("bfloat16", "bfloat16"),
    "f16": Arithmetic("float16", "float16"),
    "tf32": Arithmetic("tf32"),
    "bf16x6": ARITHMETICS["bf16x6"],
    "tf32x3": ARITHMETICS["tf32x3"],
    "s8": Arithmetic("int8", "int32"),
    "bf16x9": ARITHMETICS["bf16x9"],
}
TRANS = ("TN", "NT")
CHECKS = (Case(515, 389, 331, 2, -1, padding=1, padding_c=3), Case(2304, 1280, 200, beta=1))
# No launch here takes a hundredth of that: whoever says nothing for so long hangs.
PATIENCE_SECONDS = 25.0
REPETITIONS = 10

Job = tuple[str, str, int]


def jobs() -> list[Job]:
    """Return (arithmetic, order, number of the start), first starts of all before seconds."""
    device_spec, found = architecture_spec(ARCH), []
    for name, made in EVERY.items():
        for trans in TRANS if made.either_order else TRANS[:1]:
            of = variant(trans, made)
            space = FAMILY.space(of, device_spec)
            starts = FAMILY.starts(of, device_spec)
            found += [(name, trans, i) for i, config in enumerate(starts) if config in space]
    rank: dict[tuple[str, str], int] = {}
    for name, trans, _ in found:
        rank.setdefault((name, trans), 0)
    order = []
    for job in found:
        order.append((rank[job[:2]], list(EVERY).index(job[0]), job))
        rank[job[:2]] += 1
    return [job for *_, job in sorted(order)]


def parts_of(job: Job) -> Any:
    """Return a job's variant and config."""
    of = variant(job[1], EVERY[job[0]])
    return of, FAMILY.starts(of, architecture_spec(ARCH))[job[2]]


def compile_one(job: Job) -> Job:
    """Put a job's cubin into the cache."""
    of, config = parts_of(job)
    cached_cubin(FAMILY.source(config, of, "cuda"), ARCH, KernelCache())
    return job


def operands(run: Run, size: int, kept: dict[Any, Any]) -> Any:
    """Return A, B and C on the device, random numbers in all parts; those of one kind are kept."""
    live, made, case = run.live, run.variant.arithmetic, Case(size, size, size)
    key = made.element, made.parts, made.result
    if key not in kept:
        rng = np.random.default_rng(0)
        values = rng.standard_normal((made.parts, size, size), dtype=np.float32)
        if made.element == "int8":
            values = np.rint(values * 30)
        a, b = (lay_down(live, values, made.element, case) for _ in "ab")
        c = live.upload(stored(np.zeros(size * size), made.result))
        kept[key] = a, b, Operand(c, 0, size), live.upload(np.zeros(size, np.int32))
    return kept[key]


def nanoseconds(run: Run, size: int, kept: dict[Any, Any]) -> list[int]:
    """Return times of a square product, one warm-up first."""
    of = run.variant
    a, b, c, zeros = operands(run, size, kept)
    exponents = zeros if of.arithmetic.scaled else None
    call = TensorCall(size, size, size, 1, a, b, 0, c, exponents, exponents)
    launch = FAMILY.launch(run.config, size, size)
    arguments = FAMILY.arguments(run.config, of, call)
    times = [
        run.live.launch_timed(run.kernel, launch, arguments).nanoseconds()
        for _ in range(REPETITIONS + 1)
    ]
    return times[1:]


def run_jobs(todo: list[Job], size: int) -> None:
    """Run jobs one after the other; one line of JSON each."""
    live, kept = device("cuda:0"), dict[Any, Any]()
    for job in todo:
        row: dict[str, Any] = {"job": job, "status": "started"}
        print(json.dumps(row), flush=True)
        of, config = parts_of(job)
        try:
            run = Run(live, config, of)
            for case in CHECKS:
                run.check(case)
            times = nanoseconds(run, size, kept)
            median = statistics.median(times)
            row |= {"status": "ok", "ns": times, "tflops": 2 * size**3 / median / 1e3}
        except Exception as error:  # a failing candidate is a row, not the end
            row |= {"status": type(error).__name__, "reason": str(error).splitlines()[0]}
        row["config"] = dict(config)
        print(json.dumps(row), flush=True)
        if row["status"] == "DeviceLostError":
            return


def _pass_on(out: IO[str], lines: queue.Queue[str | None]) -> None:
    """Put each line into a queue as it comes, and None behind the last."""
    for line in out:
        lines.put(line)
    lines.put(None)


def child(todo: list[Job], size: int, until: float) -> list[dict[str, Any]]:
    """Run jobs in a process of its own; what hangs is a row, and the process's last."""
    command = [sys.executable, "-m", "benchmarks.wgmma_first_light", "--child", str(size)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(todo))
    process.stdin.close()
    lines: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_pass_on, args=(process.stdout, lines), daemon=True).start()
    rows: list[dict[str, Any]] = []
    running: dict[str, Any] | None = None
    while time.time() < until:
        try:
            line = lines.get(timeout=PATIENCE_SECONDS)
        except queue.Empty:
            line = None
        if line is None:
            break
        row = json.loads(line)
        running = row if row["status"] == "started" else None
        if running is None:
            rows.append(row)
            print(
                f"{row['job']} {row['status']} {row.get('tflops', 0):.0f} {row.get('reason', '')}"
            )
    process.kill()
    process.wait()
    if running is not None and time.time() < until:
        rows.append({**running, "status": "hung or died", "config": dict(parts_of_row(running)[1])})
        print(f"{running['job']} hung or died", flush=True)
    return rows


def parts_of_row(row: dict[str, Any]) -> Any:
    """Return the variant and config of a row that came through JSON."""
    name, trans, number = row["job"]
    return parts_of((name, trans, number))


def measure(given: argparse.Namespace, todo: list[Job]) -> list[dict[str, Any]]:
    """Compile for a third of the time at most, then run until the time is up."""
    started, rows, ready = time.time(), [], []
    until = started + given.seconds
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        waiting = {pool.submit(compile_one, job): job for job in todo}
        for done in as_completed(waiting):
            if done.exception() is None:
                ready.append(done.result())
            else:
                reason = str(done.exception()).splitlines()[0]
                rows.append({"job": waiting[done], "status": "CompileError", "reason": reason})
            if time.time() - started > given.seconds / 3:
                pool.shutdown(wait=False, cancel_futures=True)
                break
    print(f"{len(ready)} of {len(todo)} compiled in {time.time() - started:.0f} s", flush=True)
    left = [job for job in todo if job in ready]
    while left and time.time() < until:
        rows += child(left, given.size, until)
        write_atomically(given.json, (json.dumps(rows, indent=1) + "\n").encode())
        known = {tuple(row["job"]) for row in rows}
        fewer = [job for job in left if job not in known]
        if len(fewer) == len(left):
            break
        left = fewer
    return rows


def table(rows: list[dict[str, Any]], size: int) -> str:
    """Return the best of each arithmetic and order, and how many were right."""
    lines = [
        f"{'arithmetic':12}{'order':7}{'right':>7}{'of':>4}{'TFLOP/s at ' + str(size):>18}  start"
    ]
    for name in EVERY:
        for trans in TRANS:
            mine = [row for row in rows if tuple(row["job"][:2]) == (name, trans)]
            right = [row for row in mine if row["status"] == "ok"]
            best = max(right, key=lambda row: float(row["tflops"]), default=None)
            if mine:
                shown = f"{best['tflops']:18.1f}  {best['job'][2]}" if best else f"{'-':>18}"
                lines.append(f"{name:12}{trans:7}{len(right):7}{len(mine):4}{shown}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--json", type=Path, default=Path("wgmma_first_light.json"))
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        run_jobs([(a, b, c) for a, b, c in json.load(sys.stdin)], given.child)
        return
    todo = jobs()
    if given.list:
        print("\n".join(map(str, todo)))
        return
    rows = measure(given, todo)
    write_atomically(given.json, (json.dumps(rows, indent=1) + "\n").encode())
    print(table(rows, given.size))


if __name__ == "__main__":
    main()
