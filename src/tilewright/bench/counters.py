"""What Nsight Compute counts for a GEMM, by our names, and how its CSV is read.

``ncu --csv --page raw`` prints, among lines of its own (``==PROF== ...``) and the program's,
a header, a line of units, and a line a kernel:

    "ID","Process ID",...,"Kernel Name",...,"gpu__time_duration.sum",...
    "","",...,"ns",...
    "0","496",...,"gemm",...,"455,968",...
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "COUNTERS",
    "STALLS",
    "Counter",
    "metrics",
    "parse_ncu",
    "refused_metrics",
    "stalls_that_count",
    "told",
]


@dataclass(frozen=True)
class Counter:
    """One number of a kernel.

    Parameters
    ----------
    name : str
        Ours, with the unit where it is not a share or a count.
    metric : str
        Nsight Compute's.
    title : str
        For people.
    collected : bool
        Whether it has to be asked for; what describes the launch comes by itself.
    """

    name: str
    metric: str
    title: str
    collected: bool = True


_OF_PEAK = "avg.pct_of_peak_sustained"

# What section 4.3 of the RTX 4070 report reads, and what a DGEMM on tensor cores needs.
COUNTERS = (
    Counter("time_ns", "gpu__time_duration.sum", "time under the profiler, ns"),
    Counter("cycles", "sm__cycles_elapsed.max", "cycles"),
    Counter("fma_pct", f"sm__pipe_fma_cycles_active.{_OF_PEAK}_active", "FMA pipe busy, %"),
    Counter(
        "fma_instructions_pct",
        f"sm__inst_executed_pipe_fma.{_OF_PEAK}_active",
        "FMA pipe, instructions of peak, %",
    ),
    Counter("fp64_pct", f"sm__inst_executed_pipe_fp64.{_OF_PEAK}_active", "FP64 pipe, %"),
    Counter("tensor_pct", f"sm__pipe_tensor_cycles_active.{_OF_PEAK}_active", "tensor pipe, %"),
    Counter("issue_pct", f"smsp__issue_active.{_OF_PEAK}_active", "issue slots used, %"),
    Counter("occupancy_pct", f"sm__warps_active.{_OF_PEAK}_active", "occupancy, achieved, %"),
    Counter("occupancy_limit_pct", "sm__maximum_warps_per_active_cycle_pct", "occupancy, limit, %"),
    Counter(
        "bank_conflicts",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
        "shared memory bank conflicts",
    ),
    Counter("wavefronts", "l1tex__data_pipe_lsu_wavefronts.sum", "wavefronts (with the conflicts)"),
    Counter("l1_pct", f"l1tex__throughput.{_OF_PEAK}_active", "L1 throughput, %"),
    Counter("l2_pct", f"lts__throughput.{_OF_PEAK}_elapsed", "L2 throughput, %"),
    Counter("l2_hit_pct", "lts__t_sector_hit_rate.pct", "L2 hits, %"),
    Counter("dram_pct", f"dram__throughput.{_OF_PEAK}_elapsed", "DRAM throughput, %"),
    Counter("dram_bytes", "dram__bytes.sum", "DRAM traffic, bytes"),
    Counter("registers", "launch__registers_per_thread", "registers a thread", False),
    Counter("shared_bytes", "launch__shared_mem_per_block", "shared memory a block, bytes", False),
    Counter("blocks", "launch__grid_size", "thread blocks", False),
    Counter("waves", "launch__waves_per_multiprocessor", "waves", False),
)

# Why warps did not issue, in warps per issue: Nsight Compute's warp states since Volta.
STALLS = {
    reason: f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
    for reason in (
        *("barrier", "branch_resolving", "dispatch_stall", "drain", "imc_miss", "lg_throttle"),
        *("long_scoreboard", "math_pipe_throttle", "membar", "mio_throttle", "misc"),
        *("no_instruction", "not_selected", "selected", "short_scoreboard", "sleeping"),
        *("tex_throttle", "wait"),
    )
}

# Stalls of fewer warps per issue than this change nothing that could be measured.
_SMALL_STALL = 0.02

# What a unit is in ours: nanoseconds and bytes.  --print-units base asks for the smallest, but
# versions differ in what that is and how they spell it.
_NANOSECONDS = {"us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9}
_BYTES = {"Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12}
_SCALES = _NANOSECONDS | _BYTES

_REFUSED = re.compile(r"^==(?:ERROR|WARNING)==", re.MULTILINE)


def metrics() -> tuple[str, ...]:
    """Return the metrics to ask for."""
    return (*(one.metric for one in COUNTERS if one.collected), *STALLS.values())


def stalls_that_count(kernels: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return why warps of any kernel did not issue, the largest reason first."""
    most = {
        reason: max(one["stalls"][reason] or 0.0 for one in kernels)
        for reason in kernels[0]["stalls"]
        if reason != "selected"  # one of one, by definition
    }
    return sorted((r for r, v in most.items() if v >= _SMALL_STALL), key=lambda r: -most[r])


def told(value: float | None) -> str:
    """Return a counter's value as text, empty where the GPU does not count it."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.2f}"


def refused_metrics(text: str) -> set[str]:
    """Return the metrics that Nsight Compute complains of: not every GPU has all."""
    complaints = "\n".join(line for line in text.splitlines() if _REFUSED.match(line))
    words = set(re.findall(r"[\w.]+", complaints))
    return {metric for metric in metrics() if metric in words or metric.partition(".")[0] in words}


def parse_ncu(text: str) -> list[dict[str, Any]]:
    """Return what was counted for each kernel, in the order of their launches.

    Parameters
    ----------
    text : str
        Everything that ``ncu --csv --page raw --print-units base`` printed.

    Returns
    -------
    list of dict
        ``name``, ``grid``, ``block``; ``counters`` and ``stalls`` by our names, None where
        the GPU does not count it.

    Raises
    ------
    ValueError
        If there is no table in it.
    """
    lines = text.splitlines()
    head = next((at for at, line in enumerate(lines) if line.startswith('"ID",')), None)
    if head is None:
        raise ValueError("Nsight Compute printed no table")
    rows = csv.reader(lines[head:])
    names = next(rows)
    units = next(rows, [])
    if len(units) != len(names) or units[0]:
        raise ValueError("Nsight Compute's table has no line of units")
    # The program may print after the table, and between its lines.
    kernels = [dict(zip(names, row, strict=True)) for row in rows if len(row) == len(names)]
    scales = {name: _SCALES.get(unit, 1.0) for name, unit in zip(names, units, strict=True)}
    return [_kernel(row, scales) for row in kernels if row["ID"].isdecimal()]


def _kernel(row: dict[str, str], scales: dict[str, float]) -> dict[str, Any]:
    def value(metric: str) -> float | None:
        found = _number(row.get(metric))
        return None if found is None else found * scales[metric]

    return {
        "name": row.get("Kernel Name", ""),
        "grid": row.get("Grid Size", ""),
        "block": row.get("Block Size", ""),
        "counters": {one.name: value(one.metric) for one in COUNTERS},
        "stalls": {reason: value(metric) for reason, metric in STALLS.items()},
    }


def _number(text: str | None) -> float | None:
    """Return a value such as ``455,968`` or ``0.10``; None for ``n/a`` and what is absent."""
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return value if value == value and abs(value) != float("inf") else None
