"""Rescheduled main loops of the best SGEMM kernels: predicted here, proved and timed on a GPU.

    python benchmarks/schedule.py --predict --json FILE      compiles, reschedules; needs no GPU
    python benchmarks/schedule.py --seconds 120 --json FILE   the same, then runs them
    python benchmarks/schedule.py --table --json FILE        only prints what FILE holds

For each transpose the config that won at 4096 in hopper_s.json is compiled as it is and
rescheduled by each set of steps.  On a device every version must give the same bits as the
unscheduled kernel, on random data, in many launches, at ragged sizes; then both run in turns,
A B A B.  A process of its own runs each version: one that crashes or hangs is a row with a reason.
FILE is written after each part; the table comes last.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures import TimeoutError as LateError
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.backend.cache import KernelCache
from tilewright.backend.cuda.compiler import Cubin, cached_cubin
from tilewright.paths import write_atomically
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.sass import compare, decode, inspect_kernel, patch, read_cubin, schedule
from tilewright.space import Config
from tilewright.stencil import Source, Variant
from tilewright.stencil.simt_async import SimtAsync

CASES = ("NN", "NT", "TN", "TT")
VARIANTS: dict[str, tuple[str, ...]] = {
    "reuse": ("reuse",),
    "operands": ("reuse", "operands"),
    "order": ("reuse", "order"),
    "all": ("reuse", "operands", "order"),
}
BEST = Path(__file__).parent / "results" / "h100" / "hopper_s.json"
TUNED_AT, ARCH = 4096, "sm_90a"
LAUNCHES, ROUNDS, TIMED = 20, 11, (4096, 8192)
# Interior and edge blocks, a remainder of k, leading dimensions that forbid wide copies.
RAGGED = ((4096, 4096, 4096), (1024, 1280, 96), (1000, 1028, 540), (997, 1013, 531), (8, 8, 8192))
PATIENCE = 25  # seconds for one version's checks and times
FAMILY = SimtAsync()


def winners() -> dict[str, Config]:
    """Return the config that won at `TUNED_AT`, for each transpose."""
    rows = json.loads(BEST.read_text())["log"]
    return {
        row["trans"]: Config(FAMILY.name, row["config"])
        for row in rows
        if row["kind"] == "final" and row.get("size") == TUNED_AT and "config" in row
    }


def source_of(trans: str, config: Config) -> Source:
    variant = Variant(precision("s"), Trans(trans[0]), Trans(trans[1]))
    return FAMILY.source(config, variant, "cuda")


def rescheduled(trans: str, values: dict[str, Any], name: str) -> tuple[dict[str, Any], bytes]:
    """Compile a config and reschedule it; return a row, and the cubin."""
    began = time.perf_counter()
    config = Config(FAMILY.name, values)
    source = source_of(trans, config)
    made = cached_cubin(source, ARCH, KernelCache())
    kernel = read_cubin(made.code).kernel(made.lowered[source.entry])
    seen = inspect_kernel(kernel, None, source.dynamic_shared_bytes)
    assert seen.loop is not None
    found = schedule(decode(kernel.code, kernel.arch), seen.loop, kernel.arch, steps=VARIANTS[name])
    code = patch(made.code, found.instructions, kernel.name)
    compared = compare(
        kernel, read_cubin(code).kernel(kernel.name), None, source.dynamic_shared_bytes
    )
    row = {
        "trans": trans, "variant": name, "config": values, "id": config.id,
        "moved": found.moved, "swapped": found.swapped, **compared.as_dict(),
        "seconds": time.perf_counter() - began,
    }  # fmt: skip
    return row, code


# ---- On the device, in a process of its own -------------------------------------------------


def measure(trans: str, values: dict[str, Any], code: bytes, answer: Any) -> None:
    """Check a version's bits against the unscheduled kernel's, then time both in turns."""
    try:
        answer.put(("done", _measured(trans, values, code)))
    except Exception as error:
        answer.put(("failed", f"{type(error).__name__}: {error}".splitlines()[0]))


def _measured(trans: str, values: dict[str, Any], code: bytes) -> dict[str, Any]:
    from tilewright.backend import Kernel, device
    from tilewright.backend.cuda.device import LoadedKernel
    from tilewright.tuning.measure import Workload, interleaved
    from tilewright.tuning.verify import screen

    live: Any = device("cuda:0")
    config = Config(FAMILY.name, values)
    source = source_of(trans, config)
    plain = live.compile(source)
    cubin: Cubin = dataclasses.replace(cached_cubin(source, live.arch, KernelCache()), code=code)
    loaded = LoadedKernel(live, cubin, source.entry, source.dynamic_shared_bytes)
    made = Kernel(loaded, source.entry, 0.0, code)
    variant = Variant(precision("s"), Trans(trans[0]), Trans(trans[1]))
    screen(live, made, FAMILY, config, variant)
    compared, memory = 0, _matrices(live)
    for m, n, k in RAGGED:
        load = Workload(live, Problem(m, n, k, "s", *trans), memory)
        right = _bits(live, load, plain, config)
        for _ in range(LAUNCHES):
            wrong = int(np.count_nonzero(_bits(live, load, made, config) != right))
            if wrong:
                raise ArithmeticError(f"{wrong} elements of {m} x {n} x {k} have other bits")
            compared += 1
    times: dict[str, Any] = {}
    for size in TIMED:
        load = Workload(live, Problem(size, size, size, "s", *trans), memory)
        pair = [(plain, FAMILY, config), (made, FAMILY, config)]
        times[str(size)] = interleaved(load, pair, 0.0, ROUNDS if size < 8192 else 5)
    return {"device": str(live), "launches_compared": compared, "ns": times}


def _matrices(live: Any) -> dict[str, Any]:
    """Return memory for the largest problem, A and B random; drawing all of it would take long."""
    most = max(TIMED) ** 2
    drawn = np.random.default_rng(0).standard_normal(most // 4, dtype=np.float32)
    memory = {name: live.allocate(4 * most) for name in "abc"}
    for name in "ab":
        for part in range(4):
            live.write(memory[name], np.roll(drawn, 4097 * part), part * drawn.nbytes)
    return memory


def _bits(live: Any, load: Any, kernel: Any, config: Config) -> Any:
    """Run once on a C full of another pattern; return C's bits."""
    empty = np.full(load.elements["c"], 0xFFFFFFFF, np.uint32)
    live.write(load.memory["c"], empty)
    load.run(kernel, FAMILY, config)
    live.download(load.memory["c"], empty)
    return empty


