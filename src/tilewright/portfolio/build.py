"""From a plan to a portfolio: compile every twin, pack them.

::

    everything measured --plan--> kernels, modes --compile--> cubins --pack--> portfolio
                                                     |
                                                     +-- work folder: goes on where it stopped

Compiling needs no GPU.  What is made is kept in a work folder, one file a twin, so that a build may
be stopped at any moment and goes on.  `tilewright.portfolio.verify` runs what was packed.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.backend.base import BackendError
from tilewright.backend.cache import KernelCache
from tilewright.backend.cuda.arranging import arranged
from tilewright.backend.cuda.compiler import cached_cubin, nvrtc_version
from tilewright.paths import private_directory, write_atomically
from tilewright.portfolio.kernel import Code, PortfolioKernel
from tilewright.portfolio.plan import Planned
from tilewright.portfolio.portfolio import Portfolio, write_portfolio
from tilewright.reschedule.cubin import reschedule
from tilewright.reschedule.levels import SCHEDULE, Level, level_of
from tilewright.stencil import Source, stencil
from tilewright.stencil.geometry import PLAIN, Mode, SplitK

__all__ = ["Twin", "Work", "pack", "twins_of"]


@dataclass(frozen=True)
class Twin:
    """One source to compile: a kernel in one launch mode, or what has no config.

    Parameters
    ----------
    name : str
        Unique in a work folder.
    block : str
        What it is compressed together with.
    source : Source
        Kernel source and macros.
    kernel : PortfolioKernel, optional
        Whose twin it is.
    mode : Mode
        Of the kernel.
    routed : bool
        Whether it runs only where a number in device memory says so.
    level : Level, optional
        How the main loop is rescheduled; None for the compiler's own code.
    """

    name: str
    block: str
    source: Source
    kernel: PortfolioKernel | None = None
    mode: Mode = PLAIN
    routed: bool = False
    level: Level | None = None


def twins_of(planned: Iterable[Planned]) -> list[Twin]:
    """Return every twin of a plan."""
    found = []
    for one in planned:
        kernel, family = one.kernel, stencil(one.kernel.config.stencil)
        for routed, modes in ((False, kernel.modes), (True, kernel.routed)):
            for mode in modes:
                source = family.source(kernel.config, kernel.variant, "cuda", mode)
                plain = mode == Mode() and not routed
                level = level_of({SCHEDULE: one.level}) if plain else None
                if routed:
                    source = source.run_if(0)
                name = _name(kernel, mode, routed)
                block = _block(kernel)
                found.append(Twin(name, block, source, kernel, mode, routed, level))
    return found


def _name(kernel: PortfolioKernel, mode: Mode, routed: bool) -> str:
    """Return what a twin is called: the stencil's version is part of it."""
    return f"{kernel.name}-v{kernel.version}-{mode}{'-routed' if routed else ''}"


def _identity(twin: Twin) -> tuple[str, SplitK | None]:
    """Return what equal machine code has in common: its name, and how its launches are cut."""
    if twin.kernel is None:
        return twin.source.identity, None
    return twin.name, twin.kernel.geometry.split_k


def _block(kernel: PortfolioKernel) -> str:
    """Return what a twin is compressed together with: its config's others, of all transposes.

    These differ little, and are unpacked in some milliseconds.
    """
    return kernel.config.id


