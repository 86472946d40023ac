"""What goes into a portfolio: which kernels of everything measured, in which launch modes."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from tilewright.hardware import DeviceSpec
from tilewright.portfolio.drawn import drawn_batches, drawn_sides
from tilewright.portfolio.fit import fitted_costs
from tilewright.portfolio.forms import with_groups, with_triangles
from tilewright.portfolio.instances import next_best, slower
from tilewright.portfolio.kernel import PortfolioKernel
from tilewright.portfolio.measured import Case, Measured, Rescheduled, joined
from tilewright.portfolio.model import NEVER, TERMS, Model
from tilewright.portfolio.pick import pick
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.reschedule.levels import SCHEDULE, unscheduled
from tilewright.space import Config
from tilewright.stencil import Variant, stencil
from tilewright.stencil.geometry import MODES, PLAIN, Mode

__all__ = [
    "Selected",
    "select",
    "variants_with_conjugates",
]

# Shapes that say which launch modes a kernel is wanted in.
_DRAWN = 1500

# Losses beside all instances of all kernels, as in `select`: what keeps a portfolio below 8 MB.
# With 0.20 SGEMM TT 36 x 60 x 262937 lacked clamped loads and took 1.75 times as long on an H100.
_INSTANCES_MEAN, _INSTANCES_MOST = 0.005, 0.10

# Kernels that a guard may fall back to (`accuracy="fp32"`): large products alone are guarded.
_ROUTED, _ROUTED_SIDE = 3, 512

# Kernels of a variant at most; of a stencil for some problems only; of such a stencil where
# operands are conjugated; and where they are conjugated but not transposed, which only mixed
# storage orders ask for.
_MOST, _OTHERS, _CONJUGATED, _RARE = 64, 16, 12, 3

# The same of 16-bit operands, whose stencil for short sides has few configs: 4 took up to a third
# longer for layers of one to eight tokens.
_OTHERS_SHORT = 8

# Of batches: what may be lost beside all that was timed; configs of a variant, each with its plain
# instance, and instances besides.
_BATCHES_MEAN, _BATCHES_MOST = 0.001, 0.03
_BATCH_CONFIGS, _BATCH_INSTANCES = 10, 8


# What most configs are for (`_problems_of`).
_ALL = "all"


@dataclass(frozen=True)
class Selected:
    """A kernel whose instances are still to be compiled.

    Parameters
    ----------
    kernel : PortfolioKernel
        With an empty digest for each mode.
    level : int
        Of the schedule of plain instances, for batches, too; 0: the compiler's own.
    """

    kernel: PortfolioKernel
    level: int = 0


def variants_with_conjugates(letter: str) -> list[Variant]:
    """Return all variants of a precision, those included that conjugate without transposing."""
    of = precision(letter)
    ops = tuple(Trans) if of.is_complex else (Trans.N, Trans.T)
    return [Variant(of, a, b) for a, b in itertools.product(ops, ops)]


def select(
    measured: Measured,
    device: DeviceSpec,
    mean: float = 0.016,
    most: float = 0.07,
    more: Sequence[Measured] = (),
    others: Sequence[Measured] = (),
    batches: Sequence[Measured] = (),
) -> list[Selected]:
    """Return the kernels of a portfolio.

    Of each variant the fewest that lose at most `mean` in the mean of the problems measured and
    `most` at any of them, and the winners of races of exactly one size.  Conjugates take what was
    picked for their transposes: a loop is as long with other signs.

    Parameters
    ----------
    measured : Measured
        Everything measured in a precision.
    device : DeviceSpec
        Whose spaces say which launch modes a kernel may have.
    mean, most : float
        Losses, such as 0.02 for two per cent.
    more : sequence of Measured
        Times of the kernels of a portfolio (`tilewright.portfolio.measure`), which costs are
        fitted to besides.
    others : sequence of Measured
        Of configs for some problems only (`tilewright.portfolio.measure.measure_family`), which
        `measured` may have times of, too: those of each stencil are picked by themselves, and
        those for columns that are not aligned.
    batches : sequence of Measured
        Times of batches, of configs for these (`tilewright.portfolio.measure_batches`): those for
        columns that are not aligned are picked by themselves.
    """
    found, many = [], _by_problems(batches).values()
    for_some = _by_problems((measured, *others))
    measured = for_some.pop(_ALL, replace(measured, cases={}))
    for variant in variants_with_conjugates(measured.precision):
        first = _kind(measured, variant, mean, most, more)
        rivals = [] if first is None else [x.kernel for x in first.selected if x.kernel.costs]
        beside = measured.cases.get(_without_conjugates(variant))
        kinds = [first]
        for other in for_some.values():
            kinds.append(_kind(other, variant, 0.0, 0.0, (), rivals=rivals, beside=beside))
        some = [one for one in kinds if one is not None]
        if some:
            found += _with_modes(some, device, measured.multiprocessors)
        if many and not _is_rare(variant):
            found += [x for one in many for x in _for_batches(one, variant, device)]
            mine = [one for one in found if one.kernel.variant == variant]
            if not mine:  # of 8-bit operands, which are read in one order
                continue
            found = [one for one in found if one.kernel.variant != variant]
            made = with_triangles(with_groups([one.kernel for one in mine]))
            found += [replace(one, kernel=x) for one, x in zip(mine, made, strict=True)]
    return found


def _by_problems(files: Sequence[Measured]) -> dict[str, Measured]:
    """Return the times in some files by what `_problems_of` says of the configs."""
    cases = [case for one in files for case in one.cases.values()]
    every = {x for case in cases for x in (*case.configs, *(won for won, _ in case.won.values()))}
    problems = {one: _problems_of(one) for one in every}

    def of(kind: str) -> list[Measured]:
        some = [one.of(lambda config: problems[config] == kind) for one in files]
        return [one for one in some if one.cases]

    return {kind: joined(of(kind)) for kind in sorted({*problems.values()})}


def _problems_of(config: Config) -> str:
    """Return what says which problems a config is for."""
    family = stencil(config.stencil)
    if family.shapes:
        return config.stencil
    return "any alignment" if family.geometry(config).reads_unaligned else _ALL


def _for_batches(batches: Measured, variant: Variant, device: DeviceSpec) -> list[Selected]:
    """Return kernels for batches: the few that lose least, in the launch modes that these want."""
    kind = _kind(batches, variant, _BATCHES_MEAN, _BATCHES_MOST, (), _BATCH_CONFIGS)
    if kind is None:
        return []
    times = _InstanceTimes(kind.selected, device, batches.multiprocessors)
    for row, problem in enumerate(kind.case.problems):
        times.add(problem, kind.case.ns[row, list(kind.columns)])
    times.add_drawn(drawn_batches(variant, 31, _DRAWN // 3))
    found = []
    wanted = times.picked(_BATCH_INSTANCES)
    for at in range(len(kind.selected)):
        wanted.setdefault(at, set()).add(PLAIN)
    for at, modes in sorted(wanted.items()):
        batched = dict.fromkeys(sorted(modes, key=str), "")
        kernel = replace(kind.selected[at].kernel, modes={}, batched=batched)
        found.append(Selected(kernel, kind.selected[at].level))
    return found


def _where_faster(case: Case, beside: Case | None) -> Case:
    """Return times without the problems that a kernel of the others takes less for."""
    best = {} if beside is None else beside.best
    mine = case.ns.min(axis=1, initial=np.inf)
    rows = [
        row for row, (problem, ns) in enumerate(zip(case.problems, mine, strict=True))
        if ns <= best.get(problem, np.inf)
    ]  # fmt: skip
    return replace(case, problems=tuple(case.problems[row] for row in rows), ns=case.ns[rows])


@dataclass(frozen=True)
class _Kind:
    """Kernels of one stencil for a variant, and the columns that the picked ones have in a case."""

    selected: list[Selected]
    case: Case
    columns: tuple[int, ...]


def _kind(
    measured: Measured, variant: Variant, mean: float, most: float, more: Sequence[Measured],
    limit: int = 0, rivals: Sequence[PortfolioKernel] = (), beside: Case | None = None,
) -> _Kind | None:  # fmt: skip
    """Return what is picked of one file of times; None where it has none of the variant.

    Of a problem's times those count less that are long beside what is expected of `rivals`, or
    was measured `beside`; nothing is picked for problems that take less there.
    """
    plain = _without_conjugates(variant)
    case = measured.cases.get(plain)
    if case is None:
        return None
    case = _of_what_they_are_for(case)
    best = _best_beside(rivals, beside, case, measured.multiprocessors)
    picked_for, columns = _where_faster(case, beside), tuple[int, ...]()
    if len(picked_for.problems):
        columns = pick(picked_for.ns, mean, most, limit or _limit(case, variant))
    made = _of_variant(measured, variant, case, best, columns)
    if not made:
        return None
    cases = [_of_what_they_are_for(one.cases[plain]) for one in more if plain in one.cases]
    if cases:
        made = _refitted(made, case, cases, measured.multiprocessors)
    return _Kind(made, picked_for, columns)


def _best_beside(
    rivals: Sequence[PortfolioKernel], beside: Case | None, case: Case, multiprocessors: int
) -> dict[Problem, float]:
    """Return the least time of each problem, measured, also beside, or expected of a rival."""
    others = {} if beside is None else beside.best
    best = {problem: min(ns, others.get(problem, math.inf)) for problem, ns in case.best.items()}
    model = Model([one.geometry for one in rivals], np.array([one.costs for one in rivals]))
    for problem in best if rivals else ():
        expected = model.expected(problem, multiprocessors)
        takes = [one.geometry.takes(problem) for one in rivals]
        best[problem] = min(best[problem], expected[takes].min(initial=math.inf))
    return best


def _of_what_they_are_for(case: Case) -> Case:
    """Return times without those of problems that a kernel is not for, or none is."""
    geometries = [stencil(one.stencil).geometry(one) for one in case.configs]
    beyond = np.array(
        [[not one.is_for(problem) for one in geometries] for problem in case.problems], bool
    )
    if not beyond.any():
        return case
    ns = np.where(beyond, math.inf, case.ns)
    rows = np.flatnonzero(np.isfinite(ns).any(axis=1))
    return replace(case, problems=tuple(case.problems[row] for row in rows), ns=ns[rows])


def _without_conjugates(variant: Variant) -> Variant:
    ops = (Trans.of(one.transposed, False) for one in (variant.trans_a, variant.trans_b))
    return Variant(variant.precision, *ops)


def _of_variant(
    measured: Measured, variant: Variant, case: Case, best: Mapping[Problem, float],
    columns: Sequence[int],
) -> list[Selected]:  # fmt: skip
    """Return the kernels of one variant: those of some columns of `case.ns`, and what won races."""
    kernels: dict[Config, Selected] = {}
    for column in columns:
        config = case.configs[column]
        geometry = stencil(config.stencil).geometry(config)
        faster = _rescheduling(measured, variant, config)
        times = {
            problem: ns * _saved(geometry.mode(problem) == PLAIN, config, faster)
            for problem, ns in case.times(column).items()
        }
        costs = fitted_costs(geometry, times, best, measured.multiprocessors)
        kernels[unscheduled(config)] = _selected(variant, config, faster, costs)
    if not _is_rare(variant):
        _add_winners(measured, variant, kernels, best)
    return list(kernels.values())


def _is_rare(variant: Variant) -> bool:
    """Whether an operand is conjugated but not transposed."""
    return Trans.R in (variant.trans_a, variant.trans_b)


def _limit(case: Case, variant: Variant) -> int:
    """Return how many kernels a variant may have."""
    if _is_rare(variant):
        return _RARE
    if not stencil(case.configs[0].stencil).shapes:
        return _MOST
    if variant.precision.is_short:
        return _OTHERS_SHORT
    return _OTHERS if variant == _without_conjugates(variant) else _CONJUGATED


def _refitted(
    selected: list[Selected], case: Case, more: Sequence[Case], many: int
) -> list[Selected]:
    """Return kernels with costs fitted to more times: those of the machine code that serves."""
    best: dict[Problem, float] = {}
    for each in (*more, case):
        best |= each.best
    found = []
    for one in selected:
        times = _times_of(case, one.kernel.config)
        for each in more:
            times |= _times_of(each, one.kernel.config)
        times = {problem: ns for problem, ns in times.items() if math.isfinite(best[problem])}
        if one.kernel.costs and len(times) > 2 * len(TERMS):
            costs = fitted_costs(one.kernel.geometry, times, best, many)
            one = replace(one, kernel=replace(one.kernel, costs=tuple(costs)))
        found.append(one)
    return found


def _times_of(case: Case, of: Config) -> dict[Problem, float]:
    """Return the times of a config."""
    for column, config in enumerate(case.configs):
        if unscheduled(config) == of:
            return case.times(column)
    return {}


def _rescheduling(measured: Measured, variant: Variant, config: Config) -> Rescheduled | None:
    """Return how a config's loop is rescheduled, if that was shown to be faster."""
    for of in (variant, _without_conjugates(variant)):
        found = measured.rescheduled.get((of, unscheduled(config)))
        if found is not None:
            return found
    level = config.integer(SCHEDULE, 0)
    return Rescheduled(level, 1.0) if level else None


