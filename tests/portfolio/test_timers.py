"""Kernels in turns, and launches back to back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tilewright.backend import BackendError, DeviceLostError
from tilewright.portfolio.timers import Burst, LostToError, interleaved_medians
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil.geometry import Geometry


def test_what_disturbs_one_round_of_all_kernels_counts_for_none():
    rounds = []

    def timer(name, *times):
        left = iter(times)

        def run():
            rounds.append(name)
            return next(left)

        return run

    def refused():
        raise BackendError("no such launch")

    slow = 5_000_000
    found = interleaved_medians(
        [
            timer("a", 900, 10, 500, 11),  # the first is a warm-up
            None,
            timer("b", 900, 20, 510, 22),
            timer("c", slow, slow + 2, 7, 7),  # timed once
            refused,
        ]
    )
    assert found == [11, None, 22, slow + 2, None]
    assert rounds == ["a", "b", "c", "a", "b", "c", "a", "b", "a", "b"]


def test_what_is_far_from_the_best_is_not_run_again():
    runs = []
    times = {"best": 100_000, "near": 190_000, "far": 300_000}
    timers = [lambda at=at: runs.append(at) or times[at] for at in times]
    assert interleaved_medians(timers, 1, far=2.0) == list(times.values())
    assert runs == ["best", "near", "far", "best", "near"]


@pytest.mark.parametrize("early", [False, True])
def test_launches_back_to_back_are_those_of_the_kernels_own_geometry(early):
    """Machine code of before launches began early does not wait for the one before it."""
    prepared = []
    live = SimpleNamespace(prepare=lambda kernel, launch, arguments: prepared.append(launch))
    problem = Problem(64, 64, 64, "s")
    family = SimpleNamespace(arguments=lambda *_: ())
    workload = SimpleNamespace(problem=problem, call=None)
    Burst(live, workload, None, None, family, Geometry(64, 64, (128, 1), early=early))
    assert [launch.early for launch in prepared] == [early]


def test_a_kernel_that_loses_the_device_is_named_and_ends_it():
    """Whatever came after it would fail, too, and pass for refused."""

    def lose():
        raise DeviceLostError("an illegal memory access was encountered")

    event = SimpleNamespace(nanoseconds=lose)  # the launch itself is accepted
    live = SimpleNamespace(prepare=lambda *_: None, between_events=lambda *_, **__: event)
    workload = SimpleNamespace(problem=Problem(64, 32, 16, "s"), call=None)
    family = SimpleNamespace(arguments=lambda *_: ())
    config = Config("simt_async", {"block_m": 64})
    burst = Burst(live, workload, config, None, family, Geometry(64, 64, (128, 1)))
    message = r"block_m.*64.*64x32x16.*illegal memory access"
    with pytest.raises(LostToError, match=message) as found:
        interleaved_medians([burst, lambda: 5])
    assert found.value.config == config
