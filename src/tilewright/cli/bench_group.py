"""``tilewright bench NAME``: each benchmark of the registry is a command, made when asked for."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from tilewright.cli.output import (
    RESULTS,
    DeviceOption,
    JsonOption,
    emit_json,
    emit_lines,
    output_option,
    say,
)
from tilewright.cli.trace_option import traced_command

if TYPE_CHECKING:
    from tilewright.bench.registry import Benchmark

__all__ = ["BenchmarkGroup"]

BudgetOption = Annotated[
    str | None, typer.Option("--budget", help="Begin nothing more after so long: 90s, 10m.")
]
OutputOption = Annotated[Path | None, output_option("File to write: .csv, else JSON.", RESULTS)]

# What a benchmark may read, by the names of `Benchmark.options`.
_READ: dict[str, Any] = {
    "precision": (str, typer.Option("--precision", help="Precisions and accuracies, with commas.")),
    "trans": (str, typer.Option("--trans", help="NN, NT, TN, TT with commas, or all.")),
    "size": (str, typer.Option("--size", help="Sizes, or a kind of shapes; its own by default.")),
    "seed": (int, typer.Option("--seed", min=0, help="Of what is drawn.")),
    "count": (int, typer.Option("--count", min=1, help="How many shapes, or cases, are drawn.")),
}

# Read recordings rather than measure.
_WITHOUT_DEVICE = ("pruning", "strategies")


class BenchmarkGroup(TyperGroup):
    """A group whose commands are the registry's benchmarks; naming none imports none."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the benchmarks' names."""
        from tilewright.bench.registry import names

        return sorted([*names(), *_WITHOUT_DEVICE])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a benchmark as a command, None if there is none of that name."""
        if cmd_name in _WITHOUT_DEVICE:
            from tilewright.cli import bench_strategies

            alone = typer.Typer(add_completion=False)
            made = bench_strategies.pruning if cmd_name == "pruning" else bench_strategies.command
            alone.command(cmd_name)(traced_command(made))
            return typer.main.get_command(alone)
        from tilewright.bench.registry import benchmark, names

        if cmd_name not in names():
            return None
        one = typer.Typer(add_completion=False)
        one.command(cmd_name)(traced_command(_function(cmd_name, benchmark(cmd_name))))
        return typer.main.get_command(one)


def _function(name: str, chosen: Benchmark) -> Callable[..., None]:
    """Return a function that runs a benchmark; its signature has the options that it reads."""

    def command(**given: Any) -> None:
        _run(name, chosen, given)

    hints: dict[str, Any] = {
        **{key: Annotated[_READ[key]] for key in chosen.options},
        "device": DeviceOption,
        "budget": BudgetOption,
        "output": OutputOption,
        "json": JsonOption,
    }
    defaults: dict[str, Any] = {
        key: int(value) if _READ[key][0] is int else value for key, value in chosen.options.items()
    }
    defaults["json"] = False
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                key, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(key), annotation=hint
            )
            for key, hint in hints.items()
        ]
    )
    command.__annotations__ = hints
    command.__name__ = name.replace("-", "_")
    command.__doc__ = f"Measure {chosen.measures}.\n\nBeside {chosen.against}; {chosen.takes}."
    return command


def _run(name: str, chosen: Benchmark, given: dict[str, Any]) -> None:
    """Take a benchmark's rows, write the file after each, print its table."""
    from tilewright.backend import device
    from tilewright.bench.document import Document
    from tilewright.bench.record import device_record, environment_record
    from tilewright.bench.registry import Asked
    from tilewright.tuning.alone import alone_on
    from tilewright.tuning.tuner import seconds_of

    budget: str | None = given["budget"]
    until = time.monotonic() + (math.inf if budget is None else seconds_of(budget))
    asked = Asked(device(given["device"]), **{key: given[key] for key in chosen.options})
    chosen.check(asked.live)
    output: Path | None = given["output"]
    document = Document(environment_record(), [] if output is None else [output], name)
    rows = document.add(device_record(asked.live, []))["results"]
    with alone_on(asked.live, f"tilewright bench {name}"):
        for row in chosen.rows(asked):
            rows.append(row)
            document.save()
            if not given["json"]:
                say(row["error"] if "error" in row else chosen.line(row))
            if time.monotonic() > until:
                break
    if given["json"]:
        emit_json(document.plain)
        return
    heads, lines = chosen.table([row for row in rows if "error" not in row])
    emit_lines(heads, lines)