def _saved(plain: bool, config: Config, faster: Rescheduled | None) -> float:
    """Return by what the time of an instance is multiplied, as its code is rescheduled now."""
    if not plain or faster is None or config.integer(SCHEDULE, 0):
        return 1.0
    return faster.ratio


def _selected(
    variant: Variant, config: Config, faster: Rescheduled | None, costs: NDArray[np.float64]
) -> Selected:
    config = unscheduled(config)
    family = stencil(config.stencil)
    geometry = family.geometry(config)
    if faster is not None and faster.unstaged_from < geometry.stages_k:
        geometry = replace(geometry, stages_k=int(faster.unstaged_from) - 1)
    kernel = PortfolioKernel(config, family.version, variant, geometry, {PLAIN: ""}, tuple(costs))
    return Selected(kernel, faster.level if faster is not None else 0)


def _add_winners(
    measured: Measured, variant: Variant, kernels: dict[Config, Selected],
    beside: Mapping[Problem, float],
) -> None:  # fmt: skip
    """Add what won races of exactly one size; note where a kernel that is there did.

    One that was timed at these sizes alone serves them alone.  Costs guessed from a kernel like it
    sent SGEMM NN 6144 on an H100 to one that took 1.28 times as long as expected.
    """
    case = measured.cases.get(variant)
    if case is None:
        return
    best = {**case.best, **beside}
    for problem, (config, ns) in case.won.items():
        base = unscheduled(config)
        if base not in kernels:
            faster = _rescheduling(measured, variant, config)
            times, costs = _times_of(case, base), np.zeros(0)
            if len(times) > 2 * len(TERMS):
                geometry = stencil(base.stencil).geometry(base)
                costs = fitted_costs(geometry, times, best, measured.multiprocessors)
            kernels[base] = _selected(variant, config, faster, costs)
        before = kernels[base]
        won = {**before.kernel.won, (problem.m, problem.n, problem.k): ns}
        kernels[base] = replace(before, kernel=replace(before.kernel, won=won))


