"""Draw every figure and table of the README and the documentation from committed results.

    python benchmarks/draw.py

Reads benchmarks/results; writes docs/figures/*.svg, and in README.md and docs what stands between
``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``.  Nothing there is typed by hand.  Figures need
matplotlib: pip install -e '.[figures]'.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping

import of_tilings
from committed import (
    CASES,
    NAMES,
    ROOT,
    Row,
    about,
    experiment,
    load,
    mix_curves,
    rates_cell,
    rates_of,
    rows,
    table,
    table_of,
)
from figures import draw_figures
from of_calls import (
    batches,
    blas_calls,
    blas_testers,
    c_calls,
    calls,
    cliffs,
    contractions,
    devices,
    flat,
    fp8,
    groups_of_products,
    host_calls,
    host_cost,
    large_matrices,
    linear_systems,
    long_sums,
    lu,
    opencl_calls,
    preloaded,
    public_calls,
    readme,
    regret,
    squares,
    strided_batches,
    sustained_calls,
    training,
    transfers,
    tuned,
    updates,
)
from of_searches import gemm_spaces, h100_spaces, pruning, scaling, scores, shortlist
from tilewright.bench.counters import COUNTERS, stalls_that_count, told
from tilewright.microbench.mixes import WIDTHS
from tilewright.portfolio.portfolio import read_portfolio
from tilewright.precision import precision

# -- portfolios -------------------------------------------------------------------------------


def portfolio_loss() -> str:
    """Return what portfolios lose on shapes that did not pick them, a line a precision."""
    lines = []
    for letter, name in NAMES.items():
        found = [one for one in load("h100/portfolio_loss")["rows"] if one["precision"] == letter]
        shapes = sum(one["problems"] for one in found)

        def over(which: str, what: str, found: list[Row] = found, shapes: int = shapes) -> str:
            if what == "most":
                return f"{max(one[which][what] for one in found):.1%}".replace("%", " %")
            total = sum(one["problems"] * one[which][what] for one in found)
            return f"{total / shapes:.1%}".replace("%", " %")

        lines.append([
            name, str(shapes), f"{sum(one['kernels'] for one in found) / len(found):.0f}",
            *(over(x, what) for x in ("best", "chosen") for what in ("mean", "95 %", "most")),
        ])  # fmt: skip
    head = ["", "shapes", "kernels a case", "best of them: mean", "95 %", "most",
            "the one chosen: mean", "95 %", "most"]  # fmt: skip
    return table(head, lines)


def ships() -> str:
    """Return what ships for Hopper, a line a portfolio."""
    folder = ROOT / "src/tilewright/portfolio/sm_90"
    lines = []
    for name in ("s", "d", "c", "z", "e", "f", "short", "passes"):
        codes = read_portfolio(folder, name).codes.values()
        lines.append([
            f"`{name}`", str(len(read_portfolio(folder, name).kernels) or ""), str(len(codes)),
            f"{sum(one.size for one in codes) / 1e6:.1f}",
            str(sum(one.rescheduled for one in codes) or ""),
            str(sum(bool(one.checked) for one in codes)),
        ])  # fmt: skip
    packed = sum(one.stat().st_size for one in folder.glob("*.xz")) / 1e6
    head = ("portfolio", "kernels", "machine codes", "MB", "rescheduled", "verified on the device")
    return f"{table(head, lines, 1)}\n\nCompressed, all of it is {packed:.2f} MB."


def first_calls() -> str:
    """Return the first calls of a process, a line each."""
    lines = [
        [row["precision"], row["trans"], row["library"],
         *(f"{one:.1f}" if one >= 10 else f"{one:.2f}" for one in row["milliseconds"])]
        for row in rows("h100/first_call")
    ]  # fmt: skip
    head = ["", "trans", "library", "first call, ms", "second, odd shape", "third, new shape"]
    return table_of("h100/first_call", head, lines, 3)


# -- machine code ------------------------------------------------------------------------------


def rescheduling() -> str:
    """Return what rescheduled kernels save beside the compiler's own code, by precision."""
    lines = []
    for name, of in (("squares", "squares"), ("random_shapes", "random shapes")):
        found = [one for one in rows(f"h100/rescheduling_{name}") if one.get("saved")]
        for letter in "sdcz":
            mine = [statistics.mean(one["saved"].values()) for one in found
                    if one["precision"] == letter and one["status"] == "same"]  # fmt: skip
            if mine:
                low, middle, high = statistics.quantiles(mine, n=4)
                lines.append([f"{NAMES[letter]}, {of}", str(len(mine)), f"{100 * middle:.1f} %",
                              f"{100 * low:.1f} to {100 * high:.1f} %"])  # fmt: skip
    return table(["time saved beside the same kernel as compiled", "kernels", "median",
                  "quartiles"], lines)  # fmt: skip


