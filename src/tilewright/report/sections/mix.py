"""What main loops consist of, from machine code."""

from __future__ import annotations

from collections import Counter

from tilewright.report.feeding import Feeding
from tilewright.report.gather import Gathered
from tilewright.report.mixes import Mix
from tilewright.report.model import Bars, Curve, Curves, Figure, Rows, Section, Table
from tilewright.report.svg import ROLES
from tilewright.report.words import grouped, percent

__all__ = ["section"]

# Classes with a colour of their own; the palette has no more that everybody can tell apart.
_SHOWN = 6


def section(data: Gathered) -> Section:
    """Return the share of each class of instructions in every main loop known."""
    known = (one for one in data.mixes if sum(one.classes.values()))
    groups = grouped(known, lambda one: one.group)
    return Section(
        "mix",
        "Instruction mix",
        "What the compiled main loops consist of. Only multiply-adds compute the product; the "
        "rest of the issue slots is the price of feeding them.",
        figures=(*(_figure(name, mixes) for name, mixes in groups.items()), *_feedings(data)),
        command="tilewright inspect default --arch sm_90a --json"
        " > benchmarks/results/inspected.json",
    )


def _figure(name: str, mixes: list[Mix]) -> Figure:
    totals = Counter[str]()
    for one in mixes:
        whole = sum(one.classes.values())
        totals.update({kind: count / whole for kind, count in one.classes.items()})
    ordered = [kind for kind, _ in sorted(totals.items(), key=lambda item: (-item[1], item[0]))]
    shown, rest = ordered[:_SHOWN], ordered[_SHOWN:]
    groups = [
        Bars(kind, role, tuple(100 * _share(one, [kind]) for one in mixes))
        for kind, role in zip(shown, ROLES, strict=False)
    ]
    if rest:
        groups.append(Bars("the rest", "other", tuple(100 * _share(one, rest) for one in mixes)))
    rows = []
    for one in mixes:
        busy = "" if one.fma_share is None else percent(one.fma_share)
        told = f"{busy} modelled" if busy else ""
        counts = [f"{one.classes.get(kind, 0):,}" for kind in ordered]
        rows.append((one.label, one.config, *counts, told, one.source))
    best = max(mixes, key=lambda one: _share(one, ["multiply-add"]))
    return Figure(
        name[:1].upper() + name[1:],
        f"Multiply-adds are at most {percent(_share(best, ['multiply-add']))} of a loop's "
        f"instructions ({best.label}).",
        Rows("% of the loop's instructions", tuple(one.label for one in mixes), tuple(groups)),
        Table("Instructions", ("loop", "config", *ordered, "FMA pipe busy", "from"), tuple(rows)),
    )


def _feedings(data: Gathered) -> list[Figure]:
    """Return how fast multiply-adds run beside loads, one figure an instruction and device."""
    labels = {device.fingerprint: device.label for device in data.devices}
    known = (one for one in data.results.feedings if one.device in labels)
    groups = grouped(known, lambda one: (one.instruction, one.device))
    return [_feeding(kind, labels[mark], found) for (kind, mark), found in groups.items()]


def _feeding(kind: str, device: str, found: list[Feeding]) -> Figure:
    ratios = sorted({ratio for one in found for ratio, _ in one.points})
    curves = tuple(
        Curve(
            f"{one.load_bits}-bit loads",
            role,
            tuple((float(ratio), 100 * share) for ratio, share in one.points),
        )
        for one, role in zip(found, ROLES, strict=False)
    )
    shares = [dict(one.points) for one in found]
    rows = tuple(
        (f"{ratio}", *(percent(one[ratio]) if ratio in one else "" for one in shares))
        for ratio in ratios
    )
    widest = max(found, key=lambda one: one.load_bits)
    ratio, share = widest.points[0]
    per_load = "multiply-adds a load"
    return Figure(
        f"{kind} beside loads of shared memory, {found[0].warps} warps, {device}",
        f"At {ratio} {kind} for a {widest.load_bits}-bit load the multiply-adds run at "
        f"{percent(share)} of their peak, at {widest.points[-1][0]} at "
        f"{percent(widest.points[-1][1])} (Lai & Seznec's Figure 2).",
        Curves(per_load, "% of the multiply-adds' peak", curves, x_log=True,
               ticks=tuple(map(float, ratios))),
        Table("Shares of the peak", (per_load, *(f"{one.load_bits} bits" for one in found)), rows),
    )  # fmt: skip


def _share(one: Mix, kinds: list[str]) -> float:
    return sum(one.classes.get(kind, 0) for kind in kinds) / sum(one.classes.values())
