"""The figures of the documentation, a function each."""

from __future__ import annotations

from typing import Any

from committed import CASES, ROOT, load, mix_curves, rows
from of_calls import by_square, flops_of
from tilewright.bounds.nakasato import transfer_rate
from tilewright.microbench.mixes import STRIDES, WIDTHS
from tilewright.problem import Problem

FIGURES = ROOT / "docs" / "figures"


def axes_of(width: float, height: float, panels: int = 1) -> Any:
    """Return axes that are drawn the same from the same data."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "tilewright"
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(width, height), layout="constrained")
    found = figure.subplots(1, panels, sharey=True, squeeze=False)[0]
    for axes in found:
        axes.spines[["top", "right"]].set_visible(False)
    return found if panels > 1 else found[0]


def save(name: str) -> None:
    from matplotlib import pyplot

    pyplot.savefig(FIGURES / f"{name}.svg", metadata={"Date": None})
    pyplot.close()


def sgemm_figure() -> None:
    """Rates of calls against the size, a panel a case."""
    found = by_square("s")
    sizes = sorted({size for size, _ in found})
    panels = axes_of(9, 2.9, len(CASES))
    for axes, case in zip(panels, CASES, strict=True):
        for name, label, style in (("us", "Tilewright", "o-"), ("cublas_us", "cuBLAS", "s--")):
            rates = [flops_of(found[n, case]) / found[n, case][name] / 1e6 for n in sizes]
            axes.plot(sizes, rates, style, label=label, markersize=4)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(n) for n in sizes], fontsize=7, rotation=45)
        axes.set_ylim(0)
        axes.set_title(case, fontsize=9)
    panels[0].set_ylabel("TFLOP/s")
    panels[-1].legend(fontsize=8, frameon=False, loc="lower right")
    panels[0].figure.suptitle("SGEMM on an H100: square matrices against their side", fontsize=10)
    save("h100_sgemm")


def mixes_figure() -> None:
    """Lai & Seznec's Figure 2: instructions a cycle by multiply-adds for each load."""
    curves = mix_curves()
    panels = axes_of(9, 3.4, len(STRIDES))
    for axes, lanes in zip(panels, STRIDES, strict=True):
        for bits, label in WIDTHS.items():
            points = sorted(curves.get((bits, lanes), {}).items())
            axes.plot([x for x, _ in points], [y for _, y in points], "o-", ms=3, label=label)
        axes.axhline(128, color="grey", lw=0.8, ls="--")  # lanes that a multiprocessor issues to
        axes.set_xscale("symlog", base=2, linthresh=1)
        axes.set_xlim(-0.3, 80)  # a symmetric scale would show negative ratios
        axes.set_xticks([0, 1, 2, 4, 8, 16, 32, 64], ["0", "1", "2", "4", "8", "16", "32", "64"])
        axes.set_title(lanes.replace("_", " "), fontsize=10)
        axes.set_xlabel("FFMA to one load")
    panels[0].set_ylabel("instructions a cycle\nand multiprocessor")
    panels[0].legend(fontsize=8, frameon=False)
    panels[0].figure.suptitle("Lai & Seznec's Figure 2 on an H100", fontsize=10)
    save("figure2")


def blocking_figure() -> None:
    """Lai & Seznec's Figure 1: the formula as lines, compiled loops as points."""
    axes = axes_of(8, 3.6)
    found = rows("cpu/register_blocking")
    for bits, colour in ((32, "C0"), (64, "C1"), (128, "C2")):
        mine = [one for one in found if one["load_bits"] == bits]
        x = [one["blocking"] for one in mine]
        name = "LDS" if bits == 32 else f"LDS.{bits}"
        shares = {
            key: [100 * one[key] for one in mine]
            for key in ("formula", "share_of_ffma_and_loads", "share_of_all")
        }
        axes.plot(x, shares["formula"], color=colour, label=f"{name}, formula")
        axes.plot(x, shares["share_of_ffma_and_loads"], "o", color=colour, ms=4)
        axes.plot(x, shares["share_of_all"], "x", color=colour, ms=5)
    axes.plot([], [], "o", color="grey", ms=4, label="compiled: of FFMA and shared loads")
    axes.plot([], [], "x", color="grey", ms=5, label="compiled: of all instructions")
    axes.set_xlabel("register blocking")
    axes.set_ylabel("FFMA, % of the main loop")
    axes.set_title("Lai & Seznec's Figure 1 from kernels compiled for sm_90a", fontsize=10)
    axes.legend(fontsize=8, frameon=False, loc="lower right")
    save("figure1")


def ladder_figure() -> None:
    """Every rung's rate, a group of bars a rung."""
    axes = axes_of(9, 3.8)
    results = rows("h100/ladder")
    width = 0.8 / len(results)
    for at, result in enumerate(results):
        rates = [(one["flops_per_second"] or 0) / 1e12 for one in result["rungs"]]
        places = [group + (at - (len(results) - 1) / 2) * width for group in range(len(rates))]
        bars = axes.bar(places, rates, width, label="x".join(map(str, result["size"])))
        axes.bar_label(bars, fmt="%.3g", fontsize=6, rotation=90, padding=2)
    names = [one["name"].replace("_", "\n", 1).replace("_", " ") for one in results[0]["rungs"]]
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.set_ylabel("TFLOP/s")
    axes.set_title("The kernel ladder, SGEMM NN row-major, on an H100", fontsize=10)
    axes.legend(fontsize=8, frameon=False, loc="upper left")
    save("ladder")


