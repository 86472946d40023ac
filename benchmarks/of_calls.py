"""Tables of whole calls: what ``bench calls``, ``c-calls`` and ``host-cost`` have measured."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence

from committed import (
    CASES,
    NAMES,
    Row,
    about,
    load,
    rates_cell,
    rows,
    table,
    table_of,
)
from tilewright.bench.benchmarks import batched, grouped, matmul, sustained, syrk
from tilewright.bench.benchmarks import contractions as ladders
from tilewright.bench.benchmarks import preloaded as programs
from tilewright.bench.benchmarks import training as steps
from tilewright.bench.benchmarks.host_cost import percentile_lines
from tilewright.bench.benchmarks.regret import loss_lines
from tilewright.bench.registry import Benchmark
from tilewright.bench.summary import etas_beside, flatness, losses

KINDS = {
    "random": "random, sides 1 to 16384",
    "skinny": "m or n 1 to 128, k to 500,000",
    "layers": "linear layers of language models",
    "squares": "squares, 512 to 16384, each transpose",
    "sizes": "sums of 1 to 8 products, C of 4095 to 9999, NN",
}
NAMED = {
    **NAMES, **{name: f'`accuracy="{name}"`' for name in ("fp32", "tf32", "fp64")},
    "fp64-z": '`accuracy="fp64"`, complex',
    "bf16": "bfloat16", "fp16": "float16", "e": "double-double", "f": "double-double, fast",
    "fp32-c": 'complex64, `accuracy="fp32"`', "e4m3": "FP8 (e4m3), beside cuBLASLt",
}  # fmt: skip


def name_of(letter: str) -> str:
    return NAMED.get(letter, letter)


def of_kind(kind: str, name: str = "h100/calls") -> list[Row]:
    return [row for row in rows(name) if row.get("shapes") == kind and "error" not in row]


def flops_of(row: Row) -> float:
    return float(row["flops"])


def call_cell(row: Row) -> str:
    mine, other = (flops_of(row) / row[whose] * 1e6 for whose in ("us", "cublas_us"))
    return rates_cell(mine, other)


def by_square(letter: str, name: str = "h100/calls") -> dict[tuple[int, str], Row]:
    """Return a precision's squares by side and transposes."""
    found = [row for row in of_kind("squares", name) if row["precision"] == letter]
    return {(row["size"][0], row["trans"]): row for row in found}


def square_lines(
    letter: str, sizes: Sequence[int] = (), name: str = "h100/calls"
) -> list[list[str]]:
    """Return a line a side with a cell a transpose; none of sides that were not measured."""
    found = by_square(letter, name)
    there = sorted({side for side, _ in found})
    return [
        [str(n), *(call_cell(found[n, case]) if (n, case) in found else "" for case in CASES)]
        for n in there
        if not sizes or n in sizes
    ]


def squares(letter: str, name: str = "h100/calls") -> str:
    """Return a precision's squares beside cuBLAS."""
    lines = square_lines(letter, name=name)
    head = ["TFLOP/s, ours / cuBLAS (ratio)", *CASES]
    return table_of(name, head, lines)


def fp8() -> str:
    """Return FP8's squares beside cuBLASLt's, with sums promoted and not."""
    found = [row for row in of_kind("squares") if "cublaslt_us" in row]
    lines = []
    for row in sorted(found, key=lambda one: one["size"]):
        mine, *theirs = (
            flops_of(row) / row[whose] * 1e6 for whose in ("us", "cublaslt_us", "cublaslt_fast_us")
        )
        lines.append([str(row["size"][0]), *(rates_cell(mine, other) for other in theirs)])
    head = ["TFLOP/s, ours / cuBLASLt (ratio)", "sums promoted", "`use_fast_accum`"]
    return table_of("h100/calls", head, lines)


# -- README ------------------------------------------------------------------------------------

# At most twelve lines, with the two below.
SHOWN = {"s": (512, 4096, 16384), "d": (1024, 8192), "fp32": (2048, 8192), "c": (4096,),
         "z": (4096,), "bf16": (4096,)}  # fmt: skip


