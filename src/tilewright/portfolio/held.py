"""The kernels that may serve a variant on a device, as whoever chooses among them needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tilewright.dataclass import dataclass
from tilewright.hardware import DeviceSpec
from tilewright.portfolio.find import generation, own, shipped
from tilewright.portfolio.fit import alike_costs
from tilewright.portfolio.kernel import BATCHED, GROUPED, ROUTED, TRIANGLE, PortfolioKernel
from tilewright.portfolio.model import NEVER, TERMS, Model
from tilewright.portfolio.native_choice import NativeChoice, Row, native_choice
from tilewright.portfolio.portfolio import Portfolio
from tilewright.problem import Problem, Trans
from tilewright.stencil import Variant, stencil
from tilewright.stencil.geometry import MODES, Mode

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Held", "Served", "digests", "held", "held_by", "held_of", "held_rows",
           "problem_of", "refuse", "seen_now"]  # fmt: skip

Sizes = tuple[int, int, int]


class Served(Protocol):
    """What kernels are chosen for: a live device, or one that is described."""

    @property
    def portfolio_key(self) -> str:
        """By which the user's own portfolios are found; empty for none."""

    @property
    def spec(self) -> DeviceSpec:
        """The device's numbers."""


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
        Whether it was tuned on the user's device and is compiled there in the mode that is wanted.
        A portfolio that was built there has the instances with which little is lost, as one that
        ships: the nearest serves.
    model : Model or None
        Of all of them; None where none has costs.
    """

    kernels: tuple[PortfolioKernel, ...]
    portfolios: tuple[Portfolio, ...]
    own: tuple[bool, ...]
    is_own: NDArray[np.bool_]
    model: Model | None
    # By form: whether machine code of each of `MODES` is there, a row a kernel.
    compiled: tuple[NDArray[np.bool_], ...]
    refuses: bool  # whether any kernel does not take all problems
    won: frozenset[Sizes]
    # The core's choice among those with machine code: plain, routed and batched; others have none.
    native: tuple[NativeChoice | None, NativeChoice | None, NativeChoice | None]
    # What was chosen before, by kernel, number of the mode and form.
    made: dict[tuple[int, int, int], Any] = field(default_factory=dict)
    # Names of races, by kernel and sizes.
    names: dict[tuple[int, Sizes], str] = field(default_factory=dict)

    def there(self, form: int) -> NDArray[np.bool_]:
        """Return which kernels have machine code or may be compiled."""
        some: NDArray[np.bool_] = np.asarray(self.compiled[form].any(axis=1))
        if form == 0:
            some |= self.is_own
        return some


# Machine code that a driver refused or that is damaged, by digest.
_refused: set[str] = set()


def refuse(digest: str) -> None:
    """Choose no kernel by this machine code in this process any more."""
    _refused.add(digest)


def digests(kernel: PortfolioKernel, form: int) -> dict[Mode, str]:
    """Return a kernel's machine code by mode, without what was refused."""
    return {mode: digest for mode, digest in kernel.forms[form].items() if digest not in _refused}


def seen_now() -> int:
    """Return a number that grows when portfolios are read anew or machine code is refused."""
    return generation() + len(_refused)


@lru_cache(maxsize=512)
def held_by(key: str, spec: DeviceSpec, variant: Variant, seen: int) -> Held:
    """Return what `held_rows` does, by a device's key and numbers, and by `seen_now`."""
    name = variant.precision.portfolio
    mine, theirs = own(key, name), shipped(spec, name)
    rows: list[tuple[PortfolioKernel, Portfolio, bool]] = []
    for portfolio, is_own in ((mine, True), (theirs, False)):
        if portfolio is not None:
            found = portfolio.of_variant(variant)
            rows += [
                (one, portfolio, is_own and not (one.costs and one.modes))
                for one in found
                if _is_current(one)
                and (any(one.forms) or _is_sound(one, variant, spec, but="heuristic"))
            ]
    if not rows and mine is not None:
        rows = [(one, mine, True) for one in _of_other_transposes(mine, variant, spec)]
    return held_of(rows, variant, spec)


def held_of(
    rows: Sequence[tuple[PortfolioKernel, Portfolio, bool]], variant: Variant, spec: DeviceSpec
) -> Held:
    """Return some kernels, with all that is known of them before a problem is.

    Parameters
    ----------
    rows : sequence of tuple
        In the order in which ties are decided.
    variant : Variant
        Of the kernels.
    spec : DeviceSpec
        Of the device.
    """
    kernels = tuple(one for one, _, _ in rows)
    is_own = tuple(is_own for _, _, is_own in rows)
    table = Held(
        kernels,
        tuple(portfolio for _, portfolio, _ in rows),
        is_own,
        np.array(is_own, np.bool_),
        _model(rows),
        tuple(_compiled(kernels, form) for form in (0, ROUTED, BATCHED, GROUPED, TRIANGLE)),
        any(one.geometry.any_alignment or not one.geometry.takes_all for one in kernels),
        frozenset(sizes for one in kernels for sizes in one.won),
        (None, None, None),
    )
    plain, routed, batched = (_native(table, variant, spec, form) for form in range(3))
    return replace(table, native=(plain, routed, batched))


