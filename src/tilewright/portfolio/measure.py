"""Times of a portfolio's kernels on shapes as users have them: what costs are fitted to besides."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from statistics import median
from typing import Any

import numpy as np

from tilewright.backend import Kernel, LiveDevice
from tilewright.backend.base import BackendError
from tilewright.backend.cuda.ahead import compiling_ahead
from tilewright.backend.cuda.device import CUDADevice
from tilewright.portfolio.drawn import KINDS, MOST_BYTES, every_kind
from tilewright.portfolio.kernel import PortfolioKernel
from tilewright.portfolio.portfolio import Portfolio
from tilewright.precision import Precision, precision
from tilewright.problem import Problem, Trans
from tilewright.space import Config
from tilewright.stencil import Source, Stencil, Variant, stencil
from tilewright.stencil.geometry import elements_of_chunk
from tilewright.tuning.measure import Workload, random_matrix

__all__ = [
    "document",
    "interleaved_medians",
    "matrices",
    "measure",
    "measure_family",
    "text_of",
]


_RUNS = 3  # after one that does not count

# Runs a kernel and returns nanoseconds.
_Timer = Callable[[], int]

# What takes longer than a millisecond is timed once.
_SLOW_NS = 1_000_000

# Launches back to back take about so long, and are so many at most.
_BURST_NS, _MOST_OF_BURST = 500_000, 16

# After so many shapes, three of each kind, configs are dropped that took more than so many times
# the best on all of them.  By the times in benchmarks/portfolio/sm_90/s.json a portfolio's choices
# then lose 0.8 % more at new shapes, and no more where times err by a per cent; picked by 20, 40
# and 80 shapes they lose 5.5, 3.3 and 2.8 %.
_SIFTED_BY, _NEAR = 15, 1.05


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
    kind : {"any", "short", "large", "layers", "thin"}
        Sides as users have them; m or n short, k and the other side anything; all sides from
        2048 on; rows of tokens times weights; or large results of short sums.
    """
    until = time.monotonic() + seconds
    of = precision(letter)
    variants = [one for one in _variants(portfolio) if one.precision == of]
    cases: dict[str, Any] = {}
    shapes = list(islice(KINDS[kind](seed, of), count))
    memory = matrices(live, of, seed)
    try:
        for number, variant in enumerate(variants):
            # Those for batches alone are timed on these.
            kernels = [one for one in portfolio.of_variant(variant) if one.modes]
            # All before any is timed: loading machine code delays launches around it.
            loaded = {
                digest: live.load(portfolio.codes[digest], portfolio.machine_code(digest))
                for one in kernels
                for digest in one.modes.values()
            }
            found: dict[str, Any] = {"shapes": [], "configs": [], "ns": [], "won": []}
            for one in kernels:  # of whichever stencil, where it is not the first one's
                family = one.config.stencil
                first = portfolio.kernels[0].config.stencil
                named = {} if family == first else {"stencil": family}
                found["configs"].append(named | dict(one.config))
            for done, sides in enumerate(shapes):
                if time.monotonic() >= until:
                    break
                problem = Problem(*sides, of, variant.trans_a, variant.trans_b)
                workload = Workload(live, problem, memory)
                found["shapes"].append(list(sides))
                found["ns"].append(
                    interleaved_medians([_timer(one, workload, loaded) for one in kernels])
                )
                observer(number * len(shapes) + done + 1, len(variants) * len(shapes))
            cases[f"{variant.trans_a}{variant.trans_b}"] = found
    finally:
        for handle in memory.values():
            live.free(handle)
    return document(live, letter, portfolio.kernels[0].config.stencil, cases)


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
        "method": f"single launches, held, warm cache, medians of {_RUNS}; code as served",
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
) -> dict[str, Any]:
    """Return times of a stencil's configs: all of a small space, of a large one its starts.

    Of a stencil for products with a short side these are what is drawn; of any other every kind
    in turn, where columns of A and B are aligned as the copies of them are that serve, or side by
    side for configs that take those.

    Parameters
    ----------
    live : CUDADevice
        Where.
    letter : str
        Of the precision.
    name : str
        Of the stencil.
    count, seed : int
        Shapes of each pair of transposes; the same for the same seed.
    seconds : float
        After which no further shape of its transposes begins; each pair has a fourth.
    also : Mapping, optional
        More configs, by variant.
    unaligned : bool
        Whether the configs are those that take columns of any alignment.
    sifted : bool
        Whether more shapes count for more than surer times: each kernel is run once, and configs
        that are far from the best of each of the first shapes are left out.
    """
    until = time.monotonic()
    family = stencil(name)
    of = precision(letter)
    memory = matrices(live, of, seed)
    cases: dict[str, Any] = {}
    try:
        with compiling_ahead(live.arch) as ahead:
            coming = {}
            for a, b in itertools.product((Trans.N, Trans.T), repeat=2):
                variant = Variant(of, a, b)
                if of.reads_along_k and not all(variant.k_fast):
                    continue
                every = [
                    *_candidates(family, variant, live, unaligned),
                    *(also or {}).get(variant, ()),
                ]
                coming[variant] = _compiling(family, variant, dict.fromkeys(every), ahead)
            for variant, compiled in coming.items():  # others compile while these are timed
                trans = f"{variant.trans_a}{variant.trans_b}"
                kernels = _loaded(live, compiled)
                if not kernels:
                    warnings.warn(
                        f"{name} {letter} {trans}: the compiler or the device refused all of"
                        f" {len(compiled)} configs; nothing of it is timed",
                        RuntimeWarning,
                        stacklevel=2,
                    )
                    continue
                until = max(until, time.monotonic()) + seconds / 4
                streams = bool(family.geometry(next(iter(kernels))).streamed)
                drawn = KINDS["short"](seed, of) if streams else every_kind(seed, of)
                problems: Iterator[Problem] = (
                    Problem(*sides, of, variant.trans_a, variant.trans_b)
                    for sides in islice(drawn, count)
                )
                if not (streams or unaligned):
                    problems = map(_aligned, problems)
                cases[trans] = _timed(live, family, kernels, problems, until, memory, sifted=sifted)
    finally:
        for handle in memory.values():
            live.free(handle)
    method = f"launches back to back, held, warm cache, medians of {1 if sifted else _RUNS}"
    return document(live, letter, name, cases) | {"method": method}