def readme() -> str:
    """Return squares of every precision, and what has another peer or none."""
    lines = [
        [name_of(letter), *line]
        for letter, sizes in SHOWN.items()
        for line in square_lines(letter, sizes)
    ]
    lines += [[name_of("fp64"), *line] for line in square_lines("fp64", (8192,), "h100/fp64")]
    (pairs,) = (
        row["seconds"] for row in rows("h100/double_double_calls")
        if (row["precision"], row["side"]) == ("e", 8192)
    )  # fmt: skip
    rate, kernels = (2 * 8192**3 / pairs[way] for way in ("residues", "kernel"))
    lines.append(["double-double, beside FP64 kernels", "8192", rates_cell(rate, kernels),
                  "", "", ""])  # fmt: skip
    cpu = rows("cpu/gemm_1024")[0]["flops_per_second"]
    ours, theirs = cpu["tilewright"] / 1e12, cpu["numpy"] / 1e12
    lines.append(["SGEMM, 2 CPU cores beside OpenBLAS", "1024",
                  f"{ours:.3f} / {theirs:.3f} ({ours / theirs:.2f})", "", "", ""])  # fmt: skip
    return table(["TFLOP/s, ours / cuBLAS (ratio)", "size", *CASES], lines)


def public_calls() -> str:
    """Return how much faster calls are on random shapes, and how long a first one takes."""
    means, slow, many = [], [], []
    for letter in NAMES:
        ratios = [row["ratio"] for row in of_kind("random") if row["precision"] == letter]
        means.append(f"{statistics.geometric_mean(ratios):.2f} in {letter.upper()}")
        slow.append(sum(one < 0.9 for one in ratios))
        many.append(len(ratios))
    first = [
        row["milliseconds"][0] for row in rows("h100/first_call") if row["library"] == "tilewright"
    ]
    return (
        "[The public call](docs/random_shapes.md), host time and all, beside cuBLAS called in C"
        f" with prepared arguments: over {min(many)} to {max(many)} shapes of each precision, sides"
        " from 1 to 16384, it is"
        f" faster by a factor of {', '.join(means[:-1])} and {means[-1]}, in the geometric mean;"
        f" {min(slow)} to {max(slow)} shapes of each are below 0.9. A warm call costs the"
        " host [some microseconds](docs/serving.md), [the first call](docs/portfolio.md) of a"
        f" process {min(first):.0f} to {max(first):.0f} ms on an H100, without a compiler."
    )


# -- shapes ------------------------------------------------------------------------------------


def calls() -> str:
    """Return how the public call stands beside cuBLAS's, a line a precision and kind of shapes."""
    return f"{about('h100/calls')}.\n\n{_ratios('h100/calls', KINDS)}"


def other_model() -> str:
    """Return what the same kernels are to cuBLAS on two models of an architecture."""
    there = {_call_of(row): row for row in rows("h100/calls") if "ratio" in row}
    lines = []
    for kind, what, least_us in (
        ("squares", "squares, 512 to 16384", 0), ("layers", "layers of language models", 0),
        ("random", "random, cuBLAS above 20 us", 20), ("random", "random, all", 0),
    ):  # fmt: skip
        found = [
            (row, there[_call_of(row)])
            for row in of_kind(kind, "h200/calls") if "ratio" in row and _call_of(row) in there
        ]  # fmt: skip
        for letter in dict.fromkeys(row["precision"] for row, _ in found):
            pairs = [
                (row["ratio"], other["ratio"]) for row, other in found
                if row["precision"] == letter and other["us"] * other["ratio"] > least_us
            ]  # fmt: skip
            here, h100 = zip(*pairs, strict=True)
            cells = statistics.geometric_mean(here), min(here), statistics.geometric_mean(h100)
            lines.append([name_of(letter), what, str(len(pairs)), *(f"{x:.3f}" for x in cells)])
    head = ["", "shapes", "", "H200: cuBLAS's time / ours", "least", "H100"]
    return table_of("h200/calls", head, lines, 2)


def _call_of(row: Row) -> tuple[str, ...]:
    return tuple(str(row[of]) for of in ("shapes", "precision", "trans", "order", "size"))


def long_sums() -> str:
    """Return how errors of long sums stand beside cuBLAS's, a line a precision."""
    lines = []
    for letter in NAMES:
        mine = [row for row in of_kind("long") if row["precision"] == letter]
        etas = etas_beside([(row["eta"], row["cublas_eta"]) for row in mine])
        lines.append([
            name_of(letter), str(len(mine)), f"{etas['eta_geometric_mean']:.2f}",
            str(etas["eta_twice"]), f"{etas['eta_most']:.1f}",
            f"{statistics.geometric_mean(row['ratio'] for row in mine):.2f}",
        ])  # fmt: skip
    head = [
        "", "shapes", "geometric mean of our eta / cuBLAS's", "over 2", "most",
        "of cuBLAS's time / ours",
    ]  # fmt: skip
    return table_of("h100/calls", head, lines)


