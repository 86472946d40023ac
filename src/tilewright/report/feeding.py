"""Loops of multiply-adds fed by loads of shared memory, as microbenchmarks time them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.text import plain

__all__ = ["Feeding", "feedings"]


@dataclass(frozen=True)
class Feeding:
    """How fast a loop of multiply-adds and loads of shared memory runs (Lai & Seznec, Figure 2).

    Parameters
    ----------
    device : str
        Fingerprint.
    instruction : str
        The multiply-add, such as ``"FFMA"``.
    load_bits : int
        Width of a load.
    warps : int
        On a multiprocessor.
    points : tuple of (int, float)
        Multiply-adds for a load, and the multiply-adds' share of their peak rate.
    source : str
        File.
    """

    device: str
    instruction: str
    load_bits: int
    warps: int
    points: tuple[tuple[int, float], ...]
    source: str


def feedings(document: Mapping[str, Any], device: str, source: str) -> Iterator[Feeding]:
    """Yield the mixes of ``tilewright microbench`` at most warps, without bank conflicts."""
    experiments = document.get("experiments")
    mixes = experiments.get("mixes") if isinstance(experiments, dict) else None
    curves: dict[tuple[str, int, int], dict[int, float]] = defaultdict(dict)
    for row in mixes["rows"] if isinstance(mixes, dict) else ():
        if row["lane_pattern"] != "conflict_free" or row["bank_pattern"] != "kept":
            continue
        if row["load_bits"] and row["ratio"]:
            key = (plain(row["multiply_add"]), int(row["load_bits"]),
                   int(row["warps_per_multiprocessor"]))  # fmt: skip
            curves[key][int(row["ratio"])] = float(row["share_of_peak"])
    most = max((warps for *_, warps in curves), default=0)
    for (instruction, bits, warps), points in curves.items():  # in the order measured
        if warps == most:
            yield Feeding(device, instruction, bits, warps, tuple(sorted(points.items())), source)
