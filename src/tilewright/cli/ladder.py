"""``tilewright ladder``: one optimisation a rung, from the naive kernel to the vendor's library."""

from __future__ import annotations

import json as json_format
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.output import DeviceOption, JsonOption, emit_json, emit_table, gigaflops, say

if TYPE_CHECKING:
    from tilewright.backend import LiveDevice
    from tilewright.bench.ladder.climb import Contender
    from tilewright.bench.peers import Peer
    from tilewright.problem import Problem

__all__ = ["command"]

# The RTX 4070 report's sizes, and some that PoCL does in seconds.
_GPU_SIZES = "1024,8192x8192x1024,12288x12288x1024"
_CPU_SIZES = "128,256"


def command(
    device: DeviceOption = None,
    size: Annotated[
        str | None,
        typer.Option(
            "--size", "--sizes", help=f"Row-major MxNxK, with commas; on a GPU {_GPU_SIZES}."
        ),
    ] = None,
    peer: Annotated[
        str | None,
        typer.Option("--peer", "--against", help="With commas; cublas on CUDA, else numpy."),
    ] = None,
    tune: Annotated[
        str | None, typer.Option("--tune", help="Tune rung 8 for each size first, for so long.")
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Turns of all rungs.")] = 15,
    budget: Annotated[
        str | None, typer.Option("--budget", help="Begin no further size after so long.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="JSON file.")] = None,
    json: JsonOption = False,
) -> None:
    """Climb the kernel ladder: eight kernels, one idea each, beside the vendor's library."""
    from tilewright.backend import device as find_device
    from tilewright.bench.peers import peer as find_peer
    from tilewright.bench.record import device_record, environment_record
    from tilewright.bench.sweep import Method
    from tilewright.tuning.tuner import seconds_of

    live = find_device(device)
    seconds = None if budget is None else seconds_of(budget)
    problems = _problems(size or (_GPU_SIZES if live.spec.kind == "gpu" else _CPU_SIZES))
    names = (peer or ("cublas" if live.backend == "cuda" else "numpy")).split(",")
    peers = [find_peer(name, live) for name in names if name]
    results: list[dict[str, Any]] = []
    record = device_record(live, peers) | {"results": results}
    document = {"environment": environment_record(Method(rounds)), "devices": [record]}
    started = time.monotonic()
    rungs = _rungs(live, quiet=json)
    for problem in problems:
        if seconds is not None and results and time.monotonic() - started > seconds:
            record["stopped"] = f"before {_shape(problem)}: the budget of {budget} is spent"
            break
        if tune is not None:
            _tune(problem, live, tune)
        results.append(_climb(live, problem, rungs, peers, rounds, quiet=json))
        if output is not None:
            _write(output, document)  # an interrupted climb loses nothing
    if output is not None:
        _write(output, document)
    if json:
        emit_json(document)
        return
    if "stopped" in record:
        say(f"stopped {record['stopped']}")
    if output is not None:
        say(f"written to {output}")


def _problems(sizes: str) -> list[Problem]:
    """Return the column-major problems of row-major sizes."""
    from tilewright.bench.sizes import parse_sizes
    from tilewright.problem import Problem

    return [Problem(n, m, k, "s") for m, n, k in parse_sizes(sizes)]  # type: ignore[arg-type]


def _shape(problem: Problem) -> str:
    return f"{problem.n}x{problem.m}x{problem.k}"


def _rungs(live: LiveDevice, *, quiet: bool) -> list[Contender]:
    """Compile and check the rungs once for all sizes."""
    from rich.console import Console
    from rich.progress import track

    from tilewright.bench.ladder.climb import rung_contenders
    from tilewright.bench.ladder.rungs import RUNGS

    console = Console(stderr=True, quiet=quiet)
    ready = rung_contenders(live)
    return list(track(ready, "compiling rungs", len(RUNGS), console=console, transient=True))


def _tune(problem: Problem, live: LiveDevice, budget: str) -> None:
    from tilewright.tuning.tuner import tune

    tune(problem, live, budget=budget)


def _climb(
    live: LiveDevice,
    problem: Problem,
    rungs: list[Contender],
    peers: list[Peer],
    rounds: int,
    *,
    quiet: bool,
) -> dict[str, Any]:
    """Measure one size, print its table, and return its record."""
    from rich.console import Console
    from rich.progress import Progress

    from tilewright.bench.bounded import bound_of
    from tilewright.bench.ladder.climb import climb, tuned_contender
    from tilewright.bench.ladder.record import climb_record

    limit = bound_of(live, problem)
    with Progress(console=Console(stderr=True, quiet=quiet), transient=True) as progress:
        ours = [*rungs, tuned_contender(live, problem)]
        task = progress.add_task(_shape(problem), total=len(ours) + len(peers))

        def observer(name: str) -> None:
            progress.update(task, advance=1, description=f"{_shape(problem)} {name}")

        results = climb(live, problem, ours, peers, rounds, observer)
    told = climb_record(problem, limit, results, [one.name for one in peers])
    if not quiet:
        _show(live, told)
    return told


def _show(live: LiveDevice, told: dict[str, Any]) -> None:
    """Print one size's table."""
    from rich.table import Table

    limit = told["bound"]
    rate = limit.get("flops_per_second")
    said = f"bound {gigaflops(rate)} by {limit['limiting']}" if rate else limit["missing"]
    table = Table(title=f"{told['problem']} on {live}; {said}", title_justify="left")
    table.add_column("rung")
    table.add_column("what is new")
    columns = ("max error", "kernel, ms", "with transfers, ms", "rate", "% library", "% bound")
    for name in (*columns, "registers", "occupancy"):
        table.add_column(name, justify="right")
    table.add_column("limited by")
    for one in told["rungs"]:
        table.add_row(*_cells(one))
    emit_table(table)


def _cells(one: dict[str, Any]) -> list[str]:
    """Return one rung's cells; a dash for what is not known, the reason where it did not run."""
    if one["reason"]:
        return [one["name"], one["title"], *["-"] * 8, one["reason"]]
    code = one["machine_code"]

    def cell(value: float | None, form: str, scale: float = 1.0) -> str:
        return "-" if value is None else format(value * scale, form)

    return [
        one["name"],
        one["title"],
        cell(one["max_error"], ".1e"),
        cell(one["kernel_seconds"], ".3f", 1e3),
        cell(one["total_seconds"], ".3f", 1e3),
        gigaflops(one["flops_per_second"]),
        cell(one["percent_of_library"], ".1f"),
        cell(one["percent_of_bound"], ".1f"),
        str(code["registers"]) if code else "-",
        f"{100 * code['occupancy']:.0f} %" if code else "-",
        one["limits"] + (f", model {100 * code['pipe_share']:.0f} %" if code else ""),
    ]


def _write(path: Path, document: dict[str, Any]) -> None:
    from tilewright.paths import write_atomically

    write_atomically(path, (json_format.dumps(document, indent=1) + "\n").encode())
