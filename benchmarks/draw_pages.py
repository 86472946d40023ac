"""Draw the tables of docs/benchmarking.md, double_double.md, export.md and fp32_accurate.md.

    python benchmarks/draw_pages.py

Each page has marks ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``; what stands between them
is replaced by what the files in benchmarks/results/h100 say.  Nothing there is typed by hand; a
test compares.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
from pathlib import Path

from draw_ablation import ablation
from tilewright.bench.counters import COUNTERS

ROOT = Path(__file__).parents[1]
EXPECTED = ROOT / "benchmarks/results/sm_90a/double_double_expected.json"
RESULTS = ROOT / "benchmarks" / "results" / "h100"
DOCS = ROOT / "docs"

# Stalls of fewer warps per issue than this change nothing that could be measured.
SMALL_STALL = 0.02
# Nakata's MPLAPACK, double-double Rgemm on an A100: the bar of 4 is for the fast sequence.
MPLAPACK_FLOPS = 0.487e12


def load(name):
    return json.loads((RESULTS / name).read_text())


def table(head, rows):
    """Return a Markdown table: the first column is text, the others are numbers."""
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def about(document, device):
    day = document["environment"]["date"][:10]
    return f"{device['name']}, {device['platform']}, driver {device['driver']}, {day}"


def number(value):
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.2f}"


def profile():
    """Return Nsight Compute's counters of one product, ours beside cuBLAS's."""
    document = load("sgemm_4096_profile.json")
    device = document["devices"][0]
    (row,) = device["results"]
    kernels = {name: one["kernels"][0] for name, one in row["profile"]["libraries"].items()}
    rates = [f"{row['flops_per_second'][name] / 1e12:.1f}" for name in kernels]
    rows = [["TFLOP/s, not under the profiler", *rates]]
    for one in COUNTERS:
        rows.append([one.title, *(number(k["counters"][one.name]) for k in kernels.values())])
    reasons = next(iter(kernels.values()))["stalls"]
    most = {name: max(k["stalls"][name] for k in kernels.values()) for name in reasons}
    for name in sorted(most, key=lambda name: -most[name]):
        if name != "selected" and most[name] >= SMALL_STALL:
            stalls = (number(k["stalls"][name]) for k in kernels.values())
            rows.append([f"stalled: {name}, warps per issue", *stalls])
    head = [row["problem"], *kernels]
    return f"{about(document, device)}:\n\n{table(head, rows)}"


def turns(trace):
    """Return the device's spans in the turns that counted, by time: (name, begun, ended) in us."""
    spans = [one for one in trace["traceEvents"] if one["ph"] == "X"]
    first = min(one["ts"] for one in spans if one["name"] in ("tilewright", "cublas")
                and one["cat"] == "host")  # fmt: skip
    last = max(one["ts"] + one["dur"] for one in spans if one["name"] in ("wait",))
    device = [one for one in spans if one["cat"] == "device" and first <= one["ts"] <= last]
    return sorted((one["ts"], one["ts"] + one["dur"], one["name"]) for one in device)


def timeline():
    """Return how busy the device was in the turns of a benchmark, and how long its gaps were."""
    found = turns(load("s4096_trace.json"))
    busy = sum(end - begin for begin, end, _ in found)
    whole = found[-1][1] - found[0][0]
    pairs = itertools.pairwise(found)
    gaps = sorted((after[0] - before[1], after[2]) for before, after in pairs)
    median = {
        name: statistics.median(gap for gap, then in gaps if then == name)
        for name in ("gemm", "cublas")
    }
    return (
        f"In the {len(found)} products that counted the device was busy for {busy / 1e3:.2f} of"
        f" {whole / 1e3:.2f} ms, {100 * busy / whole:.1f} %. The {len(gaps)} gaps last"
        f" {gaps[0][0]:.0f} to {gaps[-1][0]:.0f} us, {median['cublas']:.0f} us (median) before"
        f" cuBLAS and {median['gemm']:.0f} us before our kernel."
    )


def double_double():
    """Return rates, shares of the bound, flatness and eta of double-double on the GPU."""
    document = load("double_double.json")
    rows, sizes = [], sorted({one["n"] for one in document["rows"]})
    for letter in "ef":
        for trans in ("NN", "NT", "TN", "TT"):
            found = {
                one["n"]: one
                for one in document["rows"]
                if (one["precision"], one["trans"]) == (letter, trans)
            }
            rates = [found[n]["flops_per_second"] for n in sizes]
            rows.append(
                [
                    f"`{letter}` {trans}",
                    *(f"{rate / 1e12:.3f}" for rate in rates),
                    f"{100 * max(rates) / found[sizes[0]]['bound']:.1f} %",
                    f"{100 * (1 - min(rates) / max(rates)):.1f} %",
                    f"{100 * (1 - min(rates[1:]) / max(rates)):.1f} %",
                    *etas(document, letter + trans.lower()),
                ]
            )
    head = ["TFLOP/s", *map(str, sizes), "best, of the bound", f"spread from {sizes[0]}",
            f"spread from {sizes[1]}", "eta, phi 0", "eta, phi 2"]  # fmt: skip
    device = document["device"]
    parts = [f"{about(document, device)}:", table(head, rows), *flat(document), against(document)]
    return "\n\n".join(parts)


