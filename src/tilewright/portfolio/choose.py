"""Which kernel serves a problem, in which launch mode: one rule for every caller.

1. What won a race of exactly this size, columns contiguous, on a device with as many
   multiprocessors.
2. Else the kernel of which the shortest time is expected (`tilewright.portfolio.model`), more where
   its machine code for the problem's launch mode does not ship (`tilewright.portfolio.instances`).
3. On a device without costs the kernel tuned nearest in size; without any the stencil's default.

Ties go to the user's own kernels, then to the first in the portfolio.

The core decides so in C (`tilewright.portfolio.native_choice`); NumPy does where there is no core,
and is what the core is compared with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tilewright.dataclass import dataclass
from tilewright.hardware import DeviceSpec
from tilewright.portfolio.held import (
    Held,
    Served,
    digests,
    held_by,
    held_rows,
    problem_of,
    seen_now,
)
from tilewright.portfolio.instances import lacking, next_best, slower
from tilewright.portfolio.kernel import BATCHED, ROUTED, TRIANGLE, PortfolioKernel
from tilewright.portfolio.portfolio import Portfolio
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Stencil, Variant, stencil, stencils_for
from tilewright.stencil.asynchronous.folded import folded
from tilewright.stencil.geometry import MODES, PLAIN, Geometry, Launch, Mode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = [
    "Choice",
    "able_by_arrays",
    "by_arrays",
    "by_default",
    "choices",
    "choose",
    "default_choice",
    "distance",
    "expected_by_arrays",
    "fastest",
    "made_choice",
]


# A kernel by its place, the number of the launch mode that suits, and the nanoseconds to expect.
Found = tuple[int, int, float | None]


@dataclass(frozen=True)
class Choice:
    """A kernel for a problem.

    Parameters
    ----------
    stencil : Stencil
        The family.
    config : Config
        The point, without its launch mode.
    mode : Mode
        Which launch mode it is compiled in.
    tuned_on : str
        The problem whose race it won; empty otherwise.
    kernel : PortfolioKernel, optional
        Where it comes from; None for the stencil's default.
    portfolio : Portfolio, optional
        That holds it.
    ns : float or None
        The time that is expected of it, where that is known.
    form : int
        0, or `BATCHED`, `GROUPED` or `TRIANGLE`: what one launch computes.
    """

    stencil: Stencil
    config: Config
    mode: Mode = PLAIN
    tuned_on: str = ""
    kernel: PortfolioKernel | None = None
    portfolio: Portfolio | None = None
    ns: float | None = None
    form: int = 0

    def digest(self, routed: bool = False) -> str:
        """Which machine code serves it; empty where it is compiled."""
        if self.kernel is None or self.portfolio is None or self.portfolio.folder is None:
            return ""
        return digests(self.kernel, self.form or routed).get(self.mode, "")

    @property
    def geometry(self) -> Geometry:
        """How its launches cover a result."""
        if self.kernel is not None:
            return self.kernel.geometry
        return self.stencil.geometry(self.config)

    def launch(self, problem: Problem) -> Launch:
        """Return the launch for a problem."""
        if self.form == BATCHED:
            return self.geometry.batched(problem.m, problem.n, problem.batch)
        if self.form == TRIANGLE:
            return self.geometry.launch(*folded(self.geometry, problem.n), problem.k)
        sizes = problem.m, problem.n, problem.k
        if self.kernel is not None:
            return self.kernel.geometry.launch(*sizes)
        return self.stencil.launch(self.config, *sizes)


def distance(problem: Problem, sizes: tuple[int, int, int]) -> float:
    """Return how far apart sizes are: doublings, summed over m, n and k."""
    m, n, k = (
        abs(math.log2(max(1, x) / max(1, y)))
        for x, y in zip((problem.m, problem.n, problem.k), sizes, strict=True)
    )
    # Not sum(): it rounds otherwise from Python 3.12 on, and C code chooses alike.
    return m + n + k


def choose(
    device: Served, problem: Problem, aligned: bool = True, *, routed: bool = False
) -> Choice:
    """Return the kernel to serve a problem with.

    Parameters
    ----------
    device : Served
        Where.
    problem : Problem
        As kernels see it, column-major.
    aligned : bool
        Whether A and B begin at multiples of 16 bytes, as nearly all arrays do.
    routed : bool
        Whether the kernel is to run only where a number in device memory says so.
    """
    return _chosen(device.portfolio_key, device.spec, problem, aligned, routed, seen_now())


def choices(device: Served, problem: Problem) -> Iterator[Choice]:
    """Yield every kernel with machine code that takes a problem, in the mode it would serve in."""
    table = held_rows(device, Variant.of(problem))
    model = table.model
    expected = None if model is None else model.expected(problem, device.spec.multiprocessors)
    for at in map(int, np.flatnonzero(able_by_arrays(table, problem, True, 0))):
        made = made_choice(table, at, table.kernels[at].geometry.mode(problem), device.spec, 0)
        if made.digest():
            yield replace(made, ns=None if expected is None else float(expected[at]))


# Some hundred sizes are alive in any program we know of.
@lru_cache(maxsize=4096)
def _chosen(
    key: str, spec: DeviceSpec, problem: Problem, aligned: bool, routed: bool, seen: int
) -> Choice:
    variant = Variant.of(problem)
    table = held_by(key, spec, variant, seen)
    found = fastest(spec, table, problem, aligned, routed)
    if found is None:
        return by_default(variant, spec, problem, aligned)
    at, number, ns = found
    made = table.made.get((at, number, routed))
    if made is None:
        made = table.made[at, number, routed] = made_choice(table, at, MODES[number], spec, routed)
    on = _tuned_on(table, at, problem)
    return Choice(made.stencil, made.config, made.mode, on, made.kernel, made.portfolio, ns)


def fastest(
    spec: DeviceSpec, table: Held, problem: Problem, aligned: bool, form: int
) -> Found | None:
    """Return which kernel serves, by the core where it can tell; None where none takes it."""
    native = table.native[form]
    if native is not None and native.takes(problem):
        return native(problem, aligned)
    return by_arrays(spec, table, problem, aligned, form)


def by_arrays(
    spec: DeviceSpec, table: Held, problem: Problem, aligned: bool, form: int
) -> Found | None:
    """Return what the core chooses, by NumPy; None where no kernel takes the problem."""
    able = np.flatnonzero(able_by_arrays(table, problem, aligned, form))
    if not len(able):
        return None
    ns: float | None = None
    raced = _raced(spec, table, problem, able)
    if raced is not None:
        best, ns = raced
    elif table.model is None:
        best = int(min(able, key=lambda at: _nearest(table.kernels[at], problem)))
    else:
        expected = expected_by_arrays(spec, table, problem, form)
        best = int(able[np.argmin(expected[able])])
        ns = float(expected[best])
    mode = table.kernels[best].geometry.mode(problem)
    return best, mode.number, ns


def expected_by_arrays(
    spec: DeviceSpec, table: Held, problem: Problem, form: int, times: Floats | None = None
) -> Floats:
    """Return the nanoseconds to expect of each kernel in the mode that it would serve in."""
    assert table.model is not None
    expected = table.model.expected(problem, spec.multiprocessors)
    lacks = lacking(table.compiled[form], table.model.modes(problem))
    lacks = np.where(table.is_own, 0, lacks)
    area = float(problem.m) * float(problem.n) * float(problem.batch)
    expected = slower(expected, lacks, area)
    return expected if times is None else expected * times


def able_by_arrays(table: Held, problem: Problem, aligned: bool, form: int) -> NDArray[np.bool_]:
    """Return which of them take the problem."""
    some = table.there(form)
    if table.refuses:
        some &= np.array([one.geometry.takes(problem, aligned) for one in table.kernels])
    return some


def _raced(
    spec: DeviceSpec, table: Held, problem: Problem, able: NDArray[np.intp]
) -> tuple[int, float] | None:
    """Return which kernel won a race of exactly this problem, and its time."""
    if problem.batch > 1 or (problem.m, problem.n, problem.k) not in table.won:
        return None
    if problem != replace(problem, lda=0, ldb=0, ldc=0):
        return None
    sizes = problem.m, problem.n, problem.k
    won = [
        (not table.own[at], table.kernels[at].won[sizes], at)
        for at in map(int, able)
        if sizes in table.kernels[at].won and (table.own[at] or table.portfolios[at].fits(spec))
    ]
    if not won:
        return None
    if len({table.portfolios[at].measured_on for _, _, at in won}) == 1:
        won = [(False, ns, at) for _, ns, at in won]  # times of one model may be compared
    _, ns, at = min(won)
    return at, ns


def _nearest(kernel: PortfolioKernel, problem: Problem) -> float:
    return min((distance(problem, sizes) for sizes in kernel.won), default=math.inf)


def made_choice(table: Held, at: int, wanted: Mode, spec: DeviceSpec, form: int) -> Choice:
    """Return a kernel in the launch mode that suits, or the nearest one that there is."""
    kernel, portfolio = table.kernels[at], table.portfolios[at]
    family = stencil(kernel.config.stencil)
    modes = digests(kernel, form)
    if table.own[at] and wanted not in modes:
        wanted = family.nearest_mode(kernel.config, kernel.variant, spec, wanted)
    elif wanted not in modes:
        others = (MODES[each] for each in next_best(wanted.number))
        wanted = next((one for one in others if one in modes), Mode())
    return Choice(
        family, kernel.config, wanted, "", kernel, portfolio, form=form if form > ROUTED else 0
    )


def _tuned_on(table: Held, at: int, problem: Problem) -> str:
    """Return the problem whose race a kernel won: this one, or of one's own the nearest."""
    kernel, sizes = table.kernels[at], (problem.m, problem.n, problem.k)
    if sizes not in kernel.won:
        if not (table.own[at] and kernel.won):
            return ""
        sizes = min(kernel.won, key=lambda other: distance(problem, other))
    found = table.names.get((at, sizes))
    if found is None:
        found = table.names[at, sizes] = str(problem_of(kernel, sizes))
    return found


