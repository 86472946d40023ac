"""Rescheduled main loops of the best SGEMM kernels: predicted here, proved and timed on a GPU.

    python benchmarks/schedule.py --predict --json FILE      compiles, reschedules; needs no GPU
    python benchmarks/schedule.py --seconds 120 --json FILE   the same, then runs them
    python benchmarks/schedule.py --table --json FILE        only prints what FILE holds
    python benchmarks/schedule.py --table --json FILE --page PAGE     and writes it into a page

For each transpose the config that won at 4096 in hopper_s.json is compiled as it is and
rescheduled by each step alone and by all of them.  On a device (`schedule_device`) every version
must give the same bits as the unscheduled kernel, in many launches, at ragged sizes, with little
memory left and with another kernel running; then both and cuBLAS run in turns, A B C A B C.  A
process of its own runs each version: one that crashes or hangs is a row with a reason.
FILE is written after each part; the table comes last.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures import TimeoutError as LateError
from pathlib import Path
from typing import Any

import numpy as np

from schedule_device import FAMILY, ROUNDS, source_of, supervised
from tilewright.backend.cache import KernelCache
from tilewright.backend.cuda.compiler import cached_cubin
from tilewright.paths import write_atomically
from tilewright.sass import compare, decode, inspect_kernel, patch, read_cubin, schedule
from tilewright.space import Config

CASES = ("NN", "NT", "TN", "TT")
VARIANTS: dict[str, tuple[str, ...]] = {
    "reuse": ("reuse",),
    "operands": ("reuse", "operands"),
    "order": ("reuse", "operands", "order"),
    "banks": ("banks",),
    "loads": ("loads",),
    "stalls": ("stalls",),
    "yields": ("yields",),
    "all": ("reuse", "operands", "order", "banks", "loads", "stalls"),
}
BEST = Path(__file__).parent / "results" / "h100" / "hopper_s.json"
BEGIN, END = "<!-- schedule: begin -->", "<!-- schedule: end -->"
TUNED_AT, ARCH = 4096, "sm_90a"


def winners() -> dict[str, Config]:
    """Return the config that won at `TUNED_AT`, for each transpose."""
    rows = json.loads(BEST.read_text())["log"]
    return {
        row["trans"]: Config(FAMILY.name, row["config"])
        for row in rows
        if row["kind"] == "final" and row.get("size") == TUNED_AT and "config" in row
    }


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
        "changed": {
            "moved": found.moved, "swapped": found.swapped, "renamed": found.renamed,
            "placed": found.placed, "restalled": found.restalled,
        },
        "left_alone": {hex(at): why for at, why in found.refused.items()}, **compared.as_dict(),
        "seconds": time.perf_counter() - began,
    }  # fmt: skip
    return row, code


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
    lines = [
        "op  step      moved placed renamed stalls  pipe share predicted  cycles   measured:"
        " bits, gain at 4096, 8192; cuBLAS = 1"
    ]
    for row in sorted(rows, key=lambda r: (r["trans"], list(VARIANTS).index(r["variant"]))):
        start = f"{row['trans']}  {row['variant']:<9}"
        if "predicted" not in row:
            lines.append(f"{start} {row['reason']}")
            continue
        old, new = (row["predicted"][x] for x in ("before", "after"))
        made = row["changed"]
        text = (
            f"{start}{made['moved']:5} {made['placed']:6} {made['renamed']:7} "
            f"{made['restalled']:6}  "
            f"{100 * old['pipe_share']:.1f} % -> {100 * new['pipe_share']:.1f} %"
            f"  {100 * (new['cycles'] / old['cycles'] - 1):+6.1f} %"
        )
        lines.append(f"{text}   {_measured(row.get('measured'))}")
    return "\n".join(lines)


def page_with(page: str, text: str) -> str:
    """Return a page with the table between its marks."""
    before, rest = page.split(f"{BEGIN}\n", 1)
    _, after = rest.split(END, 1)
    return f"{before}{BEGIN}\n```\n{text}\n```\n{END}{after}"


def _measured(got: dict[str, Any] | None) -> str:
    """Return what a device said of a version."""
    if got is None:
        return "not measured"
    if "reason" in got:
        return str(got["reason"])
    shown = []
    for times in got["ns"].values():
        plain, made = (float(np.median(times[name])) for name in ("plain", "scheduled"))
        text = f"{100 * (plain / made - 1):+.1f} %"
        if "cublas" in times:
            text += f" ({float(np.median(times['cublas'])) / made:.3f})"
        shown.append(text)
    return f"same in {sum(got['compared'].values())}, {', '.join(shown)}"


def main() -> None:
    """Prepare, run if asked to, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--predict", action="store_true", help="do not run anything on a device")
    parser.add_argument("--table", action="store_true", help="only print what the file holds")
    parser.add_argument("--page", type=Path, help="with --table: a page that has the marks")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--trans", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    if chosen.table:
        text = table(json.loads(chosen.json.read_text())["rows"])
        print(text)
        if chosen.page:
            write_atomically(chosen.page, page_with(chosen.page.read_text(), text).encode())
        return
    until = time.time() + chosen.seconds
    # What needs the device takes some seconds for each version.
    stop = until if chosen.predict else until - 0.45 * chosen.seconds
    made = prepare(chosen.trans, chosen.variants, chosen.workers, stop)
    rows = [row for row, _ in made]
    write(chosen.json, rows)
    if not chosen.predict:
        # The likeliest to gain first: time may run out.
        order = ["all", "order", "banks", "loads", "stalls", "yields", "operands", "reuse"]
        for row, code in sorted(made, key=lambda x: order.index(x[0]["variant"])):
            if code and time.time() < until:
                row["measured"] = supervised(row, code)
                write(chosen.json, rows)
                print(
                    row["trans"], row["variant"], row["measured"].get("reason", "ran"), flush=True
                )
    print(table(rows))


if __name__ == "__main__":
    main()
