"""``tilewright inspect``: what the compiler made of a kernel, and what bounds its main loop."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli.config_argument import Wanted, is_cubin, wanted_config
from tilewright.cli.output import (
    PRECISIONS,
    ArithmeticOption,
    JsonOption,
    emit_json,
    emit_lines,
    output_option,
    say,
)
from tilewright.paths import write_atomically

if TYPE_CHECKING:
    from tilewright.reschedule.compare import Comparison
    from tilewright.sass import Inspection, Loop
    from tilewright.tuning.inspection import ConfigInspection

__all__ = ["command"]

_PREDICTED = "predicted by the cycle model, not measured on a device"


def command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG|FILE.cubin",
            help="A cubin for sm_70 or later, or a config: a JSON file, name=value,..., "
            "a stored id or its first digits, or 'default' (with changes: default,pad=0).",
        ),
    ],
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
    stencil: Annotated[
        str | None,
        typer.Option(
            "--stencil",
            help="A config's stencil or a rung of the ladder; portable by default, wgmma for tensor"
            " cores.",
        ),
    ] = None,
    precision: Annotated[str | None, typer.Option("--precision", help=f"{PRECISIONS}.")] = None,
    trans: Annotated[
        str | None,
        typer.Option("--trans", help="Transposes of A and B: NN, NT, TN, TT, or with C."),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode", help="Launch mode to compile a config in: plain, or scalar+clamped+staged."
        ),
    ] = None,
    arithmetic: ArithmeticOption = "ieee",
    arch: Annotated[
        str | None, typer.Option("--arch", help="Compile a config for it; sm_90a by default.")
    ] = None,
    output: Annotated[
        Path | None, output_option("Keep a config's cubin in this file.", rb"\x7fELF")
    ] = None,
    store: Annotated[
        Path | None, typer.Option("--store", help="The store's file; your own by default.")
    ] = None,
    listing: Annotated[
        bool, typer.Option("--listing/--no-listing", help="Print the main loop line by line.")
    ] = True,
    before: Annotated[
        Path | None,
        typer.Option("--diff", metavar="BEFORE.cubin", help="Compare a cubin with this one."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show a kernel's resources, occupancy, main loop and bounding resource."""
    for_configs = {
        "stencil": stencil, "precision": precision, "trans": trans, "mode": mode, "arch": arch,
        "arithmetic": None if arithmetic == "ieee" else arithmetic,
        "output": output, "store": store,
    }  # fmt: skip
    for_cubins = {"kernel": kernel, "threads": threads, "shared": shared or None, "diff": before}
    if is_cubin(what):
        _refuse(for_configs, "a config", f"{what} is compiled already")
        if before is not None:
            _diff(before, Path(what), kernel, threads, shared, listing, json)
            return
        _inspect_cubin(Path(what), kernel, threads, shared, listing, json)
        return
    _refuse(for_cubins, "a cubin", f"{what!r} is a config")
    made = _inspect_config(
        wanted_config(what, store), stencil, precision, trans, mode, arch, arithmetic
    )
    if output is not None:
        write_atomically(output, made.cubin.code)
    if json:
        file = None if output is None else str(output)
        kernels = [made.kernel.as_dict()]
        emit_json(
            {"file": file, "arch": made.kernel.resources.arch, **made.as_dict(), "kernels": kernels}
        )
        return
    values = ", ".join(f"{name} {value}" for name, value in made.config.items())
    say(f"{made.config.stencil} {made.variant} {made.config.id}, {made.mode}: {values}")
    for rule in made.unlikely:
        say(f"unlikely to be fast: {rule}")
    for rule in made.unproved:
        say(f"not proved, so gemm() does not use it: {rule}")
    if made.rescheduled is not None:
        _show_diff(made.rescheduled, False)
    _report(made.kernel, listing, made.estimated.registers)


