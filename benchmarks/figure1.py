"""Draw Lai & Seznec's Figure 1 from compiled kernels: the share of FFMA in the main loop.

    python benchmarks/figure1.py

For register blockings 1 to 16 and shared loads of 32, 64 and 128 bits, kernels/register_blocking.cu
is compiled for sm_90a (no GPU needed), its machine code is decoded and the main loop counted.
Writes benchmarks/results/sm_90a/figure1.json and docs/figures/figure1.svg.  Needs NVRTC and
matplotlib: pip install -e '.[cuda,figures]'.
"""

from __future__ import annotations

import json
from pathlib import Path

from tilewright.backend.cuda.compiler import compile_cubin, nvrtc_version
from tilewright.sass import decode, ffma_share, main_loop, read_cubin
from tilewright.stencil import Source
from tilewright.version import VERSION

ROOT = Path(__file__).parents[1]
TEXT = Path(__file__).parent / "kernels" / "register_blocking.cu"
ARCH = "sm_90a"
BLOCKINGS = range(1, 17)
LOADS = (32, 64, 128)
STEPS = 8  # of k in a trip of the loop, as many as the portable stencil's default has


def point(blocking, bits):
    """Compile one kernel and count its main loop."""
    macros = {"RB": blocking, "LW": bits // 32, "BK": STEPS}
    cubin = compile_cubin(Source(TEXT.read_text(), macros, "multiply"), ARCH)
    (kernel,) = read_cubin(cubin.code).kernels
    loop = main_loop(decode(kernel.code, kernel.arch))
    names, mix = loop.names(), loop.mix()
    loads = mix.get("shared load", 0)
    return {
        "blocking": blocking,
        "load_bits": bits,
        "ffma": loop.useful,
        "shared_loads": loads,
        "wide_loads": names.get("LDS" if bits == 32 else f"LDS.{bits}", 0),
        "instructions": len(loop.instructions),
        "mix": mix,
        "registers": kernel.registers,
        "formula": ffma_share(blocking, bits),
        "share_of_ffma_and_loads": loop.useful / (loop.useful + loads),
        "share_of_all": loop.useful_share,
    }


def figure(points, path):
    """Draw the formula as lines, and compiled loops as points."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "tilewright"  # the same file from the same data
    from matplotlib import pyplot

    axes = pyplot.figure(figsize=(8, 3.6), layout="constrained").subplots()
    for bits, colour in zip(LOADS, ("C0", "C1", "C2"), strict=True):
        mine = [one for one in points if one["load_bits"] == bits]
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
    axes.set_xticks(list(BLOCKINGS))
    axes.set_xlabel("register blocking")
    axes.set_ylabel("FFMA, % of the main loop")
    axes.set_title(f"Lai & Seznec's Figure 1 from kernels compiled for {ARCH}", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="lower right")
    pyplot.savefig(path, metadata={"Date": None})


def main():
    points = [point(blocking, bits) for bits in LOADS for blocking in BLOCKINGS]
    document = {
        "arch": ARCH,
        "compiler": f"NVRTC {nvrtc_version()}",
        "tilewright": VERSION,
        "kernel": str(TEXT.relative_to(ROOT)),
        "steps_of_k_a_trip": STEPS,
        "points": points,
    }
    target = ROOT / "benchmarks" / "results" / ARCH / "figure1.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(document, indent=1) + "\n")
    figure(points, ROOT / "docs" / "figures" / "figure1.svg")
    for one in points:
        formula, pair, every = (
            100 * one[key] for key in ("formula", "share_of_ffma_and_loads", "share_of_all")
        )
        print(
            f"{one['load_bits']:4d} bits, blocking {one['blocking']:2d}: formula {formula:5.1f} %,"
            f" FFMA of FFMA and loads {pair:5.1f} %, of all {every:5.1f} %"
        )


if __name__ == "__main__":
    main()