def flat(document):
    """Return how flat each case is with the scan's sizes, if there are any: best and served."""
    said, scanned = [], document.get("scan", [])
    for letter, trans in sorted({(one["precision"], one["trans"]) for one in scanned}):
        for name, key, rows in (
            ("best", "flops_per_second", document["rows"] + scanned),
            ("served", "served_flops_per_second", scanned),
        ):
            mine = [one for one in rows if (one["precision"], one["trans"]) == (letter, trans)]
            rates = {one["n"]: one[key] for one in mine if key in one}
            if len(rates) > 1:
                low, high = min(rates, key=rates.get), max(rates, key=rates.get)
                spread = 100 * (1 - rates[low] / rates[high])
                said.append(
                    [f"`{letter}` {trans}, {name}", str(len(rates)),
                     f"{rates[low] / 1e12:.3f} at {low}", f"{rates[high] / 1e12:.3f} at {high}",
                     f"{spread:.1f} %"]
                )  # fmt: skip
    head = ["sizes of all kinds", "sizes", "slowest, TFLOP/s", "fastest", "spread"]
    return [table(head, said)] if said else []


def etas(document, variant):
    """Return a case's errors: the largest of the configs that were certified."""
    found = [one for one in document["accuracy"] if one["variant"] == variant]
    keys = [f"eta_phi_{phi}" for phi in (0, 2)]
    return [f"2^{math.log2(max(one[key] for one in found if key in one)):.1f}" for key in keys]


def expected():
    """Return what is expected between the sizes that were timed."""
    rows = []
    for one in json.loads(EXPECTED.read_text())["rows"]:
        best, slow = one["best"], one["best"]["slowest"]
        rows.append(
            [
                f"`{one['precision']}` {one['trans']}",
                f"{slow['flops_per_second'] / 1e12:.3f} at {slow['n']}",
                f"{100 * (slow['edges'] - 1):.1f} %",
                f"{100 * (slow['remainder'] - 1):.1f} %",
                f"{100 * one['served']['spread']:.1f} %",
                f"{100 * best['spread']:.1f} %",
                str(best["flat_from"]),
                f"{100 * best['spread_without_edges']:.1f} %",
            ]
        )
    head = ["expected", "slowest, TFLOP/s", "its edges repeat", "its last tile along k",
            "spread of what is served", "spread of the best timed", "within 5 % from",
            "spread, were there no edges"]  # fmt: skip
    return table(head, rows)


def against(document):
    """Return the lowest and highest rates as multiples of MPLAPACK's."""
    said = []
    for letter, name in (("f", "fast"), ("e", "accurate")):
        rates = [one["flops_per_second"] for one in document["rows"] if one["precision"] == letter]
        low, high = min(rates), max(rates)
        said.append(
            f'"{name}" computes {low / 1e12:.2f} to {high / 1e12:.2f} TFLOP/s,'
            f" {low / MPLAPACK_FLOPS:.1f} to {high / MPLAPACK_FLOPS:.1f} times as much"
        )
    return (
        f"MPLAPACK's double-double Rgemm reaches {MPLAPACK_FLOPS / 1e12:.3f} TFLOP/s on an A100: "
        + "; ".join(said)
        + "."
    )


def native():
    """Return what the exported library did on the GPU."""
    document = load("native.json")
    parts, environment = document["parts"], document["environment"]
    call, bits = parts["call overhead"], parts["bits"]
    rows = [
        ["results equal in every bit to `tilewright.gemm`'s",
         f"{bits['equal']} of {bits['compared']}"],
        [f"a call of the library, {call['calls']:,} calls, median", f"{call['library_us']:.2f} us"],
        ["a launch by the driver alone, the same", f"{call['driver_us']:.2f} us"],
        ["so the library adds", f"{call['added_us']:.2f} us"],
        ["kernels, bytes", f"{parts['export']['kernels']}, {parts['export']['bytes']:,}"],
        ["exporting, compiling included", f"{parts['export']['seconds']:.1f} s"],
        ["building the C library", f"{parts['build']['seconds']:.2f} s"],
        ["cubins, fat binaries loaded by the driver",
         f"{parts['cubins, fatbins']['cubin']}, {parts['cubins, fatbins']['fatbin']}"],
    ]  # fmt: skip
    device = f"{document['device']}, {environment['compiler']}, driver {environment['driver']}"
    return f"{device}, {environment['date'][:10]}:\n\n{table(['', 'measured'], rows)}"


def power(value):
    """Return an error as a power of two."""
    return "0" if value == 0 else f"2^{math.log2(value):.1f}"


def fp32_accurate():
    """Return errors of single precision from parts, on the model of the matrix unit."""
    document = json.loads((ROOT / "benchmarks/results/cpu/fp32_accurate.json").read_text())
    names = ("plain sum", "ieee", "fp16x3", "tf32x3", "bf16x6", "bf16x9")
    rows = []
    for one in document["accuracy"]:
        found = one["errors"]
        etas = [f"{power(found[x]['eta'])}, {power(found[x]['median'])}" for x in names]
        rows.append([one["data"], str(one["k"]), *etas, f"`{one['guard']['variant']}`"])
    head = ["eta, median relative error", "k", names[0], "SGEMM of this CPU", *names[2:], "guard"]
    return f"{about(document, document['device'])}:\n\n{table(head, rows)}"


# What is drawn, by page and mark.
PARTS = {
    "fp32_accurate.md": {"errors": fp32_accurate},
    "benchmarking.md": {"profile": profile, "timeline": timeline},
    "double_double.md": {"results": double_double, "expected": expected},
    "export.md": {"results": native},
    "hopper.md": {"ablation": ablation},
}


def page_with(text, mark, drawn):
    """Return a page with what stands between two marks replaced."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    head, rest = text.split(begin)
    return f"{head}{begin}\n{drawn}\n{end}{rest.split(end)[1]}"


def write_pages(pages):
    """Draw parts of pages anew: names of pages, and of each its marks with what draws there."""
    for name, parts in pages.items():
        page = DOCS / name
        text = page.read_text()
        for mark, draw in parts.items():
            text = page_with(text, mark, draw())
        page.write_text(text)
        print(page.relative_to(ROOT))


def main():
    write_pages(PARTS)


if __name__ == "__main__":
    main()
