"""``tilewright portfolio``: what is served: list, show, verify, build."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.output import JsonOption, emit_json, emit_lines, say

if TYPE_CHECKING:
    from tilewright.backend import LiveDevice
    from tilewright.hardware import DeviceSpec
    from tilewright.portfolio import Portfolio
    from tilewright.portfolio.build import Instance, Work
    from tilewright.portfolio.measured import Measured
    from tilewright.portfolio.select import Selected

__all__ = ["app", "stored"]

app = typer.Typer(
    name="portfolio", help="The kernels that serve, and how they are built.", no_args_is_help=True
)

DeviceOption = Annotated[
    str | None,
    typer.Option("--device", help="A device here, or an architecture such as sm_90a."),
]
NameArgument = Annotated[
    str, typer.Argument(help="A precision's letter; of all 16-bit ones short; or passes.")
]
FolderOption = Annotated[
    Path | None, typer.Option("--folder", help="A folder of portfolios; else the package's own.")
]

NAMES = ("s", "d", "c", "z", "e", "f", "short", "passes")

_NONE = (
    "no portfolio serves this device: defaults do; build one by tilewright tune or portfolio build,"
    " or name what ships by an architecture: --device sm_90a"
)


@app.command("list")
def list_(device: DeviceOption = None, json: JsonOption = False) -> None:
    """List the portfolios that serve a device: shipped ones and what was tuned or built here."""
    rows = [_facts(portfolio, where) for portfolio, where in _serving(device)]
    if json:
        emit_json(rows)
        return
    if not rows:
        say(_NONE)
        return
    emit_lines(
        ("portfolio", "from", "measured on", "kernels", "codes", "MB", "verified"),
        [
            [row["name"], row["from"], row["device"], row["kernels"], row["codes"],
             f"{row['bytes'] / 1e6:.1f}", f"{row['verified']} of {row['codes']}"]
            for row in rows
        ],
    )  # fmt: skip


@app.command()
def show(name: NameArgument, device: DeviceOption = None, json: JsonOption = False) -> None:
    """Show the kernels of a portfolio: config, launch modes, races won."""
    found = [(one, where) for one, where in _serving(device) if one.name == name]
    if not found:
        raise ValueError(
            f"portfolio {name!r} serves no such device; see: tilewright portfolio list"
            f"{'' if device is None else f' --device {device}'}"
        )
    rows: list[dict[str, Any]] = [
        {
            "from": where,
            "kernel": one.name,
            "config": dict(one.config),
            "modes": [str(mode) for mode in one.modes],
            "batched": [str(mode) for mode in one.batched],
            "won": [list(sizes) for sizes in one.won],
            "costs": list(one.costs),
        }
        for portfolio, where in found
        for one in portfolio.kernels
    ]
    if json:
        emit_json(rows)
        return
    emit_lines(
        ("kernel", "from", "launch modes", "for batches", "won"),
        [
            [row["kernel"], row["from"], ", ".join(row["modes"]) or "-",
             ", ".join(row["batched"]) or "-",
             ", ".join("x".join(map(str, sizes)) for sizes in row["won"]) or "-"]
            for row in rows
        ],
    )  # fmt: skip


@app.command()
def verify(
    folder: FolderOption = None,
    device: DeviceOption = None,
    run: Annotated[
        bool, typer.Option("--run", help="Run every kernel on the device, besides: minutes.")
    ] = False,
    share: Annotated[
        str, typer.Option("--share", help="i/n: every n-th kernel; several processes at once.")
    ] = "0/1",
    seconds: Annotated[float, typer.Option("--seconds", help="Run no kernel after this.")] = 480.0,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="What passed, for `build`; goes on from it."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare all machine code with its digests; with --run also every kernel with an oracle."""
    import time
    from json import loads

    from tilewright.paths import write_json

    passed: dict[str, str] = {}
    if output is not None and output.exists():
        passed = loads(output.read_text(encoding="utf-8"))
    until = time.monotonic() + seconds
    rows: list[dict[str, Any]] = []
    for portfolio, where in _of_folder(folder) if folder else _serving(device):
        bad = [digest for digest in portfolio.codes if not _whole(portfolio, digest)]
        row: dict[str, Any] = {"name": portfolio.name, "from": where,
                               "codes": len(portfolio.codes), "damaged": bad}  # fmt: skip
        if run:
            row |= _run(portfolio, device, share, until - time.monotonic(), passed)
        rows.append(row)
    if output is not None:
        passed |= {digest: what for row in rows for digest, what in row.get("right", {}).items()}
        write_json(output, passed)
    if json:
        emit_json(rows)
    elif not rows:
        say(_NONE)
    else:
        emit_lines(
            ("portfolio", "from", "machine code", "damaged", "right", "wrong", "left"),
            [
                [row["name"], row["from"], row["codes"], len(row["damaged"]),
                 len(row.get("right", {})), len(row.get("wrong", {})), row.get("left", "-")]
                for row in rows
            ],
        )  # fmt: skip
    for row in rows if not json else ():
        for what in row.get("wrong", {}).values():
            say(f"wrong: {what}")
    if any(row["damaged"] or row.get("wrong") for row in rows):
        raise RuntimeError("some machine code is damaged or wrong; build the portfolio again")


