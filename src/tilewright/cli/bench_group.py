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

from tilewright.cli.output import DeviceOption, JsonOption, emit_json, emit_table, say
from tilewright.cli.trace_option import traced_command

if TYPE_CHECKING:
    from tilewright.bench.registry import Asked, Benchmark, Measured, Products

__all__ = ["BenchmarkGroup"]

BudgetOption = Annotated[
    str | None, typer.Option("--budget", help="Begin nothing more after so long: 90s, 10m.")
]
OutputOption = Annotated[
    Path | None, typer.Option("-o", "--output", help="File to write: .csv, else JSON.")
]

# What a benchmark may read, by the names of `Benchmark.options`.
_READ: dict[str, Any] = {
    "precision": (str, typer.Option("--precision", help="BLAS letters with commas, or all.")),
    "trans": (str, typer.Option("--trans", help="NN, NT, TN, TT with commas, or all.")),
    "size": (str, typer.Option("--size", "--sizes", help="As of a sweep; its own by default.")),
    "seed": (int, typer.Option("--seed", min=0, help="Of what is drawn.")),
    "count": (int, typer.Option("--count", min=1, help="How many shapes are drawn.")),
}
# What any sweep of products may be told besides.
_OF_PRODUCTS: dict[str, Any] = {
    "peer": (
        str | None,
        typer.Option("--peer", "--against", help="Beside whom; the vendor's library by default."),
    ),
    "rounds": (int | None, typer.Option("--rounds", min=1, help="Turns of everybody.")),
    "resume": (Path | None, typer.Option("--resume", help="JSON file to go on with.")),
}


class BenchmarkGroup(TyperGroup):
    """A group whose commands are the registry's benchmarks; naming none imports none."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the benchmarks' names."""
        from tilewright.bench.registry import names

        return names()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a benchmark as a command, None if there is none of that name."""
        from tilewright.bench.registry import benchmark, names

        if cmd_name not in names():
            return None
        one = typer.Typer(add_completion=False)
        one.command(cmd_name)(traced_command(_function(cmd_name, benchmark(cmd_name))))
        return typer.main.get_command(one)


def _function(name: str, chosen: Benchmark) -> Callable[..., None]:
    """Return a function that runs a benchmark; its signature has the options that it reads."""
    from tilewright.bench.registry import Products

    def command(**given: Any) -> None:
        _run(name, chosen, given)

    options = {key: (*_READ[key], chosen.options[key]) for key in chosen.options}
    if isinstance(chosen, Products):
        options |= {key: (*one, None) for key, one in _OF_PRODUCTS.items()}
    hints: dict[str, Any] = {
        **{key: Annotated[kind, option] for key, (kind, option, _) in options.items()},
        "device": DeviceOption,
        "budget": BudgetOption,
        "output": OutputOption,
        "json": JsonOption,
    }
    defaults = {key: _default(kind, value) for key, (kind, _, value) in options.items()}
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


def _default(kind: Any, value: str | None) -> Any:
    return int(value) if kind is int and value is not None else value


def _run(name: str, chosen: Benchmark, given: dict[str, Any]) -> None:
    """Run a benchmark with the options of its command line."""
    from tilewright.backend import device
    from tilewright.bench.registry import Asked, Measured, Products
    from tilewright.tuning.tuner import seconds_of

    budget = given["budget"]
    until = time.monotonic() + (math.inf if budget is None else seconds_of(budget))
    asked = Asked(device(given["device"]), **{key: given[key] for key in chosen.options})
    if isinstance(chosen, Products):
        _run_products(name, chosen, asked, given, until)
    else:
        assert isinstance(chosen, Measured)
        _run_measured(name, chosen, asked, given, until)


def _run_products(
    name: str, chosen: Products, asked: Asked, given: dict[str, Any], until: float
) -> None:
    from tilewright.bench.sweep import Method
    from tilewright.cli.bench import run_sweep
    from tilewright.tuning.tuner import seconds_of

    seconds = seconds_of(chosen.turn, "turn") if chosen.turn is not None else 0.0
    rounds = given["rounds"] or chosen.rounds
    method = Method(rounds, turn_seconds=seconds, errors=chosen.errors)
    run_sweep(
        chosen.problems(asked), [asked.live], method, benchmark=name, until=until,
        peers=chosen.peer_of(asked) if given["peer"] is None else given["peer"],
        output=given["output"], resume=given["resume"], json=given["json"],
    )  # fmt: skip


def _run_measured(
    name: str, chosen: Measured, asked: Asked, given: dict[str, Any], until: float
) -> None:
    """Take a benchmark's rows, write the file after each, print its table."""
    from rich.table import Table

    from tilewright.bench.document import Document
    from tilewright.bench.record import device_record, environment_record
    from tilewright.tuning.alone import alone_on

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
    table = Table(*heads)
    for line in lines:
        table.add_row(*("-" if cell is None else str(cell) for cell in line))
    emit_table(table)
