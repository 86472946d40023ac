"""Instruction mixes of main loops, from the results files that hold any."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.report.words import tiling
from tilewright.space import Config
from tilewright.text import plain

__all__ = ["Mix", "blocking_loops", "inspected_loops"]


@dataclass(frozen=True)
class Mix:
    """What a main loop consists of.

    Parameters
    ----------
    group : str
        What it may be compared with: architecture and kind of document.
    label : str
        The kernel, shortly.
    classes : Mapping
        Number of instructions of each class.
    fma_share : float or None
        Share of cycles in which the cycle model sees the multiply-adds' pipe busy.
    config : str
        The config in ASTRA's notation.
    source : str
        File.
    """

    group: str
    label: str
    classes: Mapping[str, int] = field(hash=False)
    fma_share: float | None = None
    config: str = ""
    source: str = ""


def _classes(mix: Mapping[str, Any]) -> dict[str, int]:
    """Return a mix whose numbers are numbers."""
    return {plain(str(name)): int(count) for name, count in mix.items() if int(count) > 0}


def _share(value: Any) -> float | None:
    good = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if good else None


def inspected_loops(document: Mapping[str, Any], source: str) -> Iterator[Mix]:
    """Yield the main loops of ``tilewright inspect --json``."""
    values = document.get("config")
    config = ""
    if isinstance(values, dict) and all(isinstance(v, int | str) for v in values.values()):
        config = tiling(Config("", {plain(str(k)): v for k, v in values.items()}))
    for kernel in document["kernels"]:
        if not isinstance(kernel.get("loop"), dict):
            continue
        cycles = kernel.get("cycles")
        resources = kernel["resources"]
        yield Mix(
            group=f"inspected kernels, sm_{int(resources['arch'])}",
            label=plain(str(document.get("variant") or resources["name"]))[:40],
            classes=_classes(kernel["loop"]["mix"]),
            fma_share=_share(cycles.get("pipe_share")) if isinstance(cycles, dict) else None,
            config=plain(config),
            source=source,
        )


def blocking_loops(rows: Sequence[Mapping[str, Any]], source: str) -> Iterator[Mix]:
    """Yield the loops behind Lai & Seznec's Figure 1 with the widest loads, of any rows."""
    points = [row for row in rows if "blocking" in row and "mix" in row]
    widest = max((int(point["load_bits"]) for point in points), default=0)
    for point in points:
        if int(point["load_bits"]) != widest:
            continue
        arch = plain(str(point.get("arch", "")))
        yield Mix(
            group=f"register blocking of Lai & Seznec's Figure 1, {widest}-bit loads, {arch}",
            label=f"blocking {int(point['blocking'])}",
            classes=_classes(point["mix"]),
            config=f"{int(point['registers'])} registers",
            source=source,
        )
