"""The process that touches candidates: it may crash, hang or be killed at any moment.

Run as ``python -m tilewright.tuning.worker``.  Requests and answers are one JSON object
a line; nothing is ever unpickled.  Answers go to a file descriptor of their own,
because compilers and drivers print to the standard ones.

Requests: ``prepare`` (compile), ``time`` (screen timing), ``race`` (several candidates
interleaved), ``certify`` (everything the numerics contract promises).  A candidate is checked
when it is prepared; or, with ``ahead``, when it is timed, so that one process alone uses the
device and others compile without it.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import time
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TextIO

from tilewright.backend import (
    BackendError,
    CompileError,
    DeviceFailedError,
    DeviceLostError,
    HostError,
    Kernel,
    LaunchError,
    LiveDevice,
    OutOfMemoryError,
    device,
)
from tilewright.parent import end_with
from tilewright.problem import Problem
from tilewright.reschedule.cubin import compile_kernel, rewriting
from tilewright.reschedule.levels import Level, baseline_and_level, is_rescheduled, unscheduled
from tilewright.sass import occupancy, read_cubin
from tilewright.space import Config
from tilewright.stencil import Launch, Mode, Source, Stencil, Variant, stencil
from tilewright.timeline import drain, span, start
from tilewright.tuning.checked import CheckedWorkload
from tilewright.tuning.forecast import forecast
from tilewright.tuning.measure import interleaved, repeat
from tilewright.tuning.measurement import Status
from tilewright.tuning.noise import OutsideLoad
from tilewright.tuning.record import problem_from_json
from tilewright.tuning.same_bits import same_bits
from tilewright.tuning.verify import WrongResultError, certify, screen

__all__ = ["Worker", "serve"]


@dataclass(frozen=True)
class _Candidate:
    """What a request is about."""

    problem: Problem
    family: Stencil
    config: Config
    mode: Mode

    @property
    def level(self) -> Level | None:
        """How its machine code is rescheduled."""
        return baseline_and_level(self.config)[1]

    @property
    def baseline(self) -> _Candidate:
        """The same kernel as the compiler leaves it."""
        return replace(self, config=unscheduled(self.config))

    @property
    def launch(self) -> Launch:
        return self.family.launch(self.config, self.problem.m, self.problem.n, self.problem.k)

    def source(self, live: LiveDevice) -> Source:
        config, _ = baseline_and_level(self.config)
        return self.family.source(config, Variant.of(self.problem), live.dialect, self.mode)


def _refuse_what_cannot_run(code: bytes, launch: Launch, source: Source) -> None:
    """Refuse a kernel of which not one block fits on a multiprocessor."""
    kernel = max(read_cubin(code).kernels, key=lambda one: len(one.code))
    try:
        shared = kernel.shared_bytes + source.dynamic_shared_bytes
        fitting = occupancy(kernel.arch, prod(launch.block), kernel.registers, shared)
    except ValueError:  # an architecture newer than the table: the driver has the last word
        return
    if not fitting.blocks:
        raise LaunchError(
            f"a block takes more {fitting.limited_by} than a multiprocessor has:"
            f" {prod(launch.block)} threads, {kernel.registers} registers each, {shared} bytes"
        )


class Worker:
    """Carries out requests on one device.

    Attributes
    ----------
    lost : bool
        Whether a candidate took the device away from this process: every further
        candidate would fail here, whatever it does.
    """

    def __init__(self, live: LiveDevice) -> None:
        self.device = live
        self.lost = False
        self._workload: CheckedWorkload | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out a request; a failure of the candidate becomes a status."""
        try:
            action = getattr(self, f"do_{request['do']}")
            with span(f"candidate: {request['do']}", request.get("config")):
                return {"status": Status.OK, **action(request)}
        except DeviceLostError as error:
            self.lost = True
            machine = isinstance(error, DeviceFailedError)
            failed = self._failed(Status.LAUNCH_ERROR, error, machine=machine)
            return {**failed, "last": True}
        except (OutOfMemoryError, MemoryError) as error:
            return self._failed(Status.OUT_OF_MEMORY, error, machine=True)
        except (HostError, OSError, ImportError) as error:
            return self._failed(Status.COMPILE_ERROR, error, machine=True)
        except CompileError as error:
            return self._failed(Status.COMPILE_ERROR, error)
        except (LaunchError, BackendError) as error:
            return self._failed(Status.LAUNCH_ERROR, error)
        except WrongResultError as error:
            return self._failed(Status.WRONG_RESULT, error)

    @staticmethod
    def _failed(status: Status, error: BaseException, *, machine: bool = False) -> dict[str, Any]:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        detail = getattr(error, "detail", "")
        return {"status": status, "reason": lines[0], "detail": detail, "machine": machine}

    def _candidate(self, request: dict[str, Any]) -> _Candidate:
        problem = problem_from_json(request["problem"])
        family = stencil(request["stencil"])
        config = Config(family.name, request["config"])
        return _Candidate(problem, family, config, Mode.parse(request["mode"]))

    def _compiled(self, one: _Candidate) -> Kernel:
        return compile_kernel(self.device, one.source(self.device), one.level)

    def _load(self, request: dict[str, Any]) -> CheckedWorkload:
        problem = problem_from_json(request["problem"])
        if self._workload is None or self._workload.problem != problem:
            if self._workload is not None:
                self._workload.close()
            self._workload = CheckedWorkload(self.device, problem)
        return self._workload

    def do_prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        """Compile a candidate and, unless that is left to its timing, check it."""
        one = self._candidate(request)
        if not one.family.takes(one.config, one.problem):
            raise LaunchError("it is not for the problem's sides and leading dimensions")
        started = time.perf_counter()
        if request["ahead"]:
            code = self._compiled_ahead(one)
            taken = time.perf_counter() - started
            spent = {"rescheduling" if is_rescheduled(one.config) else "compiling": taken}
        else:
            kernel = self._compiled(one)
            code, taken = kernel.code, kernel.compile_seconds
            compiled = time.perf_counter()
            self._check(kernel, one)
            spent = {"compiling": compiled - started, "checking": time.perf_counter() - compiled}
        answer: dict[str, Any] = {"compile_seconds": taken, "spent": spent}
        if request.get("forecast") and code is not None:
            compiled = time.perf_counter()
            shared = one.source(self.device).dynamic_shared_bytes
            answer["forecast"] = forecast(code, one.launch, request["forecast"], shared)
            spent["forecasting"] = time.perf_counter() - compiled
        return answer

    def _compiled_ahead(self, one: _Candidate) -> bytes | None:
        """Return machine code that is in the cache from now on, its baseline's beside it."""
        source = one.source(self.device)
        if is_rescheduled(one.config):
            self.device.compile_ahead(one.baseline.source(self.device))
        code = self.device.compile_ahead(source, rewriting(source, one.level))
        if code is not None:
            _refuse_what_cannot_run(code, one.launch, source)
        return code

    def _check(self, kernel: Kernel, one: _Candidate) -> None:
        """Check a candidate on small exact problems, and rescheduled code beside its baseline."""
        about = one.family, one.config, Variant.of(one.problem)
        screen(self.device, kernel, *about, one.mode)
        if is_rescheduled(one.config):
            same_bits(self.device, (self._compiled(one.baseline), kernel), *about)

    def do_time(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time a prepared candidate on the problem itself; check it first, if that was left."""
        started = time.perf_counter()
        one = self._candidate(request)
        kernel = self._compiled(one)
        if request["ahead"]:
            self._check(kernel, one)
        checked = time.perf_counter()
        workload = self._load(request)
        before = workload.busy_ns
        times = repeat(workload, kernel, one.family, one.config, best_ns=request.get("best_ns"))
        spent = {
            "checking": checked - started,
            "timing": time.perf_counter() - checked,
            "kernels": 1e-9 * (workload.busy_ns - before),
        }
        return {"times_ns": times, "spent": spent}

    def do_race(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time several prepared candidates interleaved."""
        workload = self._load(request)
        every = [self._candidate({**request, **one}) for one in request["candidates"]]
        candidates = [(self._compiled(one), one.family, one.config) for one in every]
        others = OutsideLoad()
        times = interleaved(workload, candidates, request["seconds"])
        # The host's cores have no part in a GPU's times.
        outside = others.share() if self.device.spec.kind == "cpu" else None
        return {"times_ns": times, "outside": outside}

    def do_certify(self, request: dict[str, Any]) -> dict[str, Any]:
        """Check a winner on everything the numerics contract promises."""
        one = self._candidate(request)
        variant = Variant.of(one.problem)
        return {"error": certify(self.device, self._compiled(one), one.family, one.config, variant)}


def _limit_memory(gibibytes: float) -> None:
    """Let an allocation that is out of all proportion fail here, not take the machine down.

    The data segment, not the address space: GPU drivers reserve terabytes of addresses.
    """
    size = int(gibibytes * 2**30)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        size = min(size, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (size, hard))


def _opened(settings: dict[str, Any]) -> Any:
    """Return the device; of a process that only compiles what it compiles for.

    Where many processes start at once, each would wait for the driver.
    """
    if not settings["arch"]:
        return device(settings["device"])
    from tilewright.backend.cuda.architecture import Architecture

    return Architecture(settings["arch"])


def serve(requests: TextIO, answers: TextIO, settings: dict[str, Any]) -> None:
    """Answer requests until there are no more."""
    for module in settings.get("modules", ()):
        importlib.import_module(module)
    _limit_memory(settings["memory_gib"])
    os.nice(settings.get("nice", 0))
    if settings.get("timeline"):
        start()
    worker = Worker(_opened(settings))
    print(json.dumps({"status": Status.OK, "pid": os.getpid()}), file=answers, flush=True)
    for line in requests:
        answer = worker.answer(json.loads(line))
        spans = drain()
        if spans:
            answer["spans"] = spans
        print(json.dumps(answer), file=answers, flush=True)
        if worker.lost:
            return


def main() -> None:
    """Serve the coordinator that started this process."""
    settings = json.loads(sys.argv[1])
    end_with(settings["parent"])
    with os.fdopen(settings["answers_fd"], "w") as answers:
        serve(sys.stdin, answers, settings)


if __name__ == "__main__":
    main()
