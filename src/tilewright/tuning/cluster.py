"""Candidates on many machines: a Dask cluster's workers compile, check and time them.

::

    strategy --config--> worker of this kind of device: compile, check, time
    store <---row---------------'

A worker stands for one device.  What it is sent is a config and what it returns is a row, both
plain data, one candidate a task, so that a worker that is lost costs what it had in hand, and
another gets that.  Candidates run in processes of the worker's own (`tilewright.tuning.process`),
so that none of them ends it.  Times of unlike devices are not compared: workers whose device has
another fingerprint get nothing.
"""

from __future__ import annotations

import platform
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from tilewright.backend import LiveDevice
from tilewright.backend import device as find_device
from tilewright.hardware import DeviceSpec
from tilewright.microbench.peak import measured_peak
from tilewright.precision import precision
from tilewright.text import install_hint
from tilewright.tuning.alone import alone_on
from tilewright.tuning.measurement import Measurement, Status
from tilewright.tuning.process import Answer, WorkerProcess, WorkerSettings
from tilewright.tuning.proposer import Proposer
from tilewright.tuning.room import memory_gib
from tilewright.tuning.runner import Limits, Runner, TuningError, answered, failed
from tilewright.tuning.strategies import Strategy

__all__ = ["Cluster", "ClusterRunner", "RemoteDevice", "on_every_worker"]

# How often it is looked who is there: a worker's loss is noticed within this.
_LOOK_SECONDS = 0.5

# A result of some hundred bytes that does not come in this was lost with its worker.
_RESULT_SECONDS = 10.0

# A worker that is started anew after it was lost is back in less.
_PATIENCE_SECONDS = 120.0


# -- on a worker ----------------------------------------------------------------------------


