"""tune(): search a stencil's space for one problem on one device, and keep the winner."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tilewright.backend import LiveDevice
from tilewright.backend import device as find_device
from tilewright.microbench.peak import measured_peak
from tilewright.precision import PRECISIONS
from tilewright.problem import Problem
from tilewright.reschedule.levels import (
    SCHEDULE,
    is_rescheduled,
    may_reschedule,
    schedule_space,
    unscheduled,
)
from tilewright.reschedule.proofs import proved
from tilewright.space import Config, Constraint
from tilewright.stencil import Mode, Stencil, Variant
from tilewright.timeline import span
from tilewright.tuning import host_blas
from tilewright.tuning.alone import alike, alone_on
from tilewright.tuning.asked import family_of, look_at, look_at_more
from tilewright.tuning.background import OF_ONE_PROBLEM, features_on, forecast_on, lessons_of
from tilewright.tuning.baselines import is_current, judged, marked, with_baselines
from tilewright.tuning.budget import Budget, Within, budget_of, seconds_of
from tilewright.tuning.learned_space import LearnedSpace
from tilewright.tuning.measurement import Measurement, Stage, Status, now
from tilewright.tuning.noise import noise
from tilewright.tuning.process import WorkerSettings
from tilewright.tuning.record import problem_to_json
from tilewright.tuning.recorded.known import lessons_from
from tilewright.tuning.result import Progress, TuningResult
from tilewright.tuning.room import check_memory, limits_for, memory_gib
from tilewright.tuning.runner import Limits, Runner, TuningError
from tilewright.tuning.store import Store
from tilewright.tuning.strategies import Background, Lesson, Points, Strategy, usual_strategy
from tilewright.tuning.strategies import strategy as make_strategy
from tilewright.tuning.strategies.baselines_first import BaselinesFirst
from tilewright.version import VERSION

if TYPE_CHECKING:
    from tilewright.tuning.cluster import Cluster

__all__ = ["Progress", "TuningError", "TuningResult", "check_memory", "seconds_of", "tune"]

# Finalists: screening on a shared machine errs by some percent, and among some hundred
# candidates the best eight have always held the best.
FINALISTS = 8

# Before the race so many times as many run a heat.
_HEATS = 4

# Times that each runs in a heat at least, the uncounted first and baselines included.
_HEAT_RUNS = 6

# Share of the budget kept for the race and the winner's certificate.
_FINAL_SHARE = 0.15

# More rounds than fit in here no longer change the order of finalists.
_RACE_SECONDS = 10.0


# From here on timing a candidate (five runs at perhaps half of the peak) takes longer than reading
# its machine code (0.2 to 0.4 s of one of the cores that prepare candidates).
_FORECAST_SECONDS = 0.05


def tune(
    problem: Problem,
    device: str | LiveDevice | None = None,
    *,
    budget: str | float = "120s",
    strategy: str | None = None,
    stencil: str | None = None,
    seed: int = 0,
    resume: bool = True,
    store: Store | None = None,
    observer: Callable[[Progress], None] | None = None,
    limits: Limits | None = None,
    modules: tuple[str, ...] = (),
    unproved_schedules: bool = False,
    cluster: Any = None,
    pruning: str = "thresholds",
    lessons: Sequence[str | os.PathLike[str]] = (),
    constraints: Sequence[Constraint] = (),
) -> TuningResult:
    """Find the fastest right kernel for a problem.

    Candidates are compiled, checked and timed in processes of their own: one that fails
    to compile, computes wrong results, crashes or hangs costs only itself, and is recorded
    with a reason.  What the machine lacks (disk space, a permission, memory, a device, a
    compiler) is held against none: after a few such failures in a row the run stops.

    Parameters
    ----------
    problem : Problem
        What to tune for.
    device : str or LiveDevice, optional
        Where; by default the best device, and those of this host that are like it.
    budget : str or float
        For the whole run: seconds, or text such as ``"10m"``, ``"500 candidates"`` or
        ``"converged"`` (`tuning.budget`); several with commas end at whichever comes first.
    strategy : str, optional
        One of `strategies.STRATEGIES`; by default ``"learned"``, or ``"climb"`` where scikit-learn
        is not installed.
    stencil : str, optional
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
    unproved_schedules : bool
        Try rescheduled code also where nobody has proved it on such a device.  It is
        compared with the compiler's own code as always, but `gemm` does not use it.
    cluster : str or distributed.Client, optional
        Address of a Dask scheduler, whose workers try the candidates (`tuning.cluster`).  The
        device is then what they call it; the first worker's kind is tuned for.
    pruning : {"thresholds", "none", "learned"}
        ``"none"``: all that the device and the shapes allow; ``"learned"``: of what the stencil's
        thresholds leave but the tenth that a model of the store's measurements of other problems
        ranks best (`tuning.learned_space`).
    lessons : sequence of str or path
        Recorded spaces (`tuning.recorded`) that teach besides what the store has.
    constraints : sequence of Constraint
        What every candidate has to meet besides.

    Raises
    ------
    ValueError
        If an argument is wrong.
    TuningError
        If no candidate was both right and timed, or the machine lets none be.
    """
    strategy = usual_strategy() if strategy is None else strategy
    look_at(problem, strategy, stencil, seed, store, modules)
    look_at_more(observer, limits, lessons, pruning, constraints)
    if 0 in (problem.m, problem.n, problem.k):
        raise ValueError(f"problem={problem} is empty; tune a problem with m, n and k above 0")
    asked = budget_of(budget)
    with ExitStack() as held:
        joined: Cluster | None = None
        if cluster is not None:
            joined = held.enter_context(_joined(cluster, device, problem))
        live = find_device(device) if joined is None else cast(LiveDevice, joined.live)
        check_memory(problem, live, checked=True)
        family = family_of(live, stencil, problem)
        named = device is not None or os.environ.get("TILEWRIGHT_DEVICE")
        beside = [] if named or joined is not None else alike(live)
        # In one order, so that no two processes wait for each other.
        mine = [] if joined is not None else sorted((live, *beside), key=lambda x: x.hardware_key)
        for one in mine:
            held.enter_context(alone_on(one, f"tuning {problem}"))
        opened = store or held.enter_context(Store())
        session = _Session(live, problem, family, asked, observer, opened, joined)
        session.beside = beside
        if pruning == "none":
            session.served = session.space = session.space.without("heuristic")
        dropped = "proof" if unproved_schedules else ""
        session.space = session.space.without(dropped, constraints)
        session.learned, session.lessons = pruning == "learned", lessons
        limits = limits or limits_for(problem, session.peak, 2 * FINALISTS)
        # NumPy's integers are seeds, too, but not of Python's own generator.
        return session.run(strategy, int(seed), resume, limits, modules)


def _joined(address: Any, device: str | LiveDevice | None, problem: Problem) -> Any:
    """Return a connection to a cluster, to be closed."""
    from tilewright.tuning.cluster import Cluster

    if not isinstance(device, str | None):
        raise ValueError(f"device={device!r} is here; name what the cluster's workers call theirs")
    return closing(Cluster(address, device, problem.precision.letter))


class _Session:
    """One tuning run."""

    def __init__(
        self,
        live: LiveDevice,
        problem: Problem,
        family: Stencil,
        budget: Budget,
        observer: Callable[[Progress], None] | None,
        store: Store,
        cluster: Cluster | None = None,
    ) -> None:
        self.live, self.problem, self.family, self.store = live, problem, family, store
        self.spec = live.spec
        self.asked, self.budget, self.observer = budget, budget.seconds, observer
        self.started = time.monotonic()
        self.cluster = cluster
        self.places: dict[str, int] = {}
        self.variant = Variant.of(problem)
        # What `gemm` may use, and what is searched.
        levels = proved(live.arch) if live.arch else ()
        self.served = schedule_space(family, self.variant, live.spec, levels)
        self.space = self.served
        self.name = ""  # the strategy's
        self.learned = False  # whether measurements of other problems prune the space
        self.lessons: Sequence[str | os.PathLike[str]] = ()
        self.beside: Sequence[LiveDevice] = ()  # which check and time as well
        self.tried = self.failed = 0
        self.screened: list[Measurement] = []

    @property
    def peak(self) -> float:
        """The device's rate of multiply-adds, in FLOP/s."""
        if self.cluster is not None and self.cluster.live is not None:
            return self.cluster.live.peak
        return measured_peak(self.live, self.problem.precision)

    def run(
        self, name: str, seed: int, resume: bool, limits: Limits, modules: tuple[str, ...]
    ) -> TuningResult:
        """Search, race, certify."""
        self.name = name
        skip: set[str] = set()
        stored = self._stored() if resume else []
        resumed = self._resume([m for m in stored if not m.is_imported], skip)
        chosen = self._strategy(name, seed, [m for m in stored if m.is_imported])
        chosen = Within(chosen, self.asked)
        for known in self.screened:
            chosen.observe(known.config, known.median_ns * 1e-9)
        run = self.problem.flops / self.peak
        # Who asks for every point gets every point.
        wanted = run > _FORECAST_SECONDS and name != "exhaustive"
        request = {
            "problem": problem_to_json(self.problem),
            "forecast": self.spec.multiprocessors if wanted else 0,
        }
        exclusive = self.spec.kind == "cpu"
        with self._runner(request, limits, modules, exclusive=exclusive) as runner:
            self.places = runner.places
            if self.screened:
                runner.best_ns = int(self._best().median_ns)
            with span("search", {"problem": self.problem}):
                runner.search(chosen, self.started + self.budget * (1 - _FINAL_SHARE), skip)
            searched = time.monotonic() - self.started
            finalists = self._decide(runner)
            winner, served = self._certified(runner, finalists)
            spent = runner.spent
        if exclusive and self.cluster is None and self.problem.precision.letter in PRECISIONS:
            with span("race with BLAS"):
                host_blas.race(self.live, self.problem)
        seconds = time.monotonic() - self.started
        return TuningResult(
            winner, finalists, self.tried, self.failed, resumed, seconds, searched, served,
            tuple(noise({"the winner": winner.times_ns}, runner.outside)), spent,
        )  # fmt: skip

    def _runner(
        self, request: dict[str, Any], limits: Limits, modules: tuple[str, ...], *, exclusive: bool
    ) -> Runner:
        """Return what runs candidates: here, or on a cluster."""
        shared = request, self._blank(), self._record, self._mode_of
        if self.cluster is not None:
            from tilewright.tuning.cluster import ClusterRunner

            return ClusterRunner(self.cluster, modules, *shared, limits)
        settings, *beside = (
            WorkerSettings(one.id, memory_gib(), modules) for one in (self.live, *self.beside)
        )
        return Runner(
            settings, *shared, exclusive=exclusive, limits=limits, beside=beside,
            arch=self.live.arch,
        )  # fmt: skip

    def _strategy(self, name: str, seed: int, imported: list[Measurement]) -> Strategy:
        """Return what proposes; what is said to be fast elsewhere comes first."""
        space: Points = self.space
        fast = sorted((m for m in imported if m.ok), key=lambda m: m.median_ns)
        told = dict.fromkeys(m.config for m in fast)
        starts = [*list(told)[:FINALISTS], *self.family.starts(self.variant, self.spec)]
        inside = [start for start in starts if start in space]
        about = self.family, self.problem, self.spec
        background = Background(
            features_on(*about), forecast_on(*about), self._taught, OF_ONE_PROBLEM
        )
        if self.learned:
            space = LearnedSpace(space, background, inside)
        chosen = make_strategy(name, space, seed, inside)
        chosen.background = background
        names = {parameter.name for parameter in space.parameters}
        return BaselinesFirst(chosen) if SCHEDULE in names else chosen

    def _taught(self) -> tuple[Lesson, ...]:
        """Return what the store has of the stencil on other problems, and what files have."""
        known = self.store.query(stencil=self.family.name, version=self.family.version)
        stored = lessons_of(known, self.family, self.problem, self.spec)
        return *stored, *lessons_from(self.lessons, self.family, self.problem)

    def _stored(self) -> list[Measurement]:
        """Return what the store has of this problem's space."""
        known = list(
            self.store.query(
                device=self.live.fingerprint,
                problem=self.problem,
                stencil=self.family.name,
                version=self.family.version,
            )
        )
        known = [m for m in known if is_current(m)]
        # A space may have had more points when they were measured.
        points = self.space.contained([m.config for m in known])
        here = [m for m, is_point in zip(known, points, strict=True) if is_point]
        # They may have been compiled in another launch mode then.
        return [m for m in here if m.mode == self._mode_of(m.config)]

    def _resume(self, known: list[Measurement], skip: set[str]) -> int:
        """Take over what was measured here; return how much that is."""
        skip.update(m.config.id for m in known)
        # What failed later than its screening does not start the search again either.
        bad = {m.config.id for m in known if not m.ok}
        good = {m.config.id: m for m in known if m.ok and m.config.id not in bad}
        self.screened = list(good.values())
        return len(skip)

    def _mode_of(self, config: Config) -> Mode | None:
        """Return the launch mode in which a config serves the problem; None where it does not."""
        family, plain = self.family, unscheduled(config)
        if not family.takes(plain, self.problem):
            return None
        wanted = family.geometry(plain).mode(self.problem)
        mode = family.nearest_mode(plain, self.variant, self.spec, wanted)
        return mode if may_reschedule(mode) or not is_rescheduled(config) else None

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
            environment=environment(self.live) | {"strategy": self.name},
            created=now(),
        )

    def _record(self, result: Measurement) -> None:
        """Store a result the moment it exists."""
        result = marked(result)
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
        counts = self.tried, self.failed
        self.observer(Progress(stage, *counts, best, elapsed, self.budget, dict(self.places)))

    def _decide(self, runner: Runner) -> tuple[Measurement, ...]:
        """Race the best with their baselines; return what may win, fastest first."""
        ranked = sorted(self.screened, key=lambda m: m.median_ns)
        if not ranked:
            raise TuningError(
                f"no candidate for {self.problem} was right and timed ({self.failed} failed);"
                " give more budget, or look at `tilewright db list --failed`"
            )
        self._tell("final")
        seconds = min(_RACE_SECONDS, max(1.0, self.budget * _FINAL_SHARE / 2))
        with span("race"):
            # As many as time allows run a heat, so that screening's noise does not choose.
            at_most = int(seconds * 1e9 / (_HEAT_RUNS * ranked[0].median_ns))
            heat = ranked[: min(at_most, _HEATS * FINALISTS)]
            if len(heat) > FINALISTS:
                ranked = judged(self._raced(runner, heat, seconds / 2)) or ranked
            raced = self._raced(runner, ranked[:FINALISTS], seconds)
        for result in raced:
            if result.ok:
                self.store.add(replace(result, created=now()))
        return tuple(judged(raced))

    def _raced(
        self, runner: Runner, ranked: list[Measurement], seconds: float
    ) -> list[Measurement]:
        """Time candidates beside their baselines, interleaved; store what fails by that."""
        racing = [replace(m, stage=Stage.FINAL) for m in with_baselines(ranked)]
        raced = [marked(m) for m in runner.race(racing, seconds)]
        for result in raced:
            if not result.ok:
                self.store.add(replace(result, created=now()))
        return raced

    def _certified(
        self, runner: Runner, right: tuple[Measurement, ...]
    ) -> tuple[Measurement, Measurement | None]:
        """Certify from the fastest on until one passes, and one that `gemm` may use."""
        self._tell("certify")
        winner: Measurement | None = None
        for candidate in right:
            if winner is not None and candidate.config not in self.served:
                continue
            with span("certify"):
                result = replace(runner.certify(candidate), stage=Stage.WINNER, created=now())
            if result.status != Status.OK:
                self.store.add(replace(result, stage=Stage.FINAL))
                continue
            self.store.add(result)
            winner = winner or result
            if result.config in self.served:
                return winner, result
        if winner is not None:
            return winner, None
        raise TuningError(
            f"no finalist for {self.problem} passed every check;"
            " look at `tilewright db list --failed`"
        )


def environment(live: LiveDevice) -> dict[str, Any]:
    """Return what a measurement remembers about the software around it."""
    here = {
        "tilewright": VERSION,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "cache": "warm",
    }
    return here | live.environment()
