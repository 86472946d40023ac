"""``tilewright bound``: how fast a problem can be on a device, and which resource says so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli.output import (
    JsonOption,
    PrecisionOption,
    SizeOption,
    TransOption,
    emit_json,
    parse_size,
    say,
)

if TYPE_CHECKING:
    from tilewright.hardware.catalogue import CatalogueDevice

__all__ = ["command"]


def command(
    precision: PrecisionOption = "s",
    trans: TransOption = "NN",
    size: SizeOption = "4096",
    batch: Annotated[
        int, typer.Option("--batch", min=1, help="How many such products, behind each other.")
    ] = 1,
    device: Annotated[
        str | None,
        typer.Option(
            "--device", help="Of the catalogue, such as gtx580; a live one's id; a .toml file."
        ),
    ] = None,
    arithmetic: Annotated[
        str,
        typer.Option(
            "--arithmetic",
            help="ieee; single precision from products of parts: fp16x3, tf32x3, bf16x6, bf16x9;"
            " double precision from residues: residues.",
        ),
    ] = "ieee",
    accuracy: Annotated[
        str | None,
        typer.Option(
            "--accuracy", help="ieee, tf32, fp32 or fp64: the fastest arithmetic that meets it."
        ),
    ] = None,
    promote_k: Annotated[
        int | None,
        typer.Option("--promote-k", help="Steps of k between sums leaving the tensor cores."),
    ] = None,
    presplit: Annotated[
        bool, typer.Option("--presplit", help="Operands are in parts already; nothing splits them.")
    ] = False,
    sequence: Annotated[
        str | None, typer.Option("--sequence", help="Double-double's instruction sequence.")
    ] = None,
    transfer: Annotated[
        bool, typer.Option("--transfer", help="Operands come from the host, C goes back.")
    ] = False,
    overlap: Annotated[
        bool, typer.Option("--overlap", help="Transfer hides behind the kernel.")
    ] = False,
    warm: Annotated[
        bool, typer.Option("--warm", help="The last cache may hold operands already.")
    ] = False,
    sustained: Annotated[
        bool, typer.Option("--sustained", help="In an endless run: at the clock that power leaves.")
    ] = False,
    link: Annotated[float | None, typer.Option("--link", help="GB/s to the host.")] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", help="A kernel's GFLOP/s, for --transfer in place of the bound."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show every limit of a problem on a device; the smallest is the bound."""
    from tilewright.problem import Problem, pair_of
    from tilewright.serve.bound import bound
    from tilewright.serve.find import device as find_device
    from tilewright.serve.find import numbers_of

    m, n, k = parse_size(size)
    ops = pair_of(trans)
    problem = Problem(m, n, k, precision, *ops, batch=batch)  # type: ignore[arg-type]
    if link is not None and not link > 0:
        raise ValueError(f"link={link:g} is not a speed; give GB/s, such as 3")
    if rate is not None and not rate > 0:
        raise ValueError(f"rate={rate:g} is no rate; give GFLOP/s above 0")
    if rate is not None and not transfer:
        raise ValueError(f"rate={rate:g} means nothing without transfer; leave it out")
    numbers = _with_link(numbers_of(find_device(device)), link)
    found = bound(
        problem,
        numbers,
        arithmetic=arithmetic,
        accuracy=accuracy,
        promote_k=promote_k,
        presplit=presplit,
        sequence=sequence,
        transfer=transfer,
        overlap=overlap,
        warm_cache=warm,
        sustained=sustained,
        kernel_rate=None if rate is None else rate * 1e9,
    )
    if json:
        emit_json(found.as_dict())
        return
    say(found.explain())


def _with_link(numbers: CatalogueDevice, link: float | None) -> CatalogueDevice:
    """Return the device with a given link, in GB/s, in place of its own."""
    from tilewright.hardware.quantity import Quantity

    if link is None:
        return numbers
    own = Quantity("link_bytes_per_s", link * 1e9, "B/s", "given as --link")
    return replace(numbers, quantities={**numbers.quantities, own.name: own})