def strided_batches() -> str:
    """Return how batches stand beside cuBLAS's call and the bound, a line a precision and size."""
    return _told(batched.BENCHMARK, "h200/batched", older="h100/batched")


def unaligned_batches() -> str:
    """Return the same of sides that no operand is aligned with."""
    return _told(batched.BENCHMARK, "h200/batched_unaligned")


def products_of_torch() -> str:
    """Return how `matmul` stands beside PyTorch's, a line a product."""
    found = rows("h200/matmul")
    names, lines = matmul.by_product(found)
    head = ["", *(cell for name in names for cell in (f"{name_of(name)}, us", "of PyTorch"))]
    return table_of("h200/matmul", head, lines)


def _told(benchmark: Benchmark, name: str, left: int = 1, older: str = "") -> str:
    """Return a benchmark's own table of what is committed, with precisions' names.

    Behind each line what an `older` file has in the place of its "of cuBLAS".
    """
    head, lines = benchmark.table(rows(name))
    cells = [[name_of(str(one[0])), *map(str, one[1:])] for one in lines]
    if older:
        at = list(head).index("of cuBLAS")
        before = {tuple(one[:2]): str(one[at]) for one in benchmark.table(rows(older))[1]}
        cells = [
            [*made, before.get(tuple(one[:2]), "-")] for made, one in zip(cells, lines, strict=True)
        ]
        head = [*head, "H100, before"]
    return table_of(name, ["", *head[1:]], cells, left)


def batches() -> str:
    """Return how batches of ``"fp32"`` stand beside those in single precision and cuBLAS's."""
    mine, ieee = (
        {tuple(row["size"]): row for row in rows("h100/batched_fp32") if row["precision"] == name}
        for name in ("fp32", "s")
    )
    lines = []
    for size, row in mine.items():
        rate = row["flops"] / row["us"] / 1e6
        beside = f"{ieee[size]['us'] / row['us']:.2f}" if size in ieee else "-"
        lines.append([
            str(size[0]), str(row["batch"]), f"{rate:.1f}", beside, f"{row['ratio']:.2f}"
        ])  # fmt: skip
    head = ["m = n = k", "products", "TFLOP/s", '`"ieee"`: time / ours', "cuBLAS SGEMM's"]
    return table_of("h100/batched_fp32", head, lines)


def c_calls() -> str:
    """Return how calls of an exported library from C stand beside cuBLAS's."""
    return f"{about('h100/c_calls')}.\n\n{_ratios('h100/c_calls', KINDS)}"


def updates() -> str:
    """Return how rank-k updates stand beside whole products and cuBLAS's, a line a size."""
    told = _told(syrk.BENCHMARK, "h200/syrk", left=2)
    return told.replace(NAMED["e4m3"], "FP8 (e4m3)")  # no peer has such a call


def groups_of_products() -> str:
    """Return how groups of products stand beside cuBLAS's and PyTorch's calls, a line each."""
    return _told(grouped.BENCHMARK, "h200/grouped", left=2, older="h100/grouped")


def sustained_calls() -> str:
    """Return rates, clocks and power of calls that are repeated, beside cuBLAS's, a line each."""
    return _told(sustained.BENCHMARK, "h100/sustained")


def _ratios(name: str, kinds: dict[str, str]) -> str:
    lines = []
    for kind, what in kinds.items():
        found = of_kind(kind, name)
        for letter in dict.fromkeys(row["precision"] for row in found):
            ratios = [r["ratio"] for r in found if r["precision"] == letter and "ratio" in r]
            if not ratios:  # without a peer
                continue
            lines.append([
                name_of(letter), what, str(len(ratios)), f"{statistics.geometric_mean(ratios):.2f}",
                f"{statistics.median(ratios):.2f}", f"{min(ratios):.2f}",
                str(sum(one < 0.9 for one in ratios)),
            ])  # fmt: skip
    head = ["", "shapes", "", "geometric mean of cuBLAS's time / ours", "median", "least",
            "below 0.9"]  # fmt: skip
    return table(head, lines, 2)


