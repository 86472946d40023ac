"""What each class of instructions in SGEMM's loop costs, as a table for docs/hopper.md.

Reads benchmarks/results/h100/ablation.json, which `ablation.py` writes; `draw_pages` puts it there.
"""

from __future__ import annotations

from draw_races import load, markdown

CASES = ("NN", "NT", "TN", "TT")
# Variants in the order of the table, and what the page calls them.
SHOWN = {
    "as compiled": "all of it",
    "no copies, no addresses": "copies and their addresses are NOPs",
    "the same, deleted": "the same, taken out",
    "no empty reads, deleted": "empty reads before copies, taken out",
    "no reads": "reads of shared memory are NOPs",
    "no barriers": "barriers and waits are NOPs",
    "no port conflicts": "factors that never meet at a port",
    "FFMA only": "all but FFMA are NOPs",
    "FFMA only, no port conflicts": "the same, factors that never meet",
    "FFMA only, deleted": "all but FFMA taken out",
    "FFMA only, deleted, no conflicts": "the same, factors that never meet",
}


def rows():
    """Yield the table's rows: the share of the FMA peak in the loop, by case, and what it won."""
    found = {
        (one["trans"], one["variant"]): one["found"]
        for one in load("h100/ablation.json")["log"]
        if one["kind"] == "tried" and not one["reason"]
    }
    for variant, name in SHOWN.items():
        cells = []
        for trans in CASES:
            one = found[trans, variant]
            share, plain = (one[which]["loop_share"] for which in ("patched", "plain"))
            cells += [f"{share:.1%}", f"{100 * (share - plain):+.1f}"]
        yield [name, *cells]


def ablation():
    """Return the table as text."""
    head = ["in the loop", *(text for trans in CASES for text in (trans, "won"))]
    return "\n".join(markdown(head, rows()))
