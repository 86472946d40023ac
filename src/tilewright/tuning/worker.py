"""The process that touches candidates: it may crash, hang or be killed at any moment.

Run as ``python -m tilewright.tuning.worker``.  Requests and answers are one JSON object
a line; nothing is ever unpickled.  Answers go to a file descriptor of their own,
because compilers and drivers print to the standard ones.

Requests: ``prepare`` (compile and screen), ``time`` (screen timing), ``race`` (several
candidates interleaved), ``certify`` (everything the numerics contract promises).
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import threading
import time
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
from tilewright.problem import Problem, Trans
from tilewright.reschedule.cubin import compile_kernel
from tilewright.reschedule.levels import baseline_and_level, is_rescheduled, unscheduled
from tilewright.space import Config
from tilewright.stencil import Mode, Stencil, Variant, stencil
from tilewright.timeline import drain, span, start
from tilewright.tuning.forecast import forecast
from tilewright.tuning.measure import Workload, interleaved, repeat
from tilewright.tuning.measurement import Status
from tilewright.tuning.noise import OutsideLoad
from tilewright.tuning.same_bits import same_bits
from tilewright.tuning.verify import WrongResultError, certify, screen

__all__ = ["Worker", "problem_from_json", "problem_to_json", "serve"]


def problem_to_json(problem: Problem) -> dict[str, Any]:
    """Return a problem as plain data."""
    names = ("m", "n", "k", "lda", "ldb", "ldc")
    plain: dict[str, Any] = {name: getattr(problem, name) for name in names}
    return plain | {
        "precision": problem.precision.letter,
        "trans_a": str(problem.trans_a),
        "trans_b": str(problem.trans_b),
    }


def problem_from_json(plain: dict[str, Any]) -> Problem:
    """Return the problem that plain data describe."""
    letters = {name: Trans(plain[name]) for name in ("trans_a", "trans_b")}
    return Problem(**{**plain, **letters})


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
        self._workload: Workload | None = None

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

    def _candidate(self, request: dict[str, Any]) -> tuple[Kernel, Stencil, Config, Variant, Mode]:
        problem = problem_from_json(request["problem"])
        family = stencil(request["stencil"])
        config = Config(family.name, request["config"])
        variant, mode = Variant.of(problem), Mode.parse(request["mode"])
        return self._compiled(family, config, variant, mode), family, config, variant, mode

    def _compiled(self, family: Stencil, config: Config, variant: Variant, mode: Mode) -> Kernel:
        baseline, level = baseline_and_level(config)
        source = family.source(baseline, variant, self.device.dialect, mode)
        return compile_kernel(self.device, source, level)

    def _load(self, request: dict[str, Any]) -> Workload:
        problem = problem_from_json(request["problem"])
        if self._workload is None or self._workload.problem != problem:
            if self._workload is not None:
                self._workload.close()
            self._workload = Workload(self.device, problem)
        return self._workload

    def do_prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        """Compile a candidate and check it on small exact problems."""
        kernel, family, config, variant, mode = self._candidate(request)
        if not family.takes(config, problem_from_json(request["problem"])):
            raise LaunchError("it is not for the problem's sides and leading dimensions")
        screen(self.device, kernel, family, config, variant, mode)
        self._like_its_baseline(kernel, family, config, variant, mode)
        answer: dict[str, Any] = {"compile_seconds": kernel.compile_seconds}
        if request.get("forecast") and kernel.code is not None:
            problem = problem_from_json(request["problem"])
            launch = family.launch(config, problem.m, problem.n, problem.k)
            baseline, _ = baseline_and_level(config)
            source = family.source(baseline, variant, self.device.dialect, mode)
            units = self.device.spec.multiprocessors
            answer["forecast"] = forecast(kernel.code, launch, units, source.dynamic_shared_bytes)
        return answer

    def _like_its_baseline(
        self, kernel: Kernel, family: Stencil, config: Config, variant: Variant, mode: Mode
    ) -> None:
        """Check that a rescheduled kernel gives the bits of the compiler's own code."""
        if is_rescheduled(config):
            baseline = self._compiled(family, unscheduled(config), variant, mode)
            same_bits(self.device, (baseline, kernel), family, config, variant)

    def do_time(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time a prepared candidate on the problem itself."""
        workload = self._load(request)
        kernel, family, config, *_ = self._candidate(request)
        return {
            "times_ns": repeat(workload, kernel, family, config, best_ns=request.get("best_ns"))
        }

    def do_race(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time several prepared candidates interleaved."""
        workload = self._load(request)
        candidates = [self._candidate({**request, **one})[:3] for one in request["candidates"]]
        others = OutsideLoad()
        times = interleaved(workload, candidates, request["seconds"])
        # The host's cores have no part in a GPU's times.
        outside = others.share() if self.device.spec.kind == "cpu" else None
        return {"times_ns": times, "outside": outside}

    def do_certify(self, request: dict[str, Any]) -> dict[str, Any]:
        """Check a winner on everything the numerics contract promises."""
        kernel, family, config, variant, _ = self._candidate(request)
        return {"error": certify(self.device, kernel, family, config, variant)}


def _limit_memory(gibibytes: float) -> None:
    """Let an allocation that is out of all proportion fail here, not take the machine down.

    The data segment, not the address space: GPU drivers reserve terabytes of addresses.
    """
    size = int(gibibytes * 2**30)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        size = min(size, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (size, hard))


def serve(requests: TextIO, answers: TextIO, settings: dict[str, Any]) -> None:
    """Answer requests until there are no more."""
    for module in settings.get("modules", ()):
        importlib.import_module(module)
    _limit_memory(settings["memory_gib"])
    if settings.get("timeline"):
        start()
    worker = Worker(device(settings["device"]))
    print(json.dumps({"status": Status.OK, "pid": os.getpid()}), file=answers, flush=True)
    for line in requests:
        answer = worker.answer(json.loads(line))
        spans = drain()
        if spans:
            answer["spans"] = spans
        print(json.dumps(answer), file=answers, flush=True)
        if worker.lost:
            return


def _die_with(parent: int) -> None:
    """End this process when its coordinator ends, whatever it is doing then.

    A thread watches, rather than Linux's death signal: that one fires when the *thread*
    that started this process ends.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Serve the coordinator that started this process."""
    settings = json.loads(sys.argv[1])
    _die_with(settings["parent"])
    with os.fdopen(settings["answers_fd"], "w") as answers:
        serve(sys.stdin, answers, settings)


if __name__ == "__main__":
    main()
