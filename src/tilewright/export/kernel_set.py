"""The kernels that `gemm` would use on a device, and for which problem each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from tilewright.backend.cache import KernelCache
from tilewright.backend.cuda.arranging import arranged
from tilewright.backend.cuda.compiler import cached_cubin, nvrtc_version
from tilewright.export.grid import Grid, grid_of
from tilewright.export.proved import check_proved, check_winners
from tilewright.export.target import Target
from tilewright.library.choose import candidates, choose
from tilewright.library.shipped import shipped
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Source, Stencil, Variant

__all__ = ["ExportedKernel", "KernelSet", "Tuned", "collect"]


@dataclass(frozen=True)
class ExportedKernel:
    """One compiled kernel with what its launch takes.

    Parameters
    ----------
    name : str
        Of the function, unique in a set: what profilers show.
    variant : Variant
        Precision and transposes.
    config : Config
        The point of its stencil's space.
    version : int
        The stencil's.
    grid : Grid
        How launches cover C.
    dynamic_shared_bytes : int
        Shared memory that a launch asks for.
    cubin : bytes
        Machine code.
    """

    name: str
    variant: Variant
    config: Config
    version: int
    grid: Grid
    dynamic_shared_bytes: int
    cubin: bytes


@dataclass(frozen=True)
class Tuned:
    """A problem's sizes, column-major, and the kernel for problems near it."""

    m: int
    n: int
    k: int
    kernel: str


@dataclass(frozen=True)
class KernelSet:
    """Everything exported for one target.

    Parameters
    ----------
    target : Target
        What for.
    compiler : str
        What compiled it, with its build.
    kernels : Mapping
        By name.
    choices : Mapping
        For each variant the rows that a problem's sizes are compared with; the nearest
        wins, the first of equally near ones, as in `tilewright.library.choose`.
    """

    target: Target
    compiler: str
    kernels: Mapping[str, ExportedKernel]
    choices: Mapping[Variant, tuple[Tuned, ...]]


@dataclass(frozen=True)
class _Wanted:
    """A kernel not compiled yet."""

    family: Stencil
    config: Config
    variant: Variant

    @property
    def name(self) -> str:
        pair = f"{self.variant.trans_a}{self.variant.trans_b}".lower()
        return f"tw_{self.variant.precision.name.lower()}_{pair}_{self.config.id}"


def collect(
    target: Target,
    variants: Iterable[Variant],
    *,
    cache: KernelCache | None = None,
    observer: Callable[[int, int], None] = lambda done, of: None,
) -> KernelSet:
    """Choose and compile the kernels of some variants.

    For each variant these are the stored winners of the target's device that `gemm` chooses
    among, or the default where nothing was tuned.  No GPU is needed.

    Parameters
    ----------
    target : Target
        What for.
    variants : iterable of Variant
        Precisions and transposes.
    cache : KernelCache, optional
        Where cubins are kept; the user's own by default.
    observer : callable
        Called with the number of kernels compiled and their number in all.

    Raises
    ------
    ValueError
        If a kernel's launches cannot be described by a table, or a winner is rescheduled code
        that is not proved on the target.
    BackendError
        If NVRTC is not installed, or refuses a kernel.
    """
    choices: dict[Variant, tuple[Tuned, ...]] = {}
    wanted: dict[str, _Wanted] = {}
    for variant in variants:
        check_winners(target, variant)
        rows = _rows(target, variant)
        wanted |= {one.name: one for _, one in rows}
        choices[variant] = tuple(Tuned(*sizes, one.name) for sizes, one in rows)
    version = nvrtc_version()  # before the threads: it is found out once
    cache = cache or KernelCache()
    made: dict[str, ExportedKernel] = {}
    # NVRTC works outside Python's lock: as many at once as there are cores.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for kernel in pool.map(lambda one: _compiled(one, target.arch, cache), wanted.values()):
            made[kernel.name] = kernel
            observer(len(made), len(wanted))
    return KernelSet(target, f"NVRTC {version}", made, choices)


def _rows(target: Target, variant: Variant) -> list[tuple[tuple[int, int, int], _Wanted]]:
    """Return tuned sizes and kernels; a single row where nothing was tuned.

    Sizes are those of the device's own winners and those raced for the shipped table, with
    what `gemm` chooses for each.
    """
    table = shipped(target.spec, variant)
    own = [(one.problem.m, one.problem.n, one.problem.k) for one in candidates(target, variant)]
    raced = [sizes for row in table.rows for sizes in row.won] if table is not None else []
    sizes = dict.fromkeys((*own, *raced)) or {(0, 0, 0): None}
    letter, operations = variant.precision, (variant.trans_a, variant.trans_b)
    found = []
    for m, n, k in sizes:
        chosen = choose(target, Problem(m, n, k, letter, *operations))
        found.append(((m, n, k), _Wanted(chosen.stencil, chosen.config, variant)))
    return found


def _compiled(one: _Wanted, arch: str, cache: KernelCache) -> ExportedKernel:
    check_proved(arch, one.family.name, one.variant, one.config)
    source = _named(one.family.source(one.config, one.variant, "cuda"), one.name)
    return ExportedKernel(
        name=one.name,
        variant=one.variant,
        config=one.config,
        version=one.family.version,
        grid=grid_of(one.family, one.config),
        dynamic_shared_bytes=source.dynamic_shared_bytes,
        cubin=arranged(cached_cubin(source, arch, cache), cache).code,
    )


def _named(source: Source, name: str) -> Source:
    """Return a source whose kernel has another name: the preprocessor renames it."""
    return replace(source, defines={**source.defines, source.entry: name}, entry=name)
