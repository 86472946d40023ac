"""tune(): search a stencil's space for one problem on one device, and keep the winner."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.backend import LiveDevice, device
from tilewright.microbench.peak import measured_peak
from tilewright.precision import Precision
from tilewright.problem import Problem
from tilewright.space import Space
from tilewright.stencil import Stencil, Variant, stencil, stencils_for
from tilewright.timeline import span
from tilewright.tuning.measurement import Measurement, Stage, Status, now
from tilewright.tuning.process import WorkerSettings
from tilewright.tuning.runner import Limits, Runner
from tilewright.tuning.store import Store
from tilewright.tuning.strategies import strategy as make_strategy
from tilewright.tuning.worker import problem_to_json
from tilewright.version import VERSION

__all__ = ["Progress", "TuningError", "TuningResult", "check_memory", "seconds_of", "tune"]

# Finalists: screening on a shared machine errs by some percent, and among some hundred
# candidates the best eight have always held the best.
FINALISTS = 8

# Share of the budget kept for the race and the winner's certificate.
_FINAL_SHARE = 0.15

# More rounds than fit in here no longer change the order of finalists.
_RACE_SECONDS = 10.0


# From here on timing a candidate (five runs at perhaps half of the peak) takes longer than reading
# its machine code (0.3 to 0.9 s on one of the cores that prepare candidates side by side).
_FORECAST_SECONDS = 0.05


class TuningError(RuntimeError):
    """No candidate was both right and timed."""


@dataclass(frozen=True)
class Progress:
    """Where a tuning run stands.

    Parameters
    ----------
    stage : str
        ``"search"``, ``"final"`` or ``"certify"``.
    tried, failed : int
        Candidates of this run that ended, and those of them that failed.
    best : Measurement or None
        The fastest right candidate so far, stored ones included.
    elapsed, budget : float
        Seconds.
    """

    stage: str
    tried: int
    failed: int
    best: Measurement | None
    elapsed: float
    budget: float


@dataclass(frozen=True)
class TuningResult:
    """What a tuning run found.

    Parameters
    ----------
    winner : Measurement
        The fastest candidate of the final race that passed every check.
    finalists : tuple of Measurement
        All that raced, fastest first.
    tried, failed : int
        Candidates of this run.
    resumed : int
        Candidates of earlier runs that this one started from.
    seconds : float
        How long the run took.
    search_seconds : float
        How long it searched: without the race and the certificate.
    """

    winner: Measurement
    finalists: tuple[Measurement, ...]
    tried: int
    failed: int
    resumed: int
    seconds: float
    search_seconds: float

    @property
    def candidates_per_second(self) -> float:
        """The tuner's throughput while it searched, from its workers' start on."""
        return self.tried / self.search_seconds


def seconds_of(budget: str | float) -> float:
    """Return a duration in seconds.

    Parameters
    ----------
    budget : str or float
        Seconds, or a number with ``s``, ``m`` or ``h``, such as ``"120s"``.

    Raises
    ------
    ValueError
        If it is not a positive duration.
    """
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    text = str(budget).strip().lower()
    scale = units.get(text[-1:], 0.0)
    try:
        seconds = float(text[:-1]) * scale if scale else float(text)
    except ValueError:
        seconds = float("nan")
    if not 0 < seconds < float("inf"):
        raise ValueError(f"budget={budget!r} is not a duration; write it like 90s, 10m or 2h")
    return seconds


def tune(
    problem: Problem,
    device_name: str | LiveDevice | None = None,
    *,
    budget: str | float = "120s",
    strategy: str = "climb",
    stencil_name: str | None = None,
    seed: int = 0,
    resume: bool = True,
    store: Store | None = None,
    observer: Callable[[Progress], None] | None = None,
    limits: Limits | None = None,
    modules: tuple[str, ...] = (),
) -> TuningResult:
    """Find the fastest right kernel for a problem.

    Candidates are compiled, checked and timed in processes of their own: one that fails
    to compile, computes wrong results, crashes, hangs or eats the memory costs only
    itself, and is recorded with a reason.

    Parameters
    ----------
    problem : Problem
        What to tune for.
    device_name : str or LiveDevice, optional
        Where; the best device by default.
    budget : str or float
        Time for the whole run: seconds, or text such as ``"120s"`` or ``"10m"``.
    strategy : str
        ``"climb"``, ``"random"`` or ``"exhaustive"``.
    stencil_name : str, optional
        Which stencil; the one that fits the device best by default.
    seed : int
        Makes the strategy's choices repeatable.
    resume : bool
        Start from what the store knows, and try none of it again.
    store : Store, optional
        Where results go; the user's own by default.
    observer : callable, optional
        Called with a `Progress` after each candidate.
    limits : Limits, optional
        Time-outs for candidates.
    modules : tuple of str
        Modules that workers import first; they may register stencils.

    Raises
    ------
    ValueError
        If an argument is wrong.
    TuningError
        If no candidate was both right and timed.
    """
    if 0 in (problem.m, problem.n, problem.k):
        raise ValueError(f"problem={problem} is empty; tune a problem with m, n and k above 0")
    live = device(device_name)
    check_memory(problem, live)
    family = _family(live, stencil_name, problem.precision)
    session = _Session(live, problem, family, seconds_of(budget), observer)
    own = store is None
    session.store = store or Store()
    try:
        return session.run(strategy, seed, resume, limits or _limits(problem, live), modules)
    finally:
        if own:
            session.store.close()


def _bytes(problem: Problem) -> dict[str, int]:
    """Return the bytes of A, B and C."""
    columns = {
        "a": problem.m if problem.trans_a.transposed else problem.k,
        "b": problem.k if problem.trans_b.transposed else problem.n,
        "c": problem.n,
    }
    leading = {"a": problem.lda, "b": problem.ldb, "c": problem.ldc}
    return {x: leading[x] * columns[x] * problem.precision.element_bytes for x in columns}


def check_memory(problem: Problem, live: LiveDevice) -> None:
    """Refuse a problem that no candidate could be timed on.

    Raises
    ------
    ValueError
        Saying how much there is.
    """
    sizes = _bytes(problem)
    limits = [_memory_gib() * 2**30 / 2]  # one more copy is made of each while it is drawn
    if live.spec.memory_bytes is not None:
        limits.append(live.spec.memory_bytes)
    most = live.max_allocation
    if sum(sizes.values()) > min(limits) or (most is not None and max(sizes.values()) > most):
        raise ValueError(
            f"problem={problem} takes {sum(sizes.values()) / 2**30:.1f} GiB in three matrices;"
            f" {live.id} and this machine allow {min(limits) / 2**30:.1f} GiB in all"
            + (f" and {most / 2**30:.1f} GiB for one" if most is not None else "")
        )


def _limits(problem: Problem, live: LiveDevice) -> Limits:
    """Return time-outs that leave a large problem time to be drawn and computed.

    A candidate may be twenty times slower than the device's peak; random numbers are drawn
    at some 100 MB/s.
    """
    run = 20 * problem.flops / measured_peak(live, problem.precision)
    drawing = sum(_bytes(problem).values()) / 1e8
    plain = Limits()
    # Screening runs a candidate two or three times, the race each finalist four times or more.
    return Limits(
        plain.prepare,
        plain.time + drawing + 3 * run,
        plain.final + drawing + FINALISTS * run,
    )


def _family(live: LiveDevice, name: str | None, precision: Precision) -> Stencil:
    if name is not None:
        return stencil(name)
    fitting = stencils_for(live.spec, precision)
    if not fitting:
        raise ValueError(f"device={live.id} has no stencil that suits it; name one")
    return fitting[0]


class _Session:
    """One tuning run."""

    store: Store

    def __init__(
        self,
        live: LiveDevice,
        problem: Problem,
        family: Stencil,
        budget: float,
        observer: Callable[[Progress], None] | None,
    ) -> None:
        self.live, self.problem, self.family = live, problem, family
        self.budget, self.observer = budget, observer
        self.started = time.monotonic()
        self.variant = Variant.of(problem)
        self.tried = self.failed = 0
        self.screened: list[Measurement] = []

    def run(
        self, name: str, seed: int, resume: bool, limits: Limits, modules: tuple[str, ...]
    ) -> TuningResult:
        """Search, race, certify."""
        space: Space = self.family.space(self.variant, self.live.spec)
        starts = self.family.starts(self.variant, self.live.spec)
        chosen = make_strategy(name, space, seed, [start for start in starts if start in space])
        skip: set[str] = set()
        resumed = self._resume(skip) if resume else 0
        for known in self.screened:
            chosen.observe(known.config, known.median_ns * 1e-9)
        settings = WorkerSettings(self.live.id, _memory_gib(), modules)
        run = self.problem.flops / measured_peak(self.live, self.problem.precision)
        request = {
            "problem": problem_to_json(self.problem),
            "forecast": run > _FORECAST_SECONDS,
        }
        exclusive = self.live.spec.kind == "cpu"
        with Runner(
            settings, request, self._blank(), self._record, exclusive=exclusive, limits=limits
        ) as runner:
            if self.screened:
                runner.best_ns = int(self._best().median_ns)
            with span("search", {"problem": self.problem}):
                runner.search(chosen, self.started + self.budget * (1 - _FINAL_SHARE), skip)
            searched = time.monotonic() - self.started
            winner, finalists = self._decide(runner)
        seconds = time.monotonic() - self.started
        return TuningResult(winner, finalists, self.tried, self.failed, resumed, seconds, searched)

    def _resume(self, skip: set[str]) -> int:
        """Take over what the store knows of this problem; return how much that is."""
        known = list(
            self.store.query(
                device=self.live.fingerprint,
                problem=self.problem,
                stencil=self.family.name,
                version=self.family.version,
            )
        )
        skip.update(m.config.id for m in known)
        # What failed later than its screening does not start the search again either.
        bad = {m.config.id for m in known if not m.ok}
        good = {m.config.id: m for m in known if m.ok and m.config.id not in bad}
        self.screened = list(good.values())
        return len(skip)

    def _blank(self) -> Measurement:
        return Measurement(
            config=self.family.default(self.variant, self.live.spec),
            problem=self.problem,
            device=self.live.fingerprint,
            device_name=self.live.spec.name,
            backend=self.live.backend,
            stencil_version=self.family.version,
            status=Status.OK,
            stage=Stage.SCREEN,
            environment=environment(self.live),
            created=now(),
        )

    def _record(self, result: Measurement) -> None:
        """Store a result the moment it exists."""
        self.store.add(replace(result, created=now()))
        self.tried += 1
        if result.status == Status.OK:
            self.screened.append(result)
        else:
            self.failed += 1
        self._tell("search")

    def _best(self) -> Measurement:
        return min(self.screened, key=lambda m: m.median_ns)

    def _tell(self, stage: str) -> None:
        if self.observer is None:
            return
        best = self._best() if self.screened else None
        elapsed = time.monotonic() - self.started
        self.observer(Progress(stage, self.tried, self.failed, best, elapsed, self.budget))

    def _decide(self, runner: Runner) -> tuple[Measurement, tuple[Measurement, ...]]:
        """Race the best, then certify from the fastest on until one passes."""
        ranked = sorted(self.screened, key=lambda m: m.median_ns)[:FINALISTS]
        if not ranked:
            raise TuningError(
                f"no candidate for {self.problem} was right and timed ({self.failed} failed);"
                " give more budget, or look at `tilewright db list --failed`"
            )
        self._tell("final")
        seconds = min(_RACE_SECONDS, max(1.0, self.budget * _FINAL_SHARE / 2))
        with span("race"):
            raced = runner.race([replace(m, stage=Stage.FINAL) for m in ranked], seconds)
        for result in raced:
            self.store.add(replace(result, created=now()))
        right = sorted((m for m in raced if m.status == Status.OK), key=lambda m: m.median_ns)
        self._tell("certify")
        for candidate in right:
            with span("certify"):
                result = replace(runner.certify(candidate), stage=Stage.WINNER, created=now())
            if result.status == Status.OK:
                self.store.add(result)
                return result, tuple(right)
            self.store.add(replace(result, stage=Stage.FINAL))
        raise TuningError(
            f"no finalist for {self.problem} passed every check;"
            " look at `tilewright db list --failed`"
        )


def environment(live: LiveDevice) -> dict[str, Any]:
    """Return what a measurement remembers about the software around it."""
    return live.environment() | {
        "tilewright": VERSION,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "cache": "warm",
    }


def _memory_gib() -> float:
    """Return three quarters of the machine's memory, in GiB."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 0.75 * float(total) / 2**30
