"""The best config of every precision and transpose beside the vendor's library."""

from __future__ import annotations

from tilewright.report.gather import Device, Gathered
from tilewright.report.model import Bars, Columns, Figure, Section, Table
from tilewright.report.results import Run
from tilewright.report.words import (
    called,
    grouped,
    named,
    plain_rate,
    rate_cells,
    scale_of,
    scaled,
    tiling,
)

__all__ = ["section"]


def section(data: Gathered) -> Section:
    """Return ASTRA's Figures 3 to 6 for each device."""
    figures: list[Figure] = []
    tilings: list[tuple[str, ...]] = []
    for device in data.devices:
        found = grouped(data.runs_of(device), lambda run: run.problem.precision)
        for runs in map(_chosen, found.values()):
            figures.append(_figure(device, runs))
            tilings += [_tiling_row(device, run) for run in runs]
    columns = ("device", "problem", "ours", "best other", "ours / best other", "tiling")
    return Section(
        "best",
        "Best configs beside the vendor's library",
        "For every precision and pair of transposes, our best kernel and the other libraries in "
        "the same process, interleaved (ASTRA's Figures 3 to 6). A tiling is the block of C and "
        "the step in k, then the shape of the threads that compute C, read A and read B.",
        tables=(Table("Best configs", columns, tuple(tilings)),) if tilings else (),
        figures=tuple(figures),
        command="tilewright bench --trans all --size 1024 --peer numpy --tune 30s"
        " -o benchmarks/results/mine.json",
    )


def _tiling_row(device: Device, run: Run) -> tuple[str, ...]:
    """Return one row of ASTRA's tables."""
    peer = run.best_peer
    config = "" if run.config is None else f"{run.config.stencil}: {tiling(run.config)}"
    other = "" if peer is None else f"{called(peer[0])} {plain_rate(peer[1])}"
    ratio = "" if peer is None else f"{run.ours / peer[1]:.3f}"
    return device.label, str(run.problem), plain_rate(run.ours), other, ratio, config


def _chosen(runs: list[Run]) -> list[Run]:
    """Return the runs of one precision at the size that most transposes share."""
    # The largest size among those with the most cases beside another library.
    return max(
        grouped(runs, lambda run: run.problem.shape).values(),
        key=lambda found: (
            sum(run.best_peer is not None for run in found),
            len(found),
            found[0].problem.flops,
        ),
    )


def _figure(device: Device, chosen: list[Run]) -> Figure:
    problem = chosen[0].problem
    scale, unit = scale_of(rate for run in chosen for rate in run.rates.values())
    names = named(name for run in chosen for name in run.rates)
    groups = tuple(
        Bars(called(name), name, tuple(scaled(run.rates.get(name), scale) for run in chosen))
        for name in names
    )
    rows = []
    for run in chosen:
        source = f"{run.source}, cold caches" if run.cold else run.source
        rates = rate_cells(run.rates, names, scale)
        rows.append((run.problem.trans, *rates, run.tuned_on or "default", source))
    columns = ("case", *(f"{called(name)}, {unit}" for name in names), "tuned on", "from")
    ahead = sum(run.best_peer is not None and run.ours >= run.best_peer[1] for run in chosen)
    beside = sum(run.best_peer is not None for run in chosen)
    title = f"{problem.precision.name} {problem.shape} on {device.label}"
    return Figure(
        title,
        f"Ours is the fastest in {ahead} of {beside} cases."
        if beside
        else "No other was measured.",
        Columns(unit, tuple(run.problem.trans for run in chosen), groups),
        Table("Rates", columns, tuple(rows)),
    )
