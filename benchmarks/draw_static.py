r"""Draw what the cycle model says of candidates nobody has timed, from committed results.

    python benchmarks/draw_static.py

Reads benchmarks/results/sm_90a/hopper_s_static.json and hopper_c_static.json, which
`hopper_static.py` writes, and replaces the part of docs/hopper.md between its ``static`` marks.
A test compares it.
"""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "sm_90a"
PAGE = ROOT / "docs" / "hopper.md"
BEGIN, END = "<!-- static: begin -->", "<!-- static: end -->"
STAYING = ("persistent", "stream_k")
# Of the complex candidates the likeliest are shown.
BEST = 12


def rows(letter):
    """Return what was compiled of a precision, and by what."""
    document = json.loads((RESULTS / f"hopper_{letter}_static.json").read_text())
    return document["rows"], document["compiler"]


def share(value):
    return f"{100 * value:.1f} %" if value is not None else "?"


def shape(config):
    """Return a config's blocks in the words of the page."""
    order = f"{'rows' if config['walk'] % 2 else 'columns'}{', two at once' * (config['walk'] > 1)}"
    return (
        f"{config['block_m']} x {config['block_n']} x {config['block_k']} |"
        f" {config['tile_m']} x {config['tile_n']} | {config['unroll_k']} | {config['stages']} |"
        f" by {order}{', B first' * config['b_first']}, {config['copy_groups']} groups"
        f"{', vectors' * config['k_vectors']}"
    )


def cells(row):
    return [
        f"{row['registers']}",
        f"{row['spills']}",
        share(row["multiply_adds"]),
        share(row["predicted"]),
    ]


def staying_table():
    """Return configs whose blocks stay beside those that differ in nothing else."""
    found, compiler = rows("s")
    by = {}
    for row in found:
        values = {k: v for k, v in row["config"].items() if k not in STAYING}
        how = tuple(row["config"].get(name, 0) for name in STAYING)
        by.setdefault((row["trans"], json.dumps(values)), {})[how] = row
    lines = [
        f"| SGEMM, {compiler}: case | block | tile | steps | stages | order and copies |"
        " registers | spills | FMA in the loop | predicted |",
        "|---|---|---|---:|---:|---|---|---|---|---|",
    ]
    for (trans, values), hows in by.items():
        some = [hows[how] for how in ((0, 0), (1, 0), (1, 2)) if how in hows]
        if len(some) < 3:
            continue
        columns = zip(*map(cells, some), strict=True)
        lines.append(
            f"| {trans} | {shape(json.loads(values))} | "
            + " | ".join(", ".join(column) for column in columns)
            + " |"
        )
    return lines


def complex_table():
    """Return the complex candidates of which most is expected."""
    found, compiler = rows("c")
    whole = [row for row in found if row["config"].get("split_k", 1) == 1 and not row["spills"]]
    whole.sort(key=lambda row: -(row["predicted"] or 0))
    lines = [
        f"| CGEMM, {compiler}: case | block | tile | steps | stages | order and copies |"
        " blocks stay | registers | spills | FMA in the loop | predicted |",
        "|---|---|---|---:|---:|---|---|---:|---:|---:|---:|",
    ]
    for row in whole[:BEST]:
        stays = row["config"].get("persistent", 0) + row["config"].get("stream_k", 0)
        how = ("no", "yes", "share one wave", "share two waves")[stays]
        lines.append(
            f"| {row['trans']} | {shape(row['config'])} | {how} | " + " | ".join(cells(row)) + " |"
        )
    spilt = sum(1 for row in found if row["spills"])
    return [*lines, "", f"Of {len(found)} candidates compiled, {spilt} spill."]


def text():
    """Return everything between the marks."""
    head = (
        "Each of the last four columns of the first table: a block for each tile; blocks that stay;"
        " blocks that share two waves."
    )
    return "\n\n".join(("\n".join(staying_table()), head, "\n".join(complex_table())))


def page_with(page, results):
    """Return the page with its part replaced."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{results}\n{END}{rest.split(END)[1]}"


def main():
    PAGE.write_text(page_with(PAGE.read_text(), text()))
    print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main()
