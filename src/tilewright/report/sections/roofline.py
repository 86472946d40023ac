"""Rooflines: every measured kernel under the roofs of its device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import log10

from tilewright.bounds import Bound
from tilewright.hardware.catalogue import CatalogueDevice
from tilewright.precision import Precision
from tilewright.problem import Problem
from tilewright.report.gather import Device, Gathered
from tilewright.report.model import Curve, Curves, Figure, Section, Table
from tilewright.report.words import blocks_of, called, intensity, named, plain_rate, scale_of

__all__ = ["section"]

# Kernels closer than this on both logarithmic axes (2 %) share a mark: a page must open on
# a phone, and more marks would hide one another anyway.
_CELL = log10(1.02)


@dataclass(frozen=True)
class _Point:
    """A measured kernel: FLOP per byte, FLOP/s and who wrote it."""

    x: float
    rate: float
    name: str


def section(data: Gathered) -> Section:
    """Return two rooflines for each device and precision."""
    figures: list[Figure] = []
    for device in data.devices:
        for problem in data.largest(device).values():
            figures += _figures(data, device, problem)
    return Section(
        "roofline",
        "Roofline",
        "Every measured kernel: its rate against the FLOP for each byte that it must move. Once "
        "for the whole problem, whose matrices cross the memory's border at least once; and once "
        "for its thread blocks, which read their rows of A and columns of B themselves (the "
        "blocking factor of Nakasato's equation 1): what lies above the memory's roof there is "
        "served by caches.",
        figures=tuple(figures),
        command="tilewright tune --precision s --size 1024 --budget 60s",
    )


def _figures(data: Gathered, device: Device, largest: Problem) -> Iterable[Figure]:
    """Yield a precision's rooflines; the largest problem's bound has the device's peak."""
    kind = largest.precision
    whole: list[_Point] = []
    blocks: list[_Point] = []
    for one in data.tried.get(device.fingerprint, ()):
        if one.ok and one.rate and one.problem.precision == kind:
            whole.append(_Point(intensity(one.problem), one.rate, "tilewright"))
            sides = blocks_of(one.config)
            if sides is not None:
                blocks.append(_Point(intensity(one.problem, sides), one.rate, "tilewright"))
    runs = [run for run in data.runs if run.device == device.fingerprint]
    runs = [run for run in runs if run.problem.precision == kind and run.source != "store"]
    for run in runs:
        whole += [_Point(intensity(run.problem), rate, name) for name, rate in run.rates.items()]
        sides = None if run.config is None else blocks_of(run.config)
        if sides is not None and run.ours:
            blocks.append(_Point(intensity(run.problem, sides), run.ours, "tilewright"))
    for climb in data.results.climbs:
        if climb.device == device.fingerprint and climb.problem.precision == kind:
            rates = (rung.rate for rung in climb.rungs if rung.rate)
            whole += [_Point(intensity(climb.problem), rate, "ladder") for rate in rates]
    bound = data.bound(device, largest)
    for title, found in (("whole problem", whole), ("thread blocks", blocks)):
        if found:
            yield _figure(f"{kind.name}, {title}, {device.label}", device, bound, kind, found)


def _figure(
    title: str, device: Device, bound: Bound | None, kind: Precision, points: list[_Point]
) -> Figure:
    scale, unit = scale_of(point.rate for point in points)
    curves, rows = [], []
    for name in named(point.name for point in points):
        cells = _cells(point for point in points if point.name == name)
        curves.append(Curve(called(name), name, tuple((x, y / scale) for x, y, _ in cells), "dots"))
        rows += [(called(name), f"{x:,.1f}", f"{y / scale:,.2f}", f"{n:,}") for x, y, n in cells]
    low, high = min(p.x for p in points) / 2, max(p.x for p in points) * 2
    roofs = _roofs(device.numbers, bound, kind)
    for role, (name, roof) in zip(("bound", "second", "third"), roofs.items(), strict=False):
        curves.append(Curve(name, role, _line(roof, low, high, scale), "dashed"))
    best = max(points, key=lambda point: point.rate)
    return Figure(
        title,
        f"{len(points):,} kernels; the fastest, of {called(best.name)}, reaches "
        f"{plain_rate(best.rate)} at {best.x:,.0f} FLOP a byte."
        + ("" if roofs else " The device's roofs are unknown."),
        Curves("FLOP a byte", unit, tuple(curves), x_log=True, y_log=True),
        Table(
            "Measured kernels",
            ("of", "FLOP a byte", f"fastest, {unit}", "kernels"),
            tuple(rows),
            "Kernels within 2 % of each other on both axes share a row and a mark.",
        ),
    )


def _cells(points: Iterable[_Point]) -> list[tuple[float, float, int]]:
    """Return the fastest point of each cell of the plane, and how many there are in it."""
    cells: dict[tuple[int, int], list[_Point]] = defaultdict(list)
    for point in points:
        cells[round(log10(point.x) / _CELL), round(log10(point.rate) / _CELL)].append(point)
    best = [(max(cell, key=lambda p: p.rate), len(cell)) for _, cell in sorted(cells.items())]
    return [(point.x, point.rate, count) for point, count in best]


def _roofs(
    numbers: CatalogueDevice | None, bound: Bound | None, kind: Precision
) -> dict[str, Callable[[float], float]]:
    """Return each roof's FLOP/s at a number of FLOP a byte, the one that counts first."""
    if numbers is None or bound is None:
        return {}
    peak = bound.term("arithmetic peak").value
    memory = numbers.value("memory_bytes_per_s")
    roofs: dict[str, Callable[[float], float]] = {}
    if peak is not None:
        roof, height = f"peak of {bound.arithmetic}", peak
        if memory is None:
            roofs[roof] = lambda x: height
        else:
            roofs[f"memory, {roof}"] = lambda x: min(height, x * memory)
    lanes = numbers.value(f"fma_lanes.{'s' if kind.real_bytes == 4 else 'd'}")
    clock, count = numbers.value("clock_hz"), numbers.needs("multiprocessors")
    if lanes and clock:
        plain = 2 * lanes * count * clock
        if peak is None or plain < 0.99 * peak:
            roofs["peak of multiply-add units"] = lambda x: plain
    cache = numbers.value("l2_bytes_per_s")
    if cache is None and clock and (rate := numbers.value("l2_bytes_per_cycle")):
        cache = rate * clock
    if cache is not None and peak is not None:
        slope, top = cache, peak
        roofs["shared cache (L2)"] = lambda x: min(top, x * slope)
    return roofs


def _line(
    roof: Callable[[float], float], low: float, high: float, scale: float
) -> tuple[tuple[float, float], ...]:
    """Return a roof as points close enough to show its corner."""
    steps = 96
    grid = (low * (high / low) ** (i / steps) for i in range(steps + 1))
    return tuple((x, roof(x) / scale) for x in grid)
