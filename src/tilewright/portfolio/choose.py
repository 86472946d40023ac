"""Which kernel serves a problem, in which launch mode: one rule for every caller.

1. What won a race of exactly this size, columns contiguous, on this model of device.
2. Else the kernel of which the shortest time is expected (`tilewright.portfolio.model`), among
   those whose machine code for the problem's launch mode ships.
3. On a device without costs the kernel tuned nearest in size; without any the stencil's default.

Ties go to the user's own kernels, then to the first in the portfolio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tilewright.hardware import DeviceSpec
from tilewright.portfolio.find import generation, own, shipped
from tilewright.portfolio.fit import alike_costs
from tilewright.portfolio.kernel import PortfolioKernel
from tilewright.portfolio.model import MODES, TERMS, Model
from tilewright.portfolio.portfolio import Portfolio
from tilewright.problem import Problem, Trans
from tilewright.space import Config
from tilewright.stencil import Stencil, Variant, stencil, stencils_for
from tilewright.stencil.geometry import PLAIN, Launch, Mode

__all__ = [
    "Choice",
    "Held",
    "Served",
    "choose",
    "default_choice",
    "distance",
    "held",
    "held_rows",
    "refuse",
]


class Served(Protocol):
    """What kernels are chosen for: a live device, or one that is described."""

    @property
    def portfolio_key(self) -> str:
        """Whose own portfolios count; empty for none."""

    @property
    def spec(self) -> DeviceSpec:
        """Its numbers."""


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
        Which compiled twin.
    tuned_on : str
        The problem whose race it won; empty otherwise.
    kernel : PortfolioKernel, optional
        Where it comes from; None for the stencil's default.
    portfolio : Portfolio, optional
        That holds it.
    ns : float or None
        The time that is expected of it, where that is known.
    """

    stencil: Stencil
    config: Config
    mode: Mode = PLAIN
    tuned_on: str = ""
    kernel: PortfolioKernel | None = None
    portfolio: Portfolio | None = None
    ns: float | None = None

    @property
    def twin(self) -> Config:
        """The config in its launch mode."""
        return self.stencil.in_mode(self.config, self.mode)

    def digest(self, routed: bool = False) -> str:
        """Which machine code serves it; empty where it is compiled."""
        if self.kernel is None or self.portfolio is None or self.portfolio.folder is None:
            return ""
        return _digests(self.kernel, routed).get(self.mode, "")

    def launch(self, problem: Problem) -> Launch:
        """Return the launch for a problem."""
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


@dataclass(frozen=True, eq=False)
class Held:
    """The kernels of a variant on a device, the user's own first.

    Parameters
    ----------
    kernels : tuple of PortfolioKernel
        In the order in which ties are decided.
    portfolios : tuple of Portfolio
        Where each comes from.
    own : tuple of bool
        Whether that is the user's.
    model : Model or None
        Of all of them; None where none has costs.
    """

    kernels: tuple[PortfolioKernel, ...]
    portfolios: tuple[Portfolio, ...]
    own: tuple[bool, ...]
    is_own: NDArray[np.bool_]
    model: Model | None
    # Whether machine code of each of `MODES` is there, a row a kernel: plain and routed.
    compiled: tuple[NDArray[np.bool_], NDArray[np.bool_]]
    tma: bool  # whether any kernel does not take all operands
    won: frozenset[tuple[int, int, int]]


# Machine code that a driver refused or that is damaged, by digest.
_refused: set[str] = set()


def refuse(digest: str) -> None:
    """Choose no kernel by this machine code in this process any more."""
    _refused.add(digest)


# Cleared with `generation`: part of the key.
@lru_cache(maxsize=512)
def _held(key: str, spec: DeviceSpec, variant: Variant, seen: int) -> Held:
    letter = variant.precision.letter
    mine, theirs = own(key, letter), shipped(spec, letter)
    rows: list[tuple[PortfolioKernel, Portfolio, bool]] = []
    for portfolio, is_own in ((mine, True), (theirs, False)):
        if portfolio is not None:
            found = portfolio.of_variant(variant)
            rows += [
                (one, portfolio, is_own)
                for one in found
                if _is_current(one) and (one.modes or _is_sound(one, variant, spec))
            ]
    if not rows and mine is not None:
        rows = [(one, mine, True) for one in _of_other_transposes(mine, variant, spec)]
    kernels = tuple(one for one, _, _ in rows)
    plain, routed = (
        np.array([[mode in _digests(one, of) for mode in MODES] for one in kernels], np.bool_)
        for of in (False, True)
    )
    return Held(
        kernels,
        tuple(portfolio for _, portfolio, _ in rows),
        tuple(is_own for _, _, is_own in rows),
        np.array([is_own for _, _, is_own in rows], np.bool_),
        _model(kernels, theirs),
        (plain, routed),
        any(one.geometry.tma for one in kernels),
        frozenset(sizes for one in kernels for sizes in one.won),
    )


