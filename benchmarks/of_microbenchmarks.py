"""What a device's instructions, memory and power are, as `draw.py` puts it into pages."""

from __future__ import annotations

from committed import Row, experiment, mix_curves, table
from tilewright.microbench.mixes import WIDTHS


def micro_rates() -> str:
    """Return every instruction's best rate."""
    best: dict[str, Row] = {}
    for row in experiment("rates"):
        known = best.get(row["kind"])
        if known is None or row["multiply_adds_per_cycle"] > known["multiply_adds_per_cycle"]:
            best[row["kind"]] = row
    lines = [
        [f"`{row['instruction']}`", str(row["warps_per_multiprocessor"]),
         f"{row['multiply_adds_per_cycle']:.1f}", f"{row['flops_per_second'] / 1e12:.1f}",
         f"{row['clock_hz'] / 1e9:.2f}"]
        for row in best.values()
    ]  # fmt: skip
    return table(["instruction", "warps", "multiply-adds a cycle", "TFLOP/s", "GHz"], lines)


SHOWN = (0, 1, 2, 4, 8, 16, 32, 64)  # ratios of the table of mixes


def micro_mixes() -> str:
    lines = [
        [WIDTHS[bits], lanes.replace("_", " "), *(f"{curve[r]:.1f}" for r in SHOWN)]
        for (bits, lanes), curve in sorted(mix_curves().items())
        if all(r in curve for r in SHOWN)
    ]
    return table(["load", "lanes", *map(str, SHOWN)], lines, left=2)


def micro_memory() -> str:
    """Return the fastest run of every level and access, and the link's fits."""
    best: dict[tuple[str, str], Row] = {}
    for row in experiment("bandwidth"):
        at = row["level"], row["access"]
        if at not in best or row["best_bytes_per_second"] > best[at]["best_bytes_per_second"]:
            best[at] = row
    lines = []
    for (level, access), row in best.items():
        cycles = row.get("bytes_per_cycle_per_multiprocessor")
        more = f"{cycles:.1f} B a cycle and multiprocessor" if cycles else ""
        rate = row["best_bytes_per_second"] / 1e9
        lines.append([level, access, f"{row['bytes'] / 2**20:g} MiB", f"{rate:,.0f}", more])
    for row in experiment("link"):
        if "fit" in row:
            name = f"{row['direction']}, {row['host_memory']}"
            rate, more = row["bytes_per_second"] / 1e9, f"{row['latency_seconds'] * 1e6:.1f} us"
            lines.append(["link", name, "fit", f"{rate:,.1f}", f"latency {more}"])
    return table(["level", "access", "size", "GB/s", ""], lines, left=3)


def micro_power() -> str:
    lines = []
    for row in experiment("power"):
        flops, rate = row.get("flops_per_second"), row.get("bytes_per_second")
        lines.append([
            row["load"],
            f"{flops / 1e12:.1f} TFLOP/s" if flops else f"{(rate or 0) / 1e9:,.0f} GB/s",
            f"{row['power_w']:.0f}", f"{row['clock_hz'] / 1e6:.0f}",
            row["throttle_reasons"] or "nothing",
        ])  # fmt: skip
    return table(["load", "rate", "W", "MHz", "held down by"], lines)


def micro_copies() -> str:
    lines = [
        [str(row["piece_bytes"]), str(row["run_bytes"]), f"{row['line_pairs']:g}",
         f"{row['cycles_per_copy']:.1f}", f"{row['bytes_per_cycle']:.1f}"]
        for row in experiment("copies")
    ]  # fmt: skip
    head = ["bytes a lane", "bytes side by side", "pairs of lines", "cycles", "bytes a cycle"]
    return table(head, lines)
