"""A worker process as the coordinator sees it: ask, listen, and kill when it is time."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tilewright.backend.opencl.pocl_cache import PREFIX, ROOM_BYTES, roomy_directory
from tilewright.paths import cache_dir, data_dir, has_room, remove_directories_of
from tilewright.timeline import is_recording, merge
from tilewright.tuning.measurement import Status

__all__ = ["Answer", "WorkerProcess", "WorkerSettings"]

# Starting Python and an OpenCL platform takes 0.3 s; a busy machine may take longer.
START_SECONDS = 60.0

# For processes that share the cores: threads of BLAS that wait for one another would spin.
ONE_BLAS_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

# The end of what a worker printed, where it says what it died of.
_LOG_BYTES = 20_000


@dataclass(frozen=True)
class WorkerSettings:
    """How workers are started.

    Parameters
    ----------
    device : str
        Id of the device to use.
    memory_gib : float
        Most data a worker may allocate; beyond that the candidate is out of memory.
    modules : tuple of str
        Modules to import first; they may register stencils.
    nice : int
        How far behind other processes it stands.
    arch : str
        Architecture that one only compiles for, ahead, and opens no device; empty for others.
    """

    device: str
    memory_gib: float
    modules: tuple[str, ...] = ()
    nice: int = 0
    arch: str = ""


@dataclass(frozen=True)
class Answer:
    """What became of a request.

    Parameters
    ----------
    status : Status
        How it ended.
    reason, detail : str
        Why it failed.
    data : dict
        What was asked for.
    machine : bool
        Whether the machine failed, not the candidate: no disk space, no permission, no memory,
        no device, no compiler.
    lost : bool
        Whether the worker can use the device no more.
    """

    status: Status
    reason: str = ""
    detail: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    machine: bool = False
    lost: bool = False


class WorkerProcess:
    """One worker; it is started when first asked, and again after it died.

    Parameters
    ----------
    settings : WorkerSettings
        How to start it.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings = settings
        self.job: Any = None
        self._process: subprocess.Popen[bytes] | None = None
        self._answers = -1
        self._pending = b""
        self._deadline = 0.0
        self._errors: Any = None
        self._greeted = False
        self._seconds = 0.0
        self._compiles_in = Path()

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        return self.job is not None

    @property
    def deadline(self) -> float:
        """When the request under way times out, by the monotonic clock."""
        return self._deadline

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when an answer arrives."""
        return self._answers

    def start(self) -> None:
        """Start the process if it is not running."""
        if self._process is not None and self._process.poll() is None:
            return
        self.kill()
        self._answers, theirs = os.pipe()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process
        settings = {
            **asdict(self.settings),
            "answers_fd": theirs,
            "timeline": is_recording(),
            "parent": os.getpid(),
        }
        try:
            self._process = subprocess.Popen(  # noqa: S603  # our own module, no shell
                [sys.executable, "-m", "tilewright.tuning.worker", json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=(theirs,),
                # Where this process has temporary ones, theirs are the same.
                env={
                    **os.environ,
                    **ONE_BLAS_THREAD,
                    "TILEWRIGHT_CACHE_DIR": str(cache_dir()),
                    "TILEWRIGHT_DATA_DIR": str(data_dir(to_write=True)),
                },
                start_new_session=True,  # so that whatever it starts dies with it
            )
        except BaseException:  # no process that `kill` would close them with
            self._close()
            raise
        finally:
            os.close(theirs)
        self._greeted = False
        self._pending = b""
        self._compiles_in = roomy_directory()

    def ask(self, job: Any, request: dict[str, Any], seconds: float) -> None:
        """Send a request; `poll` returns its answer or what became of the process."""
        self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        self.job = job
        self._seconds = seconds
        self._deadline = time.monotonic() + (seconds if self._greeted else START_SECONDS)
        with contextlib.suppress(BrokenPipeError):  # it died: poll() will see that
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def poll(self, readable: bool) -> Answer | None:
        """Return the answer if there is one; None means: not yet."""
        if readable:
            chunk = os.read(self._answers, 1 << 20)
            if not chunk:
                return self._died()
            self._pending += chunk
        while b"\n" in self._pending:
            line, self._pending = self._pending.split(b"\n", 1)
            if not self._greeted:  # the clock of the request starts when the worker is up
                self._greeted = True
                self._deadline = time.monotonic() + self._seconds
                continue
            data = json.loads(line)
            merge(data.pop("spans", {}))
            lost = data.pop("last", False)
            if lost:
                # It ends itself, but perhaps after the next request is sent: that one's
                # candidate would answer for this one's fault.
                self.kill()
            status = Status(data.pop("status"))
            reason, detail = data.pop("reason", ""), data.pop("detail", "")
            return Answer(status, reason, detail, data, data.pop("machine", False), lost)
        if time.monotonic() > self._deadline:
            self.kill()
            return Answer(Status.TIMEOUT, f"no answer within {self._seconds:g} s; killed")
        return None

    def _died(self) -> Answer:
        """Say how the process ended."""
        assert self._process is not None
        code = self._process.wait()
        self._errors.seek(0)
        log = self._errors.read()[-_LOG_BYTES:].decode(errors="replace")
        # A compiler that cannot write ends its process.
        full = "No space left" in log or not has_room(self._compiles_in, ROOM_BYTES)
        greeted = self._greeted
        self.kill()
        if not greeted and code != -signal.SIGKILL:  # which may befall any process at any time
            last = (log.strip().splitlines() or ["it said nothing"])[-1]
            raise RuntimeError(f"the tuning worker could not start: {last}")
        if code == -signal.SIGKILL:
            reason = "the worker was killed, as the kernel does when memory has run out"
            return Answer(Status.CRASH, reason, log, machine=True)
        if "bad_alloc" in log or "MemoryError" in log:
            reason = "the worker ran out of memory"
            return Answer(Status.OUT_OF_MEMORY, reason, log, machine=True)
        name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        reason = f"the worker died: {name}" + " (no space is left to write to)" * full
        return Answer(Status.CRASH, reason, log, machine=full)

    def restart(self) -> None:
        """Start a new process and wait until it has the device.

        One that the machine kills meanwhile is started again by the next request.

        Raises
        ------
        RuntimeError
            If it cannot be started, or has no device in `START_SECONDS`.
        """
        self.start()
        self._seconds = START_SECONDS
        self._deadline = time.monotonic() + START_SECONDS
        answer = None
        while not self._greeted and self._process is not None:
            answer = self.poll(bool(select.select([self._answers], [], [], 1.0)[0]))
        if answer is not None and answer.status == Status.TIMEOUT:
            raise RuntimeError(f"the tuning worker could not start: {answer.reason}")

    def kill(self) -> None:
        """End the process and everything it started, now."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process.wait()
        remove_directories_of(self._process.pid, prefix=PREFIX)
        self._process = None
        self._close()

    def _close(self) -> None:
        """Close what a process answers and complains by."""
        os.close(self._answers)
        self._errors.close()
        self._answers, self._errors = -1, None

    @staticmethod
    def kill_all(workers: Sequence[WorkerProcess]) -> None:
        """End several workers."""
        for worker in workers:
            worker.kill()