def _refuse(options: Mapping[str, object], whose: str, why: str) -> None:
    """Refuse options that mean nothing for what is inspected."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name}={str(value)!r} is for {whose}, but {why}; leave it out")


def _inspect_cubin(
    file: Path, kernel: str | None, threads: int | None, shared: int, listing: bool, json: bool
) -> None:
    from tilewright.sass import inspect_kernel, read_cubin

    cubin = read_cubin(file)
    chosen = [cubin.kernel(kernel)] if kernel else list(cubin.kernels)
    if not chosen:
        raise ValueError(f"{file} holds no kernel; give a cubin of a __global__ function")
    found = [inspect_kernel(k, threads, shared) for k in chosen]
    if json:
        emit_json({"file": str(file), "arch": cubin.arch, "kernels": [f.as_dict() for f in found]})
        return
    for one in found:
        _report(one, listing)


def _inspect_config(
    wanted: Wanted,
    stencil: str | None,
    precision: str | None,
    trans: str | None,
    mode: str | None,
    arch: str | None,
    arithmetic: str,
) -> ConfigInspection:
    """Compile a config and read it; an option goes before what the config's file says."""
    from tilewright.bench.ladder.rungs import register_rungs
    from tilewright.stencil import Mode
    from tilewright.tuning.inspection import inspect_config

    register_rungs()
    if stencil and wanted.stencil and stencil != wanted.stencil:
        raise ValueError(f"stencil={stencil!r} but the config is of {wanted.stencil!r}; name that")
    return inspect_config(
        wanted.values,
        stencil=stencil or wanted.stencil,
        precision=precision or wanted.precision or "s",
        trans=(trans or wanted.trans or "NN").upper(),
        arch=arch or "sm_90a",
        partial=wanted.partial,
        mode=Mode.parse(named) if (named := mode or wanted.mode) else None,
        arithmetic=arithmetic,
    )


def _report(one: Inspection, listing: bool, estimated: int | None = None) -> None:
    """Print one kernel: tables, the loop line by line, and the verdict."""
    from tilewright.sass import annotate

    _show(one, estimated)
    if listing and one.loop is not None:
        say(annotate(one.loop, one.cycles, one.wavefronts, one.lines))
    say(f"{one.resources.name}: {one.verdict}")


def _show(one: Inspection, estimated: int | None) -> None:
    """Print tables of resources and of the loop's mix."""
    taken, fits = one.resources, one.occupancy
    registers = str(taken.registers)
    if estimated is not None:
        registers += (
            f"; {estimated} were estimated, {taken.registers - estimated:+d} by the compiler"
        )
    occupancy = (
        f"{fits.blocks} blocks of {one.threads} threads, {fits.warps} of {fits.max_warps} warps, "
        f"limited by {fits.limited_by}"
    )
    told = {
        "registers a thread": registers,
        "shared memory":
            f"{taken.shared_bytes} bytes static, {one.dynamic_shared_bytes} dynamic",
        "stack": f"{taken.stack_bytes} bytes",
        "local memory": f"{taken.local_loads} loads, {taken.local_stores} stores (spills)",
        "barriers": taken.barriers,
        "occupancy": occupancy,
        "instructions": f"{taken.instructions}, {one.unknown} of them not known here",
    }  # fmt: skip
    if one.loop is not None:
        told |= {
            "main loop": ", ".join(f"{count} {name}" for name, count in one.loop.mix().items()),
            "its place": _place(one, one.loop),
            "multiply-adds": f"{100 * one.loop.useful_share:.1f} % of its instructions",
        }
    if one.cycles is not None:
        terms = ", ".join(f"{name} {value:.0f}" for name, value in one.cycles.terms.items())
        told["cycles a trip over k"] = f"{one.cycles.cycles:.0f} simulated; least by {terms}"
    title = f"{taken.name}, sm_{taken.arch}"
    emit_lines(("what", "value"), told.items(), title=title, title_justify="left")


def _place(one: Inspection, loop: Loop) -> str:
    """Return where a loop stands in the kernel's source, and whether it comes with a launch."""
    from tilewright.sass.decode import INSTRUCTION_BYTES
    from tilewright.sass.machine import FETCHED_BYTES

    whole = one.resources.instructions * INSTRUCTION_BYTES / 1024
    place = f"{loop.start / 1024:.0f} to {loop.end / 1024:.0f} KiB of {whole:.0f}"
    if one.comes_late:
        place += (
            f"; a launch brings the first {FETCHED_BYTES[one.resources.arch] // 1024}: moved among"
            " them when it is compiled for a device"
        )
    return place


def _diff(
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
    _show_diff(found, listing)


def _show_diff(found: Comparison, listing: bool) -> None:
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