class _Place:
    """A worker's device, and the processes that candidates run in there."""

    def __init__(self, live: LiveDevice, modules: tuple[str, ...]) -> None:
        self.live = live
        self.settings = WorkerSettings(live.id, memory_gib(), modules)
        # Where kernels run on the cores that compile, one thing is done at a time.
        self.exclusive = live.spec.kind == "cpu"
        self._idle: queue.SimpleQueue[WorkerProcess] = queue.SimpleQueue()
        self._timer = WorkerProcess(self.settings)
        self._device = threading.Lock()

    def measure(self, request: dict[str, Any], limits: Limits) -> Answer:
        """Prepare a candidate, then time it."""
        request = {**request, "ahead": not self.exclusive}
        if self.exclusive:
            with self._alone():
                made = self._prepared(request, limits)
                return made if made.status != Status.OK else self._timed(request, made, limits)
        made = self._prepared(request, limits)
        if made.status != Status.OK:
            return made
        with self._alone():
            return self._timed(request, made, limits)

    def ask(self, request: dict[str, Any], limits: Limits) -> Answer:
        """Race or certify."""
        with self._alone():
            return answered(self._timer, request, limits.final)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Have the device: other workers may be of it, too."""
        with self._device, alone_on(self.live, "tuning for a cluster", lambda _: None):
            yield

    def _prepared(self, request: dict[str, Any], limits: Limits) -> Answer:
        try:
            worker = self._idle.get_nowait()
        except queue.Empty:
            worker = WorkerProcess(replace(self.settings, arch=self.live.arch))
        try:
            return answered(worker, {**request, "do": "prepare"}, limits.prepare)
        finally:
            self._idle.put(worker)

    def _timed(self, request: dict[str, Any], made: Answer, limits: Limits) -> Answer:
        answer = answered(self._timer, {**request, "do": "time"}, limits.time)
        spent = Counter(made.data["spent"]) + Counter(answer.data.get("spent", {}))
        return replace(answer, data={**made.data, **answer.data, "spent": dict(spent)})


_places: dict[tuple[str | None, tuple[str, ...]], _Place] = {}
_making = threading.Lock()


def _place(name: str | None, modules: tuple[str, ...]) -> _Place:
    with _making:
        key = name, modules
        if key not in _places:
            _places[key] = _Place(find_device(name), modules)
        return _places[key]


def _do(
    what: str,
    name: str | None,
    modules: tuple[str, ...],
    request: dict[str, Any],
    limits: dict[str, float],
) -> dict[str, Any]:
    """Carry out a request on this worker; return an answer as plain data."""
    place = _place(name, modules)
    try:
        found: Answer = getattr(place, what)(request, Limits(**limits))
    except RuntimeError as error:  # its processes cannot be started
        found = Answer(Status.CRASH, str(error), machine=True)
    return asdict(found)


def _described(name: str | None, letter: str) -> dict[str, Any]:
    """Return what the coordinator must know of this worker's device."""
    live = find_device(name)
    with alone_on(live, "measuring for a cluster"):
        peak = measured_peak(live, precision(letter))
    told = (
        "id", "spec", "fingerprint", "backend", "dialect", "max_allocation", "portfolio_key", "arch"
    )  # fmt: skip
    return {
        **{one: getattr(live, one) for one in told},
        "software": {
            **live.environment(),
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        "peak": peak,
    }


# -- at the coordinator ---------------------------------------------------------------------


@dataclass(frozen=True)
class RemoteDevice:
    """A kind of device that workers of a cluster have: what a tuner asks a `LiveDevice` for."""

    id: str
    spec: DeviceSpec
    fingerprint: str
    backend: str
    dialect: str
    max_allocation: int | None
    portfolio_key: str
    arch: str
    software: Mapping[str, Any]
    peak: float

    def environment(self) -> dict[str, Any]:
        """Return what a measurement should remember about the software there."""
        return dict(self.software)


@dataclass
class _Worker:
    """A Dask worker with the device in question, and what it has in hand."""

    name: str
    slots: int
    jobs: dict[str, tuple[Any, Measurement]] = field(default_factory=dict)  # futures, by key


def on_every_worker(address: Any, task: Callable[..., None], *arguments: Any) -> None:
    """Call a function once on each worker, whatever its device."""
    with _connected(address) as client:
        client.gather(
            [
                client.submit(task, *arguments, workers=[one], pure=False)
                for one in client.nthreads()
            ]
        )


@contextmanager
def _connected(address: Any) -> Iterator[Any]:
    """Yield a client of a scheduler, or the caller's own.

    Raises
    ------
    ValueError
        If Dask is not installed, the address is none, or the scheduler does not answer.
    """
    if not isinstance(address, str):
        yield address
        return
    try:
        from distributed import Client
        from distributed.comm.addressing import parse_address, parse_host_port
        from distributed.comm.registry import get_backend
    except ImportError:
        raise ValueError(f"cluster={address!r} needs Dask; {install_hint('dask')}") from None
    try:  # here, as a client that is given no address takes a minute to fail
        scheme, where = parse_address(address)
        get_backend(scheme)
        if scheme in ("tcp", "tls"):
            parse_host_port(where)
    except ValueError as error:
        raise ValueError(
            f"cluster={address!r} is no address ({error}); write it like tcp://HOST:8786"
        ) from None
    try:
        client: Any = Client(address, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise ValueError(f"cluster={address!r} does not answer: {error}") from None
    with client:
        yield client


class Cluster:
    """A connection to a Dask cluster, and its workers of one kind of device.

    Parameters
    ----------
    address : str or distributed.Client
        The scheduler's, such as ``"tcp://10.0.0.1:8786"``, or a connection to it.
    device : str, optional
        What workers call their device; the best of each by default.
    letter : str
        Of the precision that is tuned for.

    Raises
    ------
    ValueError
        As of `_connected`, or if no worker has a device.
    """

    def __init__(self, address: Any, device: str | None, letter: str) -> None:
        self._held = ExitStack()
        self.client = self._held.enter_context(_connected(address))
        self.device, self.letter = device, letter
        self.workers: dict[str, _Worker] = {}
        self._known: set[str] = set()
        self._asked: dict[str, Any] = {}
        self.others: Counter[str] = Counter()  # devices that are not used, by name
        self.live: RemoteDevice | None = None
        until = time.monotonic() + _PATIENCE_SECONDS
        while self.live is None and time.monotonic() < until:
            self.look()
            time.sleep(0.05)
        if self.live is None:
            self.close()
            raise ValueError(f"cluster={address!r} has no worker with {device or 'a device'}")

    def close(self) -> None:
        """Leave the cluster."""
        self._held.close()

    def look(self) -> list[_Worker]:
        """See who is there; return the workers that were lost."""
        here: dict[str, int] = self.client.nthreads()
        for address in here.keys() - self._known:
            self._known.add(address)
            self._asked[address] = self.client.submit(
                _described, self.device, self.letter, workers=[address], pure=False
            )
        for address, asked in list(self._asked.items()):
            if address not in here:
                self._asked.pop(address).cancel()
            elif asked.done():
                del self._asked[address]
                self._welcome(address, here[address], asked)
        lost = [self.workers.pop(one) for one in self.workers.keys() - here.keys()]
        self._known &= here.keys()
        return lost

    def _welcome(self, address: str, threads: int, asked: Any) -> None:
        """Let a worker take part, if its device is of the kind."""
        try:
            found = RemoteDevice(**asked.result(timeout=_RESULT_SECONDS))
        except TimeoutError:
            self._known.discard(address)  # it is asked again, if it is there
            return
        except Exception:  # of any class: it has no such device
            self.others["none"] += 1
            return
        self.live = self.live or found
        if found.fingerprint == self.live.fingerprint:
            # One more waits there, so that none is idle meanwhile.
            self.workers[address] = _Worker(address.rpartition("/")[2], threads + 1)
        else:
            self.others[found.spec.name] += 1


class ClusterRunner(Runner):
    """Runs candidates on a cluster's workers until a deadline; see `Runner`."""

    def __init__(
        self,
        cluster: Cluster,
        modules: tuple[str, ...],
        request: dict[str, Any],
        blank: Measurement,
        record: Callable[[Measurement], None],
        mode_of: Callable[[Any], Any],
        limits: Limits,
    ) -> None:
        settings = WorkerSettings(cluster.device or "", 1.0, modules)  # none is started here
        super().__init__(settings, request, blank, record, mode_of, exclusive=False, limits=limits)
        self._cluster, self._modules = cluster, modules
        self._answers: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()

    def search(self, strategy: Strategy, deadline: float, skip: set[str]) -> None:
        """Try what the strategy proposes until `deadline`; see `Runner.search`."""
        with Proposer(strategy, waits=True) as proposer:
            self._search(proposer, deadline, skip)

    def _search(self, proposer: Proposer, deadline: float, skip: set[str]) -> None:
        started = looked = heard = time.monotonic()
        last_call = deadline + self.limits.prepare + self.limits.time
        workers = self._cluster.workers
        while True:
            now = time.monotonic()
            if now > looked + _LOOK_SECONDS:
                looked = now
                for lost in self._cluster.look():
                    for future, job in lost.jobs.values():
                        future.cancel()  # nobody waits for what it had in hand any more
                        self._again.append(job)
            late = now > (deadline if self.best_ns is not None else last_call)
            exhausted = late or self._submit(proposer, skip)
            self.spent.wall = now - started
            if not any(one.jobs for one in workers.values()):
                if exhausted and workers:
                    return
                if now > heard + _PATIENCE_SECONDS:
                    raise TuningError("stopped, as no worker of the cluster is left; start some")
            try:
                address, key = self._answers.get(timeout=_LOOK_SECONDS / 2)
            except queue.Empty:
                continue
            heard = now
            if address in workers and key in workers[address].jobs:
                self._hear(workers[address], *workers[address].jobs.pop(key), proposer)

    def _submit(self, proposer: Proposer, skip: set[str]) -> bool:
        """Give every worker as much as it takes; return whether there is no more."""
        workers = self._cluster.workers
        self.spent.devices = max(1, len(workers))
        self.spent.workers = sum(one.slots - 1 for one in workers.values())
        for address, worker in workers.items():
            while len(worker.jobs) < worker.slots:
                candidate = self._proposed(proposer, skip)
                if candidate is None:
                    return True
                skip.add(candidate.config.id)
                request = self._about(candidate, "time") | {"best_ns": self.best_ns}
                future = self._sent("measure", request, address)
                worker.jobs[future.key] = future, candidate
                future.add_done_callback(lambda one, at=address: self._answers.put((at, one.key)))
        return False

    def _sent(self, what: str, request: dict[str, Any], address: str) -> Any:
        cluster = self._cluster
        return cluster.client.submit(
            _do, what, cluster.device, self._modules, request, asdict(self.limits),
            workers=[address], pure=False,
        )  # fmt: skip

    def _hear(self, worker: _Worker, future: Any, candidate: Measurement, proposer: Any) -> None:
        """Act on what a worker said."""
        answer = _answer_of(future)
        if answer is None:
            self._again.append(candidate)
            return
        self.spent.add(answer.data.pop("spent", {}))
        if self._is_machines_fault(candidate, answer):
            self._try_again(candidate, proposer)
            return
        self.places[worker.name] = self.places.get(worker.name, 0) + 1
        if answer.status != Status.OK:
            self._finish(proposer, failed(candidate, answer))
            return
        times, compiled = tuple(answer.data["times_ns"]), answer.data["compile_seconds"]
        self._finish(
            proposer,
            replace(candidate, status=Status.OK, times_ns=times, compile_seconds=compiled),
        )

    def _one(self, worker: WorkerProcess, request: dict[str, Any]) -> Answer:
        """Ask one of the workers one thing and wait; another, if that one is lost."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < until:
            self._cluster.look()
            for address in list(self._cluster.workers):
                future = self._sent("ask", request, address)
                while not future.done() and address in self._cluster.workers:
                    time.sleep(_LOOK_SECONDS / 5)
                    self._cluster.look()
                answer = _answer_of(future) if future.done() else None
                if answer is not None:
                    return answer
                future.cancel()
            time.sleep(_LOOK_SECONDS)
        raise TuningError("stopped, as no worker of the cluster is left; start some")


def _answer_of(future: Any) -> Answer | None:
    """Return what a task that ended says; None where it was lost with its worker since.

    What Dask says of a failure is the machine's.
    """
    try:
        told = future.result(timeout=_RESULT_SECONDS)
    except TimeoutError:
        return None
    except Exception as error:  # of any class: tasks raise what they will, and so does Dask
        return Answer(Status.CRASH, f"a worker failed: {error!r}", machine=True)
    return Answer(**{**told, "status": Status(told["status"])})
