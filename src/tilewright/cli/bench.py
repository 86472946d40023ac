"""``tilewright bench``: our kernels beside other libraries', problem by problem."""

from __future__ import annotations

import json as json_format
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.output import JsonOption, emit_json, emit_table, gigaflops, say

if TYPE_CHECKING:
    from tilewright.backend import LiveDevice
    from tilewright.bench.peers import Peer
    from tilewright.bench.sweep import Row
    from tilewright.problem import Problem

__all__ = ["command"]


def command(
    precision: Annotated[
        str, typer.Option("--precision", help="s,d,c,z or all; also e,f,w,v.")
    ] = "s",
    trans: Annotated[str, typer.Option("--trans", help="NN,NT,TN,TT or all.")] = "NN",
    sizes: Annotated[
        str, typer.Option("--sizes", help="512:8192 doubles, A:B:STEP, 1000, MxNxK; with commas.")
    ] = "1024",
    against: Annotated[
        str, typer.Option("--against", help="Peers: cublas, clblast, numpy, flint; with commas.")
    ] = "",
    device: Annotated[
        str | None, typer.Option("--device", help="Device ids with commas; the best by default.")
    ] = None,
    tune: Annotated[
        str | None, typer.Option("--tune", help="Tune each problem first, for so long.")
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Turns of all peers.")] = 15,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="JSON file.")] = None,
    json: JsonOption = False,
) -> None:
    """Time tuned kernels beside other libraries in one process, in turns."""
    from tilewright.backend import device as find_device
    from tilewright.bench.record import environment_record
    from tilewright.bench.sweep import problems_of

    problems = problems_of(precision, trans, sizes)
    names = [name for name in against.split(",") if name]
    devices = [find_device(name or None) for name in (device or "").split(",")]
    told: list[dict[str, Any]] = []
    document = {"environment": environment_record(rounds), "devices": told}

    def keep() -> None:
        """Write what there is: an interrupted sweep loses nothing."""
        if output is not None:
            _write(output, document)

    for live in devices:
        _run(live, problems, names, rounds, tune, told, keep, quiet=json)
    if json:
        emit_json(document)
    elif output is not None:
        say(f"written to {output}")


def _run(
    live: LiveDevice,
    problems: list[Problem],
    names: list[str],
    rounds: int,
    budget: str | None,
    told: list[dict[str, Any]],
    keep: Callable[[], None],
    *,
    quiet: bool,
) -> None:
    """Sweep one device; add its record to `told`, and keep that after each problem."""
    from rich.console import Console
    from rich.progress import track

    from tilewright.bench.peers import peer
    from tilewright.bench.record import device_record, row_record
    from tilewright.bench.sweep import sweep

    peers = [peer(name, live) for name in names]
    rows: list[Row] = []
    records: list[dict[str, Any]] = []
    told.append(device_record(live, peers) | {"results": records})
    console = Console(stderr=True, quiet=quiet)
    for problem in track(problems, f"{live.id}", console=console, transient=True):
        extra = _tuned(problem, live, budget) if budget else {}
        row = next(iter(sweep(live, [problem], peers, rounds)))
        rows.append(row)
        records.append(row_record(row, extra))
        keep()
    if not quiet:
        _show(live, peers, rows)


def _tuned(problem: Problem, live: LiveDevice, budget: str) -> dict[str, Any]:
    from tilewright.tuning.tuner import tune

    result = tune(problem, live, budget=budget)
    return {
        "tuning": {
            "tried": result.tried,
            "failed": result.failed,
            "resumed": result.resumed,
            "candidates_per_second": result.candidates_per_second,
            "eta": result.winner.error,
        }
    }


def _show(live: LiveDevice, peers: list[Peer], rows: list[Row]) -> None:
    from rich.table import Table

    table = Table("problem", "tilewright", title=f"{live} ({live.platform.split(',')[0]})")
    for one in peers:
        table.add_column(f"{one.name} {one.version}")
        table.add_column("ours / it", justify="right")
    table.add_column("tuned on")
    for row in rows:
        ours = row.rate("tilewright") or 0.0
        cells = [str(row.problem), gigaflops(ours)]
        for one in peers:
            rate = row.rate(one.name)
            cells += [gigaflops(rate), f"{ours / rate:.3f}"] if rate else ["-", "-"]
        table.add_row(*cells, row.tuned_on or "(default)")
    emit_table(table)


def _write(path: Path, document: dict[str, Any]) -> None:
    from tilewright.paths import write_atomically

    write_atomically(path, (json_format.dumps(document, indent=1) + "\n").encode())
