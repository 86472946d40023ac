"""``--trace OUT.json``: a timeline of any command, for Perfetto."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.cli.output import output_option

__all__ = ["add_trace_option", "traced_command"]

TraceOption = Annotated[
    Path | None,
    output_option(
        "Write a timeline of compiling, copies, launches and waits, for ui.perfetto.dev.",
        rb'\{"traceEvents"',
        "--trace",
        metavar="OUT.json",
    ),
]


def add_trace_option(app: typer.Typer) -> None:
    """Give every command of an application, its groups' included, the option ``--trace``."""
    commands = [*app.registered_commands, app.registered_callback]
    for registered in commands:
        if registered is not None and registered.callback is not None:
            registered.callback = traced_command(registered.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            add_trace_option(group.typer_instance)


def traced_command(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command that takes one option more and records while it runs.

    What typer makes of a function it reads from its signature; so that is what changes.
    """

    def command(*, trace: Path | None = None, **given: Any) -> Any:
        if trace is None:
            return function(**given)
        return _recorded(trace, function, given)

    hints = typing.get_type_hints(function, include_extras=True)
    signature = inspect.signature(function)
    own = inspect.Parameter(
        "trace", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=TraceOption
    )
    parameters = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, one in signature.parameters.items()
    ]
    command.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*parameters, own], return_annotation=None
    )
    command.__annotations__ = {**hints, "trace": TraceOption}
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    return command


def _recorded(path: Path, function: Callable[..., Any], given: dict[str, Any]) -> Any:
    """Run a command and write its timeline, whatever ends it."""
    from tilewright.timeline import span
    from tilewright.timeline.chrome import recording

    made, failed = None, None
    with recording(path) as recorder, span("command"):
        try:
            made = function(**given)
        except BaseException as problem:
            failed = problem
    assert recorder is not None
    count = len(recorder.host) + len(recorder.device)
    more = f" ({recorder.dropped.total()} more left out)" if recorder.dropped else ""
    # Standard output is the command's own: JSON, perhaps.
    sys.stderr.write(f"{path}: {count} spans{more}, open it at https://ui.perfetto.dev\n")
    if failed is not None:
        raise failed
    return made
