"""The first screen: your device, its best kernels, who else was measured, and the bound."""

from __future__ import annotations

from tilewright.report.gather import Device, Gathered
from tilewright.report.model import Bars, Columns, Figure, Section, Table
from tilewright.report.results import Run
from tilewright.report.words import called, named, percent, plain_rate, rate_cells, scale_of, scaled

__all__ = ["section"]


def section(data: Gathered) -> Section:
    """Return the device that was measured last: one picture, and its numbers in words."""
    timed = [(max(run.date for run in runs), device, runs)
             for device in data.devices if (runs := _fastest(data, device))]  # fmt: skip
    empty = Section(
        "summary",
        "Your device",
        "No kernel has been measured here.",
        command="tilewright quickstart",
    )
    if not timed:
        return empty
    _, device, runs = max(timed, key=lambda one: one[0])
    first = runs[0]
    limit = data.bound(device, first.problem)
    peer = first.best_peer
    facts = [("device", device.label), (f"Tilewright, {first.problem}", plain_rate(first.ours))]
    if peer is not None:
        facts.append((f"times {called(peer[0])}'s rate", f"{first.ours / peer[1]:.2f}"))
    if limit is not None:
        share = percent(first.ours / limit.limit)
        facts.append((f"of the bound: {limit.limiting.name}, {plain_rate(limit.limit)}", share))
    missing = [] if peer else [
        "No other library was measured here: tilewright bench --peer numpy"
        " -o benchmarks/results/mine.json"
    ]  # fmt: skip
    return Section(
        "summary",
        "Your device",
        "The fastest kernel of each precision, the other libraries on the same problem in the same "
        "process, and the bound: what the device's numbers allow.",
        figures=(_figure(data, device, runs),),
        missing=tuple(missing),
        facts=tuple(facts),
    )


def _fastest(data: Gathered, device: Device) -> list[Run]:
    """Return the fastest run of each precision; first the newest beside another library."""
    best: dict[str, Run] = {}
    for run in data.runs_of(device):
        known = best.get(run.problem.precision.letter)
        if run.ours and (known is None or _worth(run) > _worth(known)):
            best[run.problem.precision.letter] = run
    return sorted(best.values(), key=lambda run: (run.best_peer is not None, run.date))[::-1]


def _worth(run: Run) -> tuple[bool, float]:
    return run.best_peer is not None, run.ours


def _figure(data: Gathered, device: Device, runs: list[Run]) -> Figure:
    limits = [data.bound(device, run.problem) for run in runs]
    heights = [None if one is None else one.limit for one in limits]
    names = named(name for run in runs for name in run.rates)
    rates = {name: [run.rates.get(name) for run in runs] for name in names}
    shown = [rate for found in (*rates.values(), heights) for rate in found if rate]
    scale, unit = scale_of(shown)
    bars = {name: (called(name), rates[name]) for name in names}
    if any(heights):
        bars["other"] = ("bound", heights)
    groups = [
        Bars(name, role, tuple(scaled(rate, scale) for rate in found))
        for role, (name, found) in bars.items()
    ]
    rows = []
    for run, limit in zip(runs, limits, strict=True):
        cells = rate_cells(run.rates, names, scale)
        ends = ("", "", "") if limit is None else (
            f"{limit.limit / scale:,.1f}", percent(run.ours / limit.limit), limit.limiting.name
        )  # fmt: skip
        rows.append((str(run.problem), *cells, *ends, run.source))
    columns = (
        *("problem", *(f"{called(name)}, {unit}" for name in names)),
        *(f"bound, {unit}", "ours / bound", "limited by", "from"),
    )
    first, limit = runs[0], limits[0]
    told = f"{first.problem} runs at {plain_rate(first.ours)}"
    if limit is not None:
        told += f", {percent(first.ours / limit.limit)} of the bound"
    return Figure(
        f"Best kernels on {device.label}",
        told + ".",
        Columns(unit, tuple(str(run.problem) for run in runs), tuple(groups)),
        Table("Rates", columns, tuple(rows)),
    )
