"""What `tilewright run` costs and wins a call: a C program of cuBLAS's, with and without.

The program knows nothing of what is preloaded.  It runs with, with a trace, and without in turns:
small calls that are served, calls that are passed on, some of them of nothing, which take cuBLAS a
moment.  Then 16 threads, each with a handle of its own, call for a while, and neither the host's
nor the device's memory may grow.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path

from tilewright.bench.peers import UnavailableError
from tilewright.bench.peers.cublas import library_file
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.export.compiling import CompilerError, link

__all__ = ["BENCHMARK"]

# Of the program with and without, in turns.
_ROUNDS = 5

# Beside the seconds that were asked for: libraries are loaded, threads end.
_STARTING = 120


class Preloaded(Benchmark):
    measures = "nanoseconds of the host a call of cuBLAS under `tilewright run`, and 16 threads"
    against = "the same program without"
    takes = "as many seconds as threads run, and half a minute"
    # Seconds of the threads.
    options = {"count": "60"}  # noqa: RUF012
    needs = "cuda"

    def rows(self, asked: Asked) -> Iterator[Row]:
        """Yield a row for each kind of call, and one of the threads."""
        from tilewright.export.preload import preloaded_library

        try:
            ours = str(preloaded_library(asked.live.id))
        except CompilerError as error:
            raise UnavailableError(str(error)) from None
        ordinal = str(getattr(asked.live, "ordinal"))  # noqa: B009  # CUDA's
        with tempfile.TemporaryDirectory() as folder:
            program = [str(_built(Path(folder))), library_file(), ordinal]
            found: dict[str, dict[str, list[float]]] = {}
            traced = {"TILEWRIGHT_CALLS_LOG": folder, "TILEWRIGHT_CALLS_TRACE": "1"}
            ways: dict[str, dict[str, str]] = {
                "ours_ns": {"LD_PRELOAD": ours}, "traced_ns": {"LD_PRELOAD": ours, **traced},
                "cublas_ns": {},
            }  # fmt: skip
            for _ in range(_ROUNDS):
                for kind, variables in ways.items():
                    for name, ns in _lines([*program, "times"], variables, 0):
                        found.setdefault(name, {}).setdefault(kind, []).append(float(ns))
            for name, times in found.items():
                yield {"calls": name} | {kind: statistics.median(x) for kind, x in times.items()}
            [numbers] = _lines([*program, str(asked.count)], ways["ours_ns"], asked.count)
            names = "called", "failures", "host_kb", "device_kb"
            yield {"seconds": asked.count, **dict(zip(names, map(int, numbers), strict=True))}

    def line(self, row: Row) -> str:
        if "called" in row:
            return (
                f"16 threads, {row['seconds']} s: {row['called']} calls, {row['failures']} failed,"
                f" {row['host_kb']} KB more on the host, {row['device_kb']} KB on the device"
            )
        return f"{row['calls']}: {row['ours_ns']:.0f} ns, without {row['cublas_ns']:.0f}"

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        heads, found = cells(rows)
        return heads, [[*line] for line in found]


def cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the heads, and a line for each kind of call."""
    kinds = [row for row in rows if "calls" in row]
    heads = ["call", "ns", "cuBLAS alone", "more"]
    made = [
        [
            row["calls"], f"{row['ours_ns']:.0f}", f"{row['cublas_ns']:.0f}",
            f"{row['ours_ns'] - row['cublas_ns']:+.0f}",
        ] for row in kinds
    ]  # fmt: skip
    if all("traced_ns" in row for row in kinds):  # results of before there were traces have none
        heads.append("more with `--trace`")
        for line, row in zip(made, kinds, strict=True):
            line.append(f"{row['traced_ns'] - row['ours_ns']:+.0f}")
    return heads, made


def _built(folder: Path) -> Path:
    main = folder / "preloaded.c"
    main.write_bytes(files("tilewright.bench.benchmarks").joinpath(main.name).read_bytes())
    try:
        link([main], folder / "program")
    except CompilerError as error:
        raise UnavailableError(str(error)) from None
    return folder / "program"


def _lines(command: Sequence[str], variables: dict[str, str], seconds: int) -> list[list[str]]:
    """Return the words of what a run prints."""
    environment = {**os.environ, **variables}
    done = subprocess.run(  # noqa: S603  # built here, no shell
        command, env=environment, capture_output=True, text=True, timeout=seconds + _STARTING,
        check=False,
    )  # fmt: skip
    if done.returncode:
        said = done.stderr.strip() or f"status {done.returncode}"
        raise UnavailableError(f"the C program ended: {said.splitlines()[-1]}")
    return [line.split("|") for line in done.stdout.splitlines()]


BENCHMARK = Preloaded()
