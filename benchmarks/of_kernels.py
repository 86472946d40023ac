"""What ships, and what was measured of kernels, as `draw.py` puts it into pages."""

from __future__ import annotations

import statistics

from committed import NAMES, ROOT, Row, about, load, rows, table, table_of
from tilewright.bench.counters import COUNTERS, stalls_that_count, told
from tilewright.portfolio.portfolio import read_portfolio


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
