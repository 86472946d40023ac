"""``tilewright portfolio build``: picks, compiles and packs."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli.output import counted, say
from tilewright.cli.portfolio_options import (
    NAMES,
    DeviceOption,
    NameArgument,
    serving,
    share_of,
    target_of,
)

if TYPE_CHECKING:
    from tilewright.backend import LiveDevice
    from tilewright.hardware import DeviceSpec
    from tilewright.portfolio.build import Instance, Work
    from tilewright.portfolio.measured import Measured
    from tilewright.portfolio.select import Selected

__all__ = ["build", "stored"]


def build(
    name: NameArgument,
    work: Annotated[Path, typer.Option("--work", help="Where what is made is kept meanwhile.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The folder to write; else your own.")
    ] = None,
    times: Annotated[
        list[Path] | None,
        typer.Option(
            "--times", help="Files of times, which count together; else what the store has."
        ),
    ] = None,
    device: DeviceOption = None,
    seconds: Annotated[float, typer.Option("--seconds", help="Stop after this; run it again.")] = (
        480.0
    ),
    mean: Annotated[float, typer.Option("--mean", help="Loss in the mean, of all measured.")] = (
        0.016
    ),
    most: Annotated[float, typer.Option("--most", help="Loss at most.")] = 0.07,
    share: Annotated[
        str, typer.Option("--share", help="i/n: compile every n-th; several processes at once.")
    ] = "0/1",
    refit: Annotated[
        list[Path] | None, typer.Option("--refit", help="Times that `measure` wrote, for costs.")
    ] = None,
    verified: Annotated[
        Path | None, typer.Option("--verified", help="What `verify --run -o` wrote.")
    ] = None,
    also: Annotated[
        list[Path] | None,
        typer.Option("--also", help="Times that `measure --stencil` wrote, of one more stencil."),
    ] = None,
    batches: Annotated[
        list[Path] | None,
        typer.Option("--batches", help="Times that `measure --shapes batches` wrote, of any kind."),
    ] = None,
) -> None:
    """Pick, compile and pack; a run goes on where the one before it stopped.

    What is packed serves from the next start on.  `verify --run` says whether it is right, and a
    build with --verified notes that and leaves out what is not.
    """
    from dataclasses import replace
    from json import loads

    from tilewright.paths import private_directory
    from tilewright.portfolio.build import Work, instances_of, pack
    from tilewright.portfolio.portfolio import Copying, Portfolio
    from tilewright.portfolio.select import select
    from tilewright.precision import letters_of

    if name not in NAMES:
        raise ValueError(f"portfolio={name!r} is unknown; use one of {', '.join(NAMES)}")
    spec, arch, live = target_of(device)
    if not arch:
        raise ValueError(
            f"device={spec.name!r} is no CUDA device: its portfolio holds what tune finds"
        )
    kept = Work(work, arch)
    selected: list[Selected] = []
    if name == "passes":
        from tilewright.portfolio.arithmetics import kernels_of
        from tilewright.portfolio.measured import read_measured
        from tilewright.portfolio.select import Selected

        instances = _passes(spec)
        for path in times or ():
            selected += [Selected(one) for one in kernels_of(read_measured(path))]
        base = Portfolio(name, arch, spec.name, spec.compute_capability, spec.multiprocessors, ())
    else:
        from tilewright.portfolio.measured import check_pace, joined, measured_at_pace

        letters = letters_of(name)
        every: list[Measured] = []
        files = (times or (), refit or (), also or (), batches or ())
        check_pace(itertools.chain(*files), letters)
        for letter in letters:
            mine = measured_at_pace(times, letter) if times else stored(letter, live)
            if not mine:  # nobody timed this precision: defaults serve it
                continue
            more, others, many = (measured_at_pace(some, letter) for some in files[1:])
            every += mine
            selected += select(joined(mine), spec, mean, most, more, others, many)
        if not every:
            raise ValueError(f"portfolio {name!r} has no times; give --times, or tune first")
        measured = every[0]
        instances = instances_of(selected)
        # Races of several models are compared with none of the user's.
        devices = ", ".join(dict.fromkeys(one.device for one in every))
        base = Portfolio(
            name, arch, devices, measured.compute_capability, measured.multiprocessors, (),
            copying=None if measured.copying is None else Copying(*measured.copying),
            made=measured.made,
        )  # fmt: skip
    say(f"{len(selected)} kernels, {len(instances)} instances")
    for portfolio, _ in serving(device):
        if portfolio.name == name and portfolio.arch == arch:
            kept.seed(instances, portfolio)
            if name == "passes" and live is None:  # its earlier measurements stay
                base = replace(portfolio, kernels=(), codes={}, sources={})
    missing = _compile(kept, instances, seconds, share_of(share))
    if missing:
        raise RuntimeError(f"{missing} instances are still to be compiled; run it again to go on")
    checked = None if verified is None else loads(verified.read_text(encoding="utf-8"))
    folder = output or _own_folder(live)
    kernels = [one.kernel for one in selected]
    made = pack(kept, instances, kernels, base, private_directory(folder), checked)
    say(f"{folder / (name + '.json')}: {len(made.kernels)} kernels, {len(made.codes)} codes")


def stored(name: str, live: LiveDevice | None) -> list[Measured]:
    """Return what the store has of a precision: one, or none."""
    from tilewright.portfolio.measured import from_store
    from tilewright.tuning.store import Store

    if live is None:
        raise ValueError("--times is needed where the device is not here")
    with Store() as store:
        stored = store.query(device=live.fingerprint)
        rows = [row for row in stored if row.ok and not row.is_imported]
    spec = live.spec
    made = from_store(rows, name, spec.name, spec.compute_capability, spec.multiprocessors)
    return [made] if made.cases else []


def _passes(spec: DeviceSpec) -> list[Instance]:
    from tilewright.portfolio.build import Instance
    from tilewright.serve.passes import sources

    return [Instance(f"passes-{one.identity}", block, one) for block, one in sources(spec)]


def _compile(kept: Work, instances: list[Instance], seconds: float, share: tuple[int, int]) -> int:
    """Compile what is missing; return how many are still missing."""
    with counted("compiling") as observer:
        refused = kept.compile(instances, seconds, share, observer)
    for name, why in refused.items():
        say(f"refused {name}: {why}")
    return sum(not kept.has(one) for one in instances if one.name not in refused)


def _own_folder(live: LiveDevice | None) -> Path:
    from tilewright.portfolio import own_folder

    if live is None:
        raise ValueError("--output is needed where the device is not here")
    return own_folder(live.portfolio_key)
