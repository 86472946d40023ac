"""Percent of the bound, and what limits."""

from __future__ import annotations

from collections import defaultdict

from tilewright.report.gather import Device, Gathered
from tilewright.report.model import Curve, Curves, Figure, Section, Table
from tilewright.report.results import Run
from tilewright.report.words import called, grouped, named, percent, plain_rate, side

__all__ = ["section"]


def section(data: Gathered) -> Section:
    """Return each measured problem as a share of its bound."""
    figures, missing = [], []
    for device in data.devices:
        bounded = (x for x in data.runs_of(device) if data.bound(device, x.problem) is not None)
        found = grouped(bounded, lambda run: run.problem.precision)
        if not found:
            missing.append(f"{device.label} has no bound: too few of its numbers are known.")
        figures += [_figure(data, device, runs) for runs in found.values()]
    return Section(
        "share",
        "Percent of the bound",
        "Measured rates as a share of the bound of the same problem, and the term that limits it. "
        "Marks are transpose cases, the line joins the best of each size.",
        figures=tuple(figures),
        missing=tuple(missing),
        command="tilewright bench --size 256:1024 --peer numpy -o benchmarks/results/mine.json",
    )


def _figure(data: Gathered, device: Device, runs: list[Run]) -> Figure:
    kind = runs[0].problem.precision
    curves: list[Curve] = []
    names = named(name for run in runs for name in run.rates)
    rows = []
    best = (0.0, runs[0])
    shares: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for run in runs:
        found = data.bound(device, run.problem)
        assert found is not None
        size = side(run.problem)
        for name, rate in run.rates.items():
            shares[name].append((size, 100 * rate / found.limit))
        best = max(best, (run.ours / found.limit, run), key=lambda pair: pair[0])
        cells = [percent(run.rates[n] / found.limit) if n in run.rates else "" for n in names]
        term = found.limiting
        rows.append((str(run.problem), *cells, plain_rate(found.limit), term.name, term.resource))
    for name in names:
        highest: dict[float, float] = {}
        for size, share in shares[name]:
            highest[size] = max(share, highest.get(size, 0.0))
        if len(highest) > 1:
            curves.append(Curve("", name, tuple(sorted(highest.items()))))
        curves.append(Curve(called(name), name, tuple(shares[name]), "dots"))
    sizes = sorted({size for found in shares.values() for size, _ in found})
    curves.append(Curve("bound", "bound", ((sizes[0], 100.0), (sizes[-1], 100.0)), "dashed"))
    return Figure(
        f"{kind.name} on {device.label}",
        f"Ours comes closest at {best[1].problem}: {percent(best[0])} of the bound.",
        Curves(
            "N, or the cube root of m n k",
            "% of the bound",
            tuple(curves),
            x_log=True,
            ticks=tuple(sizes),
        ),
        Table(
            "Shares",
            ("problem", *map(called, names), "bound", "limited by", "full resource"),
            tuple(rows),
        ),
    )