@lru_cache(maxsize=256)
def default_choice(variant: Variant, spec: DeviceSpec) -> Choice:
    """Return what the most fitting stencil offers untuned; finding it takes 0.6 ms."""
    family = stencils_for(spec, variant)[0]
    return Choice(family, family.default(variant, spec))


def by_default(
    variant: Variant,
    spec: DeviceSpec,
    problem: Problem,
    aligned: bool,
    suits: Callable[[Geometry], bool] = lambda _: True,
) -> Choice:
    """Return the default of the most fitting stencil whose kernel takes the operands, and suits."""
    for family in stencils_for(spec, variant):
        geometry = _default_geometry(family.name, variant, spec)
        # What streams an operand is right for any problem, also where it is not meant for it.
        takes = geometry.streamed > 0 or geometry.takes(problem, aligned)
        if takes and suits(geometry):
            return _default_in(family.name, variant, spec, geometry.mode(problem))
    raise ValueError(
        f"device={spec.name} has no stencil for {problem.precision.name}; use one with tensor"
        " cores, or precision s, which gemm converts such arrays to"
    )


@lru_cache(maxsize=256)
def _default_geometry(family: str, variant: Variant, spec: DeviceSpec) -> Geometry:
    return stencil(family).geometry(stencil(family).default(variant, spec))


@lru_cache(maxsize=1024)
def _default_in(family: str, variant: Variant, spec: DeviceSpec, wanted: Mode) -> Choice:
    """Return the default in a launch mode, or the nearest that it has; a space takes 1 ms."""
    of = stencil(family)
    default = Choice(of, of.default(variant, spec))
    nearest = default.stencil.nearest_mode(default.config, variant, spec, wanted)
    return replace(default, mode=nearest)
