"""From a selection to a portfolio: compile every instance, pack them.

::

    everything measured --select--> kernels, modes --compile--> cubins --pack--> portfolio
                                                     |
                                                     +-- work folder: goes on where it stopped

Compiling needs no GPU.  What is made is kept in a work folder, one file an instance, so that a
build may be stopped at any moment and goes on.  `tilewright.portfolio.verify` runs what was packed.
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
from tilewright.backend.cuda.ahead import compiling_ahead
from tilewright.backend.cuda.arranging import arranged_cubin
from tilewright.backend.cuda.compiler import nvrtc_version
from tilewright.paths import private_directory, write_atomically
from tilewright.portfolio.kernel import BATCHED, GROUPED, ROUTED, TRIANGLE, Code, PortfolioKernel
from tilewright.portfolio.portfolio import Portfolio, PortfolioError, write_portfolio
from tilewright.portfolio.select import Selected
from tilewright.reschedule.cubin import rewriting
from tilewright.reschedule.levels import SCHEDULE, Level, level_of
from tilewright.stencil import Source, Stencil, stencil
from tilewright.stencil.geometry import PLAIN, Mode, SplitK

__all__ = ["Instance", "Work", "instances_of", "pack"]


# By form: ends of names.
_FORMS = ("", "-routed", "-batched", "-grouped", "-triangle")


@dataclass(frozen=True)
class Instance:
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
        Whose instance it is.
    mode : Mode
        Of the kernel.
    form : int
        0; `ROUTED`, where it runs only where a number in device memory says so; `BATCHED`;
        `GROUPED`; `TRIANGLE`.
    level : Level, optional
        How the main loop is rescheduled; None for the compiler's own code.
    """

    name: str
    block: str
    source: Source
    kernel: PortfolioKernel | None = None
    mode: Mode = PLAIN
    form: int = 0
    level: Level | None = None


def instances_of(selected: Iterable[Selected]) -> list[Instance]:
    """Return every instance of a selection."""
    found = []
    for one in selected:
        kernel, family = one.kernel, stencil(one.kernel.config.stencil)
        for form, modes in enumerate(kernel.forms):
            for mode in modes:
                source = _source(family, kernel, mode, form)
                plain = mode == PLAIN and form in (0, BATCHED, TRIANGLE)
                level = level_of({SCHEDULE: one.level}) if plain else None
                name = _name(kernel, mode, form)
                # Compressed together: its config's others, of all transposes.  These differ little,
                # and are unpacked in some milliseconds.
                block = kernel.config.id
                found.append(Instance(name, block, source, kernel, mode, form, level))
    return found


def _source(family: Stencil, kernel: PortfolioKernel, mode: Mode, form: int) -> Source:
    if form == GROUPED:
        config = family.grouped_config(kernel.config, kernel.variant)
        assert config is not None
        return family.grouped_source(config, kernel.variant, "cuda", mode)
    if form == TRIANGLE:
        return family.triangle_source(kernel.config, kernel.variant, "cuda", mode)
    source = family.source(kernel.config, kernel.variant, "cuda", mode)
    return (
        source.run_if_zero() if form == ROUTED else source.batched() if form == BATCHED else source
    )


def _name(kernel: PortfolioKernel, mode: Mode, form: int) -> str:
    """Return what an instance is called: the stencil's version is part of it."""
    return f"{kernel.name}-v{kernel.version}-{mode}{_FORMS[form]}"


