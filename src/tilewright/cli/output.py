"""What every command does alike: tables for people, JSON for machines, one-line errors."""

from __future__ import annotations

import json
import math
import re
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.paths import check_writable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.progress import Progress

__all__ = [
    "EXPERIMENTS",
    "MATRICES",
    "PAGE",
    "PRECISIONS",
    "RESULTS",
    "SEARCHES",
    "ArithmeticOption",
    "BudgetOption",
    "DeviceOption",
    "JsonOption",
    "PrecisionOption",
    "SizeOption",
    "StencilOption",
    "TransOption",
    "counted",
    "emit_json",
    "emit_lines",
    "gigaflops",
    "output_option",
    "parse_devices",
    "parse_size",
    "plain",
    "progress_bar",
    "say",
]

# What files begin with that several commands write, as regular expressions: results of benchmarks,
# of searches in recorded spaces, of experiments; matrices; pages.
_ENVIRONMENT = rb'\{\s*("benchmark": "[^"]*",\s*)?"environment": \{.*'
RESULTS = _ENVIRONMENT + rb'"devices": \[|device,device_name,fingerprint,'
SEARCHES = _ENVIRONMENT + rb'\n "results": \['
EXPERIMENTS = _ENVIRONMENT + rb'"experiments": \{'
MATRICES = rb"\x93NUMPY|PK"
PAGE = rb"<!doctype html>.*Tilewright"

# Bytes of a file that show what it is.
_HEAD = 1 << 16

# Beyond any matrix, and what counts its operations still is a number.
_MOST_DIGITS = 18

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
DeviceOption = Annotated[
    str | None,
    typer.Option("--device", help="Device id or part of a name; the best one by default."),
]
DevicesOption = Annotated[
    str | None,
    typer.Option("--device", help="Device, or several that share the work: cuda:0,cuda:1."),
]
PRECISIONS = (
    "s, d, c or z; e, f double-double, w, v its complex; of tensor cores fp16, bf16, tf32, int8,"
    " e4m3, e5m2, all but tf32 and int8 also with float32 results: fp16_f32"
)
PrecisionOption = Annotated[str, typer.Option("--precision", help=f"{PRECISIONS}.")]
TransOption = Annotated[
    str, typer.Option("--trans", help="Transposes of A and B: NN, NT, TN, TT, or with C.")
]
SizeOption = Annotated[str, typer.Option("--size", help="N or MxNxK, such as 1024 or 512x512x64.")]
BudgetOption = Annotated[
    str,
    typer.Option("--budget", help="Time to spend: 90s, 10m, 2h; or 500 candidates, or converged."),
]
StencilOption = Annotated[
    str | None, typer.Option("--stencil", help="Stencil; the one that fits best by default.")
]
ArithmeticOption = Annotated[
    str,
    typer.Option(
        "--arithmetic",
        help="ieee; single precision from products of parts: fp16x3, tf32x3, bf16x6, bf16x9.",
    ),
]


def output_option(help: str, begins: bytes, *names: str, **more: Any) -> Any:
    """Return the option of a file to write, ``-o`` by default, that replaces its own kind alone.

    What cannot be written, or is something else's, is refused before the work.

    Parameters
    ----------
    help : str
        For people.
    begins : bytes
        Regular expression of what such a file begins with.
    names, more : str
        Of the option, and what typer takes besides.
    """

    def checked(param: typer.CallbackParam, path: Path | None) -> Path | None:
        if path is None:
            return None
        check_writable(path)
        if path.exists() and path.stat().st_size:
            with path.open("rb") as file:
                known = re.match(begins, file.read(_HEAD), re.DOTALL)
            if known is None:
                raise ValueError(
                    f"{param.name}={str(path)!r} holds something else than this command writes;"
                    " name another file"
                )
        return path

    return typer.Option(*(names or ("-o", "--output")), help=help, callback=checked, **more)


def emit_json(value: Any) -> None:
    """Print a value as JSON on standard output."""
    # print, because there is no standard output where it was closed.
    print(json.dumps(plain(value), indent=2, default=str, allow_nan=False))


def plain(value: Any) -> Any:
    """Return a value with null for what JSON has no number for."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def emit_lines(heads: Iterable[Any], lines: Iterable[Iterable[Any]], **options: Any) -> None:
    """Print a table of what rich can draw, of numbers, and of dashes for None.

    Where nobody looks it is as wide as it needs.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Text, because brackets in names of devices and files are no markup.
    if "title" in options:
        options["title"] = Text(options["title"], "table.title")
    table = Table(*heads, **options)
    for line in lines:
        cells = ("-" if cell is None else cell for cell in line)
        table.add_row(*(x if hasattr(x, "__rich_console__") else Text(str(x)) for x in cells))
    for column in table.columns:
        column.overflow = "fold"  # in a narrow terminal words break, and nothing is left out
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(table)


def progress_bar(*columns: Any, quiet: bool = False) -> Progress:
    """Return a bar for standard error, gone when it ends; rich's own columns without others."""
    from rich.console import Console
    from rich.progress import Progress

    # Rich leaves an empty line where there is no terminal.
    unseen = quiet or not sys.stderr.isatty()
    return Progress(*columns, console=Console(stderr=True, quiet=unseen), transient=True)


@contextmanager
def counted(what: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show a bar within a ``with`` block; yield what is told how many are done, and of how many."""
    with progress_bar(quiet=quiet) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


def say(text: str) -> None:
    """Print a line for people."""
    typer.echo(text)


def gigaflops(rate: float) -> str:
    """Return a rate in FLOP/s as text in GFLOP/s or TFLOP/s."""
    if rate >= 1e13:
        return f"{rate / 1e12:.1f} TFLOP/s"
    return f"{rate / 1e9:.1f} GFLOP/s"


def parse_size(text: str) -> tuple[int, int, int]:
    """Return m, n and k of ``N`` or ``MxNxK``.

    Raises
    ------
    ValueError
        If it is neither.
    """
    parts = text.lower().split("x")
    if len(parts) not in (1, 3) or not all(part.isdecimal() for part in parts):
        raise ValueError(f"size={text!r} is not a size; write 1024 or 512x512x64")
    if max(map(len, parts)) > _MOST_DIGITS:
        raise ValueError(f"size={text!r} is beyond any; sides have at most {_MOST_DIGITS} digits")
    sizes = [int(part) for part in parts] * (3 if len(parts) == 1 else 1)
    return sizes[0], sizes[1], sizes[2]


def parse_devices(text: str | None) -> str | list[str] | None:
    """Return a device's name, or those of several."""
    if not text or "," not in text:
        return text
    names = text.split(",")
    if not all(names):
        raise ValueError(f"device={text!r} leaves one out; write it like cuda:0,cuda:1")
    return names
