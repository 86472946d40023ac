"""The kernels that `gemm` would use on a device, with all that its choices depend on."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tilewright.backend.cache import KernelCache
from tilewright.backend.cuda.arranging import arranged_cubin
from tilewright.backend.cuda.compiler import nvrtc_version
from tilewright.export.target import LETTERS, Target
from tilewright.portfolio.choose import default_choice
from tilewright.portfolio.find import shipped
from tilewright.portfolio.held import held_rows
from tilewright.portfolio.kernel import Code, PortfolioKernel
from tilewright.portfolio.native_choice import fits_tables
from tilewright.portfolio.portfolio import Copying, Portfolio
from tilewright.precision import Precision
from tilewright.problem import Trans
from tilewright.stencil import Source, Stencil, Variant, stencil
from tilewright.stencil.asynchronous.realign import Realigned
from tilewright.stencil.geometry import MODES, PLAIN, Geometry, Mode

__all__ = ["Copies", "ExportedCode", "ExportedKernel", "KernelSet", "Rows", "collect"]


@dataclass(frozen=True)
class ExportedCode:
    """Machine code of one launch mode of a kernel.

    Parameters
    ----------
    name : str
        Unique in a set.
    code : Code
        Its functions, and what its launches need.
    cubin : bytes
        Machine code.
    """

    name: str
    code: Code
    cubin: bytes


@dataclass(frozen=True)
class ExportedKernel:
    """One kernel of a variant.

    Parameters
    ----------
    name : str
        Unique in a set.
    kernel : PortfolioKernel
        Config, geometry and sizes that it won races of.
    codes : Mapping
        Name of the machine code of each launch mode.
    costs : tuple of float
        As the model counts with them; empty where no kernel of the variant has any.
    own : bool
        Whether it is the user's, or a default: it serves every launch mode of its stencil.
    device : tuple or None
        Name and multiprocessors of the device that it was measured on.
    line_bytes : int
        Of boxes that the copy engine brings, where one is a line of a tile; 0: it is the tile.
    """

    name: str
    kernel: PortfolioKernel
    codes: Mapping[Mode, str]
    costs: tuple[float, ...]
    own: bool
    device: tuple[str, int] | None
    line_bytes: int

    @property
    def geometry(self) -> Geometry:
        """How its launches follow from a problem."""
        return self.kernel.geometry


@dataclass(frozen=True)
class Rows:
    """What serves a variant: kernels in the order of ties, and one for where none of them can."""

    kernels: tuple[ExportedKernel, ...]
    fallback: ExportedKernel | None = None

    @property
    def every(self) -> tuple[ExportedKernel, ...]:
        """All of them."""
        return self.kernels if self.fallback is None else (*self.kernels, self.fallback)


@dataclass(frozen=True)
class Copies:
    """What copies a precision's operands before a product; see `tilewright.serve.routes.realigned`.

    Parameters
    ----------
    takes : Copying
        How long.
    codes : tuple of str
        Names of the machine code that aligns columns, that transposes as well, and for complex
        elements that conjugates, too.
    side : int
        Elements along each side of the tile that a block moves.
    threads : int
        Of a block.
    """

    takes: Copying
    codes: tuple[str, ...]
    side: int
    threads: int


@dataclass(frozen=True)
class KernelSet:
    """Everything exported for one target.

    Parameters
    ----------
    target : Target
        What for.
    codes : Mapping
        Machine code by name.
    rows : Mapping
        Kernels by variant.
    copies : Mapping
        By a precision's letter, where operands may be copied.
    batched : Mapping
        Kernels that compute a batch in one launch, by variant.
    """

    target: Target
    codes: Mapping[str, ExportedCode]
    rows: Mapping[Variant, Rows]
    copies: Mapping[str, Copies]
    batched: Mapping[Variant, Rows] = field(default_factory=dict)

    @property
    def kernels(self) -> Mapping[str, ExportedKernel]:
        """Every kernel by name."""
        tables = *self.rows.values(), *self.batched.values()
        return {one.name: one for rows in tables for one in rows.every}

    @property
    def devices(self) -> list[tuple[str, int]]:
        """Devices that kernels were measured on, each once."""
        found = dict.fromkeys(one.device for one in self.kernels.values())
        return [device for device in found if device is not None]


@dataclass(frozen=True)
class _Wanted:
    """Machine code that is in a portfolio, or not compiled yet."""

    name: str
    portfolio: Portfolio | None
    digest: str
    source: Source | None


def collect(
    target: Target,
    variants: Iterable[Variant],
    *,
    observer: Callable[[int, int], None] = lambda done, of: None,
) -> KernelSet:
    """Return the kernels of some variants: those that `gemm` chooses among.

    Where it may copy operands first, the kernels for such copies are among them, of whichever
    variant they are.

    Machine code is taken from the portfolios where they have it; the rest is compiled: defaults
    where nothing ships, and launch modes of the user's own kernels.  No GPU is needed.

    Parameters
    ----------
    target : Target
        What for.
    variants : iterable of Variant
        Precisions and transposes.
    observer : callable
        Called with the number of cubins that are there and their number in all.

    Raises
    ------
    ValueError
        If a portfolio is damaged, or a kernel's launches cannot be described.
    BackendError
        If something has to be compiled and NVRTC is not installed, or refuses it.
    """
    rows: dict[Variant, Rows] = {}
    wanted: dict[str, _Wanted] = {}
    copies: dict[str, Copies] = {}
    batched: dict[Variant, Rows] = {}
    for variant in variants:
        of = variant.precision
        device = target.serving(of.letter)
        portfolio = shipped(device.spec, of.portfolio)
        reached = [variant]
        if portfolio is not None and portfolio.copying is not None:
            reached += [] if of.is_short else _of_copies(variant)
            copies[of.letter], needed = _copies(device, of, portfolio.copying)
            wanted |= {one.name: one for one in needed}
        for each in reached:
            if each not in rows:
                rows[each], needed = _rows(device, each)
                wanted |= {one.name: one for one in needed}
        if of.letter in LETTERS:  # the C library launches them
            batched[variant], needed = _batched_rows(device, variant)
            wanted |= {one.name: one for one in needed}
    missing = any(one.source is not None for one in wanted.values())
    compiler = f"NVRTC {nvrtc_version()}" if missing else ""  # before threads: found out once
    cache = KernelCache()
    codes: dict[str, ExportedCode] = {}
    # NVRTC works outside Python's lock: as many at once as there are cores.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for made in pool.map(lambda x: _made(x, target.arch, cache, compiler), wanted.values()):
            codes[made.name] = made
            observer(len(codes), len(wanted))
    return KernelSet(target, codes, rows, copies, batched)


def _of_copies(variant: Variant) -> list[Variant]:
    """Return the variants that are computed where A runs along m, or B along n, as copies do."""
    a = variant.trans_a, Trans.N
    b = variant.trans_b, variant.trans_b if variant.trans_b.transposed else Trans.T
    found = dict.fromkeys(Variant(variant.precision, *pair) for pair in itertools.product(a, b))
    return [one for one in found if one != variant]


def _copies(device: Target, of: Precision, takes: Copying) -> tuple[Copies, list[_Wanted]]:
    """Return what copies operands of a precision, and the machine code that it needs."""
    passes = shipped(device.spec, "passes")
    kinds = {"straight": (False, False), "transposed": (True, False)}
    if of.is_complex:
        kinds["conjugated"] = (True, True)
    needed: list[_Wanted] = []
    for kind, how in kinds.items():
        source = Realigned(of.element_bytes, 1, 1, *how).source("cuda")
        name = f"tw_realign_{of.element_bytes}_{kind}"
        digest = "" if passes is None else passes.sources.get(source.identity, "")
        needed.append(_Wanted(name, passes, digest, None if digest else source))
    one = Realigned(of.element_bytes, 1, 1, False)
    names = tuple(wanted.name for wanted in needed)
    return Copies(takes, names, one.side, one.launch.block[0]), needed


def _rows(device: Target, variant: Variant) -> tuple[Rows, list[_Wanted]]:
    """Return a variant's kernels, and the machine code that they need."""
    held = held_rows(device, variant)
    needed: list[_Wanted] = []
    kernels: list[ExportedKernel] = []
    for at, kernel in enumerate(held.kernels):
        costs = () if held.model is None else tuple(float(x) for x in held.model.costs[at])
        portfolio, own = held.portfolios[at], held.own[at]
        if not own and not kernel.modes:
            continue
        made = _exported(device, kernel, costs, portfolio, own=own)
        kernels.append(made[0])
        needed += made[1]
    along_k = bool(kernels) and variant.precision.reads_along_k
    if along_k or any(one.geometry.takes_all for one in kernels):
        return Rows(tuple(kernels)), needed
    # Nothing that takes any problem, or nothing at all: the default does.
    default = default_choice(variant, device.spec)
    family = default.stencil
    plain = PortfolioKernel(
        default.config, family.version, variant, family.geometry(default.config), {}
    )
    fallback, more = _exported(device, plain, (), None, own=True)
    return Rows(tuple(kernels), fallback), needed + more


