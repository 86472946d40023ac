"""``tilewright portfolio``: what is served: list, show, verify, build."""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.output import JsonOption, counted, emit_json, emit_lines, output_option, say
from tilewright.cli.portfolio_build import build
from tilewright.cli.portfolio_options import DeviceOption, NameArgument, serving, share_of

if TYPE_CHECKING:
    from tilewright.portfolio import Portfolio

__all__ = ["app"]

app = typer.Typer(
    name="portfolio", help="The kernels that serve, and how they are built.", no_args_is_help=True
)

FolderOption = Annotated[
    Path | None, typer.Option("--folder", help="A folder of portfolios; else the package's own.")
]

_NONE = (
    "no portfolio serves this device: defaults do; build one by tilewright tune or portfolio build,"
    " or name what ships by an architecture: --device sm_90a"
)


@app.command("list")
def list_(device: DeviceOption = None, json: JsonOption = False) -> None:
    """List the portfolios that serve a device: shipped ones and what was tuned or built here."""
    rows = [_facts(portfolio, where) for portfolio, where in serving(device)]
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
    found = [(one, where) for one, where in serving(device) if one.name == name]
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
            **{
                form: [str(mode) for mode in modes]
                for form, modes in (
                    ("batched", one.batched),
                    ("grouped", one.grouped),
                    ("triangle", one.triangle),
                )
            },
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
        ("kernel", "from", "launch modes", "batches", "groups", "triangles", "won"),
        [
            [row["kernel"], row["from"], ", ".join(row["modes"]) or "-",
             *(", ".join(row[form]) or "-" for form in ("batched", "grouped", "triangle")),
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
        output_option("What passed, for `build`; goes on from it.", rb'\{\s*("[0-9a-f]+": "|\})'),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare all machine code with its digests; with --run also every kernel with an oracle."""
    import time
    from json import loads

    from tilewright.paths import write_json

    passed: dict[str, str] = {}
    if output is not None and output.exists() and output.stat().st_size:
        passed = loads(output.read_text(encoding="utf-8"))
    until = time.monotonic() + seconds
    rows: list[dict[str, Any]] = []
    for portfolio, where in _of_folder(folder) if folder else serving(device):
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
    times: Annotated[
        list[Path], typer.Argument(help="Files of times of one precision, as `build --times`.")
    ],
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
    from tilewright.portfolio.measured import joined, read_measured

    def facts(losses: Any) -> dict[str, float]:
        quantiles = np.quantile(losses, (0.5, 0.95, 1))
        names = ("median", "95 %", "most")
        return {"mean": float(np.mean(losses))} | dict(
            zip(names, map(float, quantiles), strict=True)
        )

    files = [read_measured(path) for path in times]
    if len(letters := sorted({one.precision for one in files})) > 1:
        raise ValueError(f"times are of precisions {', '.join(letters)}; give files of one")
    rows: list[dict[str, Any]] = [
        {"variant": str(one.variant), "problems": len(one.best), "kernels": one.kernels,
         "best": facts(one.best), "chosen": facts(one.chosen)}
        for one in held_out(joined(files), mean, most, folds)
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
    name: Annotated[
        str,
        typer.Argument(
            help="A precision; or a product in parts or with an epilogue: fp16x3, bf16-epilogue."
        ),
    ],
    output: Annotated[
        Path, output_option("The file of times to write.", rb'\{"precision": .*"cases": \{')
    ],
    device: Annotated[str | None, typer.Option("--device", help="A device here.")] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Shapes of each case.")] = 40,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the shapes.")] = 0,
    seconds: Annotated[float, typer.Option("--seconds", help="Begin no shape after this.")] = 480.0,
    shapes: Annotated[
        str,
        typer.Option(
            "--shapes",
            help="any; short: m or n is; thin, long: k is short, long; large: all from 2048 on;"
            " layers; batches, unaligned-batches; with --stencil any: every kind, or unaligned:"
            " columns side by side.",
        ),
    ] = "any",
    family: Annotated[
        str | None,
        typer.Option("--stencil", help="A stencil's configs instead: skinny's, wgmma's."),
    ] = None,
    copied: Annotated[
        bool, typer.Option("--copied", help="Columns of A and B are aligned, as of copies.")
    ] = False,
) -> None:
    """Time the kernels of the portfolio that serves a device, on shapes as users have them."""
    from tilewright.backend import device as find_device
    from tilewright.backend.cuda.device import CUDADevice
    from tilewright.paths import write_atomically
    from tilewright.portfolio import shipped
    from tilewright.portfolio.drawn import KINDS
    from tilewright.portfolio.measure import measure as times_of
    from tilewright.portfolio.measure import measure_family, text_of
    from tilewright.precision import precision
    from tilewright.stencil.wgmma import NAMED

    many = ("batches", "unaligned-batches")
    known = (*KINDS, *many) if family is None else ("any", "unaligned")
    if shapes not in known:
        of = "" if family is None else f" with --stencil {family}"
        raise ValueError(f"shapes={shapes!r} is no choice{of}; use one of {', '.join(known)}")
    if copied and (family is not None or shapes in many or name in NAMED):
        raise ValueError(
            "copied=True is of a portfolio's kernels alone; leave out --stencil, batches and the"
            " names of products in parts"
        )
    live = find_device(device)
    if name in NAMED and isinstance(live, CUDADevice):
        from tilewright.portfolio.arithmetics import measure_arithmetic

        found = measure_arithmetic(live, name, count, seed, seconds)
        write_atomically(output, text_of(found).encode())
        say(f"{output}: {len(found['cases']['TN']['shapes'])} shapes")
        return
    portfolio = None if name == "passes" else shipped(live.spec, precision(name).portfolio)
    if shapes in many and isinstance(live, CUDADevice):
        from tilewright.portfolio.measure_batches import measure_batches

        unaligned = shapes != "batches"
        found = measure_batches(live, name, count, seed, seconds, unaligned=unaligned)
    elif family is not None and isinstance(live, CUDADevice):
        unaligned = shapes == "unaligned"
        found = measure_family(live, name, family, count, seed, seconds, unaligned=unaligned)
    elif not isinstance(live, CUDADevice) or portfolio is None:
        raise ValueError(f"portfolio {name!r} does not serve {live.id}; see: portfolio list")
    else:
        with counted("timing") as observer:
            about = live, portfolio, name, count, seed, seconds, observer
            found = times_of(*about, kind=shapes, copied=copied)
    write_atomically(output, text_of(found).encode())
    say(f"{output}: {sum(len(case['shapes']) for case in found['cases'].values())} shapes")


app.command()(build)


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
    return asdict(run(live, portfolio, seconds, share_of(share), passed))
