r"""What compiler and cycle model make of the stencil on matrix units for doubles; no GPU needed.

    python benchmarks/mma_model.py [--seconds 600] [--json FILE]      compile, then draw
    python benchmarks/mma_model.py --draw                             draw only

Compiles what tuning tries first for sm_90a, writes registers, spilled words and the model's share
of the matrix units' time to benchmarks/results/sm_90a/mma_f64.json after each kernel, and puts the
table between the ``model`` marks of docs/dgemm.md.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from draw_pages import page_with
from hopper.cases import variant_of
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import nvrtc_version
from tilewright.backend.cuda.inspection import inspect_config
from tilewright.paths import write_atomically
from tilewright.stencil.mma_f64 import MmaF64

ROOT = Path(__file__).parents[1]
WRITTEN = ROOT / "benchmarks" / "results" / "sm_90a" / "mma_f64.json"
PAGE = ROOT / "docs" / "dgemm.md"
ARCH, FAMILY = "sm_90a", MmaF64()
CASES = {"d": ("NN", "NT", "TN", "TT"), "z": ("NN", "TT", "NC", "CN")}


def told(letter, trans, config):
    """Return a row: what the machine code of a config says."""
    made = inspect_config(config, stencil=FAMILY.name, precision=letter, trans=trans, arch=ARCH)
    kernel = made.kernel
    used, cycles = kernel.resources, kernel.cycles
    return {
        "precision": letter,
        "trans": trans,
        "config": dict(config),
        "registers": used.registers,
        "spilled": used.local_loads + used.local_stores,
        "blocks": kernel.occupancy.blocks,
        "share": round(cycles.pipe_share, 4),
        "bound_by": cycles.bound_by,
        "cycles": {name: round(value, 1) for name, value in cycles.terms.items()},
        "loop": dict(kernel.loop.names()),
    }


def jobs():
    """Yield precision, case and config: the first of every case, then the second."""
    device = architecture_spec(ARCH)
    for number in range(8):
        for letter, cases in CASES.items():
            for trans in cases:
                of = variant_of(letter, trans)
                starts = [c for c in FAMILY.starts(of, device) if c in FAMILY.space(of, device)]
                if number < len(starts) and starts[number].integer("mma_m") == 16:
                    yield letter, trans, starts[number]


def table(document, letter):
    """Return one precision's rows as Markdown: a line a config, a column a case."""
    cases = CASES[letter]
    rows = [row for row in document["rows"] if row["precision"] == letter]
    head = (f"{letter}: block, warp, resident", "steps x stages, instruction",
            "ahead, turns, split_k", *cases)  # fmt: skip
    lines = [f"| {' | '.join(head)} |", "|---|---|---|" + "---:|" * len(cases)]
    for one in {json.dumps(row["config"], sort_keys=True): row["config"] for row in rows}.values():
        cells = []
        for trans in cases:
            found = [r for r in rows if r["trans"] == trans and r["config"] == one]
            cells.append(cell(found[0]) if found else "")
        lines.append(
            "| {block_m} x {block_n}, {warp_m} x {warp_n}, {resident} | {block_k} x {stages},"
            " {mma_k} | {ahead}, {turns}, {split_k} | ".format(**one)
            + " | ".join(cells)
            + " |"
        )
    return lines


def cell(row):
    spilled = f", {row['spilled']} spilled" if row["spilled"] else ""
    return f"{row['share']:.1%} ({row['registers']}{spilled})"


def page(document):
    """Return what stands between the marks."""
    lines = [f"{document['compiler']}, {document['arch']}: share (registers).", ""]
    return "\n".join([*lines, *table(document, "d"), "", *table(document, "z"), ""])


def draw(path):
    """Put the tables into the page."""
    drawn = page(json.loads(path.read_text()))
    write_atomically(PAGE, page_with(PAGE.read_text(), "model", drawn).encode())


def main():
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("--seconds", type=float, default=600)
    parse.add_argument("--json", type=Path, default=WRITTEN)
    parse.add_argument("--draw", action="store_true")
    given = parse.parse_args()
    until = time.monotonic() + given.seconds
    made = {"arch": ARCH, "compiler": f"NVRTC {nvrtc_version()}", "rows": []}
    for letter, trans, config in () if given.draw else jobs():
        if time.monotonic() > until:
            break
        made["rows"].append(told(letter, trans, config))
        write_atomically(given.json, (json.dumps(made, indent=1) + "\n").encode())
        print(f"{letter}{trans} {cell(made['rows'][-1])}", flush=True)
    draw(given.json)


if __name__ == "__main__":
    main()
