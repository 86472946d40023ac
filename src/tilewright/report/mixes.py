"""Instruction mixes of main loops, from the results files that hold any."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.bench.loops import unpack_trace
from tilewright.report.words import tiling
from tilewright.sass.loops import instruction_class
from tilewright.space import Config
from tilewright.text import plain

__all__ = ["Mix", "counted_loops", "figure1_loops", "inspected_loops"]


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
        Share of cycles in which the multiply-adds' pipe is busy.
    measured : bool
        Whether counters told that share; else the cycle model did.
    config : str
        The config in ASTRA's notation.
    source : str
        File.
    """

    group: str
    label: str
    classes: Mapping[str, int] = field(hash=False)
    fma_share: float | None = None
    measured: bool = False
    config: str = ""
    source: str = ""


def _classes(mix: Mapping[str, Any]) -> dict[str, int]:
    """Return a mix whose numbers are numbers."""
    return {plain(str(name)): int(count) for name, count in mix.items() if int(count) > 0}


def _share(value: Any) -> float | None:
    good = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if good else None


def counted_loops(document: Mapping[str, Any], source: str) -> Iterator[Mix]:
    """Yield the loop with the largest counted share of each variant (benchmarks/calibrate.py).

    Only these are decoded: a file holds hundreds.
    """
    arch = int(document["arch"])
    best: dict[str, Mapping[str, Any]] = {}
    for loop in document["loops"]:
        known = best.get(loop["variant"])
        if known is None or float(loop["fma_share"]) > float(known["fma_share"]):
            best[loop["variant"]] = loop
    device = plain(str(document.get("device", "")))
    for variant, loop in best.items():
        trace = unpack_trace(loop["trace"], arch)
        values = {plain(name): int(value) for name, value in loop["config"].items()}
        precision, trans = plain(variant)[:1].upper(), plain(variant)[1:]
        yield Mix(
            group=f"best counted kernels, sm_{arch}" + (f", {device}" if device else ""),
            label=f"{precision}GEMM {trans}",
            classes=dict(Counter(instruction_class(i) for i in trace)),
            fma_share=_share(loop["fma_share"]),
            measured=True,
            config=tiling(Config("portable", values)),
            source=source,
        )


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


def figure1_loops(document: Mapping[str, Any], source: str) -> Iterator[Mix]:
    """Yield the loops behind Lai & Seznec's Figure 1 with the widest loads."""
    points = [point for point in document["points"] if "blocking" in point and "mix" in point]
    widest = max((int(point["load_bits"]) for point in points), default=0)
    arch = plain(str(document.get("arch", "")))
    for point in points:
        if int(point["load_bits"]) != widest:
            continue
        yield Mix(
            group=f"register blocking of Lai & Seznec's Figure 1, {widest}-bit loads, {arch}",
            label=f"blocking {int(point['blocking'])}",
            classes=_classes(point["mix"]),
            config=f"{int(point['registers'])} registers",
            source=source,
        )
