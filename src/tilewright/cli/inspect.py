"""``tilewright inspect``: what the compiler made of a kernel, and what bounds its main loop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli.output import JsonOption, emit_json, emit_table, say

if TYPE_CHECKING:
    from tilewright.sass import Inspection

__all__ = ["command"]


def command(
    file: Annotated[Path, typer.Argument(help="A cubin for sm_70 or later.")],
    kernel: Annotated[
        str | None, typer.Option("--kernel", help="Kernel; every one in the file by default.")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option("--threads", help="Threads a block; what the source promised by default."),
    ] = None,
    shared: Annotated[
        int, typer.Option("--shared", help="Bytes of shared memory asked for at launch.")
    ] = 0,
    listing: Annotated[
        bool, typer.Option("--listing/--no-listing", help="Print the main loop line by line.")
    ] = True,
    json: JsonOption = False,
) -> None:
    """Show a kernel's resources, occupancy, main loop, registers and bounding resource."""
    from tilewright.sass import annotate, inspect_kernel, read_cubin

    cubin = read_cubin(file)
    chosen = [cubin.kernel(kernel)] if kernel else list(cubin.kernels)
    if not chosen:
        raise ValueError(f"{file} holds no kernel; give a cubin of a __global__ function")
    found = [inspect_kernel(k, threads, shared) for k in chosen]
    if json:
        emit_json({"file": str(file), "arch": cubin.arch, "kernels": [f.as_dict() for f in found]})
        return
    for one in found:
        _show(one)
        if listing and one.loop is not None and one.cycles is not None:
            say(annotate(one.loop, one.cycles))
        say(f"{one.resources.name}: {one.verdict}")


def _show(one: Inspection) -> None:
    """Print tables of resources, the loop's mix and its registers."""
    from rich.table import Table

    taken, fits = one.resources, one.occupancy
    table = Table("what", "value", title=f"{taken.name}, sm_{taken.arch}", title_justify="left")
    table.add_row("registers a thread", str(taken.registers))
    table.add_row("shared memory", f"{taken.shared_bytes} bytes, static")
    table.add_row("stack", f"{taken.stack_bytes} bytes")
    table.add_row(
        "local memory", f"{taken.local_loads} loads, {taken.local_stores} stores (spills)"
    )
    table.add_row("barriers", str(taken.barriers))
    table.add_row(
        "occupancy",
        f"{fits.blocks} blocks of {one.threads} threads, {fits.warps} of {fits.max_warps} warps, "
        f"limited by {fits.limited_by}",
    )
    table.add_row("instructions", f"{taken.instructions}, {one.unknown} of them not known here")
    if one.loop is not None and one.registers is not None and one.cycles is not None:
        mix = ", ".join(f"{count} {name}" for name, count in one.loop.mix().items())
        table.add_row("main loop", mix)
        table.add_row("multiply-adds", f"{100 * one.loop.useful_share:.1f} % of its instructions")
        roles = ", ".join(f"{count} {role}" for role, count in one.registers.most.items())
        table.add_row("registers in it", f"{roles}; {one.registers.peak_live} live at most")
        terms = ", ".join(f"{name} {value:.0f}" for name, value in one.cycles.terms.items())
        table.add_row("cycles an iteration", f"{terms} ({one.cycles.rule}; model)")
    emit_table(table)
