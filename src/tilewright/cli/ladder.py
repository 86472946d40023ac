"""``tilewright ladder``: one optimisation a rung, from the naive kernel to the vendor's library."""

from __future__ import annotations

import math
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.output import (
    RESULTS,
    DeviceOption,
    JsonOption,
    emit_json,
    emit_lines,
    gigaflops,
    output_option,
    progress_bar,
    say,
)

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from tilewright.backend import LiveDevice
    from tilewright.bench.ladder.race import Ladder
    from tilewright.problem import Problem

__all__ = ["command"]

# Modules, of which only the one that is climbed is imported.
_LADDERS = {
    "simt": "tilewright.bench.ladder.climb",
    "tensor": "tilewright.bench.ladder.tensor.climb",
    "residues": "tilewright.bench.ladder.residues",
}


def command(
    device: DeviceOption = None,
    kind: Annotated[
        str,
        typer.Option(
            "--kind",
            help="simt: SGEMM on multiply-add units; tensor: BF16, wgmma; residues: DGEMM, int8.",
        ),
    ] = "simt",
    size: Annotated[
        str | None,
        typer.Option("--size", help="Row-major MxNxK, with commas; some that fit, else."),
    ] = None,
    peer: Annotated[
        str | None,
        typer.Option("--peer", help="With commas; cublas on CUDA, else numpy."),
    ] = None,
    tune: Annotated[
        str | None, typer.Option("--tune", help="Tune rung 8 for each size first, for so long.")
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Turns of all rungs.")] = 15,
    budget: Annotated[
        str | None, typer.Option("--budget", help="Begin no further size after so long.")
    ] = None,
    output: Annotated[Path | None, output_option("JSON file.", RESULTS)] = None,
    json: JsonOption = False,
) -> None:
    """Climb the kernel ladder: kernels of one idea each, beside the vendor's library."""
    from importlib import import_module

    from tilewright.backend import device as find_device
    from tilewright.bench.record import device_record, environment_record
    from tilewright.bench.sizes import parse_sizes
    from tilewright.bench.sweep import Method
    from tilewright.paths import write_json
    from tilewright.tuning.alone import alone_on
    from tilewright.tuning.room import check_memory
    from tilewright.tuning.tuner import seconds_of

    if kind not in _LADDERS:
        raise ValueError(f"kind={kind!r} is no ladder; use one of {', '.join(_LADDERS)}")
    if tune is not None and kind != "simt":
        raise ValueError(f"tune={tune!r} goes with kind=simt; the other ladders have no tuned rung")
    live = find_device(device)
    seconds = math.inf if budget is None else seconds_of(budget)
    if tune is not None:
        seconds_of(tune, "tune")
    ladder: Ladder = import_module(_LADDERS[kind]).LADDER
    if peer is None:
        peer = "cublas" if live.backend == "cuda" else ladder.cpu_peer
    peers = [ladder.peer(name.strip(), live) for name in peer.split(",") if name.strip()]
    sizes = size or (ladder.gpu_sizes if live.spec.kind == "gpu" else ladder.cpu_sizes)
    problems = [ladder.problem(*sides) for sides in parse_sizes(sizes)]
    for problem in problems:
        check_memory(problem, live)
    results: list[dict[str, Any]] = []
    record = device_record(live, peers) | {"results": results}
    document = {"environment": environment_record(Method(rounds)), "devices": [record]}
    started = time.monotonic()
    with alone_on(live, "tilewright ladder"):
        with progress_bar(quiet=json) as bar:
            compiled = ladder.contenders(live)
            rungs = list(bar.track(compiled, ladder.count, description="compiling rungs"))
        for problem in problems:
            shape = f"{problem.n}x{problem.m}x{problem.k}"
            if results and time.monotonic() - started > seconds:
                record["stopped"] = f"before {shape}: the budget of {budget} is spent"
                break
            if tune is not None:
                _tune(problem, live, tune)
            with progress_bar(quiet=json) as bar:
                task = bar.add_task(shape, total=len(rungs) + len(peers))
                observer = partial(_told, bar, task, shape)
                results.append(ladder.climb(live, problem, rungs, peers, rounds, observer))
            if output is not None:
                write_json(output, document)  # an interrupted climb loses nothing
            if not json:
                _show(live, results[-1])
    if output is not None:
        write_json(output, document)
    if json:
        emit_json(document)
        return
    if "stopped" in record:
        say(f"stopped {record['stopped']}")
    if output is not None:
        say(f"written to {output}")


def _told(bar: Progress, task: TaskID, shape: str, name: str) -> None:
    bar.update(task, advance=1, description=f"{shape} {name}")


def _tune(problem: Problem, live: LiveDevice, budget: str) -> None:
    from tilewright.portfolio import reload
    from tilewright.portfolio.tuned import tune

    tune(problem, live, budget=budget)
    reload()  # so that rung 8 is what was found


def _show(live: LiveDevice, told: dict[str, Any]) -> None:
    """Print one size's table."""
    from rich.table import Column

    limit = told["bound"]
    rate = limit.get("flops_per_second")
    said = f"bound {gigaflops(rate)} by {limit['limiting']}" if rate else limit["missing"]
    numbers = ("max error", "kernel, ms", "with transfers, ms", "rate", "% library", "% bound",
               "registers", "occupancy")  # fmt: skip
    columns = (Column(name, justify="right") for name in numbers)
    title = f"{told['problem']} on {live}; {said}"
    heads, lines = ("rung", "what is new", *columns, "limited by"), map(_cells, told["rungs"])
    emit_lines(heads, lines, title=title, title_justify="left")


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
