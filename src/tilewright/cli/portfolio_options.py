"""What the commands of ``tilewright portfolio`` have in common: whose portfolios are meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tilewright.backend import LiveDevice
    from tilewright.hardware import DeviceSpec
    from tilewright.portfolio import Portfolio

__all__ = ["NAMES", "DeviceOption", "NameArgument", "serving", "share_of", "target_of"]

DeviceOption = Annotated[
    str | None,
    typer.Option("--device", help="A device here, or an architecture such as sm_90a."),
]
NameArgument = Annotated[
    str, typer.Argument(help="A precision's letter; of tensor cores' arrays short; or passes.")
]

NAMES = ("s", "d", "c", "z", "e", "f", "short", "passes")


def target_of(device: str | None) -> tuple[DeviceSpec, str, LiveDevice | None]:
    """Return the numbers and the architecture to build for, and the device if it is here."""
    from tilewright.backend import device as find_device
    from tilewright.backend.cuda.architecture import architecture_spec

    if device is not None and device.startswith("sm_"):
        return architecture_spec(device), device, None
    try:
        live = find_device(device)
    except ValueError as error:
        raise ValueError(f"{error}; or, by --device, an architecture such as sm_90a") from None
    return live.spec, live.arch, live


def serving(device: str | None) -> Iterator[tuple[Portfolio, str]]:
    """Yield what serves a device or an architecture, and where it is from, the user's own first."""
    from tilewright.portfolio.find import own, shipped_folder
    from tilewright.portfolio.portfolio import read_portfolio

    spec, _, live = target_of(device)
    for name in NAMES:
        mine = None if live is None else own(live.portfolio_key, name)
        if mine is not None:
            yield mine, "your own"
    folder = shipped_folder(spec.compute_capability)
    for name in NAMES if folder is not None else ():
        assert folder is not None
        if folder.joinpath(f"{name}.json").is_file():
            yield read_portfolio(folder, name), "the package"


def share_of(text: str) -> tuple[int, int]:
    """Return which part of some work, and of how many."""
    try:
        first, of = (int(part) for part in text.split("/"))
    except ValueError:
        first, of = 0, 0
    if not 0 <= first < of:
        raise ValueError(f"share={text!r} is no part of a whole; write it like 0/4")
    return first, of
