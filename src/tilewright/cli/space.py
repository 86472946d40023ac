"""``tilewright space``: what may be varied, and how each constraint narrows it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli.output import (
    ArithmeticOption,
    DeviceOption,
    JsonOption,
    PrecisionOption,
    StencilOption,
    TransOption,
    emit_json,
    emit_lines,
    parse_size,
    say,
)

if TYPE_CHECKING:
    from tilewright.hardware import DeviceSpec
    from tilewright.problem import Problem
    from tilewright.space import Funnel, Space
    from tilewright.stencil import Stencil, Variant

__all__ = ["command", "show_funnel", "show_parameters"]


def command(
    precision: PrecisionOption = "s",
    trans: TransOption = "NN",
    device: DeviceOption = None,
    stencil: StencilOption = None,
    arithmetic: ArithmeticOption = "ieee",
    arch: Annotated[
        str | None,
        typer.Option(
            "--arch",
            help="Architecture in place of a device; sm_90a for wgmma where the best device has"
            " no such tensor cores.",
        ),
    ] = None,
    learned: Annotated[
        str | None,
        typer.Option(
            "--learned",
            metavar="SIZE",
            help="Also the stage that the store's measurements of other problems teach for this"
            " one, N or MxNxK.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show a stencil's parameters and the funnel of its constraints."""
    from tilewright.problem import Problem, pair_of
    from tilewright.reschedule.levels import schedule_space
    from tilewright.reschedule.proofs import proved

    problem = Problem(1, 1, 1, precision, *pair_of(trans))  # type: ignore[arg-type]
    variant, family = _asked(problem, stencil, arithmetic)
    where, spec, found = _device(device, arch, family)
    if family is None:
        from tilewright.stencil import stencils_for

        family = stencils_for(spec, variant)[0]
    space = schedule_space(family, variant, spec, proved(found) if found else ())
    funnel = space.funnel()
    if learned is not None:
        funnel = _with_learned(space, funnel, family, problem, parse_size(learned), spec)
    if json:
        emit_json(
            {
                "stencil": family.name,
                "variant": str(variant),
                "device": where,
                "raw_size": funnel.raw_size,
                "parameters": [asdict(p) for p in space.parameters],
                "funnel": [asdict(stage) for stage in funnel],
            }
        )
        return
    say(f"{family.name} {variant} on {where}")
    show_parameters(space)
    show_funnel(funnel)


def _with_learned(
    space: Space,
    funnel: Funnel,
    family: Stencil,
    problem: Problem,
    size: tuple[int, int, int],
    spec: DeviceSpec,
) -> Funnel:
    """Return a funnel with one stage more, which is learned from the user's store."""
    from dataclasses import replace

    from tilewright.problem import Problem
    from tilewright.tuning.background import features_on, lessons_of
    from tilewright.tuning.learned_space import LearnedSpace
    from tilewright.tuning.store import Store
    from tilewright.tuning.strategies import Background

    sized = Problem(*size, problem.precision, problem.trans_a, problem.trans_b)
    with Store() as store:
        known = list(store.query(stencil=family.name, version=family.version))
    about = family, sized, spec
    background = Background(features_on(*about), lessons=lambda: lessons_of(known, *about))
    stage = LearnedSpace(space, background).stage
    return replace(funnel, stages=(*funnel.stages, stage))


def _asked(
    problem: Problem, stencil: str | None, arithmetic: str
) -> tuple[Variant, Stencil | None]:
    """Return the variant, and the stencil that was named or has the arithmetic."""
    from tilewright.stencil import stencil as find_stencil
    from tilewright.stencil.wgmma.named import family_of, variant_of

    name = family_of(problem, arithmetic, stencil)
    return variant_of(problem, arithmetic), find_stencil(name) if name else None


def _device(
    device: str | None, arch: str | None, family: Stencil | None
) -> tuple[str, DeviceSpec, str | None]:
    """Return a device's id, its numbers and its architecture; that one's name if it is meant."""
    from tilewright.backend.cuda.architecture import architecture_spec

    if arch is not None and device is not None:
        raise ValueError(f"arch={arch!r} and device={device!r} are two devices; give one")
    where: str
    found: str | None
    if arch is not None:
        where, spec, found = arch, architecture_spec(arch), arch
    else:
        where, spec, found = _named(device)
    only = "" if family is None else family.only_on
    if family is None or not only or family.suits(spec):
        return where, spec, found
    if arch is not None or device is not None:
        named = f"device={device!r}" if arch is None else f"arch={arch!r}"
        raise ValueError(
            f"{named} lacks what {family.name} takes; leave it out, or use arch={only}"
        )
    return only, architecture_spec(only), only


def _named(device: str | None) -> tuple[str, DeviceSpec, str | None]:
    """Return id, numbers and architecture of a device here, of the catalogue, or of a file."""
    from tilewright.hardware.catalogue import CatalogueDevice
    from tilewright.serve.find import device as find_device

    found = find_device(device)
    if not isinstance(found, CatalogueDevice):
        return found.id, found.spec, found.arch or None
    capability = found.spec.compute_capability
    return found.id, found.spec, f"sm_{capability}a" if capability else None


def show_parameters(space: Space) -> None:
    """Print what may be varied."""
    lines = [(p.name, " ".join(map(str, p.values)), p.meaning, p.cost) for p in space.parameters]
    heads = ("parameter", "values", "meaning", "what more of it costs")
    emit_lines(heads, lines, title="Parameters")


def show_funnel(funnel: Funnel) -> None:
    """Print how many points survive each constraint (Kurzak et al., Figure 2)."""
    from rich.table import Column

    numbers = (Column(name, justify="right") for name in ("points left", "of those before"))
    lines = [("every combination", "", f"{funnel.raw_size:,}", "", "")]
    for stage in funnel:
        before = stage.survivors + stage.removed
        share = f"{100 * stage.survivors / before:.1f} %" if before else ""
        lines.append((stage.name, stage.kind, f"{stage.survivors:,}", share, stage.reason))
    emit_lines(("constraint", "kind", *numbers, "why"), lines, title="Funnel")
