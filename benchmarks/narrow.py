"""tw.gemm on 16- and 8-bit PyTorch tensors against PyTorch's own (cuBLAS), and the chooser's picks.

    python benchmarks/narrow.py [--seconds 40] [--json FILE]

Parts, each a list of rows; a row that failed has a reason:
- ``calls``: both libraries' calls in turns (A B A B), by CUDA events around one call each with
  the cache warm, medians in ns; results compared on integers, which are exact.  int8 is
  compared with ``torch._int_mm``, where it takes the operands.
- ``host``: what a warm call costs the host, in microseconds, on matrices of side 64.
- ``starts``: every start of the stencil at sizes of few waves, and which one is chosen.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.clock import Clock

import tilewright as tw
from tilewright.bench.record import device_record, environment_record
from tilewright.bench.tensor.cases import Case
from tilewright.bench.tensor.products import Matrices
from tilewright.library.matrix_units import config_for
from tilewright.problem import Problem
from tilewright.stencil.wgmma import Wgmma

ROUNDS = 15
# Fewer launches than a CUDA stream queues: more would wait for the device.
CALLS = 200
# Of the device's clock: 0.1 ms, in which the host makes a call.
_CYCLES = 200_000

Row = dict[str, Any]


def device_ns(call: Callable[[], Any]) -> float:
    """Return the nanoseconds between two events around a call."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    # The device waits while the call is made, so that no time is the host's.
    torch.cuda._sleep(_CYCLES)
    first.record()
    call()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) * 1e6


def in_turns(calls: dict[str, Callable[[], Any]], rounds: int = ROUNDS) -> dict[str, float]:
    """Return the median of each, measured one after the other again and again."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 2):
        for name, call in calls.items():
            taken = device_ns(call)
            if turn > 1:
                times[name].append(taken)
    return {name: statistics.median(row) for name, row in times.items()}


def operand(rows: int, columns: int, letter: str, kind: str, more: int = 0) -> Any:
    """Return integers of a type, op() of which is rows x columns, with a wider step."""
    shape = (rows, columns) if letter == "N" else (columns, rows)
    drawn = torch.randint(-3, 4, (shape[0], shape[1] + more), device="cuda", dtype=torch.int8)
    return drawn.to(getattr(torch, kind))[:, : shape[1]]


def compared(kind: str, trans: str, size: int, more: int = 0) -> Row:
    """Return one case's times, once the results are known to be equal."""
    a, b = (operand(size, size, letter, kind, more) for letter in trans)
    x, y = (v if t == "N" else v.T for v, t in zip((a, b), trans, strict=True))
    c = torch.empty((size, size), device="cuda", dtype=torch.int32 if kind == "int8" else a.dtype)
    given = {"trans_a": trans[0], "trans_b": trans[1]}
    ours: Callable[[], Any] = lambda: tw.gemm(a, b, c, **given)  # noqa: E731
    theirs: Callable[[], Any] = (
        (lambda: torch._int_mm(x, y)) if kind == "int8" else lambda: torch.mm(x, y, out=c)
    )
    ours()
    # Sums beyond 2^24 there are none; 16 bits are rounded once from them by both.
    right = (x.double() @ y.double()).to(torch.float32).to(c.dtype)
    if not torch.equal(c, right):
        raise ValueError(f"{int((c != right).sum())} of {c.numel()} results are wrong")
    calls = {"tilewright": ours, "cublas": theirs}
    row: Row = {"kind": kind, "trans": trans, "size": size, "padding": more}
    try:
        theirs()
    except RuntimeError as error:
        row["cublas"] = str(error).splitlines()[0]
        del calls["cublas"]
    row["ns"] = in_turns(calls)
    row["tflops"] = {name: 2 * size**3 / ns / 1e3 for name, ns in row["ns"].items()}
    return row


def calls_part() -> Iterator[Callable[[], Row]]:
    """Yield the cases: all transposes at 4096, some elsewhere, and operands that are copied."""
    for size, every in ((4096, True), (8192, False), (2048, True), (1024, True), (512, False)):
        for kind in ("bfloat16", "float16", "int8"):
            for trans in ("NN", "NT", "TN", "TT") if every else ("NT",):
                yield lambda k=kind, t=trans, s=size: compared(k, t, s)  # type: ignore[misc]
        yield lambda s=size: compared("bfloat16", "NT", s, 1)  # type: ignore[misc]


def host_part() -> Iterator[Callable[[], Row]]:
    """Yield the cost of calls on small matrices."""
    for kind, side in (("float32", 64), ("bfloat16", 64), ("int8", 64), ("bfloat16", 61)):
        yield lambda k=kind, s=side: host_row(k, s)  # type: ignore[misc]


