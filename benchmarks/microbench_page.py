"""Put measured tables into docs/microbenchmarks.md, and draw its figure.

    python benchmarks/microbench_page.py [FILE]

FILE is what ``tilewright microbench -o`` wrote, by default the H100's.  Writes the parts of the
page between its marks (``rates``, ``mixes``, ``memory``, ``copies``, ``power``) and
docs/figures/figure2.svg, which needs matplotlib: pip install -e '.[figures]'.  Nothing there is
typed by hand; a test compares the tables.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tilewright.hardware import CatalogueDevice, catalogue_device
from tilewright.microbench.mixes import STRIDES, WIDTHS

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "h100" / "microbench.json"
# Of an experiment that is younger than that run.
COPIES = RESULT.with_name("microbench_copies.json")
PAGE = ROOT / "docs" / "microbenchmarks.md"
FIGURE = ROOT / "docs" / "figures" / "figure2.svg"
DEVICE = "h100"  # whose published rates the measured ones are compared with

Row = dict[str, Any]
# The catalogue's rate that a kind of instruction is compared with; kinds begin so.
PUBLISHED = {
    "ffma": "fma_lanes.s", "dfma": "fma_lanes.d", "dmma": "tensor.d", "tf32": "tensor.tf32",
    "f16": "tensor.fp16", "bf16": "tensor.bf16", "s8": "tensor.int8", "wgmma_f16": "tensor.fp16",
    "wgmma_bf16": "tensor.bf16", "wgmma_tf32": "tensor.tf32", "wgmma_s8": "tensor.int8",
}  # fmt: skip
SHOWN = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # ratios of the table of mixes


def grid(head: Iterable[str], rows: Iterable[Iterable[str]], left: int = 1) -> str:
    """Return a table whose first `left` columns are text."""
    head = list(head)
    marks = ["---"] * left + ["---:"] * (len(head) - left)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, marks, *rows))


def good(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if "error" not in row]


def rates(experiments: dict[str, Any], device: CatalogueDevice) -> str:
    """Return every instruction's best rate beside the published one."""
    best: dict[str, Row] = {}
    for row in good(experiments["rates"]["rows"]):
        known = best.get(row["kind"])
        if known is None or row["multiply_adds_per_cycle"] > known["multiply_adds_per_cycle"]:
            best[row["kind"]] = row
    lines = []
    for kind, row in best.items():
        rate = row["multiply_adds_per_cycle"]
        key = PUBLISHED.get(kind) or PUBLISHED.get(kind.partition("_")[0])
        published = device.value(key) if key else None
        share = f"{published:g} | {rate / published:.1%}" if published else "| "
        lines.append([
            f"`{row['instruction']}`", str(row["warps_per_multiprocessor"]), f"{rate:.1f}", share,
            f"{row['flops_per_second'] / 1e12:.1f}", f"{row['clock_hz'] / 1e9:.2f} GHz",
        ])  # fmt: skip
    return grid(("instruction", "warps", "multiply-adds a cycle", "published", "of it",
                 "TFLOP/s in the run", "clock in the run"), lines)  # fmt: skip


def mixes(experiments: dict[str, Any], device: CatalogueDevice) -> str:
    """Return Figure 2's numbers: the best occupancy of each width, lane pattern and ratio."""
    best: dict[tuple[int, str, int], float] = {}
    for row in good(experiments["mixes"]["rows"]):
        loads_alone = row["ratio"] == 0
        if row["bank_pattern"] == "kept" and (row["multiply_add"] == "FFMA" or loads_alone):
            at = row["load_bits"], row["lane_pattern"], row["ratio"]
            best[at] = max(best.get(at, 0.0), row["instructions_per_cycle"])
    lines = [
        [WIDTHS[bits], lanes.replace("_", " "), *(f"{best[bits, lanes, r]:.1f}" for r in SHOWN)]
        for bits in WIDTHS
        for lanes in STRIDES
        if all((bits, lanes, r) in best for r in SHOWN)
    ]
    return grid(("load", "lanes", *map(str, SHOWN)), lines, left=2)