# -- launch modes ------------------------------------------------------------------------


def _with_modes(kinds: Sequence[_Kind], device: DeviceSpec, many: int) -> list[Selected]:
    """Return kernels with the launch modes that they are wanted in, and those of a guard.

    The fewest instances that lose little beside all of all kernels, on what was measured and on
    shapes as users have them; a kernel of which none is wanted, and that won no race, is left out.
    """
    selected = [one for kind in kinds for one in kind.selected]
    times = _InstanceTimes(selected, device, many)
    first = 0
    for kind in kinds:
        for row, problem in enumerate(kind.case.problems):
            times.add(problem, kind.case.ns[row, list(kind.columns)], first)
        first += len(kind.selected)
    large = times.add_drawn()
    wanted = times.picked()
    for at, one in enumerate(selected):
        for m, n, k in one.kernel.won:
            mode = one.kernel.geometry.mode(_of(one.kernel.variant, m, n, k))
            wanted.setdefault(at, {PLAIN})
            if times.is_able(at, mode):
                wanted[at].add(mode)
    guarded = selected[0].kernel.variant.precision.letter == "s"  # as accuracy="fp32" guards calls
    routed = {at for at, _ in large.most_common(_ROUTED)} if guarded else set()
    found = []
    for at in sorted(wanted):
        modes = dict.fromkeys(sorted(wanted[at], key=str), "")
        kernel = replace(selected[at].kernel, modes=modes)
        if at in routed:
            kernel = replace(kernel, routed=modes)
        found.append(replace(selected[at], kernel=kernel))
    return found


