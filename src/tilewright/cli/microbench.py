"""``tilewright microbench``: what one device can do, measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.output import (
    EXPERIMENTS,
    DeviceOption,
    JsonOption,
    emit_json,
    emit_lines,
    output_option,
    plain,
    progress_bar,
    say,
)

if TYPE_CHECKING:
    from tilewright.backend import LiveDevice
    from tilewright.microbench.experiment import Experiment
    from tilewright.microbench.session import Result

__all__ = ["command", "measure"]

_MOST_ROWS = 40  # of a table: more are in the file


def command(
    experiment: Annotated[
        list[str] | None, typer.Argument(help="Experiments; all that fit the device by default.")
    ] = None,
    device: DeviceOption = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1.0, help="For all experiments together.")
    ] = 60.0,
    output: Annotated[Path | None, output_option("JSON file.", EXPERIMENTS)] = None,
    json: JsonOption = False,
) -> None:
    """Measure a device: bandwidths, links, clock and power, rates of instructions."""
    from tilewright.backend import device as find_device
    from tilewright.microbench.session import fitting

    live = find_device(device)
    chosen = fitting(live, experiment or ())
    document = measure(live, chosen, seconds, output, quiet=json)
    if json:
        emit_json(document)
        return
    if output is not None:
        say(f"written to {output}")


def measure(
    live: LiveDevice,
    chosen: Sequence[Experiment],
    seconds: float,
    output: Path | None,
    *,
    quiet: bool,
    show: bool = True,
) -> dict[str, Any]:
    """Run experiments with a progress bar; write and show each one's rows when it is done.

    Parameters
    ----------
    live : LiveDevice
        Where.
    chosen : sequence of Experiment
        What.
    seconds : float
        For all of them.
    output : Path, optional
        JSON file, written anew after each experiment.
    quiet, show : bool
        Whether nothing at all, or no tables, are printed.

    Returns
    -------
    dict
        What the file holds.
    """
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    from tilewright.bench.record import device_record, environment_record
    from tilewright.microbench.session import run_experiments
    from tilewright.paths import write_json
    from tilewright.tuning.alone import alone_on

    told: dict[str, Any] = {}
    document = {
        "environment": environment_record(),
        "device": device_record(live, ()),
        "experiments": told,
    }

    def done(result: Result) -> None:
        told[result.name] = result.as_dict()
        if output is not None:
            write_json(output, plain(document))

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with alone_on(live, "tilewright microbench"), progress_bar(*columns, quiet=quiet) as bar:
        task = bar.add_task(live.id, total=seconds)

        def started(result: Result) -> None:
            bar.update(task, description=result.name)
            if not bar.console.is_terminal:
                bar.console.print(f"{result.name}: {result.title}")

        def emitted() -> None:
            bar.update(task, completed=bar.tasks[0].elapsed or 0.0)

        results = run_experiments(live, chosen, seconds, done, started, emitted)
    if show and not quiet:
        for result in results:
            _show(result)
    return document


def _show(result: Result) -> None:
    """Print an experiment's rows as a table."""
    rows = result.rows
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = ([_cell(key, row.get(key)) for key in columns] for row in rows[:_MOST_ROWS])
    emit_lines(columns, lines, title=f"{result.title} ({result.seconds:.1f} s)")
    if len(rows) > _MOST_ROWS:
        say(f"{len(rows) - _MOST_ROWS} more rows are in the JSON (-o FILE)")
    if result.error:
        say(f"{result.name} ended early: {result.error}")


def _cell(key: str, value: str | int | float | None) -> str | int | None:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and key == "bytes" else value
