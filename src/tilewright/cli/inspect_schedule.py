"""``tilewright inspect --schedule`` and ``--diff``: what rescheduling changes and should gain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.cli.output import emit_json, emit_table, say

if TYPE_CHECKING:
    from tilewright.backend.cuda.inspection import ConfigInspection
    from tilewright.sass import Comparison

__all__ = ["diff", "rescheduled", "show"]

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
    from tilewright.sass import compare, read_cubin

    found = compare(
        read_cubin(before).kernel(kernel), read_cubin(after).kernel(kernel), threads, shared
    )
    if json:
        emit_json({"before": str(before), "after": str(after), **found.as_dict()})
        return
    show(found, listing)


def rescheduled(made: ConfigInspection, seed: int) -> tuple[bytes, Comparison]:
    """Return a config's cubin with its main loop rescheduled, and what that changed.

    Raises
    ------
    ValueError
        If there is no main loop, or the scheduler refuses the kernel.
    """
    from tilewright.sass import compare, decode, patch, read_cubin, schedule

    code, name = made.cubin.code, made.kernel.resources.name
    kernel = read_cubin(code).kernel(name)
    if made.kernel.loop is None:
        raise ValueError(f"{name} has no main loop; give a config whose kernel loops over k")
    instructions = decode(kernel.code, kernel.arch)
    found = schedule(instructions, made.kernel.loop, kernel.arch, seed=seed)
    patched = patch(code, found.instructions, name)
    return patched, compare(
        kernel,
        read_cubin(patched).kernel(name),
        made.kernel.threads,
        made.kernel.dynamic_shared_bytes,
    )


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
