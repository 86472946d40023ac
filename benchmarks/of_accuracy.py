"""Errors and rates of other accuracies than IEEE's, as `draw.py` puts them into pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from committed import CASES, Row, rates_cell, rows, table_of
from tilewright.precision import precision

ON_DEVICE = {"sgemm": "cuBLAS SGEMM", "guarded": '`"fp32"`', "fp16x3": "fp16x3", "tf32": "TF32"}
ON_MODEL = {"plain sum": "plain sum", "ieee": "SGEMM of this CPU", "fp16x3": "fp16x3",
            "tf32x3": "tf32x3", "bf16x6": "bf16x6"}  # fmt: skip


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
