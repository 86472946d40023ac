"""The coordinator: feeds candidates to workers and records what becomes of each.

Two kinds of work flow through here.  *Preparing* uses the host's cores; *timing* uses the
device.  On a GPU they overlap: every core compiles, and one process alone checks a candidate
on small exact problems and times it; where there are several GPUs alike, each has such a
process.  On a CPU device they share the same cores, and a compiler beside a kernel would spoil
its time; there, preparing (compile and check) and timing alternate in batches.

Where timing is what takes long, prepared candidates come with a forecast
(`tilewright.tuning.forecast`): the most promising is timed first, and those that the
queue has no room for are dropped from its other end.
"""

from __future__ import annotations

import math
import os
import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.reschedule.levels import SCHEDULE_SECONDS, is_rescheduled
from tilewright.space import Config
from tilewright.stencil import Mode
from tilewright.tuning.baselines import grouped
from tilewright.tuning.measurement import Measurement, Status
from tilewright.tuning.process import Answer, WorkerProcess, WorkerSettings
from tilewright.tuning.proposer import Proposer
from tilewright.tuning.ready import ReadyQueue
from tilewright.tuning.strategies import Strategy

__all__ = ["Limits", "Runner", "Spent", "TuningError", "answered", "failed"]

# What a compiler takes at most: big unrolled kernels take NVRTC 0.3 GiB.
_COMPILER_GIB = 0.5

_NICE = 5

# So many failures of the machine in a row, all alike, are no accident.
_IN_A_ROW = 5


class TuningError(RuntimeError):
    """No candidate was both right and timed, or the machine lets none be."""


@dataclass(frozen=True)
class Limits:
    """How long a candidate may take, in seconds, before its worker is killed.

    Parameters
    ----------
    prepare : float
        Compile; on a CPU's device check as well: big unrolled kernels take PoCL 2 to 4 s.
    time : float
        One screening measurement; on other devices the check before it, too.
    final : float
        The race of the finalists and the winner's certificate.
    """

    prepare: float = 30.0
    time: float = 20.0
    final: float = 180.0


@dataclass
class Spent:
    """Where the time of a search went, in seconds.

    Parameters
    ----------
    workers, devices : int
        Processes that prepare; devices, each with one more that times.
    exclusive : bool
        Whether those that prepare check as well, before any of that is timed.
    wall : float
        Of the search.
    compiling, rescheduling, forecasting, checking, timing, kernels : float
        Of all processes together; `rescheduling` is of kernels whose main loop's order was searched
        for, compiler and all; `kernels` is the device's own time of what was timed, within
        `timing`.
    """

    workers: int
    devices: int = 1
    exclusive: bool = False
    wall: float = 0.0
    compiling: float = 0.0
    rescheduling: float = 0.0
    forecasting: float = 0.0
    checking: float = 0.0
    timing: float = 0.0
    kernels: float = 0.0

    def add(self, told: Mapping[str, float]) -> None:
        """Add what an answer says of its seconds."""
        for name, seconds in told.items():
            setattr(self, name, getattr(self, name) + seconds)

    def __str__(self) -> str:
        def share(seconds: float, processes: int = 1) -> str:
            return f"{100 * seconds / max(self.wall * processes, 1e-9):.0f} %"

        seldom = {"rescheduled": self.rescheduling, "forecast": self.forecasting}
        more = (f", {did} {share(x, self.workers)}" for did, x in seldom.items() if x)
        checked = f"checked {share(self.checking, (self.devices, self.workers)[self.exclusive])}"
        return (
            f"{self.workers} processes compiled {share(self.compiling, self.workers)} of the time"
            + "".join(more)
            + (f" and {checked}; the device's" if self.exclusive else f"; the device's {checked},")
            + f" timed {share(self.timing, self.devices)};"
            f" kernels ran {share(self.kernels, self.devices)}"
        )


