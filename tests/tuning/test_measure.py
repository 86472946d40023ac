"""Few repetitions first, more for those near the best; compilers leave the device alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.backend.cuda.compiler import nvrtc
from tilewright.backend.cuda.device import CUDADevice
from tilewright.hardware.catalogue import catalogue_device
from tilewright.problem import Problem
from tilewright.stencil import Variant, stencil
from tilewright.tuning.measure import REPETITIONS, repeat
from tilewright.tuning.measurement import Status
from tilewright.tuning.record import problem_to_json
from tilewright.tuning.worker import Worker


def runs(ns: int, best_ns: int | None) -> int:
    """Return how many times count of a kernel that always takes as long."""
    workload: Any = SimpleNamespace(run=lambda *_: ns, first_run=lambda *_: ns)
    what: Any = None
    return len(repeat(workload, what, what, what, best_ns=best_ns))


@pytest.mark.parametrize(
    ("ns", "counted"),
    [(2500, 1), (1900, 3), (1100, 5), (1040, REPETITIONS), (900, REPETITIONS)],
)
def test_a_candidate_is_run_the_more_often_the_nearer_it_is_to_the_best(ns, counted):
    assert runs(ns, 1000) == counted
    assert runs(ns, None) == REPETITIONS


def test_what_takes_seconds_is_run_as_often_as_three_of_them_allow():
    assert runs(4 * 10**9, None) == 1
    assert runs(10**9, None) == 3


class Untouched:
    """A driver that nobody may call."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was called")


@pytest.mark.skipif(nvrtc() is None, reason="NVRTC is not here: pip install 'tilewright[tune]'")
def test_candidates_are_compiled_ahead_without_the_driver():
    device: Any = object.__new__(CUDADevice)
    device.api, device.arch, device.id = Untouched(), "sm_90a", "cuda:0"
    device.spec, device._given_cache = catalogue_device("h100").spec, None
    problem, family = Problem(256, 256, 256, "s"), stencil("simt_async")
    request = {"do": "prepare", "problem": problem_to_json(problem), "ahead": True,
               "stencil": family.name, "mode": "plain", "forecast": True}  # fmt: skip
    config = family.default(Variant.of(problem), device.spec)
    answer = Worker(device).answer({**request, "config": dict(config)})
    assert answer["status"] == Status.OK
    assert all(answer["spent"][name] > 0 for name in ("compiling", "forecasting"))
