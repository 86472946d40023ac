"""``tilewright bound``: how fast a problem can be on a device, and which resource says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli.output import (
    ArithmeticOption,
    JsonOption,
    SizeOption,
    TransOption,
    arithmetic_name,
    emit_json,
    parse_size,
    parse_trans,
    say,
)

if TYPE_CHECKING:
    from tilewright.hardware.catalogue import CatalogueDevice

__all__ = ["command"]


def command(
    precision: Annotated[
        str, typer.Option("--precision", help="s, d, c, z; double-double e, f, complex w, v.")
    ] = "s",
    trans: TransOption = "NN",
    size: SizeOption = "4096",
    device: Annotated[
        str | None,
        typer.Option(
            "--device", help="Of the catalogue, such as gtx580; a live one's id; a .toml file."
        ),
    ] = None,
    arithmetic: ArithmeticOption = "ieee",
    accuracy: Annotated[
        str | None,
        typer.Option(
            "--accuracy", help="ieee, tf32 or fp32: the fastest arithmetic that meets it."
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
    link: Annotated[
        str | None, typer.Option("--link", help="GB/s to the host; several with commas in figures.")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", help="A kernel's GFLOP/s, for --transfer in place of the bound."),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option("--figure", help="Draw an SVG file; with --transfer, rate against size."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show every limit of a problem on a device; the smallest is the bound."""
    from tilewright.problem import Problem
    from tilewright.serve.bound import bound
    from tilewright.serve.find import device as find_device
    from tilewright.serve.find import numbers_of

    m, n, k = parse_size(size)
    problem = Problem(m, n, k, precision, *parse_trans(trans))  # type: ignore[arg-type]
    links = _links(link)
    if rate is not None and not rate > 0:
        raise ValueError(f"rate={rate:g} is no rate; give GFLOP/s above 0")
    if rate is not None and not transfer:
        raise ValueError(f"rate={rate:g} means nothing without transfer; leave it out")
    numbers = _with_link(numbers_of(find_device(device)), links)
    found = bound(
        problem,
        numbers,
        arithmetic=arithmetic_name(arithmetic),
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
    if figure is not None:
        from tilewright.cli import bound_figure

        if transfer:
            kernel = found.term("host transfer (Nakasato eqs. 3-5)")
            speed = next(q.value for q in kernel.inputs if q.name == "F")
            if not links and numbers.value("link_bytes_per_s") is None:
                raise ValueError("link is not known of this device; give --link GB/s")
            links = links or [numbers.needs("link_bytes_per_s")]
            bound_figure.draw_transfer(figure, problem.precision, links, speed)
        else:
            bound_figure.draw_device(figure, numbers, problem.precision)
    if json:
        emit_json(found.as_dict())
        return
    say(found.explain())
    if figure is not None:
        say(f"written to {figure}")


def _links(text: str | None) -> list[float]:
    """Return the speeds of ``3,10`` in bytes a second."""
    try:
        found = [float(part) * 1e9 for part in text.split(",")] if text else []
    except ValueError:
        found = [0.0]
    if not all(speed > 0 for speed in found):
        raise ValueError(f"link={text!r} is not a speed; give GB/s, such as 3 or 3,10")
    return found


def _with_link(numbers: CatalogueDevice, links: list[float]) -> CatalogueDevice:
    """Return the device with the first given link in place of its own."""
    from tilewright.hardware.quantity import Quantity

    if not links:
        return numbers
    own = Quantity("link_bytes_per_s", links[0], "B/s", "given as --link")
    return replace(numbers, quantities={**numbers.quantities, own.name: own})
