"""Draw Lai & Seznec's Figure 2 from measured mixtures, and print them as a device's tables.

    python benchmarks/figure2.py FILE [--figure docs/figures/figure2.svg] [--toml SOURCE]

FILE is what `tilewright microbench mixes` wrote.  A curve is the best occupancy of each ratio;
the dashed line is the issue limit.  `--toml` prints [[mixes]] for a file of hardware/catalogue,
with SOURCE as their source.  The figure needs matplotlib: pip install -e '.[figures]'.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilewright.microbench.mixes import STRIDES, WIDTHS, mixes_of

ISSUE_LANES = 128  # threads' instructions a cycle and multiprocessor of the devices it is drawn for


def rows_in(record: Any) -> Iterator[dict[str, Any]]:
    """Yield the experiment's rows, wherever a file holds them."""
    if isinstance(record, dict):
        if "lane_pattern" in record and "bank_pattern" in record:
            yield record
        record = list(record.values())
    if isinstance(record, list):
        for part in record:
            yield from rows_in(part)


def curve(rows: list[dict[str, Any]], bits: int, lanes: str) -> tuple[list[float], list[float]]:
    """Return ratios and instructions a cycle of one width and lane pattern."""
    try:
        table = mixes_of(rows, "", lanes)
    except ValueError:  # the run's seconds were up before
        return [], []
    mine = [mix for mix in table if mix["width_bits"] == bits]
    return [float(mix["ratio"]) for mix in mine], [float(mix["throughput"]) for mix in mine]


def draw(rows: list[dict[str, Any]], name: str, path: Path) -> None:
    """Draw a panel for each lane pattern, a curve for each width."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "tilewright"  # the same file from the same data
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(9, 3.4), layout="constrained")
    for axes, lanes in zip(figure.subplots(1, len(STRIDES), sharey=True), STRIDES, strict=True):
        for bits, load in WIDTHS.items():
            axes.plot(*curve(rows, bits, lanes), "o-", ms=3, label=load)
        axes.axhline(ISSUE_LANES, color="grey", lw=0.8, ls="--")
        axes.set_xscale("symlog", base=2, linthresh=1)
        axes.set_xlim(-0.3, 80)  # a symmetric scale would show negative ratios
        axes.set_xticks([0, 1, 2, 4, 8, 16, 32, 64], ["0", "1", "2", "4", "8", "16", "32", "64"])
        axes.set_title(lanes.replace("_", " "), fontsize=10)
        axes.set_xlabel("FFMA to one load")
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("instructions a cycle\nand multiprocessor")
    figure.axes[0].legend(fontsize=8, frameon=False)
    figure.suptitle(f"Lai & Seznec's Figure 2 on {name}", fontsize=10)
    pyplot.savefig(path, metadata={"Date": None})


def toml(rows: list[dict[str, Any]], source: str) -> str:
    """Return the tables as text."""
    return "\n".join(
        "\n".join(
            ["[[mixes]]", *(f"{key} = {json.dumps(value)}" for key, value in mix.items()), ""]
        )
        for mix in mixes_of(rows, source)
    )


def device_name(record: Any) -> str:
    """Return the device that a file is from."""
    device = record.get("device", "this device") if isinstance(record, dict) else "this device"
    return str(device.get("name", "this device")) if isinstance(device, dict) else str(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--figure", type=Path, help="SVG to write")
    parser.add_argument("--toml", metavar="SOURCE", help="print [[mixes]] with this source")
    given = parser.parse_args()
    record = json.loads(given.file.read_text())
    rows = [row for row in rows_in(record) if "error" not in row]
    if given.toml:
        print(toml(rows, given.toml))
    if given.figure:
        draw(rows, device_name(record), given.figure)
        print(f"written to {given.figure}")
    for bits in WIDTHS:
        for lanes in STRIDES:
            points = zip(*curve(rows, bits, lanes), strict=True)
            print(f"# {bits:3} {lanes:13}", *(f"{r:g}:{rate:.1f}" for r, rate in points))


if __name__ == "__main__":
    main()
