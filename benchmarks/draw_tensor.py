"""Draw what an H100 said of matrix units: docs/tensor_cores.md, fp32_accurate.md, tensor_bounds.md.

    python benchmarks/draw_tensor.py

Reads benchmarks/results/h100/tensor.json (races, errors), fp32_accurate.json (passes, chains),
fp32_accuracy.json (errors of every kind of data, the model beside the device) and
wgmma_first_light.json; writes what stands between the marks of each page.  Nothing there is
typed by hand; a test compares.
"""

from __future__ import annotations

import functools
import statistics
from collections import defaultdict

import draw_pages
from draw_pages import about, power, table

TRANS = ("NN", "NT", "TN", "TT")
SIZES = (1024, 2048, 4096, 8192, 16384)
PLAIN, PARTS_OF_SINGLE = ("bf16", "f16", "tf32"), ("fp16x3", "bf16x6")
CHAINS = ("fp16x3", "guarded", "bf16x6")
# Names of the benchmark where they are not those of the documentation.
TOLD = {"f16": "fp16", "guarded": "`fp32`, guarded", "fp32": "`fp32`, guarded"}


@functools.cache
def load(name):
    return draw_pages.load(name)


def log(kind):
    return [row for row in load("tensor.json")["log"] if row["kind"] == kind]


def races():
    """Return the races: arithmetic, transposes and size to the row."""
    return {(*row["case"].split(), row["size"]): row for row in log("race")}


def session():
    document = load("tensor.json")
    return f"{about(document, document['device'])}, cuBLAS {document['device']['peers']['cublas']}"


def median(row, name):
    """Return microseconds."""
    return statistics.median(row["ns"][name]) / 1e3


def told(name):
    return TOLD.get(name, name)


# ---- Races ---------------------------------------------------------------------------------


def cell(row, ours):
    """Return TFLOP/s of ours and of cuBLAS and their ratio, bold where the bar is met."""
    rates = row["tflops"]
    ratio = rates[ours] / rates["cublas"]
    said = f"**{ratio:.3f}**" if is_met(row, ours) else f"{ratio:.3f}"
    return f"{rates[ours]:.0f} / {rates['cublas']:.0f}: {said}"


def is_met(row, ours="tilewright"):
    if row["wanted"] is None:
        return False
    return row["tflops"][ours] / row["tflops"]["cublas"] >= row["wanted"]


# Names of our times in a race of a chain: without the guard and with it.
OURS = ("tilewright", "guarded")


def of_race(name):
    """Return the raced arithmetic and the name of the times: the guarded call ran beside."""
    return ("fp16x3", "guarded") if name == "guarded" else (name, "tilewright")


def race_table(names):
    found, rows = races(), []
    for name in names:
        arithmetic, ours = of_race(name)
        for size in SIZES:
            row = [found.get((arithmetic, trans, size)) for trans in TRANS]
            if not any(row):
                continue
            wanted = [one["wanted"] for one in row]
            bars = "-" if wanted[0] is None else " / ".join(map(str, dict.fromkeys(wanted)))
            rows.append([told(name), str(size), *(cell(one, ours) for one in row), bars])
    return table(["arithmetic", "size", *TRANS, "wanted"], rows)


def reached(names):
    """Return how many bars are met, arithmetic by arithmetic."""
    parts = []
    for name in names:
        arithmetic, ours = of_race(name)
        rows = [row for key, row in races().items() if key[0] == arithmetic and row["wanted"]]
        parts.append(f"{told(name)} {sum(is_met(row, ours) for row in rows)} of {len(rows)}")
    return "Bars met: " + ", ".join(parts) + "."


def plain_races():
    return f"{session()}. {reached(PLAIN)}\n\n{race_table(PLAIN)}"


def parts_races():
    return f"{session()}. {reached(CHAINS)}\n\n{race_table(CHAINS)}"


def chain_costs():
    """Return what of a chain is passes and what is product, and what the guard adds."""
    rows = []
    for size in SIZES:
        of = [races()["fp16x3", trans, size] for trans in TRANS]
        names = ("split", "product", "tilewright", "guarded", "cublas")
        times = {name: statistics.median(median(row, name) for row in of) for name in names}
        rates = [row["tflops"]["product"] for row in of]
        rows.append(
            [str(size), *(f"{times[name]:,.1f}" for name in names), f"{min(rates):.0f}-"
             f"{max(rates):.0f}"]
        )  # fmt: skip
    head = ["size", "passes", "product", "both", "with the guard", "cuBLAS SGEMM",
            "product, TFLOP/s"]  # fmt: skip
    return f"Microseconds of `fp16x3`, medians over NN, NT, TN and TT:\n\n{table(head, rows)}"


