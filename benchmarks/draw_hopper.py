r"""Draw what was measured of GEMM on an H100 from committed results.

    python benchmarks/draw_hopper.py

Reads benchmarks/results/h100/hopper_s.json and sgemm_4096_profile.json, and
benchmarks/results/sm_90a/hopper_model.json; writes docs/figures/h100_sgemm.svg and the part of
docs/hopper.md between its ``results`` marks.  What `draw_races` makes of the searches in all
precisions goes between the marks of `PARTS`.  Nothing there is typed by hand; a test compares
the tables.  The figure needs matplotlib: pip install -e '.[figures]'.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from pathlib import Path

import numpy as np

import choice
import draw_copies
import draw_races
from draw_races import PEAK, load, races

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "hopper.md"
# Other parts of pages: the page, the name of its marks, and who draws it.
PARTS = (
    (PAGE, "single", draw_races.single),
    (PAGE, "copies", draw_copies.copies),
    (PAGE, "complex", draw_races.complex_single),
    (PAGE, "sustained", lambda: "\n".join(draw_races.sustained_table("s"))),
    (ROOT / "docs" / "dgemm.md", "sustained", draw_races.sustained_double),
    (ROOT / "docs" / "dgemm.md", "results", draw_races.double),
    (ROOT / "docs" / "scheduling.md", "proof", draw_races.proof),
    (ROOT / "docs" / "scheduling.md", "model", draw_races.model),
)
FIGURE = ROOT / "docs" / "figures" / "h100_sgemm.svg"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
CASES = ("NN", "NT", "TN", "TT")
AT = 4096
# Parameters, and the value that others are compared with.
CHOICES = {
    "walk": "along the shorter side",
    "b_first": 0,
    "copy_groups": 2,
    "k_vectors": 0,
    "raster_rows": 8,
    "tile": "8 x 16 or 16 x 8",
    "unroll_k": 8,
    "stages": 3,
    "persistent": 0,
    "stream_k": 0,
}


def device_line():
    """Return the session in a sentence."""
    profile, search = load("h100/sgemm_4096_profile.json"), load("h100/hopper_s.json")
    device = profile["devices"][0]
    return (
        f"{device['name']}, {device['platform']}, driver {device['driver']}, cuBLAS"
        f" {device['peers']['cublas']}, {search['environment']['date'][:10]}"
    )


def rate_table():
    """Return TFLOP/s of ours and of cuBLAS as a Markdown table, with the ratio."""
    found = races()
    lines = ["| size | " + " | ".join(CASES) + " |", "|---:" * (1 + len(CASES)) + "|"]
    for size in sorted({size for _, size in found}):
        cells = []
        for trans in CASES:
            row = found[trans, size]
            ours, theirs = row["tflops"]["tilewright"], row["tflops"]["cublas"]
            cells.append(f"**{ours:.1f}** / {theirs:.1f} ({row['ratio']:.2f}x)")
        lines.append(f"| {size} | " + " | ".join(cells) + " |")
    return lines


# ---- What was tried ------------------------------------------------------------------------


def tried():
    """Return every candidate that was timed at 4096: case, values and TFLOP/s there."""
    for row in load("h100/hopper_s.json")["log"]:
        if row["kind"] == "tried" and str(AT) in row["ns"]:
            yield row["trans"], told(row["config"]), 2 * AT**3 / row["ns"][str(AT)] / 1e3


def told(config):
    """Return a config in the words of the table."""
    made = {"persistent": 0, "stream_k": 0, **config}
    tall = made["tile_m"] > made["tile_n"]
    names = {0: "by columns", 1: "by rows"}
    shorter = (made["walk"] % 2 == 1) == tall
    if made["walk"] < 2:
        made["walk"] = "along the shorter side" if shorter else "along the longer side"
    else:
        made["walk"] = f"two at once, {names[made['walk'] % 2]}"
    made["tile"] = " x ".join(str(made.pop(name)) for name in ("tile_m", "tile_n"))
    if made["tile"] in ("8 x 16", "16 x 8"):
        made["tile"] = CHOICES["tile"]
    made["block"] = " x ".join(str(made.pop(name)) for name in ("block_m", "block_n"))
    return made


def tried_table():
    """Return one line for each value of each choice.

    Best and median are of large candidates; the last column compares candidates that differ
    in nothing else.
    """
    large = [one for one in tried() if one[1]["split_k"] == 1]
    lines = [
        f"| choice | value | candidates | best TFLOP/s at {AT} | median | all else equal |",
        "|---|---|---:|---:|---:|---|",
    ]
    for name in ("block", *CHOICES):
        groups = defaultdict(list)
        for _, values, rate in large:
            groups[values[name]].append(rate)
        if len(groups) == 1:
            continue  # nobody chose
        for value, rates in sorted(groups.items(), key=lambda pair: -max(pair[1])):
            lines.append(
                f"| {name} | {value} | {len(rates)} | {max(rates):.1f} |"
                f" {statistics.median(rates):.1f} | {paired(large, name, value)} |"
            )
    return lines


def paired(large, name, value):
    """Return how much faster a value is than the usual one where nothing else differs."""
    if name not in CHOICES or value == CHOICES[name]:
        return "" if name not in CHOICES else "1"
    rates = {}
    for trans, values, rate in large:
        rest = (trans, *((key, values[key]) for key in sorted(values) if key != name))
        rates[rest, values[name]] = rate
    ratios = [
        rate / rates[rest, CHOICES[name]]
        for (rest, one), rate in rates.items()
        if one == value and (rest, CHOICES[name]) in rates
    ]
    if not ratios:
        return "no pair"
    low, high = min(ratios), max(ratios)
    return f"{statistics.median(ratios):.3f} ({low:.3f} to {high:.3f}, {len(ratios)} pairs)"


# ---- Counters and the model ----------------------------------------------------------------


def counter_table():
    """Return counters of our kernel beside those of cuBLAS's."""
    row = load("h100/sgemm_4096_profile.json")["devices"][0]["results"][0]
    libraries = row["profile"]["libraries"]
    kernels = {name: libraries[name]["kernels"][0] for name in ("tilewright", "cublas")}
    names = {
        "fma_pct": "FMA pipe busy, %",
        "issue_pct": "issue slots used, %",
        "waves": "waves of blocks",
        "wavefronts": "passes over shared memory",
        "bank_conflicts": "of them bank conflicts",
        "l2_pct": "L2 busy, %",
        "dram_pct": "memory busy, %",
        "registers": "registers of a thread",
    }
    lines = [f"| {row['problem']} | ours | cuBLAS |", "|---|---:|---:|"]
    for key, words in names.items():
        cells = (f"{kernels[name]['counters'][key]:,.10g}" for name in kernels)
        lines.append(f"| {words} | " + " | ".join(cells) + " |")
    for stall in ("not_selected", "dispatch_stall", "short_scoreboard", "barrier", "wait"):
        cells = (f"{kernels[name]['stalls'][stall]:.2f}" for name in kernels)
        lines.append(
            f"| warps in {stall}, for each instruction issued | " + " | ".join(cells) + " |"
        )
    return lines


