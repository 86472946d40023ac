"""What pruning leaves of a parameter space (Kurzak et al. 2012, Figure 2)."""

from __future__ import annotations

from functools import lru_cache

from tilewright.hardware import DeviceSpec
from tilewright.problem import Problem
from tilewright.report.gather import Device, Gathered
from tilewright.report.model import Bars, Figure, Rows, Section, Table
from tilewright.report.words import percent
from tilewright.space import Funnel
from tilewright.stencil import Stencil, Variant, stencil, stencils_for

__all__ = ["section"]


def section(data: Gathered) -> Section:
    """Return the funnel of each device's stencil in each measured precision."""
    figures, rows, missing = [], [], []
    for device in data.devices:
        if device.numbers is None:
            missing.append(f"The space for {device.label} needs the device's numbers.")
            continue
        for letter in data.largest(device):
            try:
                variant = Variant.of(Problem(1, 1, 1, letter))  # type: ignore[arg-type]
                family = stencils_for(device.numbers.spec, variant)[0]
                found = _funnel(family.name, variant, device.numbers.spec)
            except ValueError as problem:  # measured by a script, with kernels of its own
                missing.append(f"No space for {device.label}: {problem}.")
                continue
            figures.append(_figure(device, family, variant, found))
            rows.append(_row(data, device, variant, found))
    columns = ("kernels", "device", "every combination", "after pruning", "left", "tried")
    return Section(
        "funnel",
        "Pruning funnel",
        "How many points of the parameter space each constraint leaves, in the order in which they "
        "are applied. Hardware limits and divisibility are exact; heuristics say what is unlikely "
        "to be fast. Non-transposed operands; other cases differ little.",
        tables=(Table("Points of the space", columns, tuple(rows)),) if rows else (),
        figures=tuple(figures),
        missing=tuple(missing),
        command="tilewright tune --precision s --size 1024 --budget 60s",
    )


@lru_cache(maxsize=32)
def _funnel(family: str, variant: Variant, spec: DeviceSpec) -> Funnel:
    """Return a space's funnel: half a second for a GPU's, the same for devices of one kind."""
    return stencil(family).space(variant, spec).funnel()


def _row(data: Gathered, device: Device, variant: Variant, found: Funnel) -> tuple[str, ...]:
    letter = variant.precision.letter
    tried = {
        (one.problem, one.config.id)
        for one in data.tried.get(device.fingerprint, ())
        if one.problem.precision.letter == letter
    }
    return (
        variant.precision.name,
        device.label,
        f"{found.raw_size:,}",
        f"{found.survivors:,}",
        percent(found.survivors / max(1, found.raw_size)),
        f"{len(tried):,}",
    )


def _figure(device: Device, family: Stencil, variant: Variant, found: Funnel) -> Figure:
    names = ("every combination", *(stage.name for stage in found))
    counts = (found.raw_size, *(stage.survivors for stage in found))
    kinds = ("", *(str(stage.kind) for stage in found))
    groups = tuple(
        Bars(label, role, tuple(n if k == kind and n else None for n, k in zip(counts, kinds)))  # noqa: B905
        for kind, label, role in (
            ("", "raw", "other"),
            ("hardware", "hardware limit", "second"),
            ("divisibility", "divisibility", "third"),
            ("heuristic", "heuristic", "tilewright"),
            ("proof", "not proved on such a device", "fourth"),
        )
        if kind in kinds
    )
    rows = [("every combination", "", f"{found.raw_size:,}", "", "")]
    for stage in found:
        before = stage.survivors + stage.removed
        left = percent(stage.survivors / before) if before else ""
        rows.append((stage.name, str(stage.kind), f"{stage.survivors:,}", left, stage.reason))
    return Figure(
        f"{variant.precision.name}, stencil {family.name}, {device.label}",
        f"{len(found)} constraints leave {found.survivors:,} of {found.raw_size:,} points.",
        Rows("points left", names, groups, x_log=True),
        Table(
            "Funnel", ("constraint", "kind", "points left", "of those before", "why"), tuple(rows)
        ),
    )