def cycle_model() -> str:
    """Return how near the cycle model comes to counters, by kind of kernel."""
    found = rows("h100/cycle_model")
    groups = {
        "portable kernels, wavefronts known":
            [x for x in found if x["stencil"] == "portable" and x["wavefronts_known"]],
        "portable kernels, all": [x for x in found if x["stencil"] == "portable"],
        "asynchronous copies, as compiled": [x for x in found if x.get("level") == "none"],
        "asynchronous copies, rescheduled":
            [x for x in found if x.get("level") not in (None, "none")],
    }  # fmt: skip
    lines = []
    for name, of in groups.items():
        off = [abs(x["predicted"] - x["counted"]) for x in of]
        near = (str(sum(x <= points for x in off)) for points in (0.03, 0.05))
        lines.append([name, str(len(of)), *near, f"{100 * statistics.median(off):.1f}"])
    head = ["", "kernels", "within 3 points", "within 5 points", "median error, points"]
    return table(head, lines)


def profile() -> str:
    """Return Nsight Compute's counters of one product, ours beside cuBLAS's."""
    (row,) = rows("h100/sgemm_4096_profile")
    kernels = {name: one["kernels"][0] for name, one in row["profile"]["libraries"].items()}
    rates = [f"{row['flops_per_second'][name] / 1e12:.1f}" for name in kernels]
    lines = [["TFLOP/s, not under the profiler", *rates]]
    both = list(kernels.values())
    lines += [
        [one.title, *(told(kernel["counters"][one.name]) for kernel in both)] for one in COUNTERS
    ]
    lines += [[f"stalled: {reason}, warps per issue", *(told(x["stalls"][reason]) for x in both)]
              for reason in stalls_that_count(both)]  # fmt: skip
    return f"{about('h100/sgemm_4096_profile')}:\n\n{table([row['problem'], *kernels], lines)}"


# -- tensor cores and accuracy -----------------------------------------------------------------


def tensor_kernels() -> str:
    """Return kernels of arithmetics of which no calls were measured."""
    found = rows("h100/tensor_cores")
    lines = []
    for name in ("f16", "tf32"):
        of = {(x["size"][0], x["trans"]): x for x in found if x["arithmetic"] == name}
        for n in sorted({size for size, _ in of}):
            lines.append([name, str(n), *(rates_of(of[n, c]) for c in CASES)])
    head = ["TFLOP/s, ours / cuBLAS (ratio)", "size", *CASES]
    return table_of("h100/tensor_cores", head, lines)


def fp32_promise() -> str:
    """Return on which data errors come near what is promised, and on how many of all."""
    floors = ("2^-20", "2^-21", "2^-22", "2^-23")

    def line(name: str, of: list[Row]) -> list[str]:
        counts = [sum(row[key] for row in of) for key in ("cases", "violations", "beyond_bound")]
        above = [sum(row["above_a_lower_floor"].get(floor, 0) for row in of) for floor in floors]
        return [name, *map(str, (*counts, *above))]

    found = rows("h100/fp32_promise")
    lines = [line("all", found)]
    for row in found:
        if row["beyond_bound"] or row["above_a_lower_floor"].get("2^-22"):
            lines.append(line(row["data"] + (", as served" if row["as_served"] else ""), [row]))
    head = ["products", "", "break the promise", "beyond the bound"]
    head += [f"above SGEMM's and {floor}" for floor in floors]
    return table_of("h100/fp32_promise", head, lines, 1)


def fp32_accuracy(name: str, columns: Mapping[str, str]) -> Callable[[], str]:
    def drawn() -> str:
        lines = []
        for row in rows(name):
            if any(key not in row["errors"] for key in columns):
                continue
            found = [row["errors"][key] for key in columns]
            etas = [f"{_power(x['eta'])}, {_power(x['median_relative'])}" for x in found]
            served = row["guard"].get("variant", "")
            lines.append([row["data"], str(row["side"]), str(row["k"]), *etas, f"`{served}`"])
        head = ["eta, median relative error", "m, n", "k", *columns.values(), "served by"]
        return table_of(name, head, lines)

    return drawn


def fp64_accuracy() -> str:
    """Return errors beside IEEE arithmetic's, and how many moduli served."""
    name = "h100/fp64_accuracy"
    lines = []
    for row in rows(name):
        errors = (row["errors"][key] for key in ("ieee", "fp64"))
        etas = [f"{_power(x['eta'])}, {_power(x['median_relative'])}" for x in errors]
        guard, bound = row["guard"], row["guard"].get("error_bound", 0)
        lines.append([
            row["data"], row["precision"].upper(), str(row["side"]), *etas,
            str(guard["moduli"] or "IEEE"), _power(bound) if bound else "",
        ])  # fmt: skip
    head = ["eta, median relative error", "", "m, n, k", "IEEE", '`"fp64"`', "moduli", "bound"]
    return table_of(name, head, lines)