def _compiled(kernels: Sequence[PortfolioKernel], form: int) -> NDArray[np.bool_]:
    """Return whether there is machine code of each of `MODES`, a row a kernel."""
    found = np.zeros((len(kernels), len(MODES)), np.bool_)
    for at, one in enumerate(kernels):
        for mode in digests(one, form):
            found[at, mode.number] = True
    return found


def _native(table: Held, variant: Variant, spec: DeviceSpec, form: int) -> NativeChoice | None:
    """Return the core's choice among the kernels that may serve at all."""
    rows = []
    devices = list(dict.fromkeys(one.measured_on for one in table.portfolios))
    alike = {devices.index(one.measured_on) for one in table.portfolios if one.fits(spec)}
    for at in map(int, np.flatnonzero(table.there(form))):
        device, compiled = devices.index(table.portfolios[at].measured_on), table.compiled[form][at]
        costs = [] if table.model is None else table.model.costs[at].tolist()
        rows.append(Row(at, table.kernels[at], costs, compiled.tolist(), table.own[at], device))
    return native_choice(rows, variant, spec.multiprocessors, spec.memory_bytes or 0, alike)


def _is_current(kernel: PortfolioKernel) -> bool:
    """Whether the stencil is there, and cuts launches, as it was when the kernel was built.

    What a block does with its part of k follows from the cut.
    """
    try:
        family = stencil(kernel.config.stencil)
    except ValueError:  # its stencil is registered by a module that is not imported here
        return False
    if family.version != kernel.version:
        return False
    cut = kernel.geometry.split_k
    try:
        return cut is None or cut == family.geometry(kernel.config).split_k
    except KeyError:  # its machine code is all that can serve: `_is_sound` refuses such a config
        return True


def _is_sound(kernel: PortfolioKernel, variant: Variant, spec: DeviceSpec, but: str = "") -> bool:
    """Whether a kernel that is to be compiled here is a point of its stencil's space.

    A file may hold anything: only what the stencil itself would offer reaches a compiler.  A winner
    was verified, so thresholds for what is likely to be fast (`but`) need not hold of it.
    """
    family = stencil(kernel.config.stencil)
    return family.computes(variant) and kernel.config in family.space(variant, spec).without(but)


def _of_other_transposes(
    portfolio: Portfolio, variant: Variant, spec: DeviceSpec
) -> list[PortfolioKernel]:
    """Return kernels tuned for other transposes whose configs are points of this variant's space.

    Their machine code is not for it.
    """
    return [
        PortfolioKernel(one.config, one.version, variant, one.geometry, {}, one.costs, one.won)
        for one in portfolio.kernels
        if _is_current(one) and _is_sound(one, variant, spec)
    ]


def _model(rows: Sequence[tuple[PortfolioKernel, Portfolio, bool]]) -> Model | None:
    """Return the model of all kernels; None where none has costs.

    A user's own kernel without costs takes those of one like it, scaled to its races; one that
    ships without costs serves its races alone.
    """
    known = [(one, portfolio.multiprocessors) for one, portfolio, _ in rows if one.costs]
    if not known:
        return None
    alike, many = [one for one, _ in known], known[-1][1]
    costs = []
    for one, _, is_own in rows:
        mine = one.costs
        if not mine and is_own and one.won:
            times = {problem_of(one, sizes): ns for sizes, ns in one.won.items()}
            mine = tuple(alike_costs(one.geometry, times, alike, many))
        costs.append(mine if len(mine) == len(TERMS) else NEVER)
    return Model([one.geometry for one, _, _ in rows], np.array(costs))


def problem_of(kernel: PortfolioKernel, sizes: tuple[int, int, int]) -> Problem:
    """Return the problem of these sizes that a kernel is for, columns contiguous."""
    variant = kernel.variant
    return Problem(*sizes, variant.precision, _plain(variant.trans_a), _plain(variant.trans_b))


def _plain(op: Trans) -> Trans:
    """Return an operation as BLAS has it: one that conjugates alone takes the time of N."""
    return Trans.N if op == Trans.R else op


def held(device: Served, variant: Variant) -> tuple[PortfolioKernel, ...]:
    """Return the kernels that may serve a variant, the device's own first."""
    return held_rows(device, variant).kernels


def held_rows(device: Served, variant: Variant) -> Held:
    """Return what `choose` compares for a variant, with the model that it compares by."""
    return held_by(device.portfolio_key, device.spec, variant, seen_now())
