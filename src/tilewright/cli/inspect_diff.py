"""``tilewright inspect --diff``: what differs between two versions of a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.cli.output import emit_json, emit_table, say

if TYPE_CHECKING:
    from tilewright.reschedule.compare import Comparison

__all__ = ["diff", "show"]

_PREDICTED = "predicted by the cycle model, not measured on a device"


def diff(
    before: Path,
    after: Path,
    kernel: str | None,
    threads: int | None,
    shared: int,
    listing: bool,
    json: bool,
) -> None:
    """Print what differs between two cubins' versions of a kernel."""
    from tilewright.reschedule.compare import compare
    from tilewright.sass import read_cubin

    found = compare(
        read_cubin(before).kernel(kernel), read_cubin(after).kernel(kernel), threads, shared
    )
    if json:
        emit_json({"before": str(before), "after": str(after), **found.as_dict()})
        return
    show(found, listing)


def show(found: Comparison, listing: bool) -> None:
    """Print a comparison: lines, changes, cycles, and whether it is proved."""
    from rich.table import Table

    if listing:
        for address, was, now in found.lines:
            say(f"{address:#07x}  {was:<44}  {now}")
    name = found.before.resources.name
    table = Table("what", "before", "after", title=name, title_justify="left")
    old, new = found.before.cycles, found.after.cycles
    if old is not None and new is not None:
        table.add_row("cycles a trip over k", f"{old.cycles:.0f}", f"{new.cycles:.0f}")
        for term in old.terms:
            table.add_row(f"  {term}", f"{old.terms[term]:.0f}", f"{new.terms.get(term, 0):.0f}")
        table.add_row(
            "multiply-adds' pipe busy",
            f"{100 * old.pipe_share:.1f} %",
            f"{100 * new.pipe_share:.1f} %",
        )
    for kind, count in found.changes.items():
        table.add_row(kind, "", f"{count} changed")
    emit_table(table)
    proof = f"not proved: {found.reasons[0]}" if found.reasons else "proved to compute the same"
    say(f"{name}: {proof}; cycles are {_PREDICTED}")
