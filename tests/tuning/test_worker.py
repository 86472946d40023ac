"""Processes that only compile open no device, and fill the cache that those with one read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.backend.cuda.naive_cuda import NAIVE
from tilewright.backend.cache import KernelCache
from tilewright.backend.cuda import compiler, device
from tilewright.backend.cuda.architecture import Architecture
from tilewright.backend.cuda.device import CUDADevice
from tilewright.core.build import library_path
from tilewright.hardware.catalogue import catalogue_device
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Variant, stencil
from tilewright.tuning.measurement import Status
from tilewright.tuning.process import WorkerProcess, WorkerSettings
from tilewright.tuning.record import problem_to_json
from tilewright.tuning.runner import answered
from tilewright.tuning.worker import Worker

PROBLEM = Problem(256, 256, 256, "s")
MODULES = "tests.tuning.driverless", "tests.backend.cuda.naive_cuda"

with_nvrtc = pytest.mark.skipif(
    compiler.nvrtc() is None, reason="NVRTC is not here: pip install 'tilewright[tune]'"
)


def prepare(config: Config) -> dict[str, Any]:
    """Return what a coordinator asks about a config."""
    about = {"problem": problem_to_json(PROBLEM), "stencil": config.stencil, "mode": "plain"}
    return {"do": "prepare", "config": dict(config), "ahead": True, "forecast": 132, **about}


@pytest.fixture
def ask(monkeypatch, tmp_path):
    """Return what asks a process that compiles for an architecture, where nothing is cached.

    What looks like a driver is there; neither that process nor NVRTC loads it.
    """
    monkeypatch.setenv("PYTHONPATH", os.getcwd(), prepend=os.pathsep)
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    shutil.copy(library_path(), tmp_path / "libcuda.so.1")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path), prepend=os.pathsep)
    started = []

    def asked(config: Config, arch: str = "sm_90a"):
        if not started:
            started.append(WorkerProcess(WorkerSettings("none", 4.0, MODULES, arch=arch)))
        answer = answered(started[0], prepare(config), 60.0)
        assert "libcuda" not in Path(f"/proc/{started[0]._process.pid}/maps").read_text()
        return answer

    yield asked
    WorkerProcess.kill_all(started)


@pytest.fixture
def live(monkeypatch) -> CUDADevice:
    """Stand for a device, that loads nothing."""
    monkeypatch.setattr(device, "LoadedKernel", lambda *_: None)
    pretended = object.__new__(CUDADevice)
    pretended.arch = "sm_90a"
    return pretended


def finds(live: Any, config: Config, monkeypatch) -> None:
    """See that a device compiles nothing of a config any more."""
    monkeypatch.setattr(compiler, "compile_cubin", None)
    source = stencil(config.stencil).source(config, Variant.of(PROBLEM), live.dialect)
    assert live.compile(source).code.startswith(b"\x7fELF")


@with_nvrtc
def test_a_process_compiles_without_a_driver_what_a_device_finds(ask, live, monkeypatch) -> None:
    family = stencil("simt_async")
    config = family.default(Variant.of(PROBLEM), catalogue_device("h100").spec)
    answer = ask(config)
    assert answer.status == Status.OK, answer
    assert all(answer.data["spent"][name] > 0 for name in ("compiling", "forecasting"))
    assert 0 < answer.data["forecast"] < 1
    finds(live, config, monkeypatch)


@pytest.mark.gpu
def test_a_device_that_is_here_finds_it(ask, cuda, monkeypatch) -> None:
    assert ask(NAIVE.config(0), cuda.arch).status == Status.OK
    # The device, which other tests have used, looks where the process wrote.
    monkeypatch.setitem(vars(cuda), "_cache", KernelCache())
    finds(cuda, NAIVE.config(0), monkeypatch)


@with_nvrtc
def test_a_process_without_a_driver_goes_on_after_what_is_refused(ask) -> None:
    for fault in (3, 4, 0):
        answer = ask(NAIVE.config(fault))
        assert answer.status == (Status.COMPILE_ERROR if fault else Status.OK), answer
        assert not answer.machine


def test_that_no_compiler_is_here_is_the_machines_fault(monkeypatch) -> None:
    monkeypatch.setattr(compiler, "nvrtc", lambda: None)
    answer = Worker(Architecture("sm_90a")).answer(prepare(NAIVE.config(3)))
    assert (answer["status"], answer["machine"]) == (Status.COMPILE_ERROR, True)
    assert "NVRTC is not here" in answer["reason"]
