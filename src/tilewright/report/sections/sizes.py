"""Rate against size for every pair of transposes (Lai & Seznec 2012, Figure 3)."""

from __future__ import annotations

from tilewright.report.gather import Device, Gathered
from tilewright.report.model import Curve, Curves, Figure, Section, Table
from tilewright.report.results import Run
from tilewright.report.words import called, grouped, named, percent, rate_cells, scale_of

__all__ = ["section"]


def section(data: Gathered) -> Section:
    """Return a figure for each device, precision and transpose with two sizes or more."""
    figures = []
    for device in data.devices:
        squares = (x for x in data.runs_of(device) if x.problem.m == x.problem.n == x.problem.k)
        cases = grouped(squares, lambda run: (run.problem.precision, run.problem.trans))
        figures += [_figure(data, device, runs) for runs in cases.values() if len(runs) > 1]
    return Section(
        "sizes",
        "Rate against size",
        "Square problems of every size measured, ours and the other libraries in one process, "
        "under the bound (Lai & Seznec's Figure 3).",
        figures=tuple(figures),
        command="tilewright bench --trans all --size 256:1024 --peer numpy"
        " -o benchmarks/results/mine.json",
    )


def _figure(data: Gathered, device: Device, runs: list[Run]) -> Figure:
    scale, unit = scale_of(rate for run in runs for rate in run.rates.values())
    names = named(name for run in runs for name in run.rates)
    curves = [
        Curve(
            called(name),
            name,
            tuple((float(r.problem.n), r.rates[name] / scale) for r in runs if name in r.rates),
        )
        for name in names
    ]
    limits = {run.problem: data.bound(device, run.problem) for run in runs}
    bound = tuple((float(p.n), found.limit / scale) for p, found in limits.items() if found)
    if bound:
        curves.append(Curve("bound", "bound", bound, "dashed"))
    rows = []
    for run in runs:
        limit = limits[run.problem]
        cells = rate_cells(run.rates, names, scale, 2)
        cells += ["", ""] if limit is None else [
            f"{limit.limit / scale:,.2f}", percent(run.ours / limit.limit)
        ]  # fmt: skip
        rows.append((f"{run.problem.n:,}", *cells))
    problem = runs[0].problem
    best = max(runs, key=lambda run: run.ours)
    columns = ("N", *(f"{called(name)}, {unit}" for name in (*names, "bound")), "ours / bound")
    return Figure(
        f"{problem.precision.name} {problem.trans} on {device.label}",
        f"From N = {runs[0].problem.n:,} to {runs[-1].problem.n:,}; ours reaches "
        f"{best.ours / scale:,.1f} {unit} at {best.problem.n:,}.",
        Curves("N", unit, tuple(curves), x_log=True, ticks=tuple(float(r.problem.n) for r in runs)),
        Table("Rates", columns, tuple(rows)),
    )
