"""What ``tilewright db`` prints: facts for machines, tables for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.cli.output import emit_table, gigaflops, say
from tilewright.text import plain

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from tilewright.tuning.measurement import Measurement
    from tilewright.tuning.store import Summary

__all__ = [
    "emit_rows",
    "failure_table",
    "measurement_facts",
    "summary_facts",
    "summary_table",
    "told_table",
]


def measurement_facts(measurement: Measurement) -> dict[str, Any]:
    """Return a measurement for machines."""
    from tilewright.tuning.record import to_record

    derived: dict[str, Any] = {"median_ns": None, "flops_per_second": None}
    if measurement.times_ns:
        derived = {name: getattr(measurement, name) for name in derived}
    return {"id": measurement.id, **to_record(measurement), **derived}


def summary_facts(summary: Summary) -> dict[str, Any]:
    """Return a summary for machines."""
    problem = summary.problem
    names = ("m", "n", "k", "lda", "ldb", "ldc", "trans")
    return {
        "device": summary.device,
        "device_name": summary.device_name,
        "backend": summary.backend,
        "problem": {"precision": str(problem.precision)}
        | {name: getattr(problem, name) for name in names},
        "ok": summary.ok,
        "failed": summary.failed,
        "newest": summary.newest,
        "winner": None if summary.winner is None else measurement_facts(summary.winner),
    }


def _told(measurement: Measurement) -> dict[str, str]:
    """Return a measurement for people."""
    times = sorted(measurement.times_ns)
    m = measurement
    told = {
        "id": str(m.id),
        "problem": f"{m.problem}, lda {m.problem.lda}, ldb {m.problem.ldb}, ldc {m.problem.ldc}",
        "device": f"{m.device_name} ({m.backend}, {m.device})",
        "stencil": f"{m.config.stencil}, version {m.stencil_version}",
        "config": f"{m.config.id}: " + ", ".join(f"{k} {v}" for k, v in m.config.items()),
        "stage": str(m.stage),
        "status": str(m.status),
        "created": m.created,
    }
    if m.reason:
        told["reason"] = m.reason
    if times:
        told["speed"] = gigaflops(m.flops_per_second)
        told["times"] = (
            f"median {m.median_ns / 1e6:.4f} ms, least {times[0] / 1e6:.4f}, "
            f"most {times[-1] / 1e6:.4f}, {len(times)} taken"
        )
    if m.error is not None:
        told["error"] = f"{m.error:.2e}"
    if m.compile_seconds is not None:
        told["compiling"] = f"{m.compile_seconds:.2f} s"
    told["with"] = ", ".join(f"{name} {value}" for name, value in m.environment.items())
    return told


def told_table(measurement: Measurement) -> Table:
    """Return a table of everything about one measurement but its long text."""
    from rich.table import Table

    table = Table(show_header=False, box=None)
    for name, value in _told(measurement).items():
        table.add_row(name, _text(value))
    return table


def summary_table(summaries: list[Summary]) -> Table:
    """Return a table of what was tuned."""
    from rich.table import Table

    table = Table("problem", "device", "winner", "speed", "stencil", "ok", "failed", "newest")
    for one in summaries:
        best = one.winner
        table.add_row(
            str(one.problem),
            _text(one.device_name),
            "-" if best is None else str(best.id),
            "-" if best is None else gigaflops(best.flops_per_second),
            "-" if best is None else best.config.stencil,
            str(one.ok),
            str(one.failed),
            one.newest[:19],
        )
    return table


def failure_table(failures: list[Measurement]) -> Table:
    """Return a table of candidates that failed."""
    from rich.table import Table

    table = Table("id", "status", "problem", "device", "config", "reason")
    for one in failures:
        table.add_row(
            str(one.id),
            str(one.status),
            str(one.problem),
            _text(one.device_name),
            f"{one.config.stencil} {one.config.id}",
            _text(one.reason),
        )
    return table


def emit_rows(rows: list[Any], make: Callable[[list[Any]], Table], otherwise: str) -> None:
    """Print a table, or a line where there is nothing to put in it."""
    if rows:
        emit_table(make(rows))
    else:
        say(otherwise)


def _text(text: str) -> Text:
    """Return text for a table cell: not markup, and nothing that steers a terminal."""
    from rich.text import Text

    return Text(plain(text))