def fp64_options() -> str:
    """Return what options of ``"fp64"`` cost, and what long sums and odd columns win."""
    name = "h100/fp64_options"
    lines = [
        [
            row["what"], row["precision"].upper(), " x ".join(map(str, row["size"])),
            f"{row['flops'] / row['us'] / 1e6:.1f}", row["beside"].replace('"fp64"', '`"fp64"`'),
            f"{row['beside_us'] / row['us']:.3f}",
        ]
        for row in rows(name)
    ]  # fmt: skip
    head = ["", "", "m, n, k", "TFLOP/s", "beside", "times as fast"]
    return table_of(name, head, lines, 3)


def _power(value: float) -> str:
    """Return an error as a power of two."""
    return "0" if value == 0 else f"2^{math.log2(value):.1f}"


def double_double_calls() -> str:
    """Return rates of calls by residues beside the kernels'."""
    name = "h100/double_double_calls"
    found = {(x["precision"], x["side"]): x for x in rows(name) if "seconds" in x}
    lines = []
    for side in sorted({side for _, side in found}):
        cells = []
        for letter in "ew":
            row = found.get((letter, side))
            flops = precision(letter).flops * side**3
            rate = {} if row is None else {k: flops / x for k, x in row["seconds"].items()}
            cells += [rates_cell(rate["residues"], rate["kernel"]) if rate else ""]
            cells += [f"{rate['fast'] / 1e12:.2f}" if rate else ""]
        lines.append([str(side), *cells])
    head = ["TFLOP/s, residues / kernel (ratio)", "`e`", "`f`", "`w`", "`v`"]
    return table_of(name, head, lines)


def double_double_errors() -> str:
    """Return errors of calls by residues beside the kernels', and how many moduli served."""
    name = "h100/double_double_calls"
    most = max(x["side"] for x in rows(name) if x["data"] == "phi 4")
    lines = [
        [x["data"], f"`{x['precision']}`",
         *(_power(x["eta"][way]) for way in ("residues", "kernel")),
         str(x["guard"]["moduli"] or "kernel"),
         _power(x["guard"]["error_bound"]) if x["guard"]["moduli"] else ""]
        for x in rows(name) if x["side"] == most
    ]  # fmt: skip
    head = [f"eta, m = n = k = {most}", "", "residues", "kernel", "moduli", "bound"]
    return table_of(name, head, lines)


def double_double() -> str:
    """Return rates, shares of the bound, flatness and eta."""
    found = rows("h100/double_double")
    sizes = sorted({x["size"][0] for x in found if "bound" in x})
    lines = []
    for letter in "ef":
        for case in CASES:
            mine = [x for x in found if (x["precision"], x["trans"]) == (letter, case)]
            of = {x["size"][0]: x for x in mine if "bound" in x}
            rates = [of[n]["flops_per_second"]["tilewright"] for n in sizes]
            scan = [x["flops_per_second"]["tilewright"] for x in mine if x.get("scan")]
            limit = of[sizes[0]]["bound"]["flops_per_second"]
            etas = [max(x["eta_by_spread"][phi] for x in mine if phi in x.get("eta_by_spread", {}))
                    for phi in ("phi_0", "phi_2")]  # fmt: skip
            lines.append([f"`{letter}` {case}", *(f"{x / 1e12:.3f}" for x in rates),
                          f"{100 * max(rates) / limit:.1f} %",
                          f"{100 * (1 - min(scan) / max(scan)):.1f} %",
                          *map(_power, etas)])  # fmt: skip
    head = ["TFLOP/s", *map(str, sizes), "best, of the bound", "spread over 24 other sizes",
            "eta, phi 0", "eta, phi 2"]  # fmt: skip
    return table_of("h100/double_double", head, lines)


# -- microbenchmarks and ladders ---------------------------------------------------------------


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


def ladder(name: str) -> str:
    """Return every size of a ladder that was climbed on the H100."""
    parts = [f"{about(name)}."]
    for result in rows(name):
        limit = result["bound"]
        lines = [_rung(one) for one in result["rungs"]]
        head = ["rung", "", "TFLOP/s", "% of library", "% of bound", "registers", "limited by"]
        told = f"bound {limit['flops_per_second'] / 1e12:.1f} TFLOP/s by {limit['limiting']}"
        parts += [f"**{result['problem']}**; {told}:", table(head, lines, left=2)]
    return "\n\n".join(parts)