def cpu_figure() -> None:
    """Rates of all libraries on a CPU, a group of bars a problem and device."""
    axes = axes_of(8, 3.2)
    groups = [
        (row, device["platform"].split("PoCL ")[1].split()[0].rstrip(","))
        for device in load("cpu/gemm_1024")["devices"]
        for row in device["results"]
    ]
    peers = {"tilewright": "Tilewright, tuned", "numpy": "NumPy (OpenBLAS)", "clblast": "CLBlast"}
    for at, (peer, label) in enumerate(peers.items()):
        heights = [row["flops_per_second"].get(peer, 0) / 1e9 for row, _ in groups]
        places = [group + (at - 1) * 0.8 / len(peers) for group in range(len(groups))]
        bars = axes.bar(places, heights, 0.8 / len(peers), label=label)
        axes.bar_label(bars, fmt="%.0f", fontsize=8)
    names = [f"{row['problem']}\nPoCL {platform}" for row, platform in groups]
    axes.set_xticks(range(len(groups)), names, fontsize=8)
    axes.set_ylabel("GFLOP/s")
    axes.set_title("GEMM on a CPU without a GPU: tuned kernels beside the libraries", fontsize=10)
    axes.legend(fontsize=8, frameon=False)
    save("cpu_gemm")


def transfer_figure() -> None:
    """Nakasato's Figure 7: rate with transfer against size, by equations 3 to 5.

    His kernel reaches 450 GFLOP/s in double precision on an HD 5870.
    """
    axes = axes_of(6, 3.6)
    rate, sizes = 450e9, range(64, 8193, 64)
    for link in (3e9, 10e9):
        found = [transfer_rate(Problem(n, n, n, "d"), link, rate) / 1e9 for n in sizes]
        axes.plot(sizes, found, label=f"link of {link / 1e9:g} GB/s")
    axes.axhline(rate / 1e9, color="gray", linewidth=0.8, linestyle="--", label="kernel alone")
    axes.set_xlabel("N")
    axes.set_ylabel("GFLOP/s")
    axes.set_ylim(0)
    axes.set_title("DGEMM with transfer (Nakasato, equations 3 to 5)", fontsize=9)
    axes.legend(fontsize=7, frameon=False)
    save("nakasato_transfer")


def host_figure() -> None:
    """Nakasato's Figure 7 as an H100 has it: calls beside what they cannot be faster than."""
    found = rows("h100/transfers")
    panels = axes_of(9, 3.2, 3)
    names = {"s": "SGEMM", "d": "DGEMM", "fp32": 'accuracy="fp32"'}
    for axes, (precision, title) in zip(panels, names.items(), strict=True):
        own = [row for row in found if row["precision"] == precision]
        sizes = sorted({row["size"] for row in own})
        curves = {
            "copies beside kernels, ideal": ("pinned", lambda r: max(r["link_ms"], r["kernel_ms"])),
            "call, pinned memory": ("pinned", lambda r: r["ms"]),
            "call, pageable memory": ("pageable", lambda r: r["ms"]),
            "copies and kernels in turns": ("pinned", lambda r: r["sum_ms"]),
            "cuBLASXt, pinned memory": ("pinned", lambda r: r["xt_ms"]),
        }
        for at, (label, (memory, ms)) in enumerate(curves.items()):
            rates = [
                2e-9 * row["size"] ** 3 / ms(row) if ms(row) else 0
                for size in sizes for row in own if row["size"] == size and row["memory"] == memory
            ]  # fmt: skip
            places = [group + (at - 2) * 0.17 for group in range(len(sizes))]
            axes.bar(places, rates, 0.17, label=label)
        axes.set_xticks(range(len(sizes)), [str(n) for n in sizes], fontsize=8)
        axes.set_title(title, fontsize=9)
    panels[0].set_ylabel("TFLOP/s")
    panels[0].figure.legend(*panels[0].get_legend_handles_labels(), fontsize=7, frameon=False,
                            loc="outside lower center", ncols=3)  # fmt: skip
    save("h100_transfers")


def searches_figure() -> None:
    """Standing over the budget, the mean over the public spaces, of the strategies ahead."""
    found = load("searches/hub")["results"]
    spaces = {row["space"] for row in found}
    curves = {}
    for name in dict.fromkeys(row["strategy"] for row in found):
        own = [row["standing"] for row in found if row["strategy"] == name]
        if len(own) == len(spaces):
            curves[name] = [sum(column) / len(own) for column in zip(*own, strict=True)]
    first = sorted(curves, key=lambda name: -sum(curves[name]))[:6]
    axes = axes_of(7, 3.4)
    for name in dict.fromkeys([*first, "climb", "random"]):
        if name in curves:
            line = curves[name]
            share = [100 * at / (len(line) - 1) for at in range(len(line))]
            label = name.replace("kernel_tuner", "Kernel Tuner:")
            axes.plot(share, line, lw=2.2 if name == "learned" else 1.2, label=label)
    axes.set_ylim(-0.5, 1.02)
    axes.set_xlabel("% of the budget")
    axes.set_ylabel("0: random search, 1: the optimum")
    axes.legend(fontsize=7, frameon=False, loc="lower right")
    axes.set_title(f"Mean over {len(spaces)} public recorded spaces", fontsize=10)
    save("searches")


def draw_figures() -> None:
    """Draw all of them."""
    drawn = (sgemm_figure, mixes_figure, blocking_figure, ladder_figure, cpu_figure)
    for draw in (*drawn, transfer_figure, host_figure, searches_figure):
        draw()
