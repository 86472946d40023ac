"""``tilewright export``: kernels as cubins, fat binaries or a C library."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli.output import PRECISIONS, JsonOption, counted, emit_json, emit_lines, say

if TYPE_CHECKING:
    from tilewright.export import KernelSet

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
            help="CUDA device here, key of one that was tuned here, or an architecture such as "
            "sm_90a, which needs no GPU; the best device by default.",
        ),
    ] = None,
    precision: Annotated[
        str, typer.Option("--precision", help=f"With commas: {PRECISIONS}; all: s, d, c and z.")
    ] = "all",
    trans: Annotated[str, typer.Option("--trans", help="NN,NT,TN,TT or all.")] = "all",
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            help="cubin, fatbin, or c of s, d, c and z alone; repeatable; all by default.",
        ),
    ] = None,
    defaults: Annotated[
        bool, typer.Option("--defaults", help="Leave kernels that were tuned here aside.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Write the kernels that gemm() would use on a device, for programs without Python."""
    from tilewright.export import check, collect, find_target, formats_of, variants_of, write

    wanted = variants_of(precision, trans)
    chosen = formats_of(wanted, formats)
    check(output, chosen)
    target = find_target(device, defaults=defaults)
    with counted(f"kernels for {target.arch}", quiet=json) as observer:
        kernels = collect(target, wanted, observer=observer)
    manifest = write(kernels, output, chosen)
    if json:
        emit_json({
            "manifest": str(manifest), "architecture": target.arch, "device": target.name,
            "kernels": list(kernels.kernels), "codes": len(kernels.codes),
            "variants": {str(variant): len(rows.every) for variant, rows in kernels.rows.items()},
        })  # fmt: skip
        return
    _show(kernels)
    say(f"{len(kernels.kernels)} kernels for {kernels.target.arch} written; see {manifest}")


def _show(kernels: KernelSet) -> None:
    """Print a row for each variant."""
    lines = []
    for variant, rows in kernels.rows.items():
        names = dict.fromkeys(name for one in rows.every for name in one.codes.values())
        size = sum(len(kernels.codes[name].cubin) for name in names)
        yours = sum(one.own and one.device is not None for one in rows.kernels)
        lines.append((variant, len(rows.every), yours, len(names), f"{size:,}"))
    heads = ("variant", "kernels", "yours", "launch modes", "bytes")
    emit_lines(heads, lines, title=kernels.target.name, title_justify="left")
