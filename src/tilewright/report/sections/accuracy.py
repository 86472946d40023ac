"""How exact the verified kernels are."""

from __future__ import annotations

from tilewright.problem import Problem
from tilewright.report.gather import Device, Gathered
from tilewright.report.model import Bars, Curve, Curves, Figure, Rows, Section, Table
from tilewright.report.results import Run
from tilewright.report.runs import Errors
from tilewright.report.words import called, grouped, tiling

__all__ = ["section"]


def section(data: Gathered) -> Section:
    """Return the errors that verification found, against the depth of the product."""
    figures = []
    for device in data.devices:
        found = grouped(_with_error(data, device), lambda run: run.problem.precision)
        figures += [_figure(device, runs) for runs in found.values()]
        # Only what was measured on the same data can be compared.
        mine = (x for x in data.results.errors if x.device == device.fingerprint and x.etas)
        sets = grouped(mine, lambda one: (one.source, *one.etas))
        figures += [_compared(device, one) for one in sets.values()]
    return Section(
        "accuracy",
        "Accuracy",
        "Largest componentwise error of each winner, eta = max |C' − AB| / (|A||B| + |beta C|), "
        "against an oracle in higher precision. Below k times the unit roundoff u lies what any "
        "order of summation guarantees; a good kernel stays near u.",
        figures=tuple(figures),
        command="tilewright tune --precision s --size 1024 --budget 60s",
    )


def _compared(device: Device, found: list[Errors]) -> Figure:
    """Return the largest error of each arithmetic over all data, in units of its roundoff."""
    names = list(dict.fromkeys(name for one in found for name in one.etas))
    worst = {name: max(one.etas.get(name, 0.0) for one in found) for name in names}
    names.sort(key=lambda name: worst[name])
    unit = Problem(1, 1, 1, "s").precision.unit_roundoff  # type: ignore[arg-type]
    rows = tuple(
        (one.data, *(f"{one.etas[n]:.2e}" if n in one.etas else "" for n in names), one.source)
        for one in found
    )
    best = names[0]
    return Figure(
        f"Single precision by several arithmetics on {device.label}",
        f"The smallest of the largest errors, over {len(found)} kinds of data, is that of "
        f"{called(best)}: {worst[best]:.1e}, {worst[best] / unit:,.1f} u.",
        Rows(
            "largest eta / u",
            tuple(map(called, names)),
            (Bars("", "tilewright", tuple(worst[name] / unit for name in names)),),
            x_log=True,
        ),
        Table("Errors, eta", ("data", *map(called, names), "from"), rows),
    )


def _with_error(data: Gathered, device: Device) -> list[Run]:
    """Return one run a problem and config whose error was measured and is neither 0 nor absurd."""
    seen: dict[tuple[str, str], Run] = {}
    for run in data.runs:
        if run.device == device.fingerprint and run.eta and run.eta <= 1:
            config = "" if run.config is None else run.config.id
            seen.setdefault((str(run.problem), config), run)
    return sorted(seen.values(), key=lambda r: (r.problem.k, str(r.problem), r.source))


def _figure(device: Device, runs: list[Run]) -> Figure:
    kind = runs[0].problem.precision
    unit = kind.unit_roundoff
    depths = sorted({run.problem.k for run in runs})
    ends = (depths[0] / 2, depths[-1] * 2.0)
    curves = (
        Curve(
            "largest error",
            "tilewright",
            tuple((float(r.problem.k), r.eta or 0.0) for r in runs),
            "dots",
        ),
        Curve("u", "second", tuple((k, unit) for k in ends), "dashed"),
        Curve("k u", "bound", tuple((k, k * unit) for k in ends), "dashed"),
    )
    rows = tuple(
        (
            str(run.problem),
            f"{run.eta:.2e}",
            f"{(run.eta or 0.0) / unit:,.2f}",
            "" if run.config is None else f"{run.config.stencil}: {tiling(run.config)}",
            run.source,
        )
        for run in runs
    )
    worst = max(runs, key=lambda run: run.eta or 0.0)
    return Figure(
        f"{kind.name} on {device.label}",
        f"The largest error of {len(runs)} verified kernel{'s' * (len(runs) > 1)} is "
        f"{worst.eta:.1e}, "
        f"{(worst.eta or 0.0) / unit:,.1f} u.",
        Curves("k", "eta", curves, x_log=True, y_log=True, ticks=tuple(map(float, depths))),
        Table("Errors", ("problem", "eta", "eta / u", "config", "from"), rows),
    )
