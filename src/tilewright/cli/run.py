"""``tilewright run``: another program, whose calls of cuBLAS and BLAS are served here."""

from __future__ import annotations

import json as json_format
import math
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import which
from typing import Annotated, Any

import typer

from tilewright.cli.output import counted, emit_lines, say

__all__ = ["command", "read_log", "summary"]

# tilewright_log.c, tilewright_cublas.c
_LOG, _TRACE = "TILEWRIGHT_CALLS_LOG", "TILEWRIGHT_CALLS_TRACE"
_COMPARE = "TILEWRIGHT_CUBLAS_COMPARE"
_ACCURACY, _PLANS = "TILEWRIGHT_CUBLAS_ACCURACY", "TILEWRIGHT_CUBLAS_PLANS"  # tilewright_plans.c

# tilewright_blas.c, tilewright_host.c
_NUMBERS = {"TILEWRIGHT_BLAS_LEAST": "multiplications", "TILEWRIGHT_BLAS_MEMORY": "bytes"}

_NAMES = {"cublas": "cuBLAS", "blas": "BLAS"}

# Kinds of calls in the table; the sums below it are over all.
_LINES = 20


def command(
    program: Annotated[
        list[str] | None, typer.Argument(help="Behind --, as it would be started by itself.")
    ] = None,
    calls: Annotated[
        bool, typer.Option("--calls", help="Say at the end which calls were served.")
    ] = False,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Let cuBLAS compute what is served, too, and say how long both took; calls wait.",
        ),
    ] = False,
    accuracy: Annotated[
        list[str] | None,
        typer.Option(
            "--accuracy",
            help="fp32: float32 and complex64 as accurate, by tensor cores; fp64: float64 and"
            " complex128; may be repeated.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            help="CUDA device here, or an architecture such as sm_90a; the best device by default.",
        ),
    ] = None,
) -> None:
    """Run a program whose GEMMs of cuBLAS and BLAS, float32 to complex128, these kernels compute.

    For example: tilewright run --calls -- python train.py.  Without a program, print the library
    for LD_PRELOAD.  Where there is no CUDA device, and none is named, the program runs as it is.
    """
    from tilewright.cli.run_trace import take_traces
    from tilewright.export.plans import ACCURACIES
    from tilewright.timeline import is_recording, span

    wanted, traced = accuracy or [], is_recording()
    for name in wanted:
        if name not in ACCURACIES:
            raise ValueError(f"accuracy={name!r} is unknown; use {' or '.join(ACCURACIES)}")
    for variable, what in _NUMBERS.items():  # the library would read 2e9 as 2
        number = os.environ.get(variable) or "0"
        if not number.isdecimal():
            raise ValueError(f"{variable}={number!r} is no number of {what}; write it in digits")
    if not program:
        say(_library(device))
        return
    _check(program[0])
    watched = calls or compare or traced
    library = _library(device, spared=True, watched=watched)
    if not library:
        wanted, calls, compare, traced, watched = [], False, False, False, False
    preloaded = ":".join(filter(None, (library, os.environ.get("LD_PRELOAD"))))
    environment = {**os.environ, "LD_PRELOAD": preloaded}
    with tempfile.TemporaryDirectory() as name, _planned(device, wanted, Path(name)) as more:
        folder, own = Path(name), Path(program[0]).name
        environment |= more
        for variable, asked in ((_LOG, watched), (_TRACE, traced), (_COMPARE, compare)):
            if asked:
                environment[variable] = str(folder)
        with span(own):
            code = _run(program, environment)
        rows = read_log(folder)
        if traced:
            take_traces(folder, own, rows)
        if calls or compare:
            _show(rows)
    if code:  # a signal as shells have it
        raise typer.Exit(code if code > 0 else 128 - code)


