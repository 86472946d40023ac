"""Draw the README's table, and rates on a CPU, from committed results.

    python benchmarks/draw.py

Reads benchmarks/results/, writes docs/figures/*.svg and the part of README.md between its
``results`` marks.  Nothing there is typed by hand; a test compares the table.  The figure
needs matplotlib: pip install -e '.[figures]'.
"""

from __future__ import annotations

import json
from pathlib import Path

import draw_hopper

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
PEERS = {"tilewright": "Tilewright, tuned", "numpy": "NumPy (OpenBLAS)", "clblast": "CLBlast"}


def load(name):
    return json.loads((RESULTS / name).read_text())


def platform_name(text):
    """Shorten "Portable Computing Language (OpenCL 3.0 PoCL 3.1+debian ...": PoCL 3.1+debian."""
    return "PoCL " + text.split("PoCL ")[1].split()[0].rstrip(",")


def rows(document):
    """Yield the short name of the platform and the row, for every row of a sweep."""
    for device in document["devices"]:
        for row in device["results"]:
            yield platform_name(device["platform"]), row


def table():
    """Return the README's results as Markdown."""
    gemm, space = load("cpu/gemm_1024.json"), load("cpu/space_build.json")
    about = gemm["environment"]
    lines = [
        f"Ours / theirs (ratio). Method: {about['method']}. {draw_hopper.device_line()}."
        f" {about['cpu']}, {about['cores']} cores, NumPy {about['numpy']},"
        f" {about['date'][:10]}.",
        "",
        "| | size | NN | NT | TN | TT |",
        "|---|---:|---:|---:|---:|---:|",
        *search_lines("s"),
        *tensor_lines("fp16x3", 'SGEMM, accuracy="fp32"', "cuBLAS SGEMM", who="guarded"),
        *search_lines("d"),
        *search_lines("c"),
        *search_lines("z"),
        *lasting_lines("d"),
        *lasting_lines("z"),
        *tensor_lines("bf16", "bfloat16", "cuBLAS", (1024, 4096, 8192)),
        *tensor_lines("tf32", "TF32", "cuBLAS", (4096, 8192)),
        *pairs_lines((4096, 8192)),
        *cpu_lines(gemm),
        "",
        *space_lines(space),
        "",
        "Reproduce: `python benchmarks/hopper.py --precision s --seconds 165 --json"
        " benchmarks/results/h100/hopper_s.json` (d, c and z likewise), `python"
        " benchmarks/sustained.py --precision z --sizes 4096,8192 --seconds 150 --json"
        " benchmarks/results/h100/sustained_z.json` (d likewise), `python -m"
        " benchmarks.tensor --seconds 200 --json benchmarks/results/h100/tensor.json`, `python"
        " benchmarks/double_double.py --device cuda:0 --families simt_async --scan 24 --json"
        " benchmarks/results/h100/double_double.json`, `tilewright bench --precision s,d --sizes"
        " 1024 --against numpy,clblast --device opencl:0,opencl:1 --tune 60s -o"
        " benchmarks/results/cpu/gemm_1024.json`, `python benchmarks/space_build.py --json"
        " benchmarks/results/cpu/space_build.json`, then `python benchmarks/draw.py`.",
    ]
    return "\n".join(lines)


def cell(ours, theirs):
    """Return two rates and their ratio."""
    digits = 0 if ours >= 100 else 1
    return f"**{ours:.{digits}f}** / {theirs:.{digits}f} ({ours / theirs:.2f}x)"


def lines_of(about, found, sizes):
    """Return lines of the table: `found` has pairs of TFLOP/s by case and size."""
    return [
        f"| {about}; TFLOP/s | {size} | "
        + " | ".join(cell(*found[trans, size]) for trans in draw_hopper.CASES)
        + " |"
        for size in sizes or sorted({size for _, size in found})
    ]


def search_lines(letter, sizes=()):
    """Return the races of a search with cuBLAS."""
    found = {
        (row["trans"], row["size"]): (row["tflops"]["tilewright"], row["tflops"]["cublas"])
        for row in load(f"h100/hopper_{letter}.json")["log"]
        if row["kind"] == "final" and "tflops" in row
    }
    return lines_of(f"{letter.upper()}GEMM, H100, cuBLAS", found, sizes)


