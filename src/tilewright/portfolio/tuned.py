"""What `tilewright.tune` finds is added to the user's own portfolio of the device."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilewright.backend import LiveDevice
from tilewright.backend import device as find_device
from tilewright.portfolio.find import own_folder
from tilewright.portfolio.kernel import Code, PortfolioKernel
from tilewright.portfolio.portfolio import (
    Portfolio,
    PortfolioError,
    read_portfolio,
    write_portfolio,
)
from tilewright.stencil import Variant, stencil, unscheduled
from tilewright.stencil.geometry import Mode
from tilewright.tuning import tuner
from tilewright.tuning.measurement import Measurement

__all__ = ["keep", "tune"]


@functools.wraps(tuner.tune)
def tune(*args: Any, **options: Any) -> tuner.TuningResult:
    """Tune, and keep the winner; see `tilewright.tuning.tuner.tune`."""
    found = tuner.tune(*args, **options)
    if found.served is not None:
        given = inspect.signature(tuner.tune).bind(*args, **options).arguments
        keep(find_device(given.get("device")), found.served)
    return found


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
        If the portfolio cannot be written.
    """
    letter = winner.problem.precision.letter
    folder = own_folder(live.portfolio_key)
    with _alone(folder):
        try:
            before = read_portfolio(folder, letter)
        except PortfolioError:  # none yet, or a damaged one, which is made anew
            before = Portfolio(
                letter,
                getattr(live, "arch", ""),
                live.spec.name,
                live.spec.compute_capability,
                live.spec.multiprocessors,
                (),
            )
        made, codes = _with(live, before, winner)
        blocks = {code.digest[:16]: [(code, text)] for code, text in codes}
        return write_portfolio(folder, made, blocks)


def _with(
    live: LiveDevice, before: Portfolio, winner: Measurement
) -> tuple[Portfolio, list[tuple[Code, bytes]]]:
    """Return a portfolio with one more winner, and all machine code that it needs."""
    problem, variant = winner.problem, Variant.of(winner.problem)
    config, sizes = unscheduled(winner.config), (problem.m, problem.n, problem.k)
    family = stencil(config.stencil)
    kernels = [one for one in before.kernels if one.version == family.version or one.won]
    rivals = [one for one in kernels if one.variant == variant and sizes in one.won]
    if any(one.won[sizes] <= winner.median_ns for one in rivals):
        return before, _codes(before, kernels)
    codes = []
    modes: dict[Mode, str] = {}
    if live.backend == "cuda":
        code, text = _machine_code(live, winner)
        modes[Mode()] = code.digest
        codes.append((code, text))
    mine = next((one for one in kernels if (one.config, one.variant) == (config, variant)), None)
    won = {**(mine.won if mine is not None else {}), sizes: winner.median_ns}
    others = []
    for one in kernels:
        if one is mine:
            continue
        if one in rivals:
            left = {size: ns for size, ns in one.won.items() if size != sizes}
            one = replace(one, won=left)
        if one.won:
            others.append(one)
    made = PortfolioKernel(config, family.version, variant, family.geometry(config), modes, (), won)
    known = {code.digest for code, _ in codes}
    codes += [one for one in _codes(before, others) if one[0].digest not in known]
    return replace(before, kernels=(made, *others), codes={}), codes


def _codes(portfolio: Portfolio, kernels: list[PortfolioKernel]) -> list[tuple[Code, bytes]]:
    found = []
    for digest in dict.fromkeys(x for one in kernels for x in one.modes.values()):
        with contextlib.suppress(PortfolioError):  # damaged: it is compiled again when it serves
            found.append((portfolio.codes[digest], portfolio.machine_code(digest)))
    return found


def _machine_code(live: LiveDevice, winner: Measurement) -> tuple[Code, bytes]:
    """Return what was tuned: the winner's cubin, from the compiler's cache."""
    family, variant = stencil(winner.config.stencil), Variant.of(winner.problem)
    source = family.source(winner.config, variant, live.dialect)
    loaded = live.compile(source).handle
    cubin, names = loaded.cubin, loaded.cubin.lowered
    digest = hashlib.sha256(cubin.code).hexdigest()
    code = Code(
        digest, "", 0, len(cubin.code), names.get(source.entry, source.entry),
        names.get(source.second, source.second), source.dynamic_shared_bytes, source.part_bytes,
        str(winner.environment.get("compiler", "")), source.schedule is not None,
        f"{live.spec.name}, driver {live.driver}, {winner.created[:10]}",
    )  # fmt: skip
    return code, cubin.code


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold a folder's lock, where the system has such locks: two tuners may end at once."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
