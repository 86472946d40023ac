"""``tilewright ladder``: one optimisation a rung, from the naive kernel to the vendor's library."""

from __future__ import annotations

import json as json_format
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.output import DeviceOption, JsonOption, emit_json, say

if TYPE_CHECKING:
    from tilewright.backend import LiveDevice
    from tilewright.problem import Problem

__all__ = ["command"]


def command(
    device: DeviceOption = None,
    kind: Annotated[
        str, typer.Option("--kind", help="simt: SGEMM on multiply-add units; tensor: BF16, wgmma.")
    ] = "simt",
    size: Annotated[
        str | None,
        typer.Option(
            "--size", "--sizes", help="Row-major MxNxK, with commas; some that fit, else."
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
    """Climb the kernel ladder: kernels of one idea each, beside the vendor's library."""
    from tilewright.backend import device as find_device
    from tilewright.bench.record import device_record, environment_record
    from tilewright.bench.sweep import Method
    from tilewright.cli.ladder_kinds import LADDERS
    from tilewright.paths import check_writable
    from tilewright.tuning.alone import alone_on
    from tilewright.tuning.room import check_memory
    from tilewright.tuning.tuner import seconds_of

    if kind not in LADDERS:
        raise ValueError(f"kind={kind!r} is no ladder; use one of {', '.join(LADDERS)}")
    if tune is not None and kind != "simt":
        raise ValueError(f"tune={tune!r} goes with kind=simt; the other ladder has no tuned rung")
    if output is not None:
        check_writable(output)
    live = find_device(device)
    seconds = None if budget is None else seconds_of(budget)
    if tune is not None:
        seconds_of(tune, "tune")
    if peer is None:
        peer = "cublas" if live.backend == "cuda" else LADDERS[kind].cpu_peer
    names = peer.split(",")
    ladder = LADDERS[kind](live, [name.strip() for name in names if name.strip()], rounds, json)
    problems = ladder.problems(size)
    for problem in problems:
        check_memory(problem, live)
    results: list[dict[str, Any]] = []
    record = device_record(live, ladder.peers) | {"results": results}
    document = {"environment": environment_record(Method(rounds)), "devices": [record]}
    started = time.monotonic()
    ladder.compile()
    with alone_on(live, "tilewright ladder"):
        for problem in problems:
            if seconds is not None and results and time.monotonic() - started > seconds:
                record["stopped"] = f"before {_shape(problem)}: the budget of {budget} is spent"
                break
            if tune is not None:
                _tune(problem, live, tune)
            results.append(ladder.climb(problem))
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


def _shape(problem: Problem) -> str:
    return f"{problem.n}x{problem.m}x{problem.k}"


def _tune(problem: Problem, live: LiveDevice, budget: str) -> None:
    from tilewright.portfolio import reload
    from tilewright.portfolio.tuned import tune

    tune(problem, live, budget=budget)
    reload()  # so that rung 8 is what was found


def _write(path: Path, document: dict[str, Any]) -> None:
    from tilewright.paths import write_atomically

    write_atomically(path, (json_format.dumps(document, indent=1) + "\n").encode())