@app.command()
def loss(
    times: Annotated[Path, typer.Argument(help="A file of times, as `build --times` takes it.")],
    mean: Annotated[float, typer.Option("--mean", help="Loss in the mean, of all measured.")] = (
        0.016
    ),
    most: Annotated[float, typer.Option("--most", help="Loss at most.")] = 0.07,
    folds: Annotated[int, typer.Option("--folds", min=2, help="Of the cross-validation.")] = 5,
    json: JsonOption = False,
) -> None:
    """Say what portfolios picked so lose on problems that did not pick them."""
    import numpy as np

    from tilewright.portfolio.loss import held_out
    from tilewright.portfolio.measured import read_measured

    def facts(losses: Any) -> dict[str, float]:
        quantiles = np.quantile(losses, (0.5, 0.95, 1))
        names = ("median", "95 %", "most")
        return {"mean": float(np.mean(losses))} | dict(
            zip(names, map(float, quantiles), strict=True)
        )

    rows: list[dict[str, Any]] = [
        {"variant": str(one.variant), "problems": len(one.best), "kernels": one.kernels,
         "best": facts(one.best), "chosen": facts(one.chosen)}
        for one in held_out(read_measured(times), mean, most, folds)
    ]  # fmt: skip
    if json:
        emit_json(rows)
        return
    heads = ("mean", "median", "95 %", "most")
    emit_lines(
        ("variant", "problems", "kernels", *(f"best, {x}" for x in heads),
         *(f"chosen, {x}" for x in heads)),
        [
            [row["variant"], row["problems"], f"{row['kernels']:.0f}",
             *(f"{row[which][x]:.1%}" for which in ("best", "chosen") for x in heads)]
            for row in rows
        ],
    )  # fmt: skip