def turning():
    """Return what it costs TF32 that its operands have to run along k."""
    rows = []
    for size in SIZES:
        for trans, operands in (("NN", 1), ("TT", 1), ("NT", 2)):
            row = races()["tf32", trans, size]
            names = ("split", "product", "tilewright", "cublas")
            copy, product, both, theirs = (median(row, name) for name in names)
            rate = operands * 2 * 4 * size**2 / copy / 1e6  # read and written
            times = (f"{time:,.1f}" for time in (product, both, theirs))
            turned = f"{copy:,.1f} ({rate:.2f} TB/s)"
            alone = f"{theirs / product:.2f}"
            rows.append([f"{size} {trans}", str(operands), turned, *times, alone])
    head = ["us", "operands turned", "turning", "product", "both", "cuBLAS"]
    return table([*head, "cuBLAS / product alone"], rows)


def clocks():
    """Return clock and power beside the races."""
    rows = []
    for name in (*PLAIN, *PARTS_OF_SINGLE):
        for size in SIZES:
            of = [races()[key] for key in races() if key[0] == name and key[2] == size]
            if not of:
                continue
            mhz = [row["clock_hz"] / 1e6 for row in of]
            capped = sum("power" in row["throttle_reasons"] for row in of)
            rows.append(
                [told(name), str(size), f"{min(mhz):.0f}-{max(mhz):.0f}",
                 f"{max(row['power_w'] for row in of):.0f}", f"{capped} of {len(of)}"]
            )  # fmt: skip
    return table(["arithmetic", "size", "clock, MHz", "highest power, W", "power cap"], rows)


# ---- Errors --------------------------------------------------------------------------------


def pair(error):
    return f"{error['eta']:.1e}, {error['median_relative']:.1e}"


def large_errors():
    """Return eta and median relative error at 4096, beside cuBLAS's."""
    names = ("sgemm", "fp16x3", "tf32x3", "bf16x6", "bf16x9", "guarded")
    rows = []
    for one in log("accuracy"):
        cells = [pair(one["errors"][name]) for name in names]
        rows.append([one["data"], *cells, f"`{one['guard']['variant']}`"])
    sample = " x ".join(map(str, log("accuracy")[0]["sample"]))
    text = f"{session()}; 4096 x 4096 x 4096, TN, {sample} results compared with double precision:"
    head = ["eta, median relative error", "cuBLAS SGEMM", *names[1:-1], told("guarded"), "route"]
    return f"{text}\n\n{table(head, rows)}"


def format_errors():
    """Return errors of the plain formats beside cuBLAS's."""
    rows = []
    for one in log("accuracy"):
        cells = []
        for name in PLAIN:
            cells += [pair(one["errors"][name]), pair(one["errors"][f"cublas {name}"])]
        rows.append([one["data"], *cells])
    head = ["eta, median relative error"]
    for name in PLAIN:
        head += [told(name), f"cuBLAS {told(name)}"]
    return table(head, rows)


def device_errors():
    """Return errors on every kind of data, small results of long sums among them."""
    document = load("fp32_accuracy.json")
    names = ("plain sum", "ieee", "fp16x3", "tf32x3", "bf16x6", "bf16x9", "fp32")
    rows = []
    for one in document["accuracy"]:
        found = one["errors"]
        cells = [f"{power(found[x]['eta'])}, {power(found[x]['median'])}" for x in names]
        rows.append([one["data"], str(one["k"]), *cells, f"`{one['guard']['variant']}`"])
    side = document["side"]
    head = ["eta, median relative error", "k", "plain sum", "Tilewright's SGEMM", *names[2:-1],
            told("fp32"), "route"]  # fmt: skip
    where = about(document, document["device"])
    return f"{where}; {side} x {side} results:\n\n{table(head, rows)}"


def model():
    """Return how many results of the device are the model's bit for bit."""
    rows = defaultdict(dict)
    for one in load("fp32_accuracy.json")["model"]:
        rows[one["scheme"]][one["extra_bits"]] = f"{100 * one['equal'] / one['of']:.0f} %"
    bits = range(5)
    lines = [[f"`{name}`", *(row[n] for n in bits)] for name, row in rows.items()]
    return table(["results equal to the model's bit for bit", *(f"N = {n}" for n in bits)], lines)


