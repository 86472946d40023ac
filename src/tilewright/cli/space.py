"""``tilewright space``: what may be varied, and how each constraint narrows it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from tilewright.cli.output import (
    DeviceOption,
    JsonOption,
    PrecisionOption,
    StencilOption,
    TransOption,
    emit_json,
    emit_table,
    parse_trans,
)

if TYPE_CHECKING:
    from tilewright.space import Funnel, Space

__all__ = ["command", "show_funnel", "show_parameters"]


def command(
    precision: PrecisionOption = "s",
    trans: TransOption = "NN",
    device: DeviceOption = None,
    stencil: StencilOption = None,
    json: JsonOption = False,
) -> None:
    """Show a stencil's parameters and the funnel of its constraints."""
    from tilewright.backend import device as find_device
    from tilewright.problem import Problem
    from tilewright.stencil import Variant, stencils_for
    from tilewright.stencil import stencil as find_stencil

    trans_a, trans_b = parse_trans(trans)
    live = find_device(device)
    variant = Variant.of(Problem(1, 1, 1, precision, trans_a, trans_b))  # type: ignore[arg-type]
    fitting = stencils_for(live.spec, variant.precision)
    family = find_stencil(stencil) if stencil else fitting[0]
    space = family.space(variant, live.spec)
    funnel = space.funnel()
    if json:
        emit_json(
            {
                "stencil": family.name,
                "device": live.id,
                "raw_size": funnel.raw_size,
                "parameters": [asdict(p) for p in space.parameters],
                "funnel": [asdict(stage) for stage in funnel],
            }
        )
        return
    show_parameters(space)
    show_funnel(funnel)


def show_parameters(space: Space) -> None:
    """Print what may be varied."""
    from rich.table import Table

    table = Table("parameter", "values", "meaning", "what more of it costs", title="Parameters")
    for p in space.parameters:
        table.add_row(p.name, " ".join(map(str, p.values)), p.meaning, p.cost)
    emit_table(table)


def show_funnel(funnel: Funnel) -> None:
    """Print how many points survive each constraint (Kurzak et al., Figure 2)."""
    from rich.table import Table

    table = Table(title="Funnel")
    table.add_column("constraint")
    table.add_column("kind")
    table.add_column("points left", justify="right")
    table.add_column("of those before", justify="right")
    table.add_column("why")
    table.add_row("every combination", "", f"{funnel.raw_size:,}", "", "")
    for stage in funnel:
        before = stage.survivors + stage.removed
        share = f"{100 * stage.survivors / before:.1f} %" if before else ""
        table.add_row(stage.name, stage.kind, f"{stage.survivors:,}", share, stage.reason)
    emit_table(table)