@app.command()
def measure(
    name: NameArgument,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file of times to write.")],
    device: DeviceOption = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Shapes of each case.")] = 40,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the shapes.")] = 0,
    seconds: Annotated[float, typer.Option("--seconds", help="Begin no shape after this.")] = 480.0,
    shapes: Annotated[
        str,
        typer.Option(
            "--shapes",
            help="any; short: m or n is; thin: k is; large: all from 2048 on; layers; batches; with"
            " --stencil unaligned: every kind, columns side by side.",
        ),
    ] = "any",
    family: Annotated[
        str | None,
        typer.Option("--stencil", help="A stencil's configs instead: skinny's, wgmma's."),
    ] = None,
) -> None:
    """Time the kernels of the portfolio that serves a device, on shapes as users have them."""
    from rich.progress import Progress

    from tilewright.backend import device as find_device
    from tilewright.backend.cuda.device import CUDADevice
    from tilewright.paths import check_writable, write_atomically
    from tilewright.portfolio import shipped
    from tilewright.portfolio.measure import KINDS, measure_family, text_of
    from tilewright.portfolio.measure import measure as times_of
    from tilewright.precision import precision
    from tilewright.stencil.wgmma import NAMED

    known = (*KINDS, "batches", *(() if family is None else ("unaligned",)))
    if shapes not in known:
        raise ValueError(f"shapes={shapes!r} is unknown; use one of {', '.join(known)}")
    check_writable(output)
    live = find_device(device)
    if name in NAMED and isinstance(live, CUDADevice):
        from tilewright.portfolio.arithmetics import measure_arithmetic

        found = measure_arithmetic(live, name, count, seed, seconds)
        write_atomically(output, text_of(found).encode())
        say(f"{output}: {len(found['cases']['TN']['shapes'])} shapes")
        return
    portfolio = None if name == "passes" else shipped(live.spec, precision(name).portfolio)
    if shapes == "batches" and isinstance(live, CUDADevice):
        from tilewright.portfolio.measure_batches import measure_batches

        found = measure_batches(live, name, count, seed, seconds)
    elif family is not None and isinstance(live, CUDADevice):
        unaligned = shapes == "unaligned"
        found = measure_family(live, name, family, count, seed, seconds, unaligned=unaligned)
    elif not isinstance(live, CUDADevice) or portfolio is None:
        raise ValueError(f"portfolio {name!r} does not serve {live.id}; see: portfolio list")
    else:
        with Progress(transient=True) as bar:
            task = bar.add_task("timing", total=None)
            found = times_of(
                live, portfolio, name, count, seed, seconds,
                lambda done, of: bar.update(task, completed=done, total=of), kind=shapes,
            )  # fmt: skip
    write_atomically(output, text_of(found).encode())
    say(f"{output}: {sum(len(case['shapes']) for case in found['cases'].values())} shapes")