def ranks(values):
    """Return ranks, equal values sharing theirs."""
    values = np.asarray(values)
    below = (values[:, None] > values).sum(axis=1)
    equal = (values[:, None] == values).sum(axis=1)
    return below + (equal - 1) / 2


def spearman(first, second):
    return float(np.corrcoef(ranks(first), ranks(second))[0, 1])


def model_table():
    """Return how the cycle model's forecast ranks candidates."""
    document = load("sm_90a/hopper_model.json")
    lines = [
        f"| forecast by {document['compiler']}, at {document['size']} | candidates | Spearman |"
        " of the faster half | forecast less measured share of peak, median (quartiles) |",
        "|---|---:|---:|---:|---|",
    ]
    for trans in (*CASES, "all"):
        rows = [r for r in document["rows"] if r["forecast"] and trans in (r["trans"], "all")]
        rows.sort(key=lambda row: row["ns"])
        shares = [2 * document["size"] ** 3 / (row["ns"] * 1e-9) / PEAK for row in rows]
        told = [row["forecast"] for row in rows]
        half = len(rows) // 2
        low, middle, high = np.percentile(np.subtract(told, shares) * 100, (25, 50, 75))
        lines.append(
            f"| {trans} | {len(rows)} | {spearman(told, shares):.3f} |"
            f" {spearman(told[:half], shares[:half]):.3f} |"
            f" {middle:+.1f} points ({low:+.1f} to {high:+.1f}) |"
        )
    return lines


