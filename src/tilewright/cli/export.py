"""``tilewright export``: tuned kernels as cubins, fat binaries or a C library."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli.output import JsonOption, emit_json, emit_table, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilewright.export import KernelSet, Target
    from tilewright.stencil import Variant

__all__ = ["command"]


def command(
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="A new directory, or that of an earlier export."),
    ],
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            help="CUDA device here, fingerprint of one measured before, or an architecture such "
            "as sm_90a, which needs no GPU; the best device by default.",
        ),
    ] = None,
    precision: Annotated[str, typer.Option("--precision", help="s,d,c,z or all.")] = "all",
    trans: Annotated[str, typer.Option("--trans", help="NN,NT,TN,TT or all.")] = "all",
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", help="cubin, fatbin or c; repeatable; all by default."),
    ] = None,
    defaults: Annotated[
        bool, typer.Option("--defaults", help="Take default kernels, whatever was tuned.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Write the kernels that gemm() would use on a device, for programs without Python."""
    from tilewright.export import FORMATS, check, find_target, variants_of, write

    chosen = formats or FORMATS
    check(output, chosen)
    wanted = variants_of(precision, trans)
    kernels = _collect(find_target(device, defaults=defaults), wanted, quiet=json)
    manifest = write(kernels, output, chosen)
    if json:
        emit_json(_to_json(kernels, manifest))
        return
    _show(kernels)
    say(f"{len(kernels.kernels)} kernels for {kernels.target.arch} written; see {manifest}")


def _collect(target: Target, variants: Sequence[Variant], *, quiet: bool) -> KernelSet:
    """Choose and compile behind a progress bar."""
    from rich.console import Console
    from rich.progress import Progress

    from tilewright.export import collect

    console = Console(stderr=True, quiet=quiet)
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(f"compiling for {target.arch}", total=None)
        return collect(
            target,
            variants,
            observer=lambda done, of: bar.update(task, completed=done, total=of),
        )


def _to_json(kernels: KernelSet, manifest: Path) -> dict[str, object]:
    return {
        "manifest": str(manifest),
        "architecture": kernels.target.arch,
        "device": kernels.target.name,
        "kernels": list(kernels.kernels),
        "tuned": {str(v): any(row.m for row in rows) for v, rows in kernels.choices.items()},
    }


def _show(kernels: KernelSet) -> None:
    """Print a row for each kernel, with the sizes that it serves."""
    from rich.table import Table

    title = f"{kernels.target.name}, {kernels.compiler}"
    table = Table("kernel", "stencil", "nearest to", "bytes", title=title, title_justify="left")
    for name, kernel in kernels.kernels.items():
        rows = [row for row in kernels.choices[kernel.variant] if row.kernel == name]
        sizes = ", ".join(f"{row.m}x{row.n}x{row.k}" for row in rows if row.m)
        table.add_row(name, kernel.config.stencil, sizes or "(default)", f"{len(kernel.cubin):,}")
    emit_table(table)
