"""Records of single benchmarks: races against cuBLAS, double-double, loops fed by shared memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.report.runs import Run, config_of, date_of, run_of
from tilewright.text import plain

__all__ = ["Feeding", "accuracies", "feedings", "pair_runs", "race_runs"]

# A result of benchmarks/double_double.py's check of accuracy has m x n elements.
_CHECKED_M, _CHECKED_N, _CHECKED_K = 48, 40, 4096


def race_runs(document: Mapping[str, Any], device: str, source: str) -> Iterator[Run]:
    """Yield the finals of ``benchmarks/hopper_s.py``: the winner and cuBLAS in turns.

    Parameters
    ----------
    document : Mapping
        ``log`` with rows of kind ``"final"``; rates in TFLOP/s.  The races are of SGEMM and of
        the stencil of asynchronous copies where a row does not name others.
    device, source : str
        Fingerprint and file.

    Raises
    ------
    ValueError, KeyError, TypeError
        If a row is not of this form.
    """
    for row in document["log"]:
        if not isinstance(row, dict) or row.get("kind") != "final" or "tflops" not in row:
            continue
        size = int(row["size"])
        sweep = {
            "precision": row.get("precision", "s"),
            "trans": row["trans"],
            "size": [size, size, size],
            "flops_per_second": {name: 1e12 * rate for name, rate in row["tflops"].items()},
            "config": {"stencil": row.get("stencil", "simt_async")} | row["config"],
            "tuned_on": f"{size}",
        }
        yield run_of(sweep, device, source, date_of(document))


def pair_runs(document: Mapping[str, Any], device: str, source: str, date: str) -> Iterator[Run]:
    """Yield the rates of ``benchmarks/double_double.py``; rows without one have a reason."""
    for row in document["rows"]:
        if "flops_per_second" not in row:
            continue
        size = int(row["n"])
        sweep = {
            "precision": row["precision"],
            "trans": row["trans"],
            "size": [size, size, size],
            "flops_per_second": {"tilewright": row["flops_per_second"]},
            "config": {"stencil": row["stencil"]} | row["config"],
            "tuned_on": f"{size}",
        }
        yield run_of(sweep, device, source, date)


def accuracies(document: Mapping[str, Any], device: str, source: str, date: str) -> Iterator[Run]:
    """Yield the largest eta of each of its kernels, without a rate."""
    stencils = {
        row["precision"] + row["trans"].lower(): row["stencil"]
        for row in document["rows"]
        if "stencil" in row
    }
    for row in document["accuracy"]:
        found = [row[name] for name in ("eta_phi_0", "eta_phi_2") if name in row]
        variant = str(row["variant"])
        if not found or variant not in stencils:
            continue
        trans_a, trans_b = (Trans(letter) for letter in variant[1:].upper())
        kind = precision(variant[0])
        problem = Problem(_CHECKED_M, _CHECKED_N, _CHECKED_K, kind, trans_a, trans_b)
        config = config_of({"stencil": stencils[variant]} | row["config"])
        yield Run(device, problem, {}, config, "", max(map(float, found)), source, date)


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
