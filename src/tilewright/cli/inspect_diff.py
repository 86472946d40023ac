"""``tilewright inspect --diff``: what differs between two versions of a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.cli.output import emit_json, emit_lines, say

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
    if listing:
        for address, was, now in found.lines:
            say(f"{address:#07x}  {was:<44}  {now}")
    name = found.before.resources.name
    lines: list[tuple[str, ...]] = []
    old, new = found.before.cycles, found.after.cycles
    if old is not None and new is not None:
        lines.append(("cycles a trip over k", f"{old.cycles:.0f}", f"{new.cycles:.0f}"))
        for term in old.terms:
            lines.append((f"  {term}", f"{old.terms[term]:.0f}", f"{new.terms.get(term, 0):.0f}"))
        shares = (f"{100 * one.pipe_share:.1f} %" for one in (old, new))
        lines.append(("multiply-adds' pipe busy", *shares))
    lines += [(kind, "", f"{count} changed") for kind, count in found.changes.items()]
    emit_lines(("what", "before", "after"), lines, title=name, title_justify="left")
    proof = f"not proved: {found.reasons[0]}" if found.reasons else "proved to compute the same"
    say(f"{name}: {proof}; cycles are {_PREDICTED}")