def _timed(
    live: CUDADevice,
    family: Stencil,
    kernels: Mapping[Config, Kernel],
    problems: Iterable[Problem],
    until: float,
    memory: Mapping[str, Any],
    *,
    sifted: bool,
) -> dict[str, Any]:
    """Return times of configs on problems, one after another until a time; see `measure_family`."""
    configs, shapes = list(kernels), []
    rows: list[list[int | None]] = []
    for problem in problems:
        if time.monotonic() >= until:
            break
        if sifted and len(rows) == _SIFTED_BY:
            near = _near_best(rows)
            configs = [configs[at] for at in near]
            rows = [[row[at] for at in near] for row in rows]
        workload = Workload(live, problem, memory)
        shapes.append([problem.m, problem.n, problem.k])
        timers = [_Burst(live, workload, one, kernels[one], family) for one in configs]
        rows.append(interleaved_medians(timers, 1 if sifted else _RUNS))
    return {"shapes": shapes, "configs": [dict(one) for one in configs], "ns": rows, "won": []}


class _Burst:
    """Times launches back to back, as calls come: power and early launches count as they do there.

    The first call times one launch, and says how many the next ones are.
    """

    def __init__(
        self, live: CUDADevice, workload: Workload, config: Config, kernel: Kernel, family: Stencil
    ) -> None:
        p = workload.problem
        launch = family.launch(config, p.m, p.n, p.k)
        arguments = family.arguments(config, Variant.of(p), workload.call)
        self._live, self._kernel, self._count = live, kernel, 1
        self._prepared = live.prepare(kernel, launch, arguments)

    def __call__(self) -> int:
        """Return the nanoseconds of a launch."""
        live, count = self._live, self._count

        def enqueue() -> None:
            for _ in range(count):
                self._prepared.enqueue(live.stream)

        event = live.between_events(enqueue, keep=self._kernel, held=count)
        ns = event.nanoseconds() / count
        if count == 1:
            self._count = min(_MOST_OF_BURST, max(1, round(_BURST_NS / max(ns, 1))))
        return round(ns)