def _batched_rows(device: Target, variant: Variant) -> tuple[Rows, list[_Wanted]]:
    """Return the kernels of a variant that there is machine code for batches of."""
    held = held_rows(device, variant)
    needed: list[_Wanted] = []
    kernels: list[ExportedKernel] = []
    for at, kernel in enumerate(held.kernels):
        portfolio, codes = held.portfolios[at], dict[Mode, str]()
        for mode, digest in sorted(kernel.batched.items(), key=lambda one: MODES.index(one[0])):
            code = portfolio.codes.get(digest)
            # Such launches bring no workspace.
            if code is None or code.part_bytes or kernel.geometry.products > 1:
                continue
            codes[mode] = f"{_name(kernel)}_batched" + _suffix(mode)
            needed.append(_Wanted(codes[mode], portfolio, digest, None))
        if codes:
            costs = () if held.model is None else tuple(float(x) for x in held.model.costs[at])
            measured = portfolio.device, portfolio.multiprocessors
            name = f"{_name(kernel)}_batched"
            kernels.append(ExportedKernel(name, kernel, codes, costs, held.own[at], measured, 0))
    return Rows(tuple(kernels)), needed


def _name(kernel: PortfolioKernel) -> str:
    variant = kernel.variant
    pair = f"{variant.trans_a}{variant.trans_b}".lower()
    return f"tw_{variant.precision.letter}gemm_{pair}_{kernel.config.id}"


