"""Draw the kernel ladders from committed results.

    python benchmarks/draw_ladder.py

Reads benchmarks/results/DEVICE/ladder.json, as ``tilewright ladder -o`` writes it, and
ladder_tensor.json, of ``tilewright ladder --kind tensor -o``; writes a figure of each under
docs/figures, from the first GPU's file, and the part of docs/ladder.md and docs/tensor_ladder.md
between the ``results`` marks.  Nothing there is typed by hand; a test compares the tables.  The
figures need matplotlib: pip install -e '.[figures]'.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
HEAD = (
    "| rung | | max error | kernel | with transfers | TFLOP/s | % of library | % of bound |"
    " registers | occupancy | limited by |"
)


class Kind(NamedTuple):
    """One ladder: the name of its files, its page, and what its figure is called."""

    name: str
    page: Path
    title: str

    @property
    def figure(self):
        """Where its figure goes."""
        return ROOT / "docs" / "figures" / f"{self.name}.svg"


SIMT = Kind("ladder", ROOT / "docs" / "ladder.md", "The kernel ladder, SGEMM NN row-major")
TENSOR = Kind("ladder_tensor", ROOT / "docs" / "tensor_ladder.md", "The tensor ladder, BF16")


def documents(kind=SIMT):
    """Return the results there are, GPUs first."""
    found = [json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"*/{kind.name}.json"))]
    return sorted(found, key=lambda one: not one["devices"][0]["nvidia_smi"])


def cell(value, form, scale=1.0):
    return "" if value is None else format(value * scale, form)


def row(one):
    """Return one rung as a line of a table."""
    if one["reason"]:
        return f"| {one['name']} | {one['title']} |" + " |" * 8 + f" {one['reason']} |"
    code = one["machine_code"] or {}
    cells = (
        one["name"],
        one["title"],
        cell(one["max_error"], ".1e"),
        milliseconds(one["kernel_seconds"]),
        milliseconds(one["total_seconds"]),
        f"**{cell(one['flops_per_second'], '.3g', 1e-12)}**",
        cell(one["percent_of_library"], ".1f"),
        cell(one["percent_of_bound"], ".1f"),
        cell(code.get("registers"), "d", 1),
        cell(code.get("occupancy"), ".0f", 100) + (" %" if code else ""),
        limits(one),
    )
    return "| " + " | ".join(cells) + " |"


def limits(one):
    """Return what limits a rung, with the share of the FMA pipe that its loop's model gives."""
    share = (one["machine_code"] or {}).get("pipe_share")
    return one["limits"] + ("" if share is None else f", model {share:.0%}".replace("%", " %"))


def milliseconds(seconds):
    return "" if seconds is None else f"{seconds * 1e3:.3f} ms"


def table(result):
    """Return one size as Markdown."""
    bound = result["bound"]
    rate = bound.get("flops_per_second")
    said = f"bound {rate / 1e12:.1f} TFLOP/s by {bound['limiting']}" if rate else bound["missing"]
    head = [f"**{result['problem']}**; {said}:", "", HEAD, "|---" * 2 + "|---:" * 8 + "|---|"]
    return [*head, *(row(one) for one in result["rungs"]), "", reading(result), ""]


def reading(result):
    """Return whether every rung is as fast as the one below, and what the last ones reach."""
    rungs = [one for one in result["rungs"] if one["idea"] and one["flops_per_second"]]
    said = [
        f"{above['name']} is slower than {below['name']}"
        f" ({above['flops_per_second'] / below['flops_per_second']:.2f} of its rate)"
        for below, above in pairwise(rungs)
        if above["flops_per_second"] < below["flops_per_second"]
    ]
    said = said or ["every rung is at least as fast as the one below it"]
    said += [
        f"{one['name']} reaches {one['percent_of_library']:.1f} % of {result['library']}"
        for one in rungs[-3:]
        if one["percent_of_library"]
    ]
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}."


def tables(kind=SIMT):
    """Return all results as Markdown."""
    drawn = f"![Rates of all rungs](figures/{kind.figure.name})"
    lines = [drawn, ""] if documents(kind) else []
    for document in documents(kind):
        about, device = document["environment"], document["devices"][0]
        peers = ", ".join(f"{name} {version}" for name, version in device["peers"].items())
        lines += [
            f"{device['name']}, {device['platform']}, driver {device['driver']}, {peers},"
            f" {about['date'][:10]}.  Method: {about['method']}; {about['rounds']} turns; totals"
            " with pageable host memory.",
            "",
        ]
        for result in device["results"]:
            lines += table(result)
    return "\n".join(lines).rstrip() if lines else "No results are committed yet."


def page_with(text, results):
    """Return the page with its results replaced."""
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n{results}\n{END}{rest.split(END)[1]}"


def figure(path, document, title=SIMT.title):
    """Draw every rung's rate, a group of bars a rung, beside the library and the bound."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "tilewright"  # the same file from the same data
    from matplotlib import pyplot

    device = document["devices"][0]
    axes = pyplot.figure(figsize=(9, 3.8), layout="constrained").subplots()
    results = device["results"]
    width = 0.8 / len(results)
    for at, result in enumerate(results):
        rates = [(one["flops_per_second"] or 0) / 1e12 for one in result["rungs"]]
        places = [group + (at - (len(results) - 1) / 2) * width for group in range(len(rates))]
        bars = axes.bar(places, rates, width, label="x".join(map(str, result["size"])))
        axes.bar_label(bars, fmt="%.3g", fontsize=6, rotation=90, padding=2)
    names = [one["name"].replace("_", "\n", 1).replace("_", " ") for one in results[0]["rungs"]]
    axes.set_xticks(range(len(names)), names, fontsize=8)
    bounds = [one["bound"].get("flops_per_second") for one in results]
    if any(bounds):
        axes.axhline(max(filter(None, bounds)) / 1e12, color="grey", linewidth=0.8, dashes=(4, 3))
        axes.text(-0.4, max(filter(None, bounds)) / 1e12, "bound", fontsize=8, va="bottom")
    axes.set_ylabel("TFLOP/s")
    axes.set_title(f"{title}, {device['name']}", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(0, 0.9))
    pyplot.savefig(path, metadata={"Date": None})


def main():
    for kind in (SIMT, TENSOR):
        kind.page.write_text(page_with(kind.page.read_text(), tables(kind)))
        found = documents(kind)
        if found:
            figure(kind.figure, found[0], kind.title)
        print(f"{kind.page.relative_to(ROOT)}: {len(found)} devices")


if __name__ == "__main__":
    main()