def _candidates(
    family: Stencil, variant: Variant, live: CUDADevice, unaligned: bool
) -> list[Config]:
    """Return the configs that are measured, in the space that the device leaves."""
    space = family.space(variant, live.spec)
    if family.geometry(family.default(variant, live.spec)).streamed:
        return list(space)
    starts = [one for one in dict.fromkeys(family.starts(variant, live.spec)) if one in space]
    return [one for one in starts if family.geometry(one).any_alignment == unaligned]


def _aligned(problem: Problem) -> Problem:
    """Return a problem with columns of A and B at multiples of 16 bytes."""
    chunk = elements_of_chunk(problem)
    lda, ldb = (-(-ld // chunk) * chunk for ld in (problem.lda, problem.ldb))
    return replace(problem, lda=lda, ldb=ldb)


def _near_best(rows: Sequence[Sequence[int | None]]) -> list[int]:
    """Return the columns that are near the best of some row; all where there are no times."""
    times = np.array(rows, float)  # NaN for None
    best = np.fmin.reduce(times, axis=1, keepdims=True)
    near = (times <= _NEAR * best).any(axis=0)
    return np.flatnonzero(near | ~near.any()).tolist()


def _compiling(
    family: Stencil,
    variant: Variant,
    configs: Iterable[Config],
    ahead: Callable[[Source], Callable[[], bool]],
) -> list[tuple[Config, Source, Callable[[], bool]]]:
    """Begin to compile configs; return each with its source and what waits for it."""
    sources = [(one, family.source(one, variant, "cuda")) for one in configs]
    return [(one, source, ahead(source)) for one, source in sources]


def _loaded(
    live: CUDADevice, compiled: Iterable[tuple[Config, Source, Callable[[], bool]]]
) -> dict[Config, Kernel]:
    """Wait until all are compiled, and load them but for what compiler or device refuses."""
    found = {}
    for config, source, able in compiled:
        if able():
            with contextlib.suppress(BackendError):
                found[config] = live.compile(source)
    return found


def interleaved_medians(timers: Sequence[_Timer | None], rounds: int = _RUNS) -> list[int | None]:
    """Return medians in nanoseconds; None where a kernel is not for a problem, or refused.

    Of so many rounds, after one that does not count.  What disturbs a device for a millisecond
    then counts in one round of each kernel.
    """
    runs: list[list[int]] = [[] for _ in timers]
    able = [at for at, timer in enumerate(timers) if timer is not None]
    for round_ in range(rounds + 1):
        for at in tuple(able):
            timer = timers[at]
            assert timer is not None  # those in `able`
            try:
                runs[at].append(timer())
            except BackendError:
                runs[at] = []
            if not runs[at] or (round_ and runs[at][-1] > _SLOW_NS):
                able.remove(at)
    return [round(median(row[1:])) if row else None for row in runs]


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
    kernel: PortfolioKernel, workload: Workload, loaded: Mapping[str, Kernel]
) -> _Timer | None:
    """Return what times a kernel; None where it is not for the problem."""
    problem = workload.problem
    digest = kernel.modes.get(kernel.geometry.mode(problem))
    if digest is None or not kernel.geometry.takes(problem):
        return None
    return partial(workload.run, loaded[digest], stencil(kernel.config.stencil), kernel.config)


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