def supervised(row: dict[str, Any], code: bytes) -> dict[str, Any]:
    """Run `measure` in a process; return what it measured, or why not."""
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    child = context.Process(target=measure, args=(row["trans"], row["config"], code, answer))
    child.start()
    until = time.time() + PATIENCE
    while answer.empty() and child.is_alive() and time.time() < until:
        time.sleep(0.05)
    found = None if answer.empty() else answer.get(timeout=5)
    child.kill()
    child.join()
    if found is None:
        return {"reason": f"ended with {child.exitcode} or said nothing for {PATIENCE} s"}
    return dict(found[1]) if found[0] == "done" else {"reason": found[1]}


# ---- All of it ------------------------------------------------------------------------------


def prepare(
    cases: list[str], variants: list[str], workers: int, until: float
) -> list[tuple[dict[str, Any], bytes]]:
    """Compile and reschedule in several processes."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context)
    best, made = winners(), []
    jobs = {
        pool.submit(rescheduled, trans, dict(best[trans]), name): (trans, name)
        for name in variants
        for trans in cases
    }
    try:
        for done in as_completed(jobs, timeout=max(1.0, until - time.time())):
            trans, name = jobs[done]
            if done.exception() is None:
                made.append(done.result())
                print(f"{trans} {name}: {made[-1][0]['seconds']:.0f} s", flush=True)
            else:
                reason = f"{type(done.exception()).__name__}: {done.exception()}"
                made.append(({"trans": trans, "variant": name, "reason": reason}, b""))
                print(f"{trans} {name}: {reason}", flush=True)
    except LateError:
        print("time is up: the rest was not rescheduled", flush=True)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return made


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write what is known so far."""
    from tilewright.bench.record import environment_record
    from tilewright.bench.sweep import Method

    rows = sorted(rows, key=lambda r: (r["trans"], list(VARIANTS).index(r["variant"])))
    record = {"environment": environment_record(Method(ROUNDS)), "rows": rows}
    write_atomically(path, json.dumps(record, indent=1).encode())


def table(rows: list[dict[str, Any]]) -> str:
    """Return predictions, and what was measured, as text."""
    lines = ["op  steps      moved  pipe share predicted    measured: bits, gain at 4096, 8192"]
    for row in sorted(rows, key=lambda r: (r["trans"], list(VARIANTS).index(r["variant"]))):
        start = f"{row['trans']}  {row['variant']:<10}"
        if "predicted" not in row:
            lines.append(f"{start} {row['reason']}")
            continue
        old, new = (row["predicted"][x]["pipe_share"] for x in ("before", "after"))
        text = f"{start}{row['moved']:5}  {100 * old:.1f} % -> {100 * new:.1f} %"
        got = row.get("measured")
        if got is None:
            lines.append(f"{text}        not measured")
        elif "reason" in got:
            lines.append(f"{text}        {got['reason']}")
        else:
            gains = [np.median(a) / np.median(b) for a, b in got["ns"].values()]
            shown = ", ".join(f"{100 * (gain - 1):+.1f} %" for gain in gains)
            lines.append(f"{text}        same in {got['launches_compared']}, {shown}")
    return "\n".join(lines)


def main() -> None:
    """Prepare, run if asked to, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--predict", action="store_true", help="do not run anything on a device")
    parser.add_argument("--table", action="store_true", help="only print what the file holds")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--trans", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    if chosen.table:
        print(table(json.loads(chosen.json.read_text())["rows"]))
        return
    until = time.time() + chosen.seconds
    # What needs the device takes some seconds for each version.
    stop = until if chosen.predict else until - 0.45 * chosen.seconds
    made = prepare(chosen.trans, chosen.variants, chosen.workers, stop)
    rows = [row for row, _ in made]
    write(chosen.json, rows)
    if not chosen.predict:
        # The likeliest to gain first: time may run out.
        for row, code in sorted(made, key=lambda x: -list(VARIANTS).index(x[0]["variant"])):
            if code and time.time() < until:
                row["measured"] = supervised(row, code)
                write(chosen.json, rows)
                print(
                    row["trans"], row["variant"], row["measured"].get("reason", "ran"), flush=True
                )
    print(table(rows))


if __name__ == "__main__":
    main()
