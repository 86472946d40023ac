"""Times of a portfolio's kernels on shapes as users have them: what costs are fitted to besides."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from math import inf
from typing import Any

import numpy as np

from tilewright.backend import Kernel, LiveDevice
from tilewright.backend.base import BackendError
from tilewright.backend.cuda.ahead import compiling_ahead
from tilewright.backend.cuda.device import CUDADevice
from tilewright.portfolio.drawn import KINDS, MOST_BYTES, every_kind
from tilewright.portfolio.kernel import PortfolioKernel
from tilewright.portfolio.pick import pick
from tilewright.portfolio.portfolio import Portfolio
from tilewright.portfolio.timers import RUNS, Burst, Timer, interleaved_medians
from tilewright.precision import Precision, precision
from tilewright.problem import Problem, Trans
from tilewright.space import Config
from tilewright.stencil import Source, Stencil, Variant, stencil
from tilewright.stencil.geometry import PLAIN, Mode, with_aligned_operands
from tilewright.tuning.measure import Workload, random_matrix

__all__ = [
    "document",
    "matrices",
    "measure",
    "measure_family",
    "text_of",
]


# Where shapes count for more than surer times: what took so many times the best in its first run is
# not run again.
_FAR = 2.0

# The share of the time for all configs where there are more than so many, the shapes of a kind that
# they are timed on at most, and how many go on.  By the times in benchmarks/portfolio/sm_90 the 32
# best that 20 to 30 shapes pick out lose 1 % in S and 2 % in D at others; a portfolio that is made
# of 30, 80 and 200 shapes loses 6, 2.4 and 2 %.
_SIFTING, _SIFTED_BY, _KEPT = 0.5, 6, 32


def measure(
    live: CUDADevice,
    portfolio: Portfolio,
    letter: str,
    count: int,
    seed: int,
    seconds: float,
    observer: Callable[[int, int], None] = lambda done, of: None,
    *,
    kind: str = "any",
    copied: bool = False,
) -> dict[str, Any]:
    """Return times, as `tilewright.portfolio.measured.read_measured` takes them.

    Parameters
    ----------
    live : CUDADevice
        Of the portfolio's architecture.
    portfolio : Portfolio
        Whose kernels; conjugates are not measured, whose loops are as long.
    letter : str
        Of one of its precisions.
    count, seed : int
        Shapes of each pair of transposes; the same for the same seed.
    seconds : float
        After which no further shape begins.
    observer : callable
        Called with the number of shapes that are done, and how many there are.
    kind : {"any", "short", "large", "layers", "thin", "long"}
        Sides as users have them; m or n short, k and the other side anything; all sides from
        2048 on; rows of tokens times weights; results of short sums; or small ones of long sums.
    copied : bool
        Whether columns of A and B are aligned, as those of copies are; not C's.  Shapes whose
        columns are so anyway are left out.
    """
    until = time.monotonic() + seconds
    of = precision(letter)
    variants = [one for one in _variants(portfolio) if one.precision == of]
    cases: dict[str, Any] = {}
    shapes = list(islice(KINDS[kind](seed, of), count))
    memory = matrices(live, of, seed)
    try:
        for number, variant in enumerate(variants):

            def tell(done: int, before: int = number * len(shapes)) -> None:
                observer(before + done, len(variants) * len(shapes))

            drawn = [Problem(*x, of, variant.trans_a, variant.trans_b) for x in shapes]
            # Those for batches alone are timed on these.
            kernels = [one for one in portfolio.of_variant(variant) if one.modes]
            found = _times(live, portfolio, kernels, drawn, memory, until, tell, copied=copied)
            cases[f"{variant.trans_a}{variant.trans_b}"] = found
    finally:
        for handle in memory.values():
            live.free(handle)
    made = document(live, letter, portfolio.kernels[0].config.stencil, cases)
    made["method"] = f"launches back to back, held, warm cache, medians of {RUNS}; code as served"
    return made | {"copied": True} if copied else made


def _times(
    live: CUDADevice,
    portfolio: Portfolio,
    kernels: Sequence[PortfolioKernel],
    problems: Sequence[Problem],
    memory: Mapping[str, Any],
    until: float,
    tell: Callable[[int], None],
    *,
    copied: bool,
) -> dict[str, Any]:
    """Return times of kernels of a variant, those of another stencil than the portfolio's named."""
    # All before any is timed: loading machine code delays launches around it.
    loaded = {
        digest: live.load(portfolio.codes[digest], portfolio.machine_code(digest))
        for one in kernels
        for digest in one.modes.values()
    }
    usual = portfolio.kernels[0].config.stencil
    configs: list[dict[str, Any]] = []
    for one in kernels:
        family = one.config.stencil
        configs.append(({"stencil": family} if family != usual else {}) | dict(one.config))
    found: dict[str, Any] = {"shapes": [], "configs": configs, "ns": [], "won": []}
    for done, given in enumerate(problems, 1):
        if time.monotonic() >= until:
            break
        problem = with_aligned_operands(given) if copied else given
        if copied and problem == given:
            continue
        workload = Workload(live, problem, memory)
        found["shapes"].append([given.m, given.n, given.k])
        timers = [_timer(live, one, workload, loaded) for one in kernels]
        found["ns"].append(interleaved_medians(timers))
        tell(done)
    return found