def _is_current(kernel: PortfolioKernel) -> bool:
    """Whether the stencil is there as it was when the kernel was built."""
    try:
        return stencil(kernel.config.stencil).version == kernel.version
    except ValueError:  # of a stencil that a module registered elsewhere
        return False


def _is_sound(kernel: PortfolioKernel, variant: Variant, spec: DeviceSpec) -> bool:
    """Whether a kernel that is to be compiled here is a point of its stencil's space.

    A file may hold anything: only what the stencil itself would offer reaches a compiler.
    """
    return kernel.config in stencil(kernel.config.stencil).space(variant, spec)


def _of_other_transposes(
    portfolio: Portfolio, variant: Variant, spec: DeviceSpec
) -> list[PortfolioKernel]:
    """Return kernels tuned for other transposes whose configs are points of this variant's space.

    Their machine code is not for it.
    """
    found = []
    for one in portfolio.kernels:
        if _is_current(one) and _is_sound(one, variant, spec):
            found.append(replace(one, variant=variant, modes={}, routed={}))
    return found


def _model(kernels: Sequence[PortfolioKernel], theirs: Portfolio | None) -> Model | None:
    """Return the model of all kernels; None where none has costs."""
    if not any(one.costs for one in kernels):
        return None
    many = theirs.multiprocessors if theirs is not None else 1
    # One that nothing is known of is never expected to be fast: each launch takes for ever.
    unknown = np.zeros(len(TERMS))
    unknown[TERMS.index("launch")] = np.inf
    costs = []
    for one in kernels:
        mine = np.array(one.costs)
        if not one.costs:
            times = {_problem(one, sizes): ns for sizes, ns in one.won.items()}
            mine = alike_costs(one.geometry, times, kernels, many) if times else np.zeros(0)
        costs.append(mine if len(mine) == len(TERMS) else unknown)
    return Model([one.geometry for one in kernels], np.array(costs))


def _problem(kernel: PortfolioKernel, sizes: tuple[int, int, int]) -> Problem:
    variant = kernel.variant
    return Problem(*sizes, variant.precision, _plain(variant.trans_a), _plain(variant.trans_b))


def _plain(op: Trans) -> Trans:
    """Return an operation as BLAS has it: one that conjugates alone takes the time of N."""
    return Trans.N if op == Trans.R else op


def held(device: Served, variant: Variant) -> tuple[PortfolioKernel, ...]:
    """Return the kernels that may serve a variant, the device's own first."""
    seen = generation() + len(_refused)
    return _held(device.portfolio_key, device.spec, variant, seen).kernels


def held_rows(device: Served, variant: Variant) -> Held:
    """Return what `choose` compares for a variant, with the model that it compares by."""
    seen = generation() + len(_refused)
    return _held(device.portfolio_key, device.spec, variant, seen)


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
    seen = generation() + len(_refused)  # what a choice depends on besides
    return _chosen(device.portfolio_key, device.spec, problem, aligned, routed, seen)


# Some hundred sizes are alive in any program we know of.
@lru_cache(maxsize=4096)
def _chosen(
    key: str, spec: DeviceSpec, problem: Problem, aligned: bool, routed: bool, seen: int
) -> Choice:
    variant = Variant.of(problem)
    table = _held(key, spec, variant, seen)
    able = _able(table, problem, aligned, routed)
    if not len(able):
        default = default_choice(variant, spec)
        family = default.stencil
        return replace(default, mode=_offered(family, default.config, variant, spec, problem))
    raced = _raced(spec, table, problem, able)
    if raced is not None:
        return _made(table, raced[0], problem, spec, routed, raced[1])
    if table.model is None:
        nearest = min(able, key=lambda at: _nearest(table.kernels[at], problem))
        return _made(table, int(nearest), problem, spec, routed, None)
    ns = table.model.expected(problem, spec.multiprocessors)
    has = table.compiled[routed][able, table.model.modes(problem)[able]] | table.is_own[able]
    among = able[has] if has.any() else able
    best = int(among[np.argmin(ns[among])])
    return _made(table, best, problem, spec, routed, float(ns[best]))


