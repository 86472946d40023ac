"""Draw every figure and table of the README and the documentation from committed results.

    python benchmarks/draw.py

Reads benchmarks/results; writes docs/figures/*.svg, and in README.md and docs what stands between
``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``.  Nothing there is typed by hand.  Figures need
matplotlib: pip install -e '.[figures]'.
"""

from __future__ import annotations

from collections.abc import Callable

import of_tilings
from committed import ROOT
from figures import draw_figures
from of_accuracy import (
    ON_DEVICE,
    ON_MODEL,
    double_double,
    double_double_calls,
    double_double_errors,
    fp32_accuracy,
    fp32_promise,
    fp64_accuracy,
    fp64_options,
)
from of_calls import (
    batches,
    blas_calls,
    blas_testers,
    c_calls,
    calls,
    cliffs,
    contractions,
    flat,
    fp8,
    groups_of_products,
    host_cost,
    long_sums,
    other_model,
    preloaded,
    products_of_torch,
    public_calls,
    readme,
    regret,
    squares,
    strided_batches,
    sustained_calls,
    training,
    tuned,
    unaligned_batches,
    updates,
)
from of_host import (
    devices,
    host_calls,
    large_matrices,
    linear_systems,
    lu,
    opencl_calls,
    transfers,
)
from of_kernels import (
    cycle_model,
    first_calls,
    ladder,
    portfolio_loss,
    profile,
    rescheduling,
    ships,
)
from of_microbenchmarks import micro_copies, micro_memory, micro_mixes, micro_power, micro_rates
from of_searches import adopted, gemm_spaces, h100_spaces, pruning, scaling, scores, shortlist

PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"results": readme, "calls": public_calls},
    "docs/hopper.md": {"squares": lambda: squares("s"), "complex": lambda: squares("c")},
    "docs/dgemm.md": {"squares": lambda: squares("d"), "complex": lambda: squares("z")},
    "docs/portfolio.md": {"ships": ships, "other": other_model, "first": first_calls},
    "docs/serving.md": {
        "host": host_cost, "host-calls": host_calls, "opencl-calls": opencl_calls,
        "linear-systems": linear_systems, "lu": lu, "transfers": transfers,
        "large-matrices": large_matrices,
        "devices": devices, "syrk": updates, "grouped": groups_of_products,
        "batched": strided_batches, "unaligned-batches": unaligned_batches,
        "matmul": products_of_torch,
    },
    "docs/export.md": {
        "calls": c_calls, "preloaded": preloaded, "blas": blas_calls, "testers": blas_testers,
    },
    "docs/search.md": {
        "scores": scores, "gemm": gemm_spaces, "h100": h100_spaces, "pruning": pruning,
        "course": of_tilings.course, "funnel": of_tilings.funnel, "tilings": of_tilings.best,
    },
    "docs/how-to/pytorch.md": {"training": training, "contractions": contractions},
    "docs/how-to/tune-a-device.md": {
        "shortlist": shortlist, "adopted": adopted, "scaling": scaling,
    },
    "docs/random_shapes.md": {
        "loss": portfolio_loss, "regret": regret, "tuned": tuned, "calls": calls,
        "long": long_sums, "multiples": cliffs, "flat": flat,
    },
    "docs/scheduling.md": {"saved": rescheduling, "model": cycle_model},
    "docs/tensor_cores.md": {
        "squares": lambda: squares("bf16"), "fp16": lambda: squares("fp16"), "fp8": fp8,
        "tf32": lambda: squares("tf32"), "int8": lambda: squares("int8"),
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