def _rung(one: Row) -> list[str]:
    if one["reason"]:
        return [one["name"], one["title"], "", "", "", "", one["reason"]]
    code = one["machine_code"] or {}
    numbers = [
        "" if value is None else f"{value:{form}}"
        for value, form in (
            (one["flops_per_second"] / 1e12, ".3g"), (one["percent_of_library"], ".1f"),
            (one["percent_of_bound"], ".1f"), (code.get("registers"), "d"),
        )
    ]  # fmt: skip
    return [one["name"], one["title"], *numbers, one["limits"]]


# -- pages -------------------------------------------------------------------------------------

ON_DEVICE = {"sgemm": "cuBLAS SGEMM", "guarded": '`"fp32"`', "fp16x3": "fp16x3", "tf32": "TF32"}
ON_MODEL = {"plain sum": "plain sum", "ieee": "SGEMM of this CPU", "fp16x3": "fp16x3",
            "tf32x3": "tf32x3", "bf16x6": "bf16x6"}  # fmt: skip
PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"results": readme, "calls": public_calls},
    "docs/hopper.md": {"squares": lambda: squares("s"), "complex": lambda: squares("c")},
    "docs/dgemm.md": {"squares": lambda: squares("d"), "complex": lambda: squares("z")},
    "docs/portfolio.md": {"ships": ships, "first": first_calls},
    "docs/serving.md": {
        "host": host_cost, "host-calls": host_calls, "opencl-calls": opencl_calls,
        "linear-systems": linear_systems, "lu": lu, "transfers": transfers,
        "large-matrices": large_matrices,
        "devices": devices, "syrk": updates, "grouped": groups_of_products,
        "batched": strided_batches,
    },
    "docs/export.md": {
        "calls": c_calls, "preloaded": preloaded, "blas": blas_calls, "testers": blas_testers,
    },
    "docs/search.md": {
        "scores": scores, "gemm": gemm_spaces, "h100": h100_spaces, "pruning": pruning,
        "course": of_tilings.course, "funnel": of_tilings.funnel, "tilings": of_tilings.best,
    },
    "docs/how-to/pytorch.md": {"training": training, "contractions": contractions},
    "docs/how-to/tune-a-device.md": {"shortlist": shortlist, "scaling": scaling},
    "docs/random_shapes.md": {
        "loss": portfolio_loss, "regret": regret, "tuned": tuned, "calls": calls,
        "long": long_sums, "multiples": cliffs, "flat": flat,
    },
    "docs/scheduling.md": {"saved": rescheduling, "model": cycle_model},
    "docs/tensor_cores.md": {
        "squares": lambda: squares("bf16"), "fp8": fp8, "kernels": tensor_kernels,
        "sustained": sustained_calls,
    },
    "docs/fp32_accurate.md": {
        "squares": lambda: squares("fp32"), "complex": lambda: squares("fp32-c"),
        "batches": batches, "promise": fp32_promise,
        "device errors": fp32_accuracy("h100/fp32_accuracy", ON_DEVICE),
        "model errors": fp32_accuracy("cpu/fp32_accuracy", ON_MODEL),
    },
    "docs/fp64_accurate.md": {
        "squares": lambda: squares("fp64", "h100/fp64"),
        "complex": lambda: squares("fp64-z", "h100/fp64_complex"),
        "errors": fp64_accuracy,
        "options": fp64_options,
    },
    "docs/double_double.md": {
        "results": double_double, "calls": double_double_calls, "errors": double_double_errors,
    },
    "docs/benchmarking.md": {"profile": profile},
    "docs/microbenchmarks.md": {
        "rates": micro_rates, "mixes": micro_mixes, "memory": micro_memory,
        "copies": micro_copies, "power": micro_power,
    },
    "docs/ladder.md": {
        "results": lambda: ladder("h100/ladder"), "tensor": lambda: ladder("h100/tensor_ladder"),
        "residues": lambda: ladder("h100/residue_ladder"),
    },
}  # fmt: skip


def page_with(text: str, mark: str, drawn: str) -> str:
    """Return a page with what stands between two marks replaced."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    head, _, rest = text.partition(begin)
    _, found, tail = rest.partition(end)
    if not found:
        raise SystemExit(f"the page has no {begin} ... {end}")
    return f"{head}{begin}\n{drawn}\n{end}{tail}"


def main() -> None:
    for name, parts in PARTS.items():
        page = ROOT / name
        text = page.read_text()
        for mark, draw in parts.items():
            text = page_with(text, mark, draw())
        page.write_text(text)
        print(name)
    draw_figures()
    of_tilings.figure()


if __name__ == "__main__":
    main()