def _run(program: list[str], environment: dict[str, str]) -> int:
    """Return a program's status, however long it takes to end on a signal.

    A terminal's Ctrl-C reaches it as well as this process; what ends this process is passed on.
    """
    started: list[subprocess.Popen[bytes]] = []
    early: list[int] = []  # signals that came before the program was there

    def told(number: int, _: object) -> None:
        if not started:
            early.append(number)
        elif number != signal.SIGINT:
            started[0].send_signal(number)

    heard = [
        one for one in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(one) != signal.SIG_IGN
    ]
    before = {one: signal.signal(one, told) for one in heard}
    try:
        started.append(subprocess.Popen(program, env=environment))  # noqa: S603  # the user's
        for number in early:
            started[0].send_signal(number)
        return started[0].wait()
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _library(device: str | None, *, spared: bool = False, watched: bool = False) -> str:
    """Return the library to preload, compiled behind a bar; none where a program may do without."""
    from tilewright.export.preload import preloaded_library

    try:
        with counted("kernels and C library") as observer:
            return str(preloaded_library(device, observer))
    except ValueError:
        if device is not None or not spared:
            raise
    unwatched = ", and calls are not watched" if watched else ""
    named = os.environ.get("TILEWRIGHT_DEVICE")
    why = f"TILEWRIGHT_DEVICE={named} is no" if named else "there is no"
    typer.echo(f"tilewright: nothing is served{unwatched}: {why} CUDA device here", err=True)
    return ""


def _check(name: str) -> None:
    """Refuse a file that no shell would start by this name either."""
    if which(name) is None and Path(name).is_file():
        if os.sep in name:
            raise ValueError(
                f"program={name!r} is a file that may not be executed; write python {name} for a"
                f" Python script, or allow it (chmod +x {name})"
            )
        raise ValueError(
            f"program={name!r} is a file, but no program by this name; write ./{name} if it may be"
            f" executed, or python {name} for a Python script"
        )


@contextmanager
def _planned(device: str | None, wanted: list[str], folder: Path) -> Iterator[dict[str, str]]:
    """Lay plans of other accuracies out meanwhile; yield what tells the library where."""
    if not wanted:
        yield {}
        return
    from tilewright.export import find_target
    from tilewright.export.plans import Planner, serving

    planner, socket = Planner(find_target(device), folder), folder / "plans"
    with ExitStack() as within:
        try:
            within.enter_context(serving(planner, socket))
        except OSError as error:  # of the socket: a path of more than 107 bytes, mostly
            typer.echo(f"tilewright: --accuracy is left aside: {socket}: {error}", err=True)
            yield {}
        else:
            yield {_ACCURACY: ",".join(wanted), _PLANS: str(socket)}


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Return the kinds of calls of all processes, those of equal kind added up.

    Parameters
    ----------
    folder : Path
        Where the preloaded library wrote.
    """
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            try:
                row = json_format.loads(line)
            except ValueError:  # cut: the program was killed while it wrote
                continue
            kind = *row["size"], row["batch"], row["served"], row["kernel"]
            key = row["library"], row["precision"], row["trans"], *kind
            if key in rows:
                for name in ("calls", "timed", "ours_ms", "theirs_ms"):
                    rows[key][name] += row[name]
            else:
                rows[key] = row
    return sorted(
        rows.values(), key=lambda row: -math.prod(row["size"]) * row["batch"] * row["calls"]
    )


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Return a sentence: calls served and passed on, and the time saved where it was measured."""
    parts = []
    for name in dict.fromkeys(row["library"] for row in rows):
        mine = [row for row in rows if row["library"] == name]
        served = sum(row["calls"] for row in mine if row["served"])
        passed = sum(row["calls"] for row in mine) - served
        parts.append(f"{_NAMES[name]}: {served} calls served, {passed} passed on")
    said = "; ".join(parts) or "no calls"
    timed = [row for row in rows if row["timed"]]
    if not timed:
        return said
    ours, cublas = (
        sum(row[name] * row["calls"] / row["timed"] for row in timed)
        for name in ("ours_ms", "theirs_ms")
    )
    return f"{said}; served in {ours:.1f} ms where cuBLAS took {cublas:.1f} ms"


def _show(rows: Sequence[dict[str, Any]]) -> None:
    heads = ("of", "GEMM", "trans", "m x n x k", "calls", "served", "us", "cuBLAS, us")
    lines = []
    for row in rows[:_LINES]:
        times = [
            f"{1000 * row[name] / row['timed']:.1f}" if row["timed"] else ""
            for name in ("ours_ms", "theirs_ms")
        ]
        size = " x ".join(map(str, row["size"]))
        size += f", {row['batch']} of them" if row["batch"] != 1 else ""
        served = "no"
        if row["served"]:
            served = row["kernel"] if row["kernel"] in ("fp32", "fp64") else "yes"
        about = _NAMES[row["library"]], row["precision"], row["trans"]
        lines.append((*about, size, row["calls"], served, *times))
    emit_lines(heads, lines)
    say(summary(rows))
