"""What `tilewright.tune` finds is added to the user's own portfolio of the device."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import inspect
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from tilewright.backend import LiveDevice
from tilewright.backend import device as find_device
from tilewright.paths import locked
from tilewright.portfolio.find import own_folder
from tilewright.portfolio.kernel import Code, PortfolioKernel
from tilewright.portfolio.portfolio import (
    Portfolio,
    PortfolioError,
    read_portfolio,
    write_portfolio,
)
from tilewright.reschedule.cubin import compile_kernel
from tilewright.reschedule.levels import baseline_and_level, unscheduled
from tilewright.stencil import Variant, stencil, stencils
from tilewright.stencil.geometry import Mode
from tilewright.tuning import tuner
from tilewright.tuning.measurement import Measurement
from tilewright.tuning.record import from_record, to_record

__all__ = ["keep", "machine_code", "tune"]

_Key = TypeVar("_Key")


@functools.wraps(tuner.tune)
def tune(*args: Any, **options: Any) -> tuner.TuningResult:
    """Tune, and keep the winner; see `tilewright.tuning.tuner.tune`."""
    given = inspect.signature(tuner.tune).bind(*args, **options).arguments
    here = find_device(given.get("device")) if given.get("cluster") is None else None
    if here is not None:  # what cannot be kept is said before the work
        own_folder(here.portfolio_key, to_write=True)
    found = tuner.tune(*args, **options)
    if found.served is not None:
        if here is not None:
            keep(here, found.served)
        else:
            from tilewright.tuning.cluster import on_every_worker

            about = given.get("device"), given.get("modules", ())
            on_every_worker(given["cluster"], _keep_there, *about, to_record(found.served))
    return found


def _keep_there(device: str | None, modules: tuple[str, ...], record: dict[str, Any]) -> None:
    """Keep a winner where a worker of a cluster runs, if it won on such a device."""
    for module in modules:
        importlib.import_module(module)
    live, winner = find_device(device), from_record(record)
    if live.fingerprint == winner.device:
        keep(live, winner)


def keep(live: LiveDevice, winner: Measurement) -> Portfolio:
    """Add a verified winner to the device's own portfolio, which serves from the next start on.

    Of two winners for one problem the faster stays.

    Parameters
    ----------
    live : LiveDevice
        Where it won.
    winner : Measurement
        That passed every check there.

    Raises
    ------
    OSError
        If the portfolio cannot be read, though it is there, or written.
    """
    name = winner.problem.precision.portfolio
    folder = own_folder(live.portfolio_key, to_write=True)
    with locked(folder / ".lock"):  # two tuners may end at once
        try:
            before = read_portfolio(folder, name)
        except PortfolioError as problem:
            unread = problem.__cause__
            if isinstance(unread, OSError) and not isinstance(unread, FileNotFoundError):
                raise unread from None  # which says nothing against what is there
            _set_aside(folder, name, problem)
            before = Portfolio(
                name,
                live.arch,
                live.spec.name,
                live.spec.compute_capability,
                live.spec.multiprocessors,
                (),
            )
        made, codes = _with(live, before, winner)
        blocks: dict[str, list[tuple[Code, bytes]]] = {}
        for code, cubin in codes:
            blocks.setdefault(code.block or code.digest[:16], []).append((code, cubin))
        return write_portfolio(folder, made, blocks)


def _set_aside(folder: Path, name: str, problem: PortfolioError) -> None:
    """Move a portfolio that cannot be read, as one of another version, to a folder beside it."""
    manifest = folder / f"{name}.json"
    if not manifest.exists():
        return
    to = Path(tempfile.mkdtemp(prefix=f"{name}-unread-", dir=folder))  # private to the user
    for file in (*folder.glob(f"{name}-*.xz"), manifest):
        file.rename(to / file.name)
    warnings.warn(f"{problem}; it was moved to {to}, and a new one begun", stacklevel=2)


def _with(
    live: LiveDevice, before: Portfolio, winner: Measurement
) -> tuple[Portfolio, list[tuple[Code, bytes]]]:
    """Return a portfolio with one more winner, and all machine code that it needs."""
    problem, variant = winner.problem, Variant.of(winner.problem)
    config, sizes = unscheduled(winner.config), (problem.m, problem.n, problem.k)
    family = stencil(config.stencil)
    kernels = [one for one in before.kernels if _may_serve(one)]
    rivals = [one for one in kernels if one.variant == variant and sizes in one.won]
    codes: list[tuple[Code, bytes]] = []
    if not any(one.won[sizes] <= winner.median_ns for one in rivals):
        modes: dict[Mode, str] = {}
        if live.backend == "cuda":
            codes.append(machine_code(live, winner))
            modes[winner.mode] = codes[0][0].digest
        fresh = PortfolioKernel(config, family.version, variant, family.geometry(config), modes)
        mine = next((x for x in kernels if (x.config, x.variant) == (config, variant)), fresh)
        won = {**mine.won, sizes: winner.median_ns}
        others = [
            replace(one, won={size: ns for size, ns in one.won.items() if size != sizes})
            if one in rivals
            else one
            for one in kernels
            if one != mine
        ]
        made = replace(mine, modes={**mine.modes, **modes}, won=won)
        kernels = [made, *(one for one in others if one.won or one.costs)]
    known = {code.digest for code, _ in codes}
    digests = [x for one in kernels for modes in one.forms for x in modes.values()]
    digests += before.sources.values()
    codes += _codes(before, [one for one in dict.fromkeys(digests) if one not in known])
    known = {code.digest for code, _ in codes}
    whole = tuple(one.with_forms([_of(form, known) for form in one.forms]) for one in kernels)
    return replace(before, kernels=whole, codes={}, sources=_of(before.sources, known)), codes


def _may_serve(kernel: PortfolioKernel) -> bool:
    """Whether a kernel is of its stencil's version, or of a stencil that is not registered here."""
    version = next((x.version for x in stencils() if x.name == kernel.config.stencil), None)
    return version in (None, kernel.version)


def _of(digests: Mapping[_Key, str], known: set[str]) -> dict[_Key, str]:
    """Return those that there is machine code of."""
    return {key: digest for key, digest in digests.items() if digest in known}


def _codes(portfolio: Portfolio, digests: list[str]) -> list[tuple[Code, bytes]]:
    found = []
    for digest in digests:
        with contextlib.suppress(PortfolioError):  # damaged: it is compiled again when it serves
            cubin = portfolio.machine_code(digest)
            found.append((portfolio.codes[digest], cubin))
    return found


def machine_code(live: LiveDevice, winner: Measurement) -> tuple[Code, bytes]:
    """Return what was tuned: the winner's cubin, from the compiler's cache."""
    family, variant = stencil(winner.config.stencil), Variant.of(winner.problem)
    baseline, level = baseline_and_level(winner.config)
    source = family.source(baseline, variant, live.dialect, winner.mode)
    loaded = compile_kernel(live, source, level).handle
    cubin, names = loaded.cubin, loaded.cubin.lowered
    digest = hashlib.sha256(cubin.code).hexdigest()
    code = Code(
        digest, "", 0, len(cubin.code), names.get(source.entry, source.entry),
        names.get(source.second, source.second), source.dynamic_shared_bytes, source.part_bytes,
        str(winner.environment.get("compiler", "")), level is not None,
        f"{live.spec.name}, driver {live.driver}, {winner.created[:10]}",
    )  # fmt: skip
    return code, cubin.code
