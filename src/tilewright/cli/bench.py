"""``tilewright bench``: our kernels beside other libraries', problem by problem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.bench_group import BenchmarkGroup
from tilewright.cli.output import (
    PRECISIONS,
    RESULTS,
    JsonOption,
    emit_json,
    output_option,
    progress_bar,
    say,
)

if TYPE_CHECKING:
    from tilewright.backend import LiveDevice
    from tilewright.bench.session import Session
    from tilewright.bench.sweep import Method
    from tilewright.problem import Problem

__all__ = ["app"]

app = typer.Typer(
    name="bench",
    cls=BenchmarkGroup,
    help="Time kernels beside other libraries in one process, interleaved; or run a benchmark"
    " by its name.",
    invoke_without_command=True,
    subcommand_metavar="[BENCHMARK]",
)


@app.callback()
def command(
    context: typer.Context,
    listed: Annotated[bool, typer.Option("--list", help="List the benchmarks and end.")] = False,
    precision: Annotated[
        str,
        typer.Option("--precision", help=f"With commas: {PRECISIONS}; all: of s, d, c and z."),
    ] = "s",
    trans: Annotated[
        str, typer.Option("--trans", help="NN, NT, TN, TT; several with commas, or all.")
    ] = "NN",
    size: Annotated[
        str,
        typer.Option(
            "--size",
            help="N or MxNxK; for any of them ranges FROM:TO (doubling), FROM:TO:STEP,"
            " FROM:TO:*FACTOR; several with commas.",
        ),
    ] = "1024",
    peer: Annotated[
        str,
        typer.Option("--peer", help="Such as cublas,clblast,numpy,flint."),
    ] = "",
    device: Annotated[
        str | None, typer.Option("--device", help="Device ids with commas; the best by default.")
    ] = None,
    tune: Annotated[
        str | None, typer.Option("--tune", help="Tune each problem first, for so long: 90s, 10m.")
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Turns of all peers.")] = 15,
    cache: Annotated[
        str, typer.Option("--cache", help="warm, or cold: caches are flushed before each product.")
    ] = "warm",
    with_transfers: Annotated[
        bool,
        typer.Option("--with-transfers", help="Time products with copies there and back, too."),
    ] = False,
    errors: Annotated[
        bool, typer.Option("--errors", help="Compare errors against wider arithmetic, too.")
    ] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Collect Nsight Compute's counters, too.")
    ] = False,
    output: Annotated[
        Path | None, output_option("File to write: .csv, else JSON.", RESULTS)
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", help="JSON file to go on with; made if it is not there."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Sweep over products, unless a benchmark is named."""
    if context.invoked_subcommand is not None:
        _refuse_options_before(context)
        return
    if listed:
        from tilewright.cli.bench_view import show_list

        show_list(json=json)
        return
    from tilewright.backend import device as find_device
    from tilewright.bench.sizes import parse_sizes, problems_of
    from tilewright.bench.sweep import Method

    method = Method(rounds, cache, with_transfers, errors)  # type: ignore[arg-type]
    problems = problems_of(precision, trans, parse_sizes(size))
    devices = list(dict.fromkeys(find_device(name or None) for name in (device or "").split(",")))
    _sweep(
        problems, devices, method, peers=peer, tune=tune, profile=profile, output=output,
        resume=resume, json=json,
    )  # fmt: skip


def _refuse_options_before(context: typer.Context) -> None:
    """Refuse what stands before a benchmark's name: it would be without effect."""
    for name, value in context.params.items():
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = "--list" if name == "listed" else f"--{name.replace('_', '-')}"
            raise ValueError(
                f"{option}={value} stands before {context.invoked_subcommand!r}; options of a"
                " benchmark follow its name"
            )


def _sweep(
    problems: list[Problem],
    devices: list[LiveDevice],
    method: Method,
    *,
    peers: str,
    tune: str | None,
    profile: bool,
    output: Path | None,
    resume: Path | None,
    json: bool,
) -> None:
    """Measure problems on devices, write the files after each, print tables or JSON.

    Raises
    ------
    RuntimeError
        If a problem could not be measured; the others were.
    """
    from tilewright.bench.document import Document
    from tilewright.bench.profile import Profiler
    from tilewright.bench.record import environment_record
    from tilewright.bench.session import Session, peers_for
    from tilewright.tuning.tuner import seconds_of

    files = [path for path in (resume, output) if path is not None]
    document = Document(environment_record(method), files)
    if resume is not None:
        count = document.resume(resume, devices)
        if count and not json:
            say(f"{resume} holds {count} results; what is among them is not measured again")
    names = list(dict.fromkeys(name.strip() for name in peers.split(",") if name.strip()))
    if tune is not None:  # whatever is missing says so before anything runs
        seconds_of(tune, "tune")
    found = peers_for(names, devices)
    profilers = [Profiler(live, method) if profile else None for live in devices]
    sessions = [
        Session(document, live, peers, missing, method, tune, profiler)
        for live, (peers, missing), profiler in zip(devices, found, profilers, strict=True)
    ]
    for session in sessions:
        _run(session, problems, quiet=json)
    document.save()  # where all was there already nothing has been written yet
    if json:
        emit_json(document.plain)
    elif files:
        say(f"written to {' and '.join(map(str, files))}")
    failures = [line for session in sessions for line in session.failures]
    if failures:
        more = f" (and {len(failures) - 1} more, see the results)" if len(failures) > 1 else ""
        raise RuntimeError(failures[0] + more)


def _run(session: Session, problems: list[Problem], *, quiet: bool) -> None:
    """Sweep one device behind a progress bar, then print its tables."""
    from tilewright.tuning.alone import alone_on

    rows: list[dict[str, Any]] = []
    used = alone_on(session.live, "tilewright bench")
    with used, progress_bar(quiet=quiet) as progress:
        bar = progress.add_task(session.live.id, total=len(problems))
        for problem in problems:
            progress.update(bar, description=f"{session.live.id} {problem}")
            rows.append(session.known(problem) or session.measure(problem))
            progress.advance(bar)
    if not quiet:
        from tilewright.cli.bench_view import show_profiles, show_summaries, show_times

        show_times(session.live, session.peers, rows)
        show_profiles(rows)
        show_summaries(session.peers, rows)
