"""All commands under one name, and what their failures mean for the exit status."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from json import dumps
from typing import Annotated, Any

import typer

from tilewright.cli import (
    adopt,
    bench,
    bound,
    db,
    devices,
    export,
    inspect,
    ladder,
    microbench,
    multiply,
    portfolio,
    quickstart,
    report,
    solve,
    space,
    tune,
)
from tilewright.cli import run as run_program
from tilewright.cli.output import say
from tilewright.cli.trace_option import add_trace_option
from tilewright.version import VERSION

__all__ = ["app", "run"]

# What a shell has of a program that SIGINT ended: 128 and its number.
_INTERRUPTED = 130
_USAGE = 2
# The parent of all that typer says of wrong usage; of that family only the child is public.
_UsageError: Any = typer.BadParameter.__base__
_STOPPED = "stopped; what was written until then stays"

app = typer.Typer(
    name="tilewright",
    help="Bounds, generates, tunes, explains and serves GEMM kernels.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("devices")(devices.command)
app.command("bound")(bound.command)
app.command("space")(space.command)
app.command("inspect")(inspect.command)
app.command("tune")(tune.command)
app.command("adopt")(adopt.command)
app.add_typer(bench.app, name="bench")
app.command("ladder")(ladder.command)
app.command("microbench")(microbench.command)
app.command("multiply")(multiply.command)
app.command("solve")(solve.command)
app.command("report")(report.command)
app.command("quickstart")(quickstart.command)
app.command("export")(export.command)
app.command("run")(run_program.command)
app.add_typer(portfolio.app, name="portfolio")
app.add_typer(db.app, name="db")
add_trace_option(app)


def _say_version(wanted: bool) -> None:
    if wanted:
        say(f"tilewright {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_say_version, is_eager=True),
    ] = False,
) -> None:
    """Bounds, generates, tunes, explains and serves GEMM kernels."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status.

    With ``--json`` what goes wrong, wrong usage too, is a line of JSON on standard error.
    """
    json = "--json" in arguments
    try:
        return _status_of(arguments, json=json)
    except (ValueError, TypeError) as problem:
        # NumPy's LinAlgError is a ValueError, but what it tells of is the data.
        return _fail(problem, 1 if type(problem).__name__ == "LinAlgError" else _USAGE, json=json)
    except OSError as problem:
        named = problem.filename is not None and problem.strerror
        told = f"{problem.filename} cannot be used ({problem.strerror}); name another"
        return _fail(told if named else problem, 1, json=json)
    except MemoryError as problem:
        return _fail(f"{problem or 'memory has run out'}; give smaller sizes", 1, json=json)
    except (RuntimeError, ArithmeticError) as problem:
        return _fail(problem, 1, json=json)
    except KeyboardInterrupt:
        return _fail(_STOPPED, _INTERRUPTED, json=json)


def _status_of(arguments: Sequence[str], *, json: bool) -> int:
    """Run a command line; typer itself draws what is wrong with its usage for people."""
    try:
        # Without standalone mode what ends a command comes as an exception, or is returned.
        end = app(list(arguments), prog_name="tilewright", standalone_mode=not json)
    except _UsageError as problem:
        return _fail(problem.format_message(), _USAGE, json=json)
    except typer.Abort:
        return _fail(_STOPPED, _INTERRUPTED, json=json)
    except SystemExit as exit_:
        end = exit_.code if isinstance(exit_.code, int) else 1
    if end == _INTERRUPTED:  # typer has taken the interrupt for itself
        return _fail(_STOPPED, _INTERRUPTED, json=json)
    return end if isinstance(end, int) else 0


def _fail(problem: object, status: int, *, json: bool) -> int:
    """Print one line that says what went wrong."""
    lines = str(problem).strip().splitlines() or [type(problem).__name__]
    told = dumps({"error": lines[0], "status": status}) if json else f"tilewright: {lines[0]}"
    with suppress(OSError):  # the status says it, too, where nothing can be written
        sys.stderr.write(told + "\n")
        sys.stderr.flush()
    return status