def _identity(instance: Instance) -> tuple[str, SplitK | None]:
    """Return what equal machine code has in common: its name, and how its launches are cut."""
    if instance.kernel is None:
        return instance.source.identity, None
    return instance.name, instance.kernel.geometry.split_k


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
        instances: Iterable[Instance],
        seconds: float,
        share: tuple[int, int] = (0, 1),
        observer: Callable[[int, int], None] = lambda done, of: None,
    ) -> dict[str, str]:
        """Compile what is missing, for so many seconds; return why some were refused.

        Where a loop cannot be rescheduled, its instance is the compiler's own code.

        Parameters
        ----------
        instances : iterable of Instance
            All that the portfolio is to have.
        seconds : float
            After which no further compilation begins.
        share : tuple of int
            Which part of the instances, and of how many: rescheduling takes a process each.
        observer : callable
            Called with the instances that are there, and how many there are in all.
        """
        every = list(instances)[share[0] :: share[1]]
        missing = [one for one in every if not self.has(one)]
        refused: dict[str, str] = {}
        until = time.monotonic() + seconds
        cache, compiler = KernelCache(), f"NVRTC {nvrtc_version()}"
        done = len(every) - len(missing)

        def one(instance: Instance) -> None:
            if time.monotonic() >= until:
                return
            try:
                if instance.name in begun:
                    begun[instance.name]()
                self._compile(instance, cache, compiler)
            except BackendError as error:
                refused[instance.name] = str(error)
                if instance.level is not None:  # as the compiler made it, then
                    self._compile(replace(instance, level=None), cache, compiler)

        plain = [instance for instance in missing if instance.level is None]
        with compiling_ahead(self.arch) as ahead, ThreadPoolExecutor(os.cpu_count()) as pool:
            begun = {instance.name: ahead(instance.source) for instance in plain}
            for _ in pool.map(one, missing):
                done += 1
                observer(done, len(every))
        return refused

    def _compile(self, instance: Instance, cache: KernelCache, compiler: str) -> None:
        source = instance.source
        made = arranged_cubin(source, self.arch, cache, rewriting(source, instance.level))
        digest = hashlib.sha256(made.code).hexdigest()
        names = made.lowered
        code = Code(
            digest, instance.block, 0, len(made.code), names.get(source.entry, source.entry),
            names.get(source.second, source.second), source.dynamic_shared_bytes,
            source.part_bytes, compiler, instance.level is not None, "", source.digest,
        )  # fmt: skip
        write_atomically(self._file(instance, "cubin"), made.code)
        write_atomically(self._file(instance, "json"), json.dumps(vars(code)).encode())

    def seed(self, instances: Iterable[Instance], portfolio: Portfolio) -> None:
        """Take over the machine code of an earlier portfolio, so that it is not compiled again.

        What another source was compiled to is not taken over.

        Parameters
        ----------
        instances : iterable of Instance
            All that the new one is to have.
        portfolio : Portfolio
            For the same architecture.
        """
        digests: dict[tuple[str, SplitK | None], str] = {
            (identity, None): digest for identity, digest in portfolio.sources.items()
        }
        for kernel in portfolio.kernels:
            for form, modes in enumerate(kernel.forms):
                for mode, digest in modes.items():
                    name = _name(kernel, mode, form)
                    digests[name, kernel.geometry.split_k] = digest
        for instance in instances:
            known = digests.get(_identity(instance))
            if known is None or self.has(instance):
                continue
            source = instance.source.digest
            if portfolio.codes[known].source == source:
                code = replace(portfolio.codes[known], block=instance.block, at=0)
                write_atomically(self._file(instance, "cubin"), portfolio.machine_code(known))
                write_atomically(self._file(instance, "json"), json.dumps(vars(code)).encode())

    def has(self, instance: Instance) -> bool:
        """Whether an instance was compiled, from the source that it has today."""
        path = self._file(instance, "json")
        return (
            path.exists() and json.loads(path.read_text()).get("source") == instance.source.digest
        )

    def read(self, instance: Instance) -> tuple[Code, bytes]:
        """Return what was compiled."""
        row = json.loads(self._file(instance, "json").read_text())
        return Code(**row), self._file(instance, "cubin").read_bytes()

    def _file(self, instance: Instance, kind: str) -> Path:
        return self.folder / f"{instance.name}.{kind}"


def pack(
    work: Work,
    instances: Iterable[Instance],
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
    instances : iterable of Instance
        All that it may have.
    kernels : iterable of PortfolioKernel
        Of the selection, without digests.
    portfolio : Portfolio
        Name, device and provenance.
    folder : Path
        Where to.
    checked : Mapping, optional
        By digest where each was verified: what was not is left out.

    Raises
    ------
    PortfolioError
        If kernels that are launched differently have the same machine code.
    """
    blocks: dict[str, dict[str, tuple[Code, bytes]]] = {}
    digests: dict[tuple[str, int], dict[Mode, str]] = {}
    sources: dict[str, str] = {}
    for instance in instances:
        if not work.has(instance):
            continue
        code, cubin = work.read(instance)
        if checked is not None:
            if code.digest not in checked:
                continue
            code = replace(code, checked=checked[code.digest])
        kept, _ = blocks.setdefault(instance.block, {}).setdefault(code.digest, (code, cubin))
        if kept.launched != code.launched:
            raise PortfolioError(
                f"{code.symbol!r} and {kept.symbol!r} have the same machine code, which codes are"
                " kept by; give each kernel a text of its own"
            )
        if instance.kernel is None:
            sources[instance.source.identity] = code.digest
        else:
            digests.setdefault((instance.kernel.name, instance.form), {})[instance.mode] = (
                code.digest
            )
    packed = []
    for one in kernels:  # of one config and variant some may be for batches alone
        forms = [
            {
                mode: digest
                for mode, digest in digests.get((one.name, form), {}).items()
                if mode in own
            }
            for form, own in enumerate(one.forms)
        ]
        costs_alone = not any(one.forms)  # machine code is found by its source
        if Mode() in forms[0] or (not one.modes and forms[BATCHED]) or costs_alone:
            packed.append(one.with_forms(forms))
    made = replace(portfolio, kernels=tuple(packed), sources=sources)
    # What is left of a kernel that was left out serves nobody.
    named = {*sources.values(), *(x for one in packed for form in one.forms for x in form.values())}
    some = {
        name: [pair for digest, pair in found.items() if digest in named]
        for name, found in sorted(blocks.items())
    }
    return write_portfolio(folder, made, {name: pairs for name, pairs in some.items() if pairs})