class Work:
    """A folder in which a build keeps what it made.

    Parameters
    ----------
    folder : Path
        Private to the user; made if it is missing.
    arch : str
        What is compiled for, such as ``"sm_90a"``.
    """

    def __init__(self, folder: Path, arch: str) -> None:
        self.folder, self.arch = private_directory(folder), arch

    def compile(
        self,
        twins: Iterable[Twin],
        seconds: float,
        share: tuple[int, int] = (0, 1),
        observer: Callable[[int, int], None] = lambda done, of: None,
    ) -> dict[str, str]:
        """Compile what is missing, for so many seconds; return why some were refused.

        Where a loop cannot be rescheduled, its twin is the compiler's own code.

        Parameters
        ----------
        twins : iterable of Twin
            All that the portfolio is to have.
        seconds : float
            After which no further compilation begins.
        share : tuple of int
            Which part of the twins, and of how many: rescheduling takes a process each.
        observer : callable
            Called with the twins that are there, and how many there are in all.
        """
        every = list(twins)[share[0] :: share[1]]
        missing = [one for one in every if not self.has(one)]
        refused: dict[str, str] = {}
        until = time.monotonic() + seconds
        cache, compiler = KernelCache(), f"NVRTC {nvrtc_version()}"
        done = len(every) - len(missing)

        def one(twin: Twin) -> None:
            if time.monotonic() >= until:
                return
            try:
                self._compile(twin, cache, compiler)
            except BackendError as error:
                refused[twin.name] = str(error)
                if twin.level is not None:  # as the compiler made it, then
                    self._compile(replace(twin, level=None), cache, compiler)

        # NVRTC works outside Python's lock: as many at once as there are cores.
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for _ in pool.map(one, missing):
                done += 1
                observer(done, len(every))
        return refused

    def _compile(self, twin: Twin, cache: KernelCache, compiler: str) -> None:
        source = twin.source
        cubin = cached_cubin(source, self.arch, cache)
        if twin.level is not None:
            cubin = reschedule(cubin, source.entry, twin.level, cache)
        made = arranged(cubin, cache)
        digest = hashlib.sha256(made.code).hexdigest()
        names = made.lowered
        code = Code(
            digest, twin.block, 0, len(made.code), names.get(source.entry, source.entry),
            names.get(source.second, source.second), source.dynamic_shared_bytes,
            source.part_bytes, compiler, twin.level is not None, "", source.digest,
        )  # fmt: skip
        write_atomically(self._file(twin, "cubin"), made.code)
        write_atomically(self._file(twin, "json"), json.dumps(vars(code)).encode())

    def seed(self, twins: Iterable[Twin], portfolio: Portfolio) -> None:
        """Take over the machine code of an earlier portfolio, so that it is not compiled again.

        What another source was compiled to is not taken over; where a portfolio does not say, its
        version has to do.

        Parameters
        ----------
        twins : iterable of Twin
            All that the new one is to have.
        portfolio : Portfolio
            For the same architecture.
        """
        digests: dict[tuple[str, SplitK | None], str] = {
            (identity, None): digest for identity, digest in portfolio.sources.items()
        }
        for kernel in portfolio.kernels:
            for routed, modes in ((False, kernel.modes), (True, kernel.routed)):
                for mode, digest in modes.items():
                    name = _name(kernel, mode, routed)
                    digests[name, kernel.geometry.split_k] = digest
        for twin in twins:
            known = digests.get(_identity(twin))
            if known is None or self.has(twin):
                continue
            source = twin.source.digest
            if portfolio.codes[known].source in ("", source):
                code = replace(portfolio.codes[known], block=twin.block, at=0, source=source)
                write_atomically(self._file(twin, "cubin"), portfolio.machine_code(known))
                write_atomically(self._file(twin, "json"), json.dumps(vars(code)).encode())

    def has(self, twin: Twin) -> bool:
        """Whether a twin was compiled, from the source that it has today."""
        path = self._file(twin, "json")
        return path.exists() and json.loads(path.read_text()).get("source") == twin.source.digest

    def read(self, twin: Twin) -> tuple[Code, bytes]:
        """Return what was compiled."""
        row = json.loads(self._file(twin, "json").read_text())
        return Code(**row), self._file(twin, "cubin").read_bytes()

    def _file(self, twin: Twin, kind: str) -> Path:
        return self.folder / f"{twin.name}.{kind}"


def pack(
    work: Work,
    twins: Iterable[Twin],
    kernels: Iterable[PortfolioKernel],
    portfolio: Portfolio,
    folder: Path,
    checked: Mapping[str, str] | None = None,
) -> Portfolio:
    """Write a portfolio of what was compiled; return it as it reads.

    Parameters
    ----------
    work : Work
        Where that is.
    twins : iterable of Twin
        All that it may have.
    kernels : iterable of PortfolioKernel
        Of the plan, without digests.
    portfolio : Portfolio
        Name, device and provenance.
    folder : Path
        Where to.
    checked : Mapping, optional
        By digest where each was verified: what was not is left out.
    """
    blocks: dict[str, dict[str, tuple[Code, bytes]]] = {}
    digests: dict[tuple[str, bool], dict[Mode, str]] = {}
    sources: dict[str, str] = {}
    for twin in twins:
        if not work.has(twin):
            continue
        code, cubin = work.read(twin)
        if checked is not None:
            if code.digest not in checked:
                continue
            code = replace(code, checked=checked[code.digest])
        blocks.setdefault(twin.block, {}).setdefault(code.digest, (code, cubin))
        if twin.kernel is None:
            sources[twin.source.identity] = code.digest
        else:
            digests.setdefault((twin.kernel.name, twin.routed), {})[twin.mode] = code.digest
    packed = tuple(
        replace(
            one,
            modes=digests[one.name, False],
            routed=digests.get((one.name, True), {}),
        )
        for one in kernels
        if Mode() in digests.get((one.name, False), {})
    )
    made = replace(portfolio, kernels=packed, sources=sources)
    return write_portfolio(folder, made, _ordered(blocks))


def _ordered(
    blocks: Mapping[str, Mapping[str, tuple[Code, bytes]]],
) -> dict[str, list[tuple[Code, bytes]]]:
    return {name: list(found.values()) for name, found in sorted(blocks.items())}
