"""What main loops consist of, from machine code."""

from __future__ import annotations

from collections import Counter, defaultdict

from tilewright.report.gather import Gathered
from tilewright.report.mixes import Mix
from tilewright.report.model import Bars, Figure, Rows, Section, Table
from tilewright.report.words import percent

__all__ = ["section"]

# Classes with a colour of their own; the palette has no more that everybody can tell apart.
_SHOWN = 6
_ROLES = ("tilewright", "second", "third", "fourth", "fifth", "sixth")


def section(data: Gathered) -> Section:
    """Return the share of each class of instructions in every main loop known."""
    groups: dict[str, list[Mix]] = defaultdict(list)
    for one in data.mixes:
        if sum(one.classes.values()):
            groups[one.group].append(one)
    return Section(
        "mix",
        "Instruction mix",
        "What the compiled main loops consist of. Only multiply-adds compute the product; the "
        "rest of the issue slots is the price of feeding them.",
        figures=tuple(_figure(name, mixes) for name, mixes in groups.items()),
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
        for kind, role in zip(shown, _ROLES, strict=False)
    ]
    if rest:
        groups.append(Bars("the rest", "other", tuple(100 * _share(one, rest) for one in mixes)))
    rows = []
    for one in mixes:
        busy = "" if one.fma_share is None else percent(one.fma_share)
        told = f"{busy} {'counted' if one.measured else 'modelled'}" if busy else ""
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


def _share(one: Mix, kinds: list[str]) -> float:
    return sum(one.classes.get(kind, 0) for kind in kinds) / sum(one.classes.values())