class Runner:
    """Runs candidates through workers until a deadline.

    Parameters
    ----------
    settings : WorkerSettings
        How to start workers.
    request : dict
        What every request about a candidate holds besides its config.
    blank : Measurement
        A measurement with everything that candidates share filled in.
    record : callable
        Called with each measurement the moment it exists.
    mode_of : callable
        Returns the launch mode that a config is compiled in for the problem; None where its kernel
        is not for that.
    exclusive : bool
        Whether timing needs the cores that preparing uses.
    limits : Limits
        Time-outs.
    beside : sequence of WorkerSettings
        Of further processes that check and time, on other devices of the same kind.
    arch : str
        Architecture that is compiled for without a device; empty where compiling takes one.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        request: dict[str, Any],
        blank: Measurement,
        record: Callable[[Measurement], None],
        mode_of: Callable[[Config], Mode | None],
        *,
        exclusive: bool,
        limits: Limits,
        beside: Sequence[WorkerSettings] = (),
        arch: str = "",
    ) -> None:
        cores = len(os.sched_getaffinity(0))
        most = min(8, cores) if exclusive else min(cores, int(settings.memory_gib / _COMPILER_GIB))
        # Where both go on at once, who launches kernels goes first.
        behind = replace(settings, nice=0 if exclusive else _NICE, arch=arch)
        self._preparers = [WorkerProcess(behind) for _ in range(max(1, most))]
        self._timers = [WorkerProcess(one) for one in (settings, *beside)]
        self._timer = self._timers[0]  # finalists race on one device
        self._request, self._blank, self._record = (
            {**request, "ahead": not exclusive}, blank, record,
        )  # fmt: skip
        self._mode_of, self._exclusive, self.limits = mode_of, exclusive, limits
        self._ready = ReadyQueue()
        # Enough ready candidates to make the change of phase cheap, or to choose by forecast, few
        # enough that the strategy learns soon.
        many = exclusive or request.get("forecast")
        self._batch = (4 if many else 1) * len(self._preparers)
        self.spent = Spent(len(self._preparers), len(self._timers), exclusive)
        self.places: dict[str, int] = {}  # candidates by where they ran, on a cluster
        self.best_ns: int | None = None
        self.outside: float | None = None  # share of the cores that others had during the race
        self._machine_failed: list[Answer] = []  # in a row, all alike
        self._again: list[Measurement] = []  # what the machine failed, once
        self._answered = 0  # candidates that the machine did not fail
        self._failed_at: dict[str, int] = {}  # by the id of one that it did

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        WorkerProcess.kill_all(self._workers)

    # -- searching -----------------------------------------------------------------

    def search(self, strategy: Strategy, deadline: float, skip: set[str]) -> None:
        """Try what the strategy proposes until `deadline` (monotonic clock).

        Parameters
        ----------
        strategy : Strategy
            Proposes and learns.
        deadline : float
            No candidate is started after it, unless none has succeeded yet: a short budget
            on a slow machine still gets one, if one comes within the limits of one.
        skip : set of str
            Ids of configs that are known already.
        """
        with Proposer(strategy, waits=self._exclusive) as proposer:
            self._search(proposer, deadline, skip)

    def _search(self, proposer: Proposer, deadline: float, skip: set[str]) -> None:
        exhausted = False
        timing = False
        started = time.monotonic()
        last_call = deadline + self.limits.prepare + self.limits.time
        for worker in self._timers:  # ahead of the compilers: many that start at once delay them
            worker.start()
        while True:
            now = time.monotonic()
            late = now > (deadline if self.best_ns is not None else last_call)
            idle = not self._ready and not any(w.busy for w in self._workers)
            # Past the deadline one at a time, until one succeeds.
            if not timing and not late and (now <= deadline or idle):
                exhausted = self._feed(proposer, skip, one=now > deadline)
            preparing = any(worker.busy for worker in self._preparers)
            if self._exclusive:
                full = len(self._ready) >= self._batch or now > deadline or exhausted
                timing = self._timer.busy or (len(self._ready) > 0 and (timing or full))
            if self._ready and (not self._exclusive or (timing and not preparing)) and not late:
                for worker in self._timers:
                    self._start_timing(worker)
            if late:
                self._drop_searches()
            busy = [w for w in self._workers if w.busy]
            self.spent.wall = time.monotonic() - started
            if not busy and (late or not proposer.is_asked):
                if late or (exhausted and not self._ready):
                    return
                continue
            if self._listen(busy, proposer, deadline):
                exhausted = False  # a result may give the strategy something to propose

    @property
    def _workers(self) -> tuple[WorkerProcess, ...]:
        return (*self._preparers, *self._timers)

    def _feed(self, proposer: Proposer, skip: set[str], *, one: bool) -> bool:
        """Give idle preparers candidates; return whether there are none left."""
        waiting = len(self._ready) + sum(w.busy for w in self._preparers)
        for worker in self._preparers[: 1 if one else None]:
            if waiting >= 2 * self._batch and self._make_room(proposer):
                waiting -= 1
            if worker.busy or waiting >= 2 * self._batch:
                continue
            candidate = self._proposed(proposer, skip)
            if candidate is None:
                return not proposer.is_asked
            skip.add(candidate.config.id)
            waiting += 1
            # The scheduler gives up by itself, with a reason.
            more = SCHEDULE_SECONDS if is_rescheduled(candidate.config) else 0.0
            worker.ask(candidate, self._about(candidate, "prepare"), self.limits.prepare + more)
        return False

    def _proposed(self, proposer: Proposer, skip: set[str]) -> Measurement | None:
        """Return the next candidate that is new and for the problem, or is to be tried again.

        None if there is none, or none yet, and then the strategy is asked.
        """
        if self._again and self._failed_at.get(self._again[0].config.id, -1) < self._answered:
            return self._again.pop(0)
        while (config := proposer.propose()) is not None:
            if config.id not in skip and (mode := self._mode_of(config)) is not None:
                return replace(self._blank, config=config, mode=mode)
        return self._again.pop() if self._again and not proposer.is_asked else None

    def _drop_searches(self) -> None:
        """End searches for another schedule: they outlast any budget, and have no row by that."""
        for worker in self._preparers:
            if worker.busy and is_rescheduled(worker.job.config):
                worker.kill()
                worker.job = None

    def _make_room(self, proposer: Proposer) -> bool:
        """Give up a candidate that need not be timed; return whether there was one."""
        hopeless = self._ready.give_up()
        if hopeless is not None:
            proposer.observe(hopeless.config, None)
        return hopeless is not None

    def _about(self, candidate: Measurement, do: str) -> dict[str, Any]:
        return {**self._request, "do": do, **_as_json(candidate)}

    def _start_timing(self, worker: WorkerProcess) -> None:
        """Let a device's process have the next candidate, if it is idle and there is one."""
        if worker.busy or not self._ready:
            return
        candidate = self._ready.take()
        request = self._about(candidate, "time") | {"best_ns": self.best_ns}
        worker.ask(candidate, request, self.limits.time)

    def _listen(self, busy: Sequence[WorkerProcess], proposer: Proposer, deadline: float) -> bool:
        """Wait for an answer, a time-out or a proposal; return whether an answer was acted on."""
        answers = _wait(busy, proposer)
        for worker, answer in answers:
            candidate: Measurement = worker.job
            worker.job = None
            self.spent.add(answer.data.pop("spent", {}))
            if answer.lost:
                worker.restart()  # if that fails, the device is gone, and no kernel did it
            if self._is_machines_fault(candidate, answer):
                self._try_again(candidate, proposer)
            elif answer.status != Status.OK:
                self._finish(proposer, failed(candidate, answer))
            elif worker in self._timers:
                times = tuple(answer.data["times_ns"])
                if not self._exclusive and time.monotonic() <= deadline:
                    self._start_timing(worker)  # the device waits for no bookkeeping
                self._finish(proposer, replace(candidate, status=Status.OK, times_ns=times))
            else:
                prepared = replace(candidate, compile_seconds=answer.data["compile_seconds"])
                self._ready.add(prepared, answer.data.get("forecast"))
        return bool(answers)

    def _try_again(self, candidate: Measurement, proposer: Proposer) -> None:
        """Keep a candidate that the machine failed until it did not fail another, once."""
        if candidate.config.id in self._failed_at:
            proposer.observe(candidate.config, None)
        else:
            self._failed_at[candidate.config.id] = self._answered
            self._again.append(candidate)

    def _is_machines_fault(self, candidate: Measurement, answer: Answer) -> bool:
        """Whether the machine failed: that is held against no candidate, and has no row.

        One that took all memory, and does so again when others had enough meanwhile, is at fault.

        Raises
        ------
        TuningError
            If it fails again and again.
        """
        before = self._failed_at.get(candidate.config.id, self._answered)
        greedy = answer.status == Status.OUT_OF_MEMORY and before < self._answered
        if not answer.machine or greedy:
            self._answered += 1
            self._machine_failed.clear()
            return False
        if self._machine_failed and self._machine_failed[0].status != answer.status:
            self._machine_failed.clear()
        self._machine_failed.append(answer)
        if len(self._machine_failed) == _IN_A_ROW:
            raise TuningError(
                f"stopped, as {_IN_A_ROW} candidates in a row failed for want of what they run on:"
                f" {answer.reason}"
            )
        return True

    def _finish(self, proposer: Proposer, result: Measurement) -> None:
        median = result.median_ns if result.status == Status.OK else None
        if median is not None and (self.best_ns is None or median < self.best_ns):
            self.best_ns = int(median)
        proposer.observe(result.config, None if median is None else median * 1e-9)
        self._record(result)

    # -- finalists -------------------------------------------------------------------

    def race(self, candidates: Sequence[Measurement], seconds: float) -> list[Measurement]:
        """Time the finalists interleaved, in one process, on a quiet machine.

        A finalist that brings the process down costs the race: the others are then
        timed one by one, rescheduled ones with their baselines, beside which alone they count.

        Raises
        ------
        TuningError
            If the machine fails even for one alone.
        """
        request = self._request | {
            "do": "race",
            "seconds": seconds,
            "candidates": [_as_json(c) for c in candidates],
        }
        answer = self._one(self._timer, request)
        if answer.status == Status.OK:
            self.outside = answer.data.get("outside")
            rows = zip(candidates, answer.data["times_ns"], strict=True)
            return [replace(c, status=Status.OK, times_ns=tuple(t)) for c, t in rows]
        groups = grouped(candidates)
        if len(groups) > 1:
            share = seconds / len(groups)
            return [result for group in groups for result in self.race(group, share)]
        alone = [c for c in candidates if not is_rescheduled(c.config)]
        if len(candidates) == 1 or not alone:
            self._refuse_machine(answer)
            return [failed(c, answer) for c in candidates]
        lost = [c for c in candidates if is_rescheduled(c.config) and not answer.machine]
        return [*(failed(c, answer) for c in lost), *self.race(alone, seconds)]

    def certify(self, candidate: Measurement) -> Measurement:
        """Check a finalist on everything the numerics contract promises."""
        answer = self._one(self._timer, self._about(candidate, "certify"))
        if answer.status != Status.OK:
            self._refuse_machine(answer)
            return failed(candidate, answer)
        return replace(candidate, status=Status.OK, error=answer.data["error"])

    @staticmethod
    def _refuse_machine(answer: Answer) -> None:
        if answer.machine:
            raise TuningError(f"stopped before a winner was sure: {answer.reason}")

    def _one(self, worker: WorkerProcess, request: dict[str, Any]) -> Answer:
        """Ask one worker one thing and wait for the answer."""
        return answered(worker, request, self.limits.final)


