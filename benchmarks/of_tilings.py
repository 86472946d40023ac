"""What the sweeps of all tilings say, as ASTRA's Figures 2 to 6 do (Kurzak et al. 2012)."""

from __future__ import annotations

from statistics import median
from typing import Any

import numpy as np

from committed import CASES, ROOT, load, table
from figures import axes_of, save
from tilewright.tuning.recorded import Recording, read_recordings

SWEEP = "searches/tilings"
SIZE = 4096
_FLOPS = 2 * SIZE**3
# Stages of a funnel that are shown as one, by how they are called or of which kind they are.
_STAGES = {
    "shapes that fit": lambda one: one["kind"] == "divisibility",
    "what a multiprocessor has": lambda one: one["kind"] == "hardware",
    "the stencil's thresholds": lambda one: "tiling" not in one["reason"],
    "tilings alone": lambda one: "tiling" in one["reason"],
}
_LAST = ("register reuse", "occupancy")


def recorded() -> dict[str, Recording]:
    """Return by transposes what all tilings took at 4096."""
    found = {}
    for trans in CASES:
        path = ROOT / f"benchmarks/spaces/h100/sgemm_{trans.lower()}_tilings.json.gz"
        sides = dict.fromkeys("mnk", SIZE).items()
        found[trans] = next(x for x in read_recordings(path) if sides <= x.about["problem"].items())
    return found


def _rates(recording: Recording) -> Any:
    """Return the rates of all that were right, in TFLOP/s, the fastest first."""
    right = recording.seconds[np.isfinite(recording.seconds)]
    return np.sort(_FLOPS / right / 1e12)[::-1]


def funnel() -> str:
    """Return how many points each kind of constraint leaves: ASTRA's Figure 2."""
    cases = load(SWEEP)["cases"]
    left: dict[str, list[str]] = {"all points": [f"{one['raw_size']:,}" for one in cases]}
    for one in cases:
        last = {}
        for stage in one["funnel"]:
            name = stage["name"]
            if name not in _LAST:
                name = next(key for key, of in _STAGES.items() if of(stage))
            last[name] = f"{stage['survivors']:,}"
        for name, survivors in last.items():
            left.setdefault(name, []).append(survivors)
    found = recorded()
    left["tried"] = [f"{len(found[trans].seconds):,}" for trans in CASES]
    left["right bit for bit"] = [f"{len(_rates(found[trans])):,}" for trans in CASES]
    return table(["points that are left", *CASES], [[name, *row] for name, row in left.items()])


def best() -> str:
    """Return the fastest tilings of each case beside cuBLAS: ASTRA's Figures 3 to 6."""
    lines = []
    document = load(SWEEP)
    for trans, raced in zip(CASES, document["races"], strict=True):
        times = [median(row) for row in raced["times_ns"]]
        ships = raced.get("ships", 0)
        rivals = [f"{_FLOPS / ns / 1e3:.1f}" for ns in (*times[len(times) - ships :],
                                                        median(raced["cublas_ns"]))]  # fmt: skip
        for place, at in enumerate(np.argsort(times[: len(times) - ships])[:3]):
            of = raced["configs"][at]
            threads = of["block_m"] * of["block_n"] // (of["tile_m"] * of["tile_n"])
            lines.append([
                trans if place == 0 else "", f"{of['block_m']}x{of['block_n']}x{of['block_k']}",
                f"{of['tile_m']}x{of['tile_n']}", str(threads), str(of["stages"]),
                str(of["min_blocks"]), f"{_FLOPS / times[at] / 1e3:.1f}",
                *(rival if place == 0 else "" for rival in rivals),
            ])  # fmt: skip
    head = ["", "tile of a block", "of a thread", "threads", "stages", "blocks asked for",
            "TFLOP/s", *["ships"] * ("ships" in document["races"][0]), "cuBLAS"]  # fmt: skip
    told = table(head, lines, 3)
    of = document.get("raced_of")
    return (
        f"Raced were the fastest of the first {of} configs of all cases.\n\n{told}" if of else told
    )


def course() -> str:
    """Return how fast the sweep went, and what it waited for."""
    document = load(SWEEP)
    runs = document["runs"]
    spent = {name: sum(one["seconds"][name] for one in runs) for name in runs[0]["seconds"]}
    tried, wall, cores = sum(one["tried"] for one in runs), spent["wall"], document["cores"]
    wrong = sum(one.reasons.count("correctness") for one in recorded().values()) or "none"
    compiling, kernels = spent["compiling"] / tried, spent["kernels"] / tried
    return (
        f"{document['device']}, {document['compiler']}, driver {document['driver']},"
        f" {document['date'][:10]}, {len(runs)} runs: {tried:,} configs in {wall:.0f} s,"
        f" {tried / wall:.1f} a second on {cores} cores, which compiled"
        f" {100 * spent['compiling'] / wall / cores:.0f} % of the time; kernels ran"
        f" {100 * spent['kernels'] / wall:.0f} % of it, the process that checks and times was busy"
        f" {100 * spent['timing'] / wall:.0f} %. Wrong results: {wrong}. A config took a core"
        f" {compiling:.1f} s to compile and the GPU {1e3 * kernels:.0f} ms to run on all shapes:"
        f" half of the GPU's time would take {compiling / kernels / 2:.0f} cores."
    )


def figure() -> None:
    """Draw the rates of all kernels, a panel a case."""
    panels = axes_of(9, 2.8, len(CASES))
    found, raced = recorded(), load(SWEEP)["races"]
    for axes, trans, one in zip(panels, CASES, raced, strict=True):
        rates = _rates(found[trans])
        axes.plot(np.arange(1, len(rates) + 1), rates, lw=1.6, label="all tilings")
        cublas = _FLOPS / median(one["cublas_ns"]) / 1e3
        axes.axhline(cublas, color="C1", lw=1.0, ls="--", label="cuBLAS")
        axes.set_ylim(0)
        axes.set_xlabel("kernels, fastest first", fontsize=8)
        axes.set_title(trans, fontsize=9)
    panels[0].set_ylabel("TFLOP/s")
    panels[0].legend(fontsize=8, frameon=False, loc="lower left")
    panels[0].figure.suptitle(f"SGEMM of {SIZE} on an H100: all tilings tried", fontsize=10)
    save("tilings")
