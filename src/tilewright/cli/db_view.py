"""What ``tilewright db`` prints: facts for machines, tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.cli.output import emit_lines, gigaflops, say
from tilewright.text import plain

if TYPE_CHECKING:
    from tilewright.tuning.measurement import Measurement
    from tilewright.tuning.store import Summary

__all__ = [
    "measurement_facts",
    "show_failures",
    "show_measurement",
    "show_summaries",
    "summary_facts",
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
        "config": f"{m.stored_config.id}: " + ", ".join(f"{k} {v}" for k, v in m.config.items()),
        "mode": str(m.mode),
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


def show_measurement(measurement: Measurement) -> None:
    """Print everything about one measurement but its long text."""
    lines = ((name, plain(value)) for name, value in _told(measurement).items())
    emit_lines((), lines, show_header=False, box=None)


def show_summaries(summaries: list[Summary]) -> None:
    """Print what was tuned."""
    lines = []
    for one in summaries:
        best = one.winner
        won = (None,) * 3 if best is None else (
            best.id, gigaflops(best.flops_per_second), best.config.stencil
        )  # fmt: skip
        lines.append((one.problem, plain(one.device_name), *won, one.ok, one.failed,
                      one.newest[:19]))  # fmt: skip
    heads = ("problem", "device", "winner", "speed", "stencil", "ok", "failed", "newest")
    _show(heads, lines, "nothing was tuned yet; run: tilewright tune")


def show_failures(failures: list[Measurement]) -> None:
    """Print candidates that failed."""
    lines = [
        (one.id, one.status, one.problem, plain(one.device_name),
         f"{one.config.stencil} {one.stored_config.id}", plain(one.reason))
        for one in failures
    ]  # fmt: skip
    heads = ("id", "status", "problem", "device", "config", "reason")
    _show(heads, lines, "no candidate failed")


def _show(heads: tuple[str, ...], lines: list[tuple[Any, ...]], otherwise: str) -> None:
    """Print a table, or a line where there is nothing to put in it."""
    if lines:
        emit_lines(heads, lines)
    else:
        say(otherwise)
