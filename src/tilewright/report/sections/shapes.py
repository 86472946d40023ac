"""Sets of shapes, such as random ones: how often and how far we are ahead of another library."""

from __future__ import annotations

from statistics import geometric_mean

from tilewright.report.gather import Device, Gathered
from tilewright.report.model import Curve, Curves, Figure, Section, Table
from tilewright.report.results import Run
from tilewright.report.svg import ROLES
from tilewright.report.words import called, grouped, percent

__all__ = ["section"]

# The curve of a set has so many points at most: more than a phone can show.
_POINTS = 200


def section(data: Gathered) -> Section:
    """Return a figure for each device and precision with a set of shapes."""
    figures = []
    for device in data.devices:
        mark = device.fingerprint
        mine = (x for x in data.results.samples if x.device == mark and x.ours and x.best_peer)
        for what, runs in grouped(mine, _what).items():
            figures.append(_figure(device, what, grouped(runs, lambda run: run.shapes)))
    return Section(
        "shapes",
        "Random shapes",
        "Our rate over that of the other library on the same shape, sorted: where a curve crosses "
        "1, the share of shapes on which the other is ahead. Times are of whole calls, with all "
        "that the host does.",
        figures=tuple(figures),
        command="tilewright bench calls --size random -o benchmarks/results/random.json",
        cuda=True,
    )


def _what(run: Run) -> str:
    name = run.problem.precision.name
    if run.arithmetic in ("fp32", "fp64"):
        return f'{name} with accuracy="{run.arithmetic}"'
    return run.arithmetic or name


def _figure(device: Device, what: str, sets: dict[str, list[Run]]) -> Figure:
    curves, rows = [], []
    for role, (name, runs) in zip(ROLES, sets.items(), strict=False):
        ratios = sorted(run.ours / run.best_peer[1] for run in runs if run.best_peer)
        curves.append(Curve(name, role, _sorted(ratios), "step"))
        rows.append((name, *_quantiles(ratios), ", ".join(sorted({run.source for run in runs}))))
    curves.append(Curve("equal", "bound", ((0.0, 1.0), (100.0, 1.0)), "dashed"))
    peers = sorted({run.best_peer[0] for runs in sets.values() for run in runs if run.best_peer})
    name, count, mean, *_, ahead, _ = rows[0]
    beside = " or ".join(map(called, peers))
    return Figure(
        f"{what} beside {beside} on {device.label}",
        f"{name}: {count} shapes, geometric mean {mean}, at least as fast on {ahead}.",
        Curves("% of the shapes", "our rate / theirs", tuple(curves), y_log=True),
        Table(
            "Ratios",
            ("set", "shapes", "geometric mean", "least", "5 %", "median", "95 %", "not behind",
             "from"),
            tuple(rows),
        ),
    )  # fmt: skip


def _sorted(ratios: list[float]) -> tuple[tuple[float, float], ...]:
    every = max(1, len(ratios) // _POINTS)
    points = [(100 * at / len(ratios), ratio) for at, ratio in enumerate(ratios)]
    return (*points[::every], (100.0, ratios[-1]))


def _quantiles(ratios: list[float]) -> tuple[str, ...]:
    """Return count, geometric mean, some quantiles, and the share that is not behind."""
    quantiles = (ratios[round(at * (len(ratios) - 1))] for at in (0, 0.05, 0.5, 0.95))
    shown = (geometric_mean(ratios), *quantiles)
    ahead = sum(ratio >= 1 for ratio in ratios) / len(ratios)
    return f"{len(ratios):,}", *(f"{ratio:.3f}" for ratio in shown), percent(ahead)