def lasting_lines(letter):
    """Return the races with cuBLAS in turns of a second, each at its own clock."""
    found = {
        (row["trans"], row["size"]): (row["tflops"]["tilewright"], row["tflops"]["cublas"])
        for row in load(f"h100/sustained_{letter}.json")["rows"]
    }
    return lines_of(f"{letter.upper()}GEMM, H100, cuBLAS, a second each in turn", found, ())


def tensor_lines(arithmetic, name, peer, sizes=(), who="tilewright"):
    """Return the races of an arithmetic of matrix units; "guarded" is what `gemm` serves."""
    found = {}
    for row in load("h100/tensor.json")["log"]:
        if row["kind"] == "race" and row["case"].split()[0] == arithmetic and "tflops" in row:
            rates = row["tflops"][who], row["tflops"]["cublas"]
            found[row["case"].split()[1], row["size"]] = rates
    return lines_of(f"{name}, H100, {peer}", found, sizes)


def pairs_lines(sizes):
    """Return the rates in double-double beside what bounds them."""
    found = {
        (row["precision"], row["n"], row["trans"]): row
        for row in load("h100/double_double.json")["rows"]
    }
    lines = []
    for letter, name in (("e", "accurate"), ("f", "fast")):
        for size in sizes:
            rows = [found[letter, size, trans] for trans in draw_hopper.CASES]
            rates = [(row["flops_per_second"], row["bound"]) for row in rows]
            told = " | ".join(f"**{rate / 1e12:.2f}** ({rate / most:.0%})" for rate, most in rates)
            about = f"double-double, {name}, H100; TFLOP/s (of its bound)"
            lines.append(f"| {about} | {size} | {told} |")
    return lines


def cpu_lines(document):
    """Return the table's lines of a sweep against NumPy on a CPU."""
    lines = []
    for platform, row in rows(document):
        name, trans, size = row["problem"].split()
        ours, theirs = (row["flops_per_second"][peer] for peer in ("tilewright", "numpy"))
        cells = {trans: f"**{ours / 1e9:.0f}** / {theirs / 1e9:.0f} ({ours / theirs:.2f}x)"}
        told = " | ".join(cells.get(case, "") for case in draw_hopper.CASES)
        lines.append(f"| {name}, {platform}, NumPy (OpenBLAS); GFLOP/s | {size} | {told} |")
    return lines


def space_lines(space):
    """Return a sentence on how fast a parameter space is built."""
    builders = space["builders"]
    ours = builders["tilewright"]
    theirs = [builders[name] for name in builders if name.startswith("kernel_tuner")]
    seconds = min(one["seconds"] for one in theirs)
    memory = min(one["peak_mib"] for one in theirs)
    return [
        f"Building a space of {space['raw_size']:.1e} raw and {space['points']:,} valid points:"
        f" {ours['seconds']:.3f} s and {ours['peak_mib']:.0f} MiB; Kernel Tuner"
        f" {space['versions']['kernel_tuner']} takes {seconds:.1f} s and {memory:.0f} MiB for the"
        " same set."
    ]


def readme_with(text, results):
    """Return the README with its results replaced."""
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n{results}\n{END}{rest.split(END)[1]}"


def figure(path):
    """Draw the rates of all peers, one group a problem and device."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "tilewright"  # the same file from the same data
    from matplotlib import pyplot

    found = list(rows(load("cpu/gemm_1024.json")))
    axes = pyplot.figure(figsize=(8, 3.2), layout="constrained").subplots()
    width = 0.8 / len(PEERS)
    for at, (peer, label) in enumerate(PEERS.items()):
        heights = [row["flops_per_second"].get(peer, 0) / 1e9 for _, row in found]
        places = [group + (at - 1) * width for group in range(len(found))]
        bars = axes.bar(places, heights, width, label=label)
        axes.bar_label(bars, fmt="%.0f", fontsize=8)
    names = [f"{row['problem']}\n{platform}" for platform, row in found]
    axes.set_xticks(range(len(found)), names, fontsize=8)
    axes.set_ylabel("GFLOP/s")
    axes.set_title("GEMM on a CPU without a GPU: tuned kernels beside the libraries", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False)
    pyplot.savefig(path, metadata={"Date": None})


def main():
    readme = ROOT / "README.md"
    readme.write_text(readme_with(readme.read_text(), table()))
    figure(ROOT / "docs" / "figures" / "cpu_gemm.svg")


if __name__ == "__main__":
    main()
