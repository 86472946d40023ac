"""Products on tensor cores, those of single precision (``accuracy="fp32"``) among them."""

from __future__ import annotations

from tilewright.report.gather import Device, Gathered
from tilewright.report.model import Curve, Curves, Figure, Section, Table
from tilewright.report.results import Run
from tilewright.report.words import (
    called,
    grouped,
    named,
    percent,
    plain_rate,
    rate_cells,
    scale_of,
    side,
)

__all__ = ["section"]

# What a row of rates calls the parts of a product with accuracy="fp32".
_NAMES = {
    "guarded": 'accuracy="fp32", operands examined',
    "product": "the product alone, operands split before",
}
_ROLES = {"guarded": "fifth", "product": "sixth"}


def section(data: Gathered) -> Section:
    """Return a figure for each device and arithmetic."""
    figures = []
    for device in data.devices:
        mark = device.fingerprint
        mine = (run for run in data.results.tensor if run.device == mark and run.rates)
        found = grouped(mine, lambda run: run.kind)
        figures += [_figure(data, device, name, runs) for name, runs in found.items()]
    return Section(
        "tensor",
        "Tensor cores",
        "Rate against size, the best of all transposes; two operations for each multiply-add of "
        "elements. fp16x3, bf16x6 and the like are single precision from products of parts, what "
        'tw.gemm(..., accuracy="fp32") computes; the library beside them is its SGEMM.',
        figures=tuple(figures),
        command="tilewright bench calls --size squares --precision bf16,fp32"
        " -o benchmarks/results/tensor.json",
        cuda=True,
    )


def _figure(data: Gathered, device: Device, kind: str, runs: list[Run]) -> Figure:
    runs = sorted(runs, key=lambda run: (run.problem.flops, run.problem.trans))
    scale, unit = scale_of(rate for run in runs for rate in run.rates.values())
    names = named(name for run in runs for name in run.rates)
    highest: dict[str, dict[float, float]] = {name: {} for name in names}
    limits: dict[float, float] = {}
    rows = []
    for run in runs:
        size = side(run.problem)
        for name, rate in run.rates.items():
            highest[name][size] = max(rate / scale, highest[name].get(size, 0.0))
        bound = data.bound(device, run.problem, run.arithmetic or "ieee")
        cells = rate_cells(run.rates, names, scale)
        if bound is None:
            cells += ["", ""]
        else:
            limits[size] = bound.limit / scale
            cells += [f"{bound.limit / scale:,.1f}", percent(run.ours / bound.limit)]
        rows.append((run.problem.trans, run.problem.shape, *cells, run.source))
    curves = [Curve(_called(n), _ROLES.get(n, n), tuple(sorted(highest[n].items()))) for n in names]
    if limits:
        curves.append(Curve("bound", "bound", tuple(sorted(limits.items())), "dashed"))
    best = max(runs, key=lambda run: run.ours)
    columns = ("case", "size", *(f"{_called(n)}, {unit}" for n in names), f"bound, {unit}",
               "ours / bound", "from")  # fmt: skip
    ticks = tuple(sorted({size for found in highest.values() for size in found}))
    return Figure(
        f"{kind} on {device.label}",
        f"Ours reaches {plain_rate(best.ours)} at {best.problem.shape}, {best.problem.trans}.",
        Curves("N, or the cube root of m n k", unit, tuple(curves), x_log=True, ticks=ticks),
        Table("Rates", columns, tuple(rows)),
    )


def _called(name: str) -> str:
    return _NAMES.get(name, called(name))
