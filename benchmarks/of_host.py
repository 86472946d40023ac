"""Tables of matrices in the host's memory, on CPUs, and of what several devices share."""

from __future__ import annotations

import statistics

from committed import Row, about, load, rows, table, table_of
from of_calls import name_of
from tilewright.bench.benchmarks import devices as shared
from tilewright.precision import precision


def host_calls() -> str:
    """Return how calls on NumPy's arrays stand beside NumPy's, by how long NumPy takes."""
    lines = []
    for what, letters in (("real", "sd"), ("complex", "cz")):
        mine = [row for row in rows("cpu/host_calls") if row["precision"] in letters]
        for bound, least, most in (("up to 20", 0, 20), ("20 to 50", 20, 50), ("over 50", 50, 1e9)):
            found = [row for row in mine if least < row["numpy_us"] <= most]
            ratios = [row["ratio"] for row in found]
            more = statistics.median(row["us"] - row["numpy_us"] for row in found)
            lines.append([
                what, bound, str(len(found)), f"{statistics.geometric_mean(ratios):.2f}",
                f"{min(ratios):.2f}", str(sum(one < 0.9 for one in ratios)), f"{more:.1f}",
            ])  # fmt: skip
    head = ["", "NumPy takes, us", "shapes", "geometric mean of NumPy's time / ours", "least",
            "below 0.9", "microseconds more, median"]  # fmt: skip
    return table_of("cpu/host_calls", head, lines, 2)


def opencl_calls() -> str:
    """Return what a warm call on an OpenCL device takes more than a bare enqueue."""
    lines = []
    for row in rows("cpu/opencl_calls"):
        in_a_row = f"{row['row_us'] - row['least_row_us']:.1f}" if "row_us" in row else ""
        lines.append([
            row["arrays"], name_of(row["precision"]), "x".join(map(str, row["size"])),
            f"{row['least_us']:.1f}", f"{row['us']:.1f}", f"{row['us'] - row['least_us']:.1f}",
            in_a_row,
        ])  # fmt: skip
    head = ["arrays", "", "m x n x k", "the least, us", "a call, waited for", "more",
            "more, eight in a row"]  # fmt: skip
    return table_of("cpu/opencl_calls", head, lines, 3)


def linear_systems() -> str:
    """Return how linear systems stand beside LAPACK's, a line a size."""
    found = rows("cpu/linear_systems")
    sides = list(dict.fromkeys(row["sides"] for row in found))
    ratio = {(row["size"], row["sides"]): f"{row['ratio']:.2f}" for row in found}
    lines = [
        [str(n), *(ratio[n, one] for one in sides)]
        for n in dict.fromkeys(row["size"] for row in found)
    ]
    head = ["n", *(f"solve for {one}" if one else "LAPACK's time / ours: factor"
                   for one in sides)]  # fmt: skip
    return table_of("cpu/linear_systems", head, lines)


def lu() -> str:
    """Return how factorisations on a device stand beside a product and cuSOLVER, a line a size."""
    lines = [
        [
            precision(row["precision"]).dtype_name, str(row["size"]), f"{row['ms']:.1f}",
            f"{1000 * row['ms'] / row['size']:.2f}", f"{row['tflops']:.1f}",
            f"{row['of_gemm']:.2f}", f"{row['ratio']:.2f}",
            *(f"{one:.2f}" for one in row["solve_ratios"].values()),
        ]
        for row in rows("h100/lu")
    ]  # fmt: skip
    sides = rows("h100/lu")[0]["solve_ratios"]
    head = ["", "n", "ms", "us a column", "TFLOP/s", "of `gemm`'s", "cuSOLVER's time / ours",
            *(f"solve for {one}" for one in sides)]  # fmt: skip
    return table_of("h100/lu", head, lines)


def transfers() -> str:
    """Return how products of matrices in the host's memory stand beside link, kernel and peer."""
    lines = [
        [
            {"s": "SGEMM", "d": "DGEMM", "fp32": '`"fp32"`'}[row["precision"]], str(row["size"]),
            row["memory"], f"{row['ms']:.1f}", f"{row['kernel_ms']:.1f}", f"{row['link_ms']:.1f}",
            f"{row['of_longest']:.2f}", "" if row["xt_ms"] is None else f"{row['xt_ms']:.1f}",
        ]
        for row in rows("h100/transfers")
    ]  # fmt: skip
    head = ["", "n", "memory", "a call, ms", "kernel alone", "link alone", "call / the longer",
            "cuBLASXt, ms"]  # fmt: skip
    rates = [(row["to_gbs"], row["from_gbs"], row["both_gbs"]) for row in rows("h100/transfers")]
    there, back, both = (statistics.median(one) for one in zip(*rates, strict=True))
    link = f"The link carries {there:.0f} GB/s there, {back:.0f} back, and {both:.0f} both ways"
    return f"{about('h100/transfers')}. {link}.\n\n{table(head, lines)}"


def large_matrices() -> str:
    """Return how products beyond a device's memory, or into a mapped file, stand beside kernels."""
    lines = [
        [
            {"s": "SGEMM", "d": "DGEMM"}[row["precision"]], str(row["size"]), row["how"],
            f"{row['ms']:.0f}", f"{row['kernel_ms']:.0f}", f"{row['of_kernel']:.2f}",
        ]
        for row in rows("h100/large_matrices")
    ]  # fmt: skip
    head = ["", "n", "", "a call, ms", "kernel alone", "kernel / call"]
    return table_of("h100/large_matrices", head, lines, 3)


def devices() -> str:
    """Return how much faster products and searches are that several devices share."""
    head = ["", "n", "matrices", "devices", "one device, ms", "a call, ms", "faster by",
            "simulated", "link, GB/s", "call / the longer of links and kernel",
            "cuBLASXt, ms"]  # fmt: skip
    drawn = [
        table_of(name, head, list(map(_shared, rows(name))), 3)
        for name in ("h100/devices", "h200/devices_four", "h200/devices")
    ]
    return "\n\n".join([*drawn, _searches()])


def _shared(row: Row) -> list[str]:
    numbers = (
        (shared.simulated(row), ".2f"), (row["link_gbs"], ".0f"), (row["of_longest"], ".2f"),
        (row["xt_ms"], ".1f"),
    )  # fmt: skip
    return [
        {"s": "SGEMM", "d": "DGEMM", "fp32": '`"fp32"`'}[row["precision"]], str(row["size"]),
        row["matrices"], str(row["devices"]), f"{row['one_ms']:.1f}", f"{row['ms']:.1f}",
        f"{row['speedup']:.2f}",
        *("" if value is None else f"{value:{form}}" for value, form in numbers),
    ]  # fmt: skip


def _searches() -> str:
    """Return candidates a second of searches, as ``tilewright tune --json`` told them."""
    lines = []
    for row in load("h100/devices_search")["searches"]:
        spent = row["spent"]
        rate = row["tried"] / spent["wall"]
        busy = [
            f"{100 * spent[name] / (spent['wall'] * spent[of]):.0f} %"
            for name, of in (
                ("compiling", "workers"),
                ("timing", "devices"),
                ("kernels", "devices"),
            )
        ]
        lines.append([
            str(spent["devices"]), str(spent["workers"]), str(row["tried"]), f"{spent['wall']:.1f}",
            f"{rate:.1f}", *busy,
        ])  # fmt: skip
    head = ["devices", "processes that compile", "candidates", "seconds", "a second", "compiling",
            "timing", "kernels"]  # fmt: skip
    command = load("h100/devices_search")["command"]
    return f"A search for SGEMM on H100s (`{command}`):\n\n{table(head, lines)}"