def memory(experiments: dict[str, Any], device: CatalogueDevice) -> str:
    """Return the fastest run of every level and access, and the link's fits."""
    best: dict[tuple[str, str], Row] = {}
    for row in good(experiments["bandwidth"]["rows"]):
        at = row["level"], row["access"]
        if at not in best or row["best_bytes_per_second"] > best[at]["best_bytes_per_second"]:
            best[at] = row
    lines = []
    for (level, access), row in best.items():
        cycles = row.get("bytes_per_cycle_per_multiprocessor")
        more = f"{cycles:.1f} B a cycle and multiprocessor" if cycles else ""
        rate = row["best_bytes_per_second"]
        lines.append([level, access, f"{row['bytes'] / 2**20:g} MiB", f"{rate / 1e9:,.0f}", more])
    for row in good(experiments["link"]["rows"]):
        if "fit" in row:
            more = (
                f"latency {row['latency_seconds'] * 1e6:.1f} µs,"
                f" half of it at {row['half_rate_bytes'] / 1024:.0f} KiB"
            )
            name = f"{row['direction']}, {row['host_memory']}"
            lines.append(["link", name, "fit", f"{row['bytes_per_second'] / 1e9:,.1f}", more])
    return grid(("level", "access", "size", "GB/s", ""), lines, left=3)


def power(experiments: dict[str, Any], device: CatalogueDevice) -> str:
    """Return the second half of every load."""
    lines = []
    for row in good(experiments["power"]["rows"]):
        if "at_seconds" not in row:
            flops, rate = row.get("flops_per_second"), row.get("bytes_per_second")
            counted = row.get("counted_clock_hz")
            lines.append([
                row["load"], f"{row['seconds']:.1f} s",
                f"{flops / 1e12:.1f} TFLOP/s" if flops else f"{rate / 1e9:,.0f} GB/s",
                f"{row['power_w']:.0f} of {row['power_limit_w']:.0f} W",
                f"{row['clock_hz'] / 1e6:.0f} MHz", f"{counted / 1e6:.1f} MHz" if counted else "",
                f"{row['temperature_c']:.0f} °C", row["throttle_reasons"] or "nothing",
            ])  # fmt: skip
    return grid(("load", "for", "rate", "power", "sensor's clock", "counted clock", "temperature",
                 "held down by"), lines)  # fmt: skip


def copies(experiments: dict[str, Any], device: CatalogueDevice) -> str:
    """Return what every pattern of asynchronous copies brings in a cycle."""
    lines = []
    for row in good(experiments["copies"]["rows"]):
        run, part, shift = row["run_bytes"], row["part_bytes"], row["shift_bytes"]
        there = f"rows of {run} + {shift}" if shift else f"rows of {run}"
        if not part:
            there = f"transposed, rows of 64 elements + {shift}"
            there += ", exchanged" if row["turned"] else ""
        elif part < run:
            there = f"planes of {part}"
        lines.append([
            str(row["piece_bytes"]), str(run), there, f"{row['line_pairs']:g}",
            f"{row['cycles_per_copy']:.1f}", f"{row['bytes_per_cycle']:.1f}",
        ])  # fmt: skip
    return grid(("bytes a lane", "side by side in device memory", "in shared memory, bytes",
                 "pairs of lines", "cycles", "bytes a cycle"), lines, left=3)  # fmt: skip


TABLES: dict[str, Callable[[dict[str, Any], CatalogueDevice], str]] = {
    "rates": rates, "mixes": mixes, "memory": memory, "copies": copies, "power": power,
}  # fmt: skip


def page_with(text: str, document: dict[str, Any]) -> str:
    """Return the page with the tables of the document's experiments replaced."""
    experiments = document["experiments"]
    for name, make in TABLES.items():
        if {"memory": "bandwidth"}.get(name, name) not in experiments:
            continue
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        if begin not in text:
            raise SystemExit(f"{PAGE}: has no {begin.strip()}; add it where the table belongs")
        block = f"{begin}\n{make(experiments, catalogue_device(DEVICE))}\n\n{end}"
        text = re.sub(f"{begin}.*?{end}", lambda _, block=block: block, text, flags=re.S)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", default=RESULT)
    given = parser.parse_args()
    document = json.loads(given.file.read_text())
    PAGE.write_text(page_with(PAGE.read_text(), document))
    if given.file == RESULT:
        PAGE.write_text(page_with(PAGE.read_text(), json.loads(COPIES.read_text())))
    from figure2 import device_name, draw, rows_in  # its neighbour; needs matplotlib

    rows = [row for row in rows_in(document) if "error" not in row]
    draw(rows, device_name(document), FIGURE)
    print(f"{PAGE.relative_to(ROOT)}, {FIGURE.relative_to(ROOT)}: {device_name(document)}")


if __name__ == "__main__":
    main()
