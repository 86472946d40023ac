"""All commands under one name, and what their failures mean for the exit status."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from tilewright.cli import (
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
from tilewright.cli.trace_option import add_trace_option

__all__ = ["app", "run"]

# What a shell has of a program that SIGINT ended: 128 and its number.
_INTERRUPTED = 130
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
app.add_typer(bench.app, name="bench")
app.command("ladder")(ladder.command)
app.command("microbench")(microbench.command)
app.command("multiply")(multiply.command)
app.command("solve")(solve.command)
app.command("report")(report.command)
app.command("quickstart")(quickstart.command)
app.command("export")(export.command)
app.add_typer(portfolio.app, name="portfolio")
app.add_typer(db.app, name="db")
add_trace_option(app)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status."""
    try:
        app(list(arguments), prog_name="tilewright", standalone_mode=True)
    except SystemExit as end:  # how typer ends, with its own status for wrong usage
        if end.code == _INTERRUPTED:  # it has taken the interrupt for itself
            return _fail(_STOPPED, _INTERRUPTED)
        return int(end.code) if isinstance(end.code, int) else 1
    except (ValueError, TypeError) as problem:
        # NumPy's LinAlgError is a ValueError, but what it tells of is the data.
        return _fail(problem, 1 if type(problem).__name__ == "LinAlgError" else 2)
    except OSError as problem:
        named = problem.filename is not None and problem.strerror
        told = f"{problem.filename} cannot be used ({problem.strerror}); name another"
        return _fail(told if named else problem, 1)
    except (RuntimeError, ArithmeticError, MemoryError) as problem:
        return _fail(problem, 1)
    except KeyboardInterrupt:
        return _fail(_STOPPED, _INTERRUPTED)
    return 0


def _fail(problem: object, status: int) -> int:
    """Print one line that says what went wrong."""
    line = str(problem).strip().splitlines()
    sys.stderr.write(f"tilewright: {line[0] if line else type(problem).__name__}\n")
    return status