# ---- Passes, first light -------------------------------------------------------------------


def passes():
    """Return microseconds and TB/s of every pass, NN, and what whole chains take."""
    document = load("fp32_accurate.json")
    steps = [("fp32", "largest"), ("fp32", "split and decide"), ("bf16x6", "split"),
             ("tf32x3", "split"), ("tf32", "copy"), ("fp32", "fp16 product"),
             ("fp32", "bf16 split"), ("fp32", "bf16 product"), ("fp32", "ieee")]  # fmt: skip
    found = {(r["n"], r["arithmetic"], r["pass"]): r for r in document["passes"]
             if r["trans"] == "NN"}  # fmt: skip
    sizes = sorted({row["n"] for row in document["passes"]})
    rows = []
    for arithmetic, name in steps:
        cells = []
        for n in sizes:
            row = found[n, arithmetic, name]
            rate = row["bytes_per_second"]
            cells.append(f"{row['ns'] / 1e3:,.1f}" + (f" ({rate / 1e12:.2f} TB/s)" if rate else ""))
        rows.append([f"`{arithmetic}`: {name}", *cells])
    chains = {row["n"]: row for row in document["chains"]}
    rows.append(["`fp32`, all six, one after the other",
                 *(f"{chains[n]['ns'] / 1e3:,.1f}" for n in sizes)])  # fmt: skip
    rows.append(["the host, to enqueue them",
                 *(f"{chains[n]['host_ns'] / 1e3:,.1f}" for n in sizes)])  # fmt: skip
    head = ["NN, us", *map(str, sizes)]
    return f"{about(document, document['device'])}:\n\n{table(head, rows)}"


def calls():
    """Return what a caller of CuPy arrays waits for."""
    document = load("fp32_accurate.json")
    names = ("fp32", "fp16x3", "bf16x6", "tf32x3", "ieee", "cublas")
    rows = [
        [f"{row['n']} {row['trans']}", *(f"{row['seconds'][name] * 1e6:,.0f}" for name in names)]
        for row in sorted(document["calls"], key=lambda row: (row["n"], row["trans"]))
    ]
    return table(["whole calls, us", *(f"`{name}`" for name in names[:-1]), "cuBLAS"], rows)


def first_light():
    """Return how many starts ran, in each arithmetic, and the fastest."""
    groups = defaultdict(list)
    for row in load("wgmma_first_light.json"):
        groups[row["job"][0]].append(row)
    rows = [
        [told({"s8": "int8"}.get(name, name)), str(len(some)),
         str(sum(row["status"] == "ok" for row in some)),
         f"{max(row['tflops'] for row in some):.0f}"]
        for name, some in groups.items()
    ]  # fmt: skip
    return table(["arithmetic", "starts and orders", "right, bit for bit",
                  "fastest at 4096, TFLOP/s"], rows)  # fmt: skip


def bounds():
    """Return the bound, and the share of it that was reached."""
    rows = []
    for name in (*PLAIN, *PARTS_OF_SINGLE):
        for size in SIZES:
            of = [row for key, row in races().items() if key[0] == name and key[2] == size]
            if not of:
                continue
            best = max(of, key=lambda row: row["tflops"]["tilewright"])
            limit = best["bound"]["flops_per_second"] / 1e12
            shares = [row["tflops"]["tilewright"] * 1e12 / row["bound"]["flops_per_second"]
                      for row in of]  # fmt: skip
            rows.append([told(name), str(size), f"{limit:.0f}", best["bound"]["limiting"],
                         f"{best['tflops']['tilewright']:.0f}",
                         f"{100 * min(shares):.0f}-{100 * max(shares):.0f} %"])  # fmt: skip
    head = ["arithmetic", "size", "bound, TFLOP/s", "by", "best of four", "of the bound"]
    return f"{session()}:\n\n{table(head, rows)}"


# What is drawn, by page and mark.
PARTS = {
    "tensor_cores.md": {
        "first light": first_light,
        "races": plain_races,
        "turning": turning,
        "clocks": clocks,
        "formats": format_errors,
    },
    "fp32_accurate.md": {
        "races": parts_races,
        "costs": chain_costs,
        "passes": passes,
        "calls": calls,
        "large errors": large_errors,
        "device errors": device_errors,
        "model": model,
    },
    "tensor_bounds.md": {"reached": bounds},
}


def main():
    draw_pages.write_pages(PARTS)


if __name__ == "__main__":
    main()
