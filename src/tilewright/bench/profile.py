"""Nsight Compute on one product: a process of its own that launches nothing else."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tilewright.backend import LiveDevice
from tilewright.bench.counters import metrics, parse_ncu, refused_metrics
from tilewright.bench.sweep import OURS, Method
from tilewright.portfolio import Choice
from tilewright.problem import Problem
from tilewright.timeline import span
from tilewright.tuning.record import problem_to_json

__all__ = ["ProfileError", "Profiler", "find_ncu", "ncu_command", "why_it_failed"]

# Where NVIDIA's packages put it, when PATH does not say.
_PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")

# Starting Python and CUDA takes some 5 s, and every pass of some dozen as long as the kernel.
_SECONDS = 120.0

_PERMISSION = (
    "Nsight Compute may not read this GPU's counters (ERR_NVGPUCTRPERM); run as root, set the"
    " driver's option NVreg_RestrictProfilingToAdminUsers=0, or give the container SYS_ADMIN"
)


class ProfileError(RuntimeError):
    """Counters could not be had; the message is one line that says what to do."""


def find_ncu() -> str:
    """Return the path of Nsight Compute's command line.

    Raises
    ------
    ProfileError
        If it is not installed.
    """
    found = shutil.which("ncu")
    if found is not None:
        return found
    for place in _PLACES:
        for path in sorted(glob.glob(place), reverse=True):  # the newest version first
            if os.access(path, os.X_OK):
                return path
    raise ProfileError(
        "--profile needs ncu, which is not in PATH; install Nsight Compute, or leave it out"
    )


def ncu_command(ncu: str, wanted: list[str], cache: str, child: list[str]) -> list[str]:
    """Return the command line that counts what a process launches between two marks.

    Clocks are left as they are, as in the measurement itself; so are caches, unless the
    measurement was cold too.
    """
    return [
        ncu,
        *("--clock-control", "none"),
        *("--cache-control", "all" if cache == "cold" else "none"),
        *("--profile-from-start", "off"),
        *("--print-units", "base"),
        *("--csv", "--page", "raw"),
        *("--metrics", ",".join(wanted)),
        *child,
    ]


def why_it_failed(text: str) -> str:
    """Return one line that says why there are no counters."""
    if "ERR_NVGPUCTRPERM" in text:
        return _PERMISSION
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("==ERROR==")]
    if errors:
        return f"Nsight Compute failed: {errors[0].removeprefix('==ERROR==').strip()}"
    # Of a Python process that died the last line tells why.
    return f"nothing was counted: {(lines or ['no output'])[-1]}"


class Profiler:
    """Profiles products on one device.

    Parameters
    ----------
    live : LiveDevice
        A CUDA device.
    method : Method
        Whether caches are cold.
    seconds : float
        Time-out of one library's profile.

    Raises
    ------
    ProfileError
        If there is no Nsight Compute, or the device is none of its.
    """

    def __init__(self, live: LiveDevice, method: Method, seconds: float = _SECONDS) -> None:
        if live.backend != "cuda":
            raise ProfileError(
                f"--profile counts on CUDA devices, not on {live.id}; choose one with --device"
            )
        self.ncu = find_ncu()
        self._live, self._method, self._seconds = live, method, seconds
        self._wanted = list(metrics())

    def profile(self, problem: Problem, choice: Choice, peers: list[str]) -> dict[str, Any]:
        """Return what was counted for ours and each peer, as plain data.

        Raises
        ------
        ProfileError
            If Nsight Compute may not count at all.
        """
        libraries: dict[str, Any] = {}
        for name in (OURS, *peers):
            with span("profile", {"library": name}):
                libraries[name] = self._one(problem, choice, name)
        asked = metrics()
        return {
            "tool": Path(self.ncu).name,
            "cache": self._method.cache,
            "refused": [metric for metric in asked if metric not in self._wanted],
            "libraries": libraries,
        }

    def _one(self, problem: Problem, choice: Choice, name: str) -> dict[str, Any]:
        task = {
            "device": self._live.id,
            "problem": problem_to_json(problem),
            "library": name,
            "stencil": choice.stencil.name,
            "config": dict(choice.config),
        }
        child = [sys.executable, "-m", "tilewright.bench.profiled", json.dumps(task)]
        for _ in range(4):  # a GPU that lacks some metrics is asked again for the others
            text = self._run(ncu_command(self.ncu, self._wanted, self._method.cache, child))
            if "ERR_NVGPUCTRPERM" in text:
                raise ProfileError(_PERMISSION)
            with contextlib.suppress(ValueError):
                kernels = parse_ncu(text)
                if kernels:
                    return {"kernels": kernels}
            refused = refused_metrics(text) & set(self._wanted)
            if not refused:
                break
            self._wanted = [metric for metric in self._wanted if metric not in refused]
        return {"error": why_it_failed(text)}

    def _run(self, command: list[str]) -> str:
        """Return all that a command prints; it and what it started end with the time-out."""
        with subprocess.Popen(  # noqa: S603  # a list of our own making, no shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                return process.communicate(timeout=self._seconds)[0]
            except subprocess.TimeoutExpired:
                return f"==ERROR== no counters within {self._seconds:g} s; stopped\n"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
