"""The process that outlives a kernel that crashes or hangs, and the table."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tilewright.paths import write_atomically

from .cases import ASKED
from .ending import end, started
from .log import Log

# A candidate that hangs is given up after so many seconds without a word.
SILENCE = 40
# Seconds between two writings of what is known.
EVERY = 30


def watch(
    command: list[str],
    log: Path,
    until: float,
    keep: Callable[[Log], object] | None = None,
    silence: float = SILENCE,
) -> bool:
    """Run the measuring process; False if it crashed or hung before the time was up.

    Now and then `keep` is given what is known so far; `silence` is how many seconds without a
    word are a hang.
    """
    child = started(command)
    heard, seen, written = time.time(), -1, time.time()
    try:
        while child.poll() is None:
            time.sleep(0.5)
            size = log.stat().st_size if log.exists() else 0
            if size != seen:
                heard, seen = time.time(), size
            if keep and seen and time.time() - written > EVERY:
                keep(Log(log))
                written = time.time()
            if time.time() - heard > silence or time.time() > until + 5:
                break
    finally:
        end(child)  # and its compilers, if it crashed without them
    return child.returncode == 0


def supervise(path: Path, until: float, silence: float = SILENCE) -> Log:
    """Run this command's measuring process, again after a crash, and write the results."""
    log_path = path.with_suffix(".log")
    log_path.unlink(missing_ok=True)
    command = [sys.executable, *sys.argv, "--until", str(until)]
    rows, keep = -1, partial(write, path)
    while time.time() < until and not watch(command, log_path, until, keep, silence):
        log = Log(log_path)
        if len(log.rows) == rows or not log.rows:
            break  # it fails before it tries anything
        blame(log)
        rows = len(log.rows)
        write(path, log)
    log = Log(log_path)
    write(path, log)
    return log


def blame(log: Log) -> None:
    """Say of every candidate that was started and not ended what became of it."""
    done = {(row["trans"], row["id"]) for row in log.of("tried")}
    for row in log.of("started"):
        if (row["trans"], row["id"]) not in done:
            reason = "the process crashed or hung"
            log.add(**{**row, "kind": "tried", "reason": reason, "ns": {}})


def keep(path: Path, old: dict[str, Any]) -> None:
    """Put what an earlier run tried or raced, and this one did not, before the rows of this one.

    Such rows say which run they are of (``of``), and whether its launches were held.  Of candidates
    that were tried again the times of other sizes are kept.
    """
    made = json.loads(path.read_bytes())
    again: dict[tuple[str, str], set[str]] = {}
    for row in (row for row in made["log"] if row["kind"] == "tried"):
        again.setdefault((row["trans"], row["id"]), set()).update(row["ns"])
    raced = {
        (row["trans"], row["size"])
        for row in made["log"]
        if row["kind"] == "final" and "reason" not in row
    }
    about = old["environment"]
    run = {name: about[name] for name in ("date", "commit")} | {"held": "held" in about["method"]}
    rows = []
    for row in old["log"]:
        if row["kind"] == "tried":
            known = again.get((row["trans"], row["id"]))
            ns = {size: time for size, time in row["ns"].items() if size not in (known or ())}
            if ns or known is None:
                rows.append({"of": run} | row | {"ns": ns})
        elif row["kind"] == "final" and (row["trans"], row["size"]) not in raced:
            rows.append({"of": run} | row)
    write_atomically(path, json.dumps(made | {"log": rows + made["log"]}, indent=1).encode())


def write(path: Path, log: Log) -> None:
    """Write what is known so far."""
    from tilewright.bench.record import environment_record
    from tilewright.bench.sweep import Method

    made = {"environment": environment_record(Method(21)), "log": log.rows}
    for row in log.of("device"):
        made["device"] = row["device"]
    write_atomically(path, json.dumps(made, indent=1).encode())


def table(log: Log, letter: str, sizes: Sequence[int], cases: list[str]) -> None:
    """Print ratios of a precision, and what failed."""
    tried = log.of("tried")
    failed = [row for row in tried if row["reason"]]
    finals = {(row["trans"], row["size"]): row for row in log.of("final") if "ratio" in row}
    print(f"{letter}: {len(tried)} candidates tried, {len(failed)} failed")
    for reason in sorted({row["reason"][:150] for row in failed})[:8]:
        print(f"  {reason}")
    print("best configs:")
    for (trans, size), row in sorted(finals.items()):
        values = ", ".join(f"{k} {v}" for k, v in row["config"].items())
        print(f"  {trans} {size}: {row['stencil']}: {values}")
    print(f"{'size':>6} " + " ".join(f"{trans:>19}" for trans in cases))
    for size in sizes:
        cells = []
        for trans in cases:
            row, bar = finals.get((trans, size)), ASKED[letter].bar(trans, size)
            mark = "*" if row and row["ratio"] >= (bar or 1) else " "
            cells.append(
                f"{row['tflops']['tilewright']:5.1f}/{row['tflops']['cublas']:5.1f} "
                f"{row['ratio']:5.3f}{mark}" if row else "-"
            )  # fmt: skip
        print(f"{size:6} " + " ".join(f"{cell:>19}" for cell in cells))
    print("* as fast as wanted, or faster than cuBLAS where nothing is")
