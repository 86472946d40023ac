"""arena.c and serve/arenas.py: memory that the calls of a stream share, and what it outlives."""

from __future__ import annotations

import numpy as np
import pytest

from tests.core.inside.driver import Device, loaded
from tilewright.backend import LaunchError, OutOfMemoryError
from tilewright.backend.cuda import device as cuda_device
from tilewright.backend.cuda import probe
from tilewright.serve import arenas, calls
from tilewright.serve.arenas import WorkspaceError, arena_for, release
from tilewright.serve.plan import A, Plan, Space, call_of
from tilewright.stencil import Launch

GRID = Launch((1, 1), (32, 1))
MANY = 32


def plan_of(driver, device, scratch=1000, zero=100, launches=1):
    """Return a plan that is told where its scratch is, and what is zero."""
    space = Space()
    pieces = space.need("x", scratch), space.need("tops", zero, zeroed=True)
    function = driver.function(3)
    return Plan(device, [(loaded(function), GRID, (*pieces, A))] * launches, space)


def call(stream=7):
    return call_of(0x1000, 2, 3, 1, 0, stream)


@pytest.fixture(autouse=True)
def _no_owners(monkeypatch):
    monkeypatch.setattr(arenas, "_owners", {})


def test_without_an_arena_nothing_is_done(driver, device):
    plan = plan_of(driver, device)
    assert not plan.start(call())
    assert driver.log == []
    arena_for(device, plan, 7)
    assert driver.kinds == ["allocate", "clear"]
    taken, cleared = driver.log
    assert (cleared.memory, cleared.stream, taken.stream) == (taken.memory, 7, 7)
    driver.set(logged=0)
    assert plan.start(call())
    assert driver.kinds == ["launch"]
    [found] = driver.launches
    scratch = taken.memory + cleared.bytes
    assert found.word(0) == scratch
    assert scratch - cleared.bytes <= found.word(1) < scratch
    assert not plan.start(call(stream=8))  # another stream's is no good


def test_plans_share_the_streams_arena(driver, device):
    first, second = plan_of(driver, device), plan_of(driver, device, scratch=5000, zero=3000)
    arena_for(device, first, 7)
    assert first.start(call())
    assert second.start(call())
    x, y = driver.launches
    assert x.word(0) == y.word(0)
    assert y.word(1) < x.word(1) < x.word(0)


@pytest.mark.parametrize("larger", [{"scratch": 64 << 20}, {"zero": 1 << 20}])
def test_an_arena_that_is_too_small_makes_room_for_a_larger(driver, device, larger):
    small, large = plan_of(driver, device), plan_of(driver, device, **larger)
    arena_for(device, small, 7)
    first = driver.log[0]
    assert not large.start(call())
    driver.set(logged=0)
    arena_for(device, large, 7)
    assert driver.kinds == ["allocate", "clear", "free"]
    assert driver.log[2].memory == first.memory
    assert large.start(call())
    assert small.start(call())


def test_of_more_streams_the_one_used_longest_ago_makes_room(driver, device):
    plan = plan_of(driver, device)
    for stream in range(1, MANY + 1):
        arena_for(device, plan, stream)
    taken = [one.memory for one in driver.log if one.kind == "allocate"]
    assert plan.start(call(stream=1))
    driver.set(logged=0)
    arena_for(device, plan, 99)
    assert [one.memory for one in driver.log if one.kind == "free"] == [taken[1]]
    assert [one.stream for one in driver.log if one.kind == "free"] == [2]
    assert not plan.start(call(stream=2))
    for stream in (1, 3, MANY, 99):
        assert plan.start(call(stream=stream))


def test_a_failed_launch_leaves_nothing_that_the_next_call_relies_on(driver, device):
    plan = plan_of(driver, device, launches=3)
    arena_for(device, plan, 7)
    cleared = driver.log[1]
    driver.reset()
    driver.set(launch_result=701, fails_after=1)
    with pytest.raises(LaunchError):
        plan.start(call())
    driver.reset()
    for kinds in (["clear", *["launch"] * 3], ["launch"] * 3):
        driver.set(logged=0)
        assert plan.start(call())
        assert driver.kinds == kinds
        if kinds[0] == "clear":
            assert (driver.log[0].memory, driver.log[0].bytes) == (cleared.memory, cleared.bytes)


