"""Devices, and what bounds GEMM on them."""

from __future__ import annotations

from math import isinf

from tilewright.bounds import Bound
from tilewright.bounds.terms import Term
from tilewright.problem import Problem
from tilewright.report.gather import Device, Gathered
from tilewright.report.model import Bars, Figure, Rows, Section, Table
from tilewright.report.words import plain_rate, scale_of

__all__ = ["section"]


def section(data: Gathered) -> Section:
    """Return who was measured, and every term of the bound for the largest problem."""
    figures, bounds, missing = [], [], []
    for device in data.devices:
        if device.numbers is None:
            missing.append(
                f"{device.label} is neither here nor in the catalogue, so it has no bound; "
                "a TOML file with its numbers gives it one."
            )
        for problem in data.largest(device).values():
            found = data.bound(device, problem)
            if found is not None:
                bounds.append(_bound_row(device, problem, found))
                if len(_finite(found)) > 1:
                    figures.append(_terms(device, problem, found))
    columns = ("device", "problem", "bound", "limited by", "full resource", "limits not known")
    tables = _devices(data.devices), Table("Bounds", columns, tuple(bounds))
    return Section(
        "devices",
        "Devices and bounds",
        "What was measured on, and how fast GEMM can be there: every limit that is known, for the "
        "largest problem measured in each precision. The smallest is the bound.",
        tables=tuple(table for table in tables if table.rows),
        figures=tuple(figures),
        missing=tuple(missing),
        command="tilewright tune --precision s --size 1024 --budget 60s",
    )


def _devices(devices: list[Device]) -> Table:
    rows = []
    for one in devices:
        said = one.measured
        peers = ", ".join(f"{name} {version}" for name, version in sorted(said.peers.items()))
        known = "" if one.numbers is None else one.numbers.id
        rows.append(
            (one.label, said.backend, said.platform, said.driver, peers, known, one.fingerprint)
        )
    columns = ("device", "backend", "platform", "driver", "beside", "numbers of", "fingerprint")
    return Table("Devices", columns, tuple(rows))


def _bound_row(device: Device, problem: Problem, found: Bound) -> tuple[str, ...]:
    unknown = ", ".join(found.missing) or "none"
    term = found.limiting
    return device.label, str(problem), plain_rate(found.limit), term.name, term.resource, unknown


def _finite(found: Bound) -> list[Term]:
    """Return the terms that set a limit, the lowest first."""
    known = [term for term in found.terms if term.value is not None and not isinf(term.value)]
    return sorted(known, key=lambda term: term.value or 0.0)


def _terms(device: Device, problem: Problem, found: Bound) -> Figure:
    """Return the terms of a bound, the limiting one on top."""

    def place(term: Term) -> tuple[bool, float]:
        return term.value is None, term.value or 0.0

    ordered = sorted(found.terms, key=place)
    shown = _finite(found)
    scale, unit = scale_of(term.value or 0.0 for term in shown)
    names = tuple(term.name for term in shown)
    values = [(term.value or 0.0) / scale for term in shown]
    limiting = tuple(
        value if term is found.limiting else None for term, value in zip(shown, values, strict=True)
    )
    others = tuple(
        None if term is found.limiting else value for term, value in zip(shown, values, strict=True)
    )
    groups = (Bars("limiting", "tilewright", limiting), Bars("other limits", "other", others))
    rows = tuple((term.name, _value(term), term.resource, term.formula) for term in ordered)
    return Figure(
        f"Limits of {problem} on {device.label}",
        f"{found.limiting.name} limits it to {plain_rate(found.limit)}.",
        Rows(unit, names, groups, x_log=True),
        Table("Terms of the bound", ("limit", "rate", "full resource", "formula"), rows),
    )


def _value(term: Term) -> str:
    """Return a term's rate, or why there is none."""
    if term.value is None:
        return term.reason or "unknown"
    return "no limit" if isinf(term.value) else plain_rate(term.value)
