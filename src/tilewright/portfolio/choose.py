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

from tilewright.hardware import DeviceSpec
from tilewright.portfolio.find import generation, own, shipped
from tilewright.portfolio.fit import alike_costs
from tilewright.portfolio.kernel import PortfolioKernel
from tilewright.portfolio.model import TERMS, Model
from tilewright.portfolio.portfolio import Portfolio
from tilewright.problem import Problem, Trans
from tilewright.space import Config
from tilewright.stencil import Stencil, Variant, stencil, stencils, stencils_for
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
        return (self.kernel.routed if routed else self.kernel.modes).get(self.mode, "")

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
    model: Model | None


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
            found = portfolio.by_variant.get(variant, ())
            rows += [(one, portfolio, is_own) for one in found if _is_current(one)]
    if not rows and mine is not None:
        rows = [(one, mine, True) for one in _of_other_transposes(mine, variant, spec)]
    kernels = tuple(one for one, _, _ in rows)
    return Held(
        kernels,
        tuple(portfolio for _, portfolio, _ in rows),
        tuple(is_own for _, _, is_own in rows),
        _model(kernels, theirs),
    )


def _is_current(kernel: PortfolioKernel) -> bool:
    """Whether the stencil is there as it was when the kernel was built."""
    known = {family.name: family.version for family in stencils()}
    return known.get(kernel.config.stencil) == kernel.version


def _of_other_transposes(
    portfolio: Portfolio, variant: Variant, spec: DeviceSpec
) -> list[PortfolioKernel]:
    """Return kernels tuned for other transposes whose configs are points of this variant's space.

    Their machine code is not for it.
    """
    found = []
    for one in portfolio.kernels:
        if _is_current(one):
            space = stencil(one.config.stencil).space(variant, spec)
            if one.config in space:
                found.append(replace(one, variant=variant, modes={}, routed={}))
    return found


def _model(kernels: Sequence[PortfolioKernel], theirs: Portfolio | None) -> Model | None:
    """Return the model of all kernels; None where none has costs."""
    if not any(one.costs for one in kernels):
        return None
    many = theirs.multiprocessors if theirs is not None else 1
    costs = []
    for one in kernels:
        mine = np.array(one.costs)
        if not one.costs:
            times = {_problem(one, sizes): ns for sizes, ns in one.won.items()}
            mine = alike_costs(one.geometry, times, kernels, many) if times else np.zeros(0)
        if len(mine) != len(TERMS):
            # One that nothing is known of is never expected to be fast: every launch costs so much.
            mine = np.zeros(len(TERMS))
            mine[0] = np.inf
        costs.append(mine)
    return Model([one.geometry for one in kernels], np.array(costs))


def _problem(kernel: PortfolioKernel, sizes: tuple[int, int, int]) -> Problem:
    variant = kernel.variant
    return Problem(*sizes, variant.precision, _plain(variant.trans_a), _plain(variant.trans_b))


def _plain(op: Trans) -> Trans:
    """Return an operation as BLAS has it: one that conjugates alone takes the time of N."""
    return Trans.N if op == Trans.R else op


def held(device: Served, variant: Variant) -> tuple[PortfolioKernel, ...]:
    """Return the kernels that may serve a variant, the device's own first."""
    return _held(device.portfolio_key, device.spec, variant, generation()).kernels


def held_rows(device: Served, variant: Variant) -> Held:
    """Return what `choose` compares for a variant, with the model that it compares by."""
    return _held(device.portfolio_key, device.spec, variant, generation())


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
    able = [
        at
        for at, one in enumerate(table.kernels)
        if one.geometry.takes(problem, aligned)
        and (not routed or one.routed)
        and (table.own[at] or _digests(one, routed))
    ]
    if not able:
        default = default_choice(variant, spec)
        family = default.stencil
        return replace(default, mode=_offered(family, default.config, variant, spec, problem))
    raced = _raced(spec, table, problem, able)
    if raced is not None:
        return _made(table, raced[0], problem, spec, routed, raced[1])
    if table.model is None:
        nearest = min(able, key=lambda at: _nearest(table.kernels[at], problem))
        return _made(table, nearest, problem, spec, routed, None)
    ns = table.model.expected(problem, spec.multiprocessors)
    compiled = [at for at in able if table.own[at] or _has(table.kernels[at], problem, routed)]
    best = min(compiled or able, key=lambda at: float(ns[at]))
    return _made(table, best, problem, spec, routed, float(ns[best]))


def _raced(
    spec: DeviceSpec, table: Held, problem: Problem, able: Sequence[int]
) -> tuple[int, float] | None:
    """Return which kernel won a race of exactly this problem, and its time."""
    if problem != replace(problem, lda=0, ldb=0, ldc=0):
        return None
    sizes = problem.m, problem.n, problem.k
    won = [
        (not table.own[at], table.kernels[at].won[sizes], at)
        for at in able
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


def _has(kernel: PortfolioKernel, problem: Problem, routed: bool) -> bool:
    """Whether machine code for the problem's launch mode is there."""
    return kernel.geometry.mode(problem) in _digests(kernel, routed)


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