def regret() -> str:
    """Return what the choice loses beside the portfolio's best, a line a precision."""
    head = ["", "shapes", "kernels a shape", "mean", "median", "95 %", "most"]
    return table_of("h100/regret", head, _losses("regret", "best_us"))


def tuned() -> str:
    """Return what tuning a shape gains over what serves it, a line a precision."""
    head = ["", "shapes", "candidates a shape", "a call's kernel takes more time: mean", "median",
            "95 %", "most"]  # fmt: skip
    return table_of("h100/tuned", head, _losses("tuned", "tuned_us"))


def _losses(name: str, best: str) -> list[list[str]]:
    lines = loss_lines(rows(f"h100/{name}"), best)
    return [[name_of(str(letter)), *map(str, cells)] for letter, *cells in lines]


def cliffs() -> str:
    """Return what sides one above a multiple lose against the multiple, least to most."""
    lines = []
    for (letter, side), lost in losses(of_kind("cliffs")).items():
        cells = [f"{100 * min(of):.0f} to {100 * max(of):.0f} %" for of in zip(*lost, strict=True)]
        lines.append([name_of(letter), str(side + 1), *cells])
    return table(["", "side", "ours loses", "cuBLAS loses"], lines, left=2)


def flat() -> str:
    """Return by how much rates vary over many sides."""
    lines = [
        [name_of(letter), trans, str(of.sides), f"{of.least / 1e12:.2f} to {of.most / 1e12:.2f}",
         f"{100 * of.varies:.1f} %", str(of.least_at)]
        for (letter, trans), of in flatness(of_kind("flat")).items()
    ]  # fmt: skip
    head = ["", "trans", "sides", "TFLOP/s", "varies by", "least at"]
    return table(head, lines, left=2)


def blas_calls() -> str:
    """Return how BLAS's calls that the device computes stand beside the host's on all cores."""
    name = "h100/blas_calls"
    found = {(row["precision"], *row["size"]): row for row in rows(name)}
    lines = []
    for size in dict.fromkeys(key[1:] for key in found):
        cells = [
            f"{row['ms']:.3g} / {row['host_ms']:.3g} ({row['ratio']:.2f})"
            for letter in "sdcz" if (row := found.get((letter, *size)))
        ]  # fmt: skip
        lines.append([" x ".join(map(str, size)), *cells])
    cores = rows(name)[0]["cores"]
    head = [
        f"ms, device / {cores} cores (ratio)",
        *(name_of(letter) for letter in "sdcz"),
    ]
    return table_of(name, head, lines)


def blas_testers() -> str:
    """Return what Netlib's testers say of GEMM's calls that the device computed."""
    name = "h100/blas_testers"
    document = load(name)
    lines = []
    for row in document["results"]:
        failed = sum(
            int(found) for line in row["said"] for found in re.findall(r"(\d+) FAILED", line)
        )
        passed = sum(line.startswith("PASSED") for line in row["said"])
        numbers = row["served"], row["passed_on"], passed, failed
        lines.append([f"`{row['tester']}`", *(f"{number:,}" for number in numbers)])
    head = ["tester", "calls served", "right calls passed on", "groups of tests passed",
            "tests failed"]  # fmt: skip
    return f"{document['device']}.\n\n{table(head, lines)}"


def training() -> str:
    """Return training steps and loss curves, a line a network."""
    found = rows("h100/training")
    whose = f"{about('h100/training')}, PyTorch {found[0]['torch']}"
    return f"{whose}.\n\n{table(steps.HEADS, steps.lines(found))}"


def contractions() -> str:
    """Return iterations of coupled cluster's ladder, a line a type."""
    found = rows("h100/contractions")
    whose = f"{about('h100/contractions')}, PyTorch {found[0]['torch']}"
    return f"{whose}.\n\n{table(ladders.HEADS, ladders.lines(found))}"


def preloaded() -> str:
    """Return what calls cost under `tilewright run`, and what threads found."""
    found = rows("h100/preloaded")
    said = " ".join(f"{programs.BENCHMARK.line(row)}." for row in found if "called" in row)
    return f"{about('h100/preloaded')}.\n\n{table(*programs.cells(found))}\n\n{said}"


def host_cost() -> str:
    """Return what a warm call costs the host, by launches."""
    found = [row for row in rows("h100/host_cost") if "error" not in row]
    head = ["launches", "calls", "microseconds, median", "99 %", "most", "CuPy's, median", "99 %"]
    return table_of("h100/host_cost", head, percentile_lines(found))