@app.command()
def build(
    name: NameArgument,
    work: Annotated[Path, typer.Option("--work", help="Where what is made is kept meanwhile.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The folder to write; else your own.")
    ] = None,
    times: Annotated[
        list[Path] | None,
        typer.Option("--times", help="Files of times, one a pace; else what the store has."),
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
        typer.Option("--batches", help="Times that `measure --shapes batches` wrote."),
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
    spec, arch, live = _target(device)
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
        from tilewright.portfolio.measured import check_pace, measured_at_pace

        letters = letters_of(name)
        every: list[Measured] = []
        files = (times or (), refit or (), also or (), batches or ())
        check_pace(itertools.chain(*files), letters)
        for letter in letters:
            mine = measured_at_pace(times, letter) if times else stored(letter, live)
            if not mine:  # of a precision that nobody timed defaults serve
                continue
            more, others, many = (measured_at_pace(some, letter) for some in files[1:])
            every += mine
            selected += select(mine[0], spec, mean, most, more, others, *many[:1])
        if not every:
            raise ValueError(f"portfolio {name!r} has no times; give --times, or tune first")
        measured = every[0]
        instances = instances_of(selected)
        base = Portfolio(
            name, arch, measured.device, measured.compute_capability, measured.multiprocessors, (),
            copying=None if measured.copying is None else Copying(*measured.copying),
            made=measured.made,
        )  # fmt: skip
    say(f"{len(selected)} kernels, {len(instances)} instances")
    for portfolio, _ in _serving(device):
        if portfolio.name == name and portfolio.arch == arch:
            kept.seed(instances, portfolio)
            if name == "passes" and live is None:  # what was known of its device still holds
                base = replace(portfolio, kernels=(), codes={}, sources={})
    missing = _compile(kept, instances, seconds, _share(share))
    if missing:
        raise RuntimeError(f"{missing} instances are still to be compiled; run it again to go on")
    checked = None if verified is None else loads(verified.read_text(encoding="utf-8"))
    folder = output or _own_folder(live)
    kernels = [one.kernel for one in selected]
    made = pack(kept, instances, kernels, base, private_directory(folder), checked)
    say(f"{folder / (name + '.json')}: {len(made.kernels)} kernels, {len(made.codes)} codes")


# -- what there is -------------------------------------------------------------------------


def _target(device: str | None) -> tuple[DeviceSpec, str, LiveDevice | None]:
    """Return the numbers and the architecture to build for, and the device if it is here."""
    from tilewright.backend import device as find_device
    from tilewright.backend.cuda.architecture import architecture_spec

    if device is not None and device.startswith("sm_"):
        return architecture_spec(device), device, None
    try:
        live = find_device(device)
    except ValueError as error:
        raise ValueError(f"{error}; or, by --device, an architecture such as sm_90a") from None
    return live.spec, getattr(live, "arch", ""), live


def _serving(device: str | None) -> Iterator[tuple[Portfolio, str]]:
    from tilewright.portfolio.find import own, shipped_folder
    from tilewright.portfolio.portfolio import read_portfolio

    spec, _, live = _target(device)
    for name in NAMES:
        mine = None if live is None else own(live.portfolio_key, name)
        if mine is not None:
            yield mine, "your own"
    folder = shipped_folder(spec.compute_capability)
    for name in NAMES if folder is not None else ():
        assert folder is not None
        if folder.joinpath(f"{name}.json").is_file():
            yield read_portfolio(folder, name), "the package"


def _of_folder(folder: Path) -> Iterator[tuple[Portfolio, str]]:
    from tilewright.portfolio.portfolio import read_portfolio

    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise ValueError(f"folder={str(folder)!r} has no portfolios; name one that build wrote")
    for path in paths:
        yield read_portfolio(folder, path.stem), str(folder)


def _facts(portfolio: Portfolio, where: str) -> dict[str, Any]:
    return {
        "name": portfolio.name,
        "from": where,
        "device": portfolio.device,
        "arch": portfolio.arch,
        "kernels": len(portfolio.kernels),
        "codes": len(portfolio.codes),
        "bytes": sum(code.size for code in portfolio.codes.values()),
        "verified": sum(bool(code.checked) for code in portfolio.codes.values()),
    }


def _whole(portfolio: Portfolio, digest: str) -> bool:
    from tilewright.portfolio.portfolio import PortfolioError

    try:
        portfolio.machine_code(digest)
    except PortfolioError:
        return False
    return True


# -- steps of a build ----------------------------------------------------------------------


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


def _share(text: str) -> tuple[int, int]:
    """Return which part of some work, and of how many."""
    try:
        first, of = (int(part) for part in text.split("/"))
    except ValueError:
        first, of = 0, 0
    if not 0 <= first < of:
        raise ValueError(f"share={text!r} is no part of a whole; write it like 0/4")
    return first, of


def _compile(kept: Work, instances: list[Instance], seconds: float, share: tuple[int, int]) -> int:
    """Compile what is missing; return how many are still missing."""
    from rich.progress import Progress

    with Progress(transient=True) as bar:
        task = bar.add_task("compiling", total=len(instances))
        refused = kept.compile(
            instances, seconds, share, lambda done, _: bar.update(task, completed=done)
        )
    for name, why in refused.items():
        say(f"refused {name}: {why}")
    return sum(not kept.has(one) for one in instances if one.name not in refused)


def _run(
    portfolio: Portfolio, device: str | None, share: str, seconds: float, passed: Container[str]
) -> dict[str, Any]:
    """Run a portfolio's kernels on the device; return what is right, wrong and left."""
    from dataclasses import asdict

    from tilewright.backend import device as find_device
    from tilewright.backend.cuda.device import CUDADevice
    from tilewright.portfolio.verify import verify as run

    live = find_device(device)
    if not isinstance(live, CUDADevice):
        raise ValueError(f"device={live.id!r} runs no machine code; choose a CUDA device")
    return asdict(run(live, portfolio, seconds, _share(share), passed))


def _own_folder(live: LiveDevice | None) -> Path:
    from tilewright.portfolio import own_folder

    if live is None:
        raise ValueError("--output is needed where the device is not here")
    return own_folder(live.portfolio_key)