def _able(table: Held, problem: Problem, aligned: bool, routed: bool) -> NDArray[np.intp]:
    """Return which kernels take the operands, and have machine code or may be compiled."""
    some = table.compiled[routed].any(axis=1) if len(table.kernels) else np.zeros(0, np.bool_)
    if not routed:
        some = some | table.is_own
    if table.tma:
        some &= np.array([one.geometry.takes(problem, aligned) for one in table.kernels])
    return np.flatnonzero(some)


def _raced(
    spec: DeviceSpec, table: Held, problem: Problem, able: NDArray[np.intp]
) -> tuple[int, float] | None:
    """Return which kernel won a race of exactly this problem, and its time."""
    if (problem.m, problem.n, problem.k) not in table.won:
        return None
    if problem != replace(problem, lda=0, ldb=0, ldc=0):
        return None
    sizes = problem.m, problem.n, problem.k
    won = [
        (not table.own[at], table.kernels[at].won[sizes], at)
        for at in map(int, able)
        if sizes in table.kernels[at].won and (table.own[at] or table.portfolios[at].names(spec))
    ]
    if not won:
        return None
    if all(table.portfolios[at].names(spec) for _, _, at in won):
        won = [(False, ns, at) for _, ns, at in won]  # times of one model may be compared
    _, ns, at = min(won)
    return at, ns


def _nearest(kernel: PortfolioKernel, problem: Problem) -> float:
    return min((distance(problem, sizes) for sizes in kernel.won), default=math.inf)


def _digests(kernel: PortfolioKernel, routed: bool) -> dict[Mode, str]:
    """Return the machine code that was not refused."""
    modes = kernel.routed if routed else kernel.modes
    return {mode: digest for mode, digest in modes.items() if digest not in _refused}


def _made(
    table: Held, at: int, problem: Problem, spec: DeviceSpec, routed: bool, ns: float | None
) -> Choice:
    kernel, portfolio = table.kernels[at], table.portfolios[at]
    family = stencil(kernel.config.stencil)
    wanted, modes = kernel.geometry.mode(problem), _digests(kernel, routed)
    if table.own[at] and wanted not in modes:
        wanted = _offered(family, kernel.config, kernel.variant, spec, problem)
    elif wanted not in modes:
        # Any twin is right for any problem; these are the next best.
        others = (
            replace(wanted, staged=False), replace(wanted, clamped=False),
            replace(wanted, staged=False, clamped=False), Mode(),
        )  # fmt: skip
        wanted = next((one for one in others if one in modes), Mode())
    sizes = (problem.m, problem.n, problem.k)
    won = sizes if sizes in kernel.won else min(
        kernel.won, key=lambda other: distance(problem, other), default=None
    )  # fmt: skip
    on = ""
    if won is not None and (table.own[at] or won == sizes):
        on = str(_problem(kernel, won))
    return Choice(family, kernel.config, wanted, on, kernel, portfolio, ns)


@lru_cache(maxsize=4096)
def _offered(
    family: Stencil, config: Config, variant: Variant, spec: DeviceSpec, problem: Problem
) -> Mode:
    """Return the problem's launch mode, or the nearest one whose twin is in the space."""
    wanted = family.geometry(config).mode(problem)
    space = family.space(variant, spec)
    for mode in (wanted, replace(wanted, scalar=False, clamped=False), Mode()):
        if mode == Mode() or family.in_mode(config, mode) in space:
            return mode
    return Mode()


@lru_cache(maxsize=256)
def default_choice(variant: Variant, spec: DeviceSpec) -> Choice:
    """Return what the most fitting stencil offers untuned; finding it takes 0.6 ms."""
    family = stencils_for(spec, variant.precision)[0]
    return Choice(family, family.default(variant, spec))