def document(live: CUDADevice, letter: str, family: str, cases: dict[str, Any]) -> dict[str, Any]:
    """Return times with what they were measured on."""
    spec = live.spec
    return {
        "precision": letter,
        "stencil": family,
        "device": spec.name,
        "compute_capability": spec.compute_capability,
        "multiprocessors": spec.multiprocessors,
        "driver": live.driver,
        "date": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
        "method": f"single launches, held, warm cache, medians of {RUNS}; code as served",
        "cases": cases,
        "rescheduled": [],
    }


def measure_family(
    live: CUDADevice,
    letter: str,
    name: str,
    count: int,
    seed: int,
    seconds: float,
    also: Mapping[Variant, Sequence[Config]] | None = None,
    *,
    unaligned: bool = False,
    sifted: bool = False,
    without: Collection[Config] = (),
    observer: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Return times of a stencil's configs: all of a small space, of a large one its starts.

    Of a stencil for some problems only these are what is drawn; of any other every kind, columns
    side by side, in the launch modes that serve.  Where tensor maps read A and B, their
    columns are aligned as the copies of them are that serve.

    Parameters
    ----------
    live : CUDADevice
        Where.
    letter : str
        Of the precision.
    name : str
        Of the stencil.
    count, seed : int
        Shapes of each pair of transposes, or of each kind of these; the same for the same seed.
    seconds : float
        After which no further shape of its transposes begins; each pair has as long.
    also : Mapping, optional
        More configs, by variant.
    unaligned : bool
        Whether the configs are those that take columns of any alignment.
    sifted : bool
        Whether more shapes count for more than surer times: each kind of shapes has the same time,
        each kernel is run once, and a part of the time says which few of many configs go on.
    without : collection of Config, optional
        What is not timed.
    observer : callable
        Called when a kernel was compiled, and when a shape begins.

    Raises
    ------
    LostToError
        If a kernel leaves the device unusable for this process.
    """
    family, of = stencil(name), precision(letter)
    memory, rounds = matrices(live, of, seed), 1 if sifted else RUNS
    timed: dict[str, _Timed] = {}
    try:
        with compiling_ahead(live.arch) as ahead:
            for a, b in itertools.product((Trans.N, Trans.T), repeat=2):
                variant = Variant(of, a, b)
                if not of.reads(variant.k_fast):
                    continue
                every = [
                    *_candidates(family, variant, live, unaligned),
                    *(also or {}).get(variant, ()),
                ]
                timable = [one for one in dict.fromkeys(every) if one not in without]
                one = _Timed(live, family, variant, timable, memory, observer)
                one.draw(count, seed, copied=not unaligned, in_turn=not sifted)
                timed[f"{a}{b}"] = one
            sifts = sifted and any(len(one.configs) > _KEPT for one in timed.values())
            for one in timed.values():
                one.compile(ahead, plain_alone=sifts)
            _time_by_turns(timed, ahead, seconds, rounds, sifts=sifts)
    finally:
        for handle in memory.values():
            live.free(handle)
    method = f"launches back to back, held, warm cache, medians of {rounds}"
    cases = {trans: one.case() for trans, one in timed.items()}
    return document(live, letter, name, cases) | {"method": method}


def _time_by_turns(
    timed: dict[str, _Timed],
    ahead: Callable[[Source], Callable[[], bool]],
    seconds: float,
    rounds: int,
    *,
    sifts: bool,
) -> None:
    """Sift, where that is wanted, and time; what is timed next compiles meanwhile.

    Each has the same part of the seconds.  What compiler or device refused altogether is left out.
    """
    until, pairs = time.monotonic(), len(timed)
    stages = [(True, _SIFTING), (False, 1 - _SIFTING)] if sifts else [(False, 1.0)]
    for sifting, share in stages:
        for trans, one in tuple(timed.items()):
            if not one.load():
                warnings.warn(
                    f"{one.name} {trans}: the compiler or the device refused all of"
                    f" {len(one.configs)} configs; nothing of it is timed",
                    RuntimeWarning,
                    stacklevel=3,
                )
                del timed[trans]
                continue
            until = max(until, time.monotonic()) + seconds * share / pairs
            if sifting:
                one.sift(until)
                one.compile(ahead)
            else:
                one.time(until, rounds)


class _Timed:
    """Times of a stencil's configs in one variant.

    Attributes
    ----------
    name : str
        Of the stencil, and its precision.
    configs : list of Config
        What is timed.
    """

    def __init__(
        self,
        live: CUDADevice,
        family: Stencil,
        variant: Variant,
        configs: list[Config],
        memory: Mapping[str, Any],
        observer: Callable[[], None],
    ) -> None:
        self.name = f"{family.name} {variant.precision.letter}"
        self.configs = configs
        self._observer = observer
        self._live, self._family, self._variant = live, family, variant
        self._memory = memory
        self._geometry = {one: family.geometry(one) for one in configs}
        self._drawn: list[list[Problem]] = []  # of each list some are timed for the same time
        self._coming: dict[tuple[Config, Mode], tuple[Source, Callable[[], bool]]] = {}
        self._kernels: dict[tuple[Config, Mode], Kernel] = {}
        self._problems: list[Problem] = []
        self._rows: list[list[int | None]] = []

    def draw(self, count: int, seed: int, *, copied: bool, in_turn: bool) -> None:
        """Draw so many shapes of each kind, or of every kind in turn."""
        of, ops = self._variant.precision, (self._variant.trans_a, self._variant.trans_b)
        shapes = self._family.shapes
        kinds = [KINDS[one] for one in shapes]
        kinds = kinds or ([every_kind] if in_turn else [*KINDS.values()])
        copied &= all(one.tma for one in self._geometry.values())
        for kind in kinds:
            problems = [Problem(*sides, of, *ops) for sides in islice(kind(seed, of), count)]
            self._drawn.append([*map(with_aligned_operands, problems)] if copied else problems)

    def compile(
        self, ahead: Callable[[Source], Callable[[], bool]], *, plain_alone: bool = False
    ) -> None:
        """Begin to compile the instances that what was drawn wants, or the plain ones alone."""
        every = [problem for each in self._drawn for problem in each]
        for config in self.configs:
            modes = {PLAIN: None}
            if not plain_alone:
                able = self._family.modes(config, self._variant, self._live.spec)
                wanted = dict.fromkeys(self._mode(config, problem) for problem in every)
                modes |= {mode: None for mode in wanted if mode in able}
            for mode in modes:
                if (config, mode) not in self._coming:
                    source = self._family.source(config, self._variant, "cuda", mode)
                    self._coming[config, mode] = source, ahead(source)

    def _mode(self, config: Config, problem: Problem) -> Mode:
        return self._geometry[config].mode(problem)

    def load(self) -> bool:
        """Load what was begun, but for what compiler or device refuses; return if anything is."""
        for key, (source, able) in self._coming.items():
            compiles = able()  # which waits
            self._observer()
            if key not in self._kernels and compiles:
                with contextlib.suppress(BackendError):
                    self._kernels[key] = self._live.compile(source)
        right = [one for one in self.configs if (one, PLAIN) in self._kernels]
        self.configs = right or self.configs  # which a warning counts
        return bool(right)

    def time(self, until: float, rounds: int) -> None:
        """Time what was drawn until a time."""
        for problem in self._in_turn(until):
            timers = self._timers(problem)
            row = interleaved_medians(timers, rounds, _FAR if rounds == 1 else inf)
            if any(row):  # tensor maps alone may be left, which read no such columns
                self._rows.append(row)
                self._problems.append(problem)

    def _in_turn(self, until: float, most: float = inf) -> Iterator[Problem]:
        """Yield what was drawn, at most so many of each list, which get the same time."""
        spent, done = [0.0] * len(self._drawn), [0] * len(self._drawn)
        while (began := time.monotonic()) < until:
            able = [at for at, some in enumerate(self._drawn) if some and done[at] < most]
            if not able:
                return
            at = min(able, key=spent.__getitem__)
            self._observer()
            yield self._drawn[at].pop(0)
            done[at] += 1
            spent[at] += time.monotonic() - began

    def _timers(self, problem: Problem) -> list[Timer | None]:
        workload = Workload(self._live, problem, self._memory)
        found: list[Timer | None] = []
        for config in self.configs:
            kernel = self._kernels.get((config, self._mode(config, problem)))
            kernel = kernel or self._kernels[config, PLAIN]  # which is right for any problem
            geometry = self._geometry[config]
            what = self._live, workload, config, kernel, self._family, geometry
            found.append(Burst(*what) if geometry.takes(problem) else None)
        return found

    def sift(self, until: float) -> None:
        """Keep what a portfolio would have, then what one of the others would, and so on.

        By times of plain instances, where columns are aligned.  Those stay that count as they are.
        """
        problems, rows = [], []
        for problem in self._in_turn(until, _SIFTED_BY):
            rows.append(interleaved_medians(self._timers(with_aligned_operands(problem)), 1, _FAR))
            problems.append(problem)
        ns = np.array(rows, float).reshape(-1, len(self.configs))
        ns[np.isnan(ns)] = inf
        kept: list[int] = []
        timed = np.isfinite(ns)
        left = np.flatnonzero(timed.any(axis=0))
        while len(left) and len(kept) < _KEPT:
            some = ns[timed[:, left].any(axis=1)][:, left]
            kept += left[list(pick(some, 0.0, 0.0, _KEPT - len(kept)))].tolist()
            left = np.setdiff1d(left, kept)
        kept = sorted(kept) or list(range(len(self.configs)))
        self.configs = [self.configs[at] for at in kept]
        for problem, row in zip(problems, rows, strict=True):
            if all(self._mode(one, problem) == PLAIN for one in self.configs):
                self._problems.append(problem)
                self._rows.append([row[at] for at in kept])
        there = set(self.configs)
        self._coming = {key: one for key, one in self._coming.items() if key[0] in there}
        self._kernels = {key: one for key, one in self._kernels.items() if key[0] in there}

    def case(self) -> dict[str, Any]:
        """Return the times as files have them."""
        shapes = [[one.m, one.n, one.k] for one in self._problems]
        configs = [dict(one) for one in self.configs]
        return {"shapes": shapes, "configs": configs, "ns": self._rows, "won": []}


def _candidates(
    family: Stencil, variant: Variant, live: CUDADevice, unaligned: bool
) -> list[Config]:
    """Return the configs that are measured, in the space that the device leaves."""
    space = family.space(variant, live.spec)
    if family.shapes:
        return list(space)
    starts = [one for one in dict.fromkeys(family.starts(variant, live.spec)) if one in space]
    return [one for one in starts if family.geometry(one).any_alignment == unaligned]


def matrices(live: LiveDevice, of: Precision, seed: int) -> dict[str, Any]:
    """Return device memory of ``"a"``, ``"b"`` and ``"c"`` for every problem: 1 GiB each."""
    rng = np.random.default_rng(seed)
    whole = random_matrix(rng, MOST_BYTES // of.element_bytes, Problem(1, 1, 1, of))
    return {name: live.upload(whole) for name in "abc"}


def _variants(portfolio: Portfolio) -> Iterator[Variant]:
    for one in dict.fromkeys(kernel.variant for kernel in portfolio.kernels):
        if not one.trans_a.conjugated and not one.trans_b.conjugated:
            yield one


def _timer(
    live: CUDADevice, kernel: PortfolioKernel, workload: Workload, loaded: Mapping[str, Kernel]
) -> Timer | None:
    """Return what times a kernel; None where it is not for the problem."""
    problem = workload.problem
    digest = kernel.modes.get(kernel.geometry.mode(problem))
    if digest is None or not kernel.geometry.takes(problem):
        return None
    config, family = kernel.config, stencil(kernel.config.stencil)
    return Burst(live, workload, config, loaded[digest], family, kernel.geometry)


def text_of(times: dict[str, Any]) -> str:
    """Return a file of times, a line a row."""

    def short(value: Any) -> str:
        return json.dumps(value, separators=(",", ":"))

    head = {key: x for key, x in times.items() if key not in ("cases", "rescheduled")}
    cases = []
    for trans, found in times["cases"].items():
        rows = ",\n".join(
            f'"{key}": [\n' + ",\n".join(map(short, found[key])) + "\n]"
            for key in ("shapes", "configs", "ns", "won")
        )
        cases.append(f'"{trans}": {{\n{rows}\n}}')
    text = json.dumps(head)[:-1] + ',\n"cases": {\n' + ",\n".join(cases) + "\n},\n"
    return text + '"rescheduled": ' + short(times["rescheduled"]) + "}\n"