class _InstanceTimes:
    """Times of every instance of some kernels, a row a problem: measured or expected ones."""

    def __init__(self, selected: Sequence[Selected], device: DeviceSpec, many: int) -> None:
        self._selected, self._device, self._many = selected, device, many
        # Places of instances: of a kernel's by the launch mode's number, as they are met.
        self._columns: dict[tuple[int, int], int] = {}
        self._able: dict[int, tuple[Mode, ...]] = {}
        self._rows: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []

    def is_able(self, at: int, mode: Mode) -> bool:
        """Whether a kernel can be compiled in a launch mode."""
        if at not in self._able:
            kernel = self._selected[at].kernel
            family = stencil(kernel.config.stencil)
            self._able[at] = family.modes(kernel.config, kernel.variant, self._device)
        return mode in self._able[at]

    def add(self, problem: Problem, ns: NDArray[np.float64], first: int = 0) -> None:
        """Add a problem with the time of each kernel from the first on; infinite: unknown."""
        columns: list[int] = []
        times: list[tuple[float, int]] = []  # and what the instance lacks
        area = float(problem.m) * float(problem.n) * float(problem.batch)
        for at in map(int, np.flatnonzero(np.isfinite(ns))):
            mode = self._selected[first + at].kernel.geometry.mode(problem)
            wanted = mode.number
            for number in next_best(wanted):
                if self.is_able(first + at, MODES[number]):
                    key = first + at, number
                    columns.append(self._columns.setdefault(key, len(self._columns)))
                    times.append((ns[at], wanted & ~number))
        if times:
            whole, lacks = map(np.array, zip(*times, strict=True))
            self._rows.append((np.array(columns), slower(whole, lacks, area)))

    def add_drawn(self, drawn: Iterable[Problem] = ()) -> Counter[int]:
        """Add shapes as users have them; return how often kernels are the best of large ones."""
        large: Counter[int] = Counter()
        kernels = [one.kernel for one in self._selected]
        costs = np.array([one.costs or NEVER for one in kernels])
        model = Model([one.geometry for one in kernels], costs)
        for problem in drawn or _drawn(kernels[0].variant):
            ns = model.expected(problem, self._many)
            ns[[not one.geometry.takes(problem) for one in kernels]] = np.inf
            self.add(problem, ns)
            if min(problem.m, problem.n, problem.k) >= _ROUTED_SIDE:
                large[int(np.argmin(ns))] += 1
        return large

    def picked(self, limit: int = 0) -> dict[int, set[Mode]]:
        """Return the modes of the kernels that are wanted, the plain one among them.

        With a limit so many instances at most, and the plain one is not among them unless wanted.
        """
        ns = np.full((len(self._rows), len(self._columns)), np.inf)
        for row, (columns, times) in enumerate(self._rows):
            ns[row, columns] = times
        instances = list(self._columns)
        wanted: dict[int, set[Mode]] = {}
        for column in pick(ns, _INSTANCES_MEAN, _INSTANCES_MOST, limit or len(instances)):
            at, number = instances[column]
            wanted.setdefault(at, set() if limit else {PLAIN}).add(MODES[number])
        return wanted


def _of(variant: Variant, m: int, n: int, k: int) -> Problem:
    """Return a problem of a variant, its columns side by side."""
    return Problem(m, n, k, variant.precision, variant.trans_a, variant.trans_b)


def _drawn(variant: Variant, count: int = _DRAWN) -> Iterator[Problem]:
    """Yield shapes, the same for every variant."""
    for m, n, k in islice(drawn_sides(31), count):
        yield _of(variant, m, n, k)