def test_what_is_captured_has_memory_of_its_graph(driver, device):
    """Which is allocated, cleared and freed in it; the stream's arena is left alone."""
    plan = plan_of(driver, device, launches=2)
    arena_for(device, plan, 7)
    arena = driver.log[0].memory
    driver.reset()
    driver.set(capture=1)
    assert plan.start(call())
    assert driver.kinds == ["allocate", "clear", "launch", "launch", "free"]
    taken, cleared, first, second, freed = driver.log
    assert taken.memory == cleared.memory == freed.memory != arena
    assert (taken.bytes, cleared.bytes) == (plan.bytes, plan.zero_bytes)
    assert first.word(0) == second.word(0) == taken.memory + plan.zero_bytes
    assert {one.stream for one in driver.log} == {7}
    driver.set(allocate_result=2)
    with pytest.raises(OutOfMemoryError):
        plan.start(call())
    driver.set(allocate_result=0, launch_result=701, fails_after=1, logged=0)
    with pytest.raises(LaunchError):
        plan.start(call())
    assert driver.kinds == ["allocate", "clear", "launch", "free"]


def test_plans_without_memory_ask_for_none(driver, device):
    plan = Plan(device, [(loaded(driver.function(1)), GRID, (np.int64(1),))], Space())
    for capture in (0, 1):
        driver.set(capture=capture)
        assert plan.start(call())
    assert driver.kinds == ["launch"] * 2


# -- who gives the memory ------------------------------------------------------------------


def test_a_librarys_memory_is_kept_while_the_arena_is(driver, device):
    kept = []

    class Owner:
        def __init__(self):
            kept.append(self)

    def memory(ordinal, size):
        assert ordinal == device.ordinal
        return 1 << 50, Owner()

    plan = plan_of(driver, device)
    arena_for(device, plan, 7, memory)
    assert driver.kinds == ["clear"]
    import weakref

    gone = weakref.ref(kept.pop())
    assert gone() is not None
    arena_for(device, plan_of(driver, device, scratch=64 << 20), 7)
    assert gone() is None


def test_enqueue_takes_an_arena_once_and_more_memory_each_time(driver, device, monkeypatch):
    plan, large = plan_of(driver, device), plan_of(driver, device, scratch=200 << 20)
    for _ in range(2):
        calls.enqueue(device, plan, call(), 7)
    assert driver.kinds == ["allocate", "clear", "launch", "launch"]
    driver.set(logged=0)
    for _ in range(2):
        calls.enqueue(device, large, call(), 7)
    assert driver.kinds == ["allocate", "clear", "launch", "free"] * 2
    assert {one.stream for one in driver.log} == {7}
    driver.set(logged=0, capture=1)
    calls.enqueue(device, large, call(), 7)
    assert driver.kinds == ["allocate", "clear", "launch", "free"]


def test_an_arena_that_is_given_back_meanwhile_is_made_anew(driver, device, monkeypatch):
    plan, made = plan_of(driver, device), []

    def given_back_at_once(*arguments):
        arena_for(*arguments)
        made.append(1)
        if len(made) == 1:
            arenas.core().tilewright_arena_forget()

    monkeypatch.setattr(calls, "arena_for", given_back_at_once)
    calls.enqueue(device, plan, call(), 7)
    assert len(made) == 2
    assert len(driver.launches) == 1


def test_memory_that_is_not_there_is_said_to_be_of_the_workspace(driver, device):
    plan, large = plan_of(driver, device), plan_of(driver, device, scratch=200 << 20)
    driver.set(allocate_result=2)
    for one in (plan, large):
        with pytest.raises(WorkspaceError, match="cannot allocate"):
            calls.enqueue(device, one, call(), 7)
    assert driver.log == []


def test_memory_that_cannot_be_cleared_goes_back(driver, device):
    plan = plan_of(driver, device)
    device.api.cuMemsetD8Async = lambda *_: (1,)
    with pytest.raises(LaunchError, match="clearing"):
        arena_for(device, plan, 7)
    assert driver.kinds == ["allocate", "free"]
    assert not plan.start(call())


def test_release_gives_everything_back_after_waiting(driver, device, monkeypatch):
    other = Device(driver)
    order = []
    for live in (device, other):
        live.finish = lambda: order.append(len([x for x in driver.log if x.kind == "free"]))
    del other.context  # was never used
    monkeypatch.setattr(probe, "count", lambda: 2)
    monkeypatch.setattr(cuda_device, "device_at", lambda ordinal: (device, other)[ordinal])
    release()
    assert order == []
    plan = plan_of(driver, device)
    for stream in (7, 8):
        arena_for(device, plan, stream)
    taken = {one.memory for one in driver.log if one.kind == "allocate"}
    release()
    assert order == [0]
    assert {one.memory for one in driver.log if one.kind == "free"} == taken
    assert not plan.start(call())
    release()
    assert len([one for one in driver.log if one.kind == "free"]) == 2


def test_release_gives_back_what_it_can_where_a_device_is_lost(driver, device, monkeypatch):
    def lost():
        raise LaunchError("lost")

    device.finish = lost
    monkeypatch.setattr(probe, "count", lambda: 1)
    monkeypatch.setattr(cuda_device, "device_at", lambda _: device)
    arena_for(device, plan_of(driver, device), 7)
    with pytest.raises(LaunchError, match="lost"):
        release()
    assert driver.kinds[-1] == "free"