def _as_json(candidate: Measurement) -> dict[str, Any]:
    """Return what a worker has to know to make a candidate's kernel."""
    config = candidate.config
    return {"stencil": config.stencil, "config": dict(config), "mode": str(candidate.mode)}


def failed(candidate: Measurement, answer: Answer) -> Measurement:
    """Return the measurement of a candidate that failed."""
    return replace(
        candidate,
        status=answer.status,
        reason=answer.reason,
        detail=answer.detail,
        times_ns=(),
        error=None,
    )


def answered(worker: WorkerProcess, request: dict[str, Any], seconds: float) -> Answer:
    """Ask an idle worker one thing and wait for the answer."""
    worker.ask(object(), request, seconds)
    while True:
        for _, answer in _wait([worker]):
            worker.job = None
            return answer


def _wait(
    busy: Sequence[WorkerProcess], proposer: Proposer | None = None
) -> list[tuple[WorkerProcess, Answer]]:
    """Wait until a worker answers, dies or times out, or a proposal comes; return their answers."""
    with selectors.DefaultSelector() as selector:
        for one in (*busy, *((proposer,) if proposer is not None else ())):
            selector.register(one, selectors.EVENT_READ)
        nearest = min((worker.deadline for worker in busy), default=math.inf) - time.monotonic()
        timeout = max(0.0, nearest) + 0.01 if busy else None
        readable = {key.fileobj for key, _ in selector.select(timeout)}
    if proposer in readable:
        proposer.hear()
    answers = []
    for worker in busy:
        answer = worker.poll(worker in readable)
        if answer is not None:
            answers.append((worker, answer))
    return answers
