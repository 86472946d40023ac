"""The kernel ladder: one optimisation a rung, from the naive kernel to the vendor's library."""

from __future__ import annotations

from tilewright.report.climbs import Climb, Rung
from tilewright.report.gather import Device, Gathered
from tilewright.report.model import Bars, Figure, Rows, Section, Table
from tilewright.report.words import called, scale_of

__all__ = ["section"]


def section(data: Gathered) -> Section:
    """Return a figure for each problem that the ladder was climbed on."""
    figures = [
        _figure(device, climb)
        for device in data.devices
        for climb in data.results.climbs
        if climb.device == device.fingerprint and any(one.rate for one in climb.rungs)
    ]
    return Section(
        "ladder",
        "The ladder",
        "Kernels of one idea each, beside the vendor's library: what every optimisation is "
        "worth on this device, and what stops the kernel that has it.",
        figures=tuple(figures),
        command="tilewright ladder -o benchmarks/results/ladder.json",
    )


def _figure(device: Device, climb: Climb) -> Figure:
    scale, unit = scale_of(one.rate or 0.0 for one in climb.rungs)
    ours = tuple(_value(one, _is_rung(one), scale) for one in climb.rungs)
    theirs = tuple(_value(one, not _is_rung(one), scale) for one in climb.rungs)
    groups = [Bars("rungs", "tilewright", ours)]
    if any(theirs):
        groups.append(Bars("libraries", "cublas", theirs))
    rows = tuple(
        (
            _label(one),
            one.title if _is_rung(one) else f"version {one.title}",
            f"{one.rate / scale:,.3f}" if one.rate else "",
            climb.share(one, climb.library_rate),
            climb.share(one, climb.bound),
            one.limits,
            f"{one.eta:.1e}" if one.eta else "",
            f"{1e3 * one.total_seconds:,.2f}" if one.total_seconds else "",
            one.reason or one.idea,
        )
        for one in climb.rungs
    )
    best = max(climb.rungs, key=lambda one: (_is_rung(one), one.rate or 0.0))
    told = f"The fastest rung, {_label(best)}, reaches {(best.rate or 0.0) / scale:,.1f} {unit}"
    if climb.library_rate:
        told += f", {climb.share(best, climb.library_rate)} of {called(climb.library)}"
    of = called(climb.library) or "library"
    return Figure(
        f"{climb.title} on {device.label}",
        told + ".",
        Rows(unit, tuple(_label(one) for one in climb.rungs), tuple(groups)),
        Table(
            "Rungs",
            ("rung", "what is new", unit, f"of {of}", "of the bound", "limited by", "eta",
             "with transfers, ms", "why"),
            rows,
        ),
    )  # fmt: skip


def _is_rung(one: Rung) -> bool:
    """Whether it is a kernel of ours: rungs are named v1_naive and so on."""
    head = one.name.partition("_")[0]
    return head[:1] == "v" and head[1:].isdecimal()


def _label(one: Rung) -> str:
    return one.name.replace("_", " ") if _is_rung(one) else called(one.name)


def _value(one: Rung, shown: bool, scale: float) -> float | None:
    return one.rate / scale if shown and one.rate else None