def choice_table():
    """Return how well sizes are served that are left out of the shipped table."""
    shares = {(one["trans"], one["size"]): one["share"] for one in choice.rows()}
    lines = ["| size left out | " + " | ".join(CASES) + " |", "|---:" * (1 + len(CASES)) + "|"]
    for size in choice.SIZES:
        cells = (f"{shares[trans, size]:.3f}" for trans in CASES)
        lines.append(f"| {size} | " + " | ".join(cells) + " |")
    return lines


def wanted_line():
    """Return which races reach what the project wants of this stencil."""
    found = races()
    reached = [key for key, row in found.items() if row["ratio"] >= row["wanted"]]
    wanted = {size: row["wanted"] for (_, size), row in found.items()}
    bars = ", ".join(f"{bar} at {size}" for size, bar in sorted(wanted.items()))
    names = ", ".join(f"{trans} {size}" for trans, size in sorted(reached, key=lambda x: x[::-1]))
    ahead = sum(row["ratio"] > 1 for row in found.values())
    return (
        f"Ahead of cuBLAS in {ahead} of {len(found)} races. Wanted was {bars}; reached by"
        f" {len(reached)}: {names}."
    )


def text():
    """Return everything between the marks."""
    log = load("h100/hopper_s.json")["log"]
    tried_at_all = {(one["trans"], one["id"]) for one in log if one["kind"] == "tried"}
    parts = [
        [
            f"{device_line()}; {len(tried_at_all)} candidates. TFLOP/s, ours / cuBLAS, medians of"
            " one A B A B run each:"
        ],
        rate_table(),
        [wanted_line()],
        ["**Counters** (Nsight Compute, of a config of the day's earlier search):"],
        counter_table(),
        [
            f"**What was tried**, all four cases, without clusters, at {AT}. The last column:"
            " rate of candidates with this value over that of those with the value marked 1 and"
            " all else equal, median and range."
        ],
        tried_table(),
        ["**What the cycle model said** of candidates of the day's earlier search:"],
        model_table(),
        [
            "**Sizes never seen** (`python benchmarks/choice.py`): share of the best rate of all"
            " candidates that the choice reaches at a size that was left out of the table:"
        ],
        choice_table(),
    ]
    return "\n\n".join("\n".join(part) for part in parts)


def page_with(page, results):
    """Return the page with its results replaced."""
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n{results}\n{END}{rest.split(END)[1]}"


def page_with_part(page, mark, drawn):
    """Return the page with what stands between two named marks replaced."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    head, rest = page.split(begin)
    return f"{head}{begin}\n{drawn}\n{end}{rest.split(end)[1]}"


def figure(path):
    """Draw rates against the size, a panel a case."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "tilewright"  # the same file from the same data
    from matplotlib import pyplot

    found = races()
    panels = pyplot.figure(figsize=(9, 2.9), layout="constrained").subplots(1, 4, sharey=True)
    sizes = sorted({size for _, size in found})
    for axes, trans in zip(panels, CASES, strict=True):
        for name, peer, style in (("tilewright", "Tilewright", "o-"), ("cublas", "cuBLAS", "s--")):
            rates = [found[trans, size]["tflops"][name] for size in sizes]
            axes.plot(sizes, rates, style, label=peer, markersize=4)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(size) for size in sizes], fontsize=7, rotation=45)
        axes.set_ylim(0)
        axes.set_title(trans, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("TFLOP/s")
    panels[-1].legend(fontsize=8, frameon=False, loc="lower right")
    panels[0].figure.suptitle(
        "SGEMM on an H100: square problems, op(A) op(B), against their side", fontsize=10
    )
    pyplot.savefig(path, metadata={"Date": None})


def main():
    PAGE.write_text(page_with(PAGE.read_text(), text()))
    for page, mark, draw in PARTS:
        page.write_text(page_with_part(page.read_text(), mark, draw()))
    figure(FIGURE)
    print(f"{PAGE.relative_to(ROOT)}, {FIGURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