def host_row(kind: str, side: int) -> Row:
    """Return what a warm call costs, in microseconds, both libraries in turns."""
    a, b = (operand(side, side, "N", kind) for _ in range(2))
    c = torch.empty((side, side), device="cuda", dtype=torch.int32 if kind == "int8" else a.dtype)
    calls: dict[str, Callable[[], Any]] = {
        "c given": lambda: tw.gemm(a, b, c, trans_b="T"),
        "c new": lambda: tw.gemm(a, b, trans_b="T"),
    }
    if kind != "int8":
        calls["torch"] = lambda: torch.mm(a, b.T, out=c)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(12):
        for name, call in calls.items():
            torch.cuda.synchronize()
            started = time.perf_counter()
            for _ in range(CALLS):
                call()
            if turn > 1:
                times[name].append((time.perf_counter() - started) / CALLS * 1e6)
    return {"kind": kind, "side": side, "us": {n: statistics.median(v) for n, v in times.items()}}


def starts_part(live: Any) -> Iterator[Callable[[], Row]]:
    """Yield sizes at which starts are timed."""
    for size in (512, 1024, 1536, 2048):
        for arithmetic in ("bf16", "fp16x3", "bf16x6"):
            yield lambda s=size, n=arithmetic: starts_row(live, n, s)  # type: ignore[misc]


def starts_row(live: Any, arithmetic: str, size: int) -> Row:
    """Return every start's time of the product alone, and the chosen one."""
    case, family = Case(arithmetic, "TN"), Wgmma()
    promote = case.scheme.promote_k if case.scheme else 0
    space = family.space(case.variant, live.spec)
    able = [
        config
        for config in family.starts(case.variant, live.spec)
        if config in space and (not promote or 0 < config.integer("promote_k") <= promote)
    ]
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size), np.float32) for _ in range(2))
    matrices = Matrices(live, Problem(size, size, size, "s", "T", "N"), a, b)
    try:
        matrices.ours(case, able[0])()
        calls = {config.id: matrices.ours(case, config, split=False) for config in able}
        times: dict[str, list[int]] = {name: [] for name in calls}
        for turn in range(12):
            for name, call in calls.items():
                taken = call()
                if turn > 1:
                    times[name].append(taken)
    finally:
        matrices.close()
    medians = {name: statistics.median(row) for name, row in times.items()}
    chosen = config_for(case.variant, live.spec, size, size, size, promote)
    best = min(medians, key=lambda name: medians[name])
    return {
        "arithmetic": arithmetic, "size": size, "ns": medians, "chosen": chosen.id, "best": best,
        "configs": {config.id: dict(config) for config in able},
        "share_of_best": medians[best] / medians[chosen.id],
    }  # fmt: skip


def table(document: dict[str, Any]) -> None:
    """Print what was found."""
    for row in document["calls"]:
        if "reason" in row:
            print("failed:", row["reason"])
            continue
        ours, theirs = (row["tflops"].get(who) for who in ("tilewright", "cublas"))
        ratio = f"{theirs:7.1f} {ours / theirs:5.2f}x" if theirs else "      -"
        padded = " ld + 1" if row["padding"] else ""
        print(f"{row['kind']:9} {row['trans']} {row['size']:5}{padded:7} {ours:7.1f} {ratio}")
    for row in document["host"]:
        said = row.get("reason") or ", ".join(f"{n} {v:.1f} us" for n, v in row["us"].items())
        print(f"host {row.get('kind', '')} {row.get('side', '')}: {said}")
    for row in document["starts"]:
        if "reason" in row:
            print("failed:", row["reason"])
            continue
        least = row["ns"][row["best"]] / 1e3
        print(f"starts {row['arithmetic']:7} {row['size']:5}: best {least:.1f} us, chosen at"
              f" {row['share_of_best']:.2f} of its speed")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--json", type=Path, help="file to write")
    options = parser.parse_args()
    clock, live = Clock(options.seconds), tw.device("cuda:0")
    document: dict[str, Any] = {
        "environment": environment_record() | {"torch": torch.__version__},
        "device": device_record(live, []), "calls": [], "host": [], "starts": [],
    }  # fmt: skip
    parts = {"host": host_part(), "starts": starts_part(live), "calls": calls_part()}
    for name, rows in parts.items():
        clock.say(name)
        for one in rows:
            if clock.left < 1:
                break
            try:
                row = one()
            except Exception as error:  # the others go on
                row = {"reason": f"{type(error).__name__}: {error}".splitlines()[0]}
            document[name].append(row)
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    clock.say("done")
    table(document)


if __name__ == "__main__":
    main()