def _suffix(mode: Mode) -> str:
    return "" if mode == PLAIN else "_" + str(mode).replace("+", "_")


def _exported(
    device: Target,
    kernel: PortfolioKernel,
    costs: tuple[float, ...],
    portfolio: Portfolio | None,
    *,
    own: bool,
) -> tuple[ExportedKernel, list[_Wanted]]:
    family, variant = stencil(kernel.config.stencil), kernel.variant
    _look_at(family, kernel)
    name = _name(kernel)
    name += "_own" if own and portfolio is not None else ""
    codes: dict[Mode, str] = {}
    needed: list[_Wanted] = []
    by_content: dict[str, str] = {}
    modes = _offered(family, kernel, device) if own else dict.fromkeys((*kernel.modes, PLAIN))
    for mode in sorted(modes, key=MODES.index):
        digest, source = kernel.modes.get(mode, ""), None
        if portfolio is None or digest not in portfolio.codes:
            digest = ""
            source = family.source(kernel.config, variant, "cuda", mode)
        content = digest if source is None else source.identity
        if content not in by_content:  # several modes may have one source
            by_content[content] = name + _suffix(mode)
            needed.append(_Wanted(by_content[content], portfolio, digest, source))
        codes[mode] = by_content[content]
    measured = None if portfolio is None else (portfolio.device, portfolio.multiprocessors)
    line_bytes = int(getattr(family, "line_bytes", 0)) if kernel.geometry.tma else 0
    return ExportedKernel(name, kernel, codes, costs, own, measured, line_bytes), needed


def _offered(family: Stencil, kernel: PortfolioKernel, device: Target) -> Iterator[Mode]:
    """Yield the launch modes that a kernel can have and its geometry may ask for."""
    geometry = kernel.geometry
    for mode in family.modes(kernel.config, kernel.variant, device.spec):
        asked = not (geometry.tma and (mode.scalar or mode.clamped))
        if asked and (not mode.staged or geometry.may_stage(kernel.variant.precision)):
            yield mode


def _look_at(family: Stencil, kernel: PortfolioKernel) -> None:
    """Refuse launches that the library's tables cannot describe."""
    geometry = kernel.geometry
    if not fits_tables(geometry):
        raise ValueError(f"kernel {kernel.name} has a geometry too large to export: {geometry}")
    if family.common_arguments(kernel.config) == geometry.tma:
        raise ValueError(f"kernel {kernel.name} takes arguments that an export does not know")


def _made(one: _Wanted, arch: str, cache: KernelCache, compiler: str) -> ExportedCode:
    """Return machine code of a portfolio, or compile it."""
    if one.source is None:
        assert one.portfolio is not None
        code = one.portfolio.codes.get(one.digest)
        cubin = one.portfolio.machine_code(one.digest)
        assert code is not None
        return ExportedCode(one.name, code, cubin)
    source = one.source
    built = arranged_cubin(source, arch, cache)
    names = built.lowered
    code = Code(
        hashlib.sha256(built.code).hexdigest(), "", 0, len(built.code),
        names.get(source.entry, source.entry), names.get(source.second, source.second),
        source.dynamic_shared_bytes, source.part_bytes, compiler,
    )  # fmt: skip
    return ExportedCode(one.name, code, built.code)
