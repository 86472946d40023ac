"""arena.c and serve/arenas.py: memory that the calls of a stream share, and what it outlives."""

from __future__ import annotations

import ctypes
import threading
import weakref

import numpy as np
import pytest

from tests.core.inside.driver import CONTEXT, MOST_ARENA, OTHER, Device, loaded
from tilewright.backend import LaunchError, OutOfMemoryError
from tilewright.backend.cuda import device as cuda_device
from tilewright.backend.cuda import probe
from tilewright.serve import arenas
from tilewright.serve.arenas import WorkspaceError, arena_for, enqueue, release
from tilewright.serve.laid_out import A, Space
from tilewright.serve.plan import Plan, call_of
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


def test_without_an_arena_nothing_is_done_or_one_is_made(driver, device):
    plan = plan_of(driver, device)
    assert not plan.start(call())
    assert driver.log == []
    assert plan.run(call()) == 0
    assert driver.kinds == ["allocate", "clear", "launch"]
    taken, cleared, found = driver.log
    assert (cleared.memory, cleared.stream, taken.stream) == (taken.memory, 7, 7)
    scratch = taken.memory + cleared.bytes
    assert found.word(0) == scratch
    assert scratch - cleared.bytes <= found.word(1) < scratch
    driver.set(logged=0)
    assert plan.start(call())
    plan.run(call())
    assert driver.kinds == ["launch"] * 2
    assert not plan.start(call(stream=8))  # another stream's is no good


def test_plans_share_the_streams_arena(driver, device):
    first, second = plan_of(driver, device), plan_of(driver, device, scratch=5000, zero=3000)
    first.run(call())
    second.run(call())
    assert driver.kinds == ["allocate", "clear", "launch", "launch"]
    x, y = driver.launches
    assert x.word(0) == y.word(0)
    assert y.word(1) < x.word(1) < x.word(0)


@pytest.mark.parametrize("larger", [{"scratch": MOST_ARENA - (1 << 20)}, {"zero": 1 << 20}])
def test_an_arena_that_is_too_small_makes_room_for_a_larger(driver, device, larger):
    """Its own stream frees it, in its order."""
    small, large = plan_of(driver, device), plan_of(driver, device, **larger)
    small.run(call())
    first = driver.log[0]
    assert not large.start(call())
    driver.set(logged=0)
    large.run(call())
    assert driver.kinds == ["allocate", "clear", "free", "launch"]
    assert (driver.log[2].memory, driver.log[2].stream) == (first.memory, 7)
    assert small.start(call())


def test_of_more_streams_the_one_used_longest_ago_makes_room(driver, device):
    """It may be gone: its work is waited for."""
    plan = plan_of(driver, device)
    for stream in range(1, MANY + 1):
        plan.run(call(stream))
    taken = [one.memory for one in driver.log if one.kind == "allocate"]
    assert plan.start(call(stream=1))
    driver.set(logged=0)
    plan.run(call(stream=99))
    assert driver.kinds == ["allocate", "clear", "wait", "free", "launch"]
    assert driver.log[3].memory == taken[1]
    assert not plan.start(call(stream=2))
    for stream in (1, 3, MANY, 99):
        assert plan.start(call(stream=stream))


def test_another_contexts_arena_makes_room_when_that_contexts_work_has_ended(driver, device):
    other = Device(driver)
    other.context = OTHER
    elsewhere = plan_of(driver, other)
    for stream in range(1, MANY + 1):
        elsewhere.run(call(stream))
    driver.reset()
    with driver.within(CONTEXT):
        plan_of(driver, device).run(call(stream=1))
        assert driver.current() == CONTEXT
    assert [(one.kind, one.context) for one in driver.log] == [
        ("allocate", CONTEXT), ("clear", CONTEXT), ("wait", OTHER), ("free", OTHER),
        ("launch", CONTEXT),
    ]  # fmt: skip


def test_memory_of_a_stream_that_cannot_be_waited_for_stays(driver, device):
    plan = plan_of(driver, device)
    for stream in range(1, MANY + 1):
        plan.run(call(stream))
    driver.reset()
    driver.set(wait_result=900)
    plan.run(call(stream=99))
    assert driver.kinds == ["allocate", "clear", "wait", "launch"]


def test_a_failed_launch_leaves_nothing_that_the_next_call_relies_on(driver, device):
    plan = plan_of(driver, device, launches=3)
    plan.run(call())
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


@pytest.mark.parametrize("started", [True, False])
def test_what_is_captured_has_memory_of_its_graph(driver, device, started):
    """Which is allocated, cleared and freed in it; the stream's arena is left alone."""
    plan = plan_of(driver, device, launches=2)
    plan.run(call())
    arena = driver.log[0].memory
    driver.reset()
    driver.set(capture=1)
    (plan.start if started else plan.run)(call())
    assert driver.kinds == ["allocate", "clear", "launch", "launch", "free"]
    taken, cleared, first, second, freed = driver.log
    assert taken.memory == cleared.memory == freed.memory != arena
    assert (taken.bytes, cleared.bytes) == (plan.bytes, plan.zero_bytes)
    assert first.word(0) == second.word(0) == taken.memory + plan.zero_bytes
    assert {one.stream for one in driver.log} == {7}
    driver.set(allocate_result=2)
    with pytest.raises(WorkspaceError, match="cannot allocate"):
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


def test_more_than_an_arena_keeps_is_the_calls_alone(driver, device):
    large = plan_of(driver, device, scratch=MOST_ARENA + 1)
    assert not large.shares
    assert plan_of(driver, device).shares
    for _ in range(2):
        large.run(call())
    assert driver.kinds == ["allocate", "clear", "launch", "free"] * 2
    assert {one.stream for one in driver.log} == {7}


def test_memory_that_is_not_there_is_said_to_be_of_the_workspace(driver, device):
    driver.set(allocate_result=2)
    for scratch in (1000, MOST_ARENA + 1):
        with pytest.raises(WorkspaceError, match="cannot allocate"):
            plan_of(driver, device, scratch=scratch).run(call())
    assert driver.log == []


# -- who gives the memory ------------------------------------------------------------------


class Library:
    """An allocator, which tells whether its memory is kept."""

    def __init__(self):
        self.kept, self.asked = [], []

    def __call__(self, ordinal, size):
        self.asked.append(size)
        owner = Owner()
        self.kept.append(weakref.ref(owner))
        return (len(self.asked) << 32) + (1 << 50), owner

    @property
    def alive(self):
        return [one() is not None for one in self.kept]


class Owner:
    """What keeps memory."""


def test_a_librarys_memory_is_kept_while_the_arena_is(driver, device):
    library = Library()
    small = plan_of(driver, device)
    for _ in range(2):
        enqueue(device, small, call(), 7, library)
    assert driver.kinds == ["clear", "launch", "launch"]
    assert library.alive == [True]
    enqueue(device, plan_of(driver, device, zero=1 << 20), call(), 7, library)
    assert library.alive == [False, True]
    enqueue(device, plan_of(driver, device, zero=1 << 22), call(), 7)  # of the driver's memory
    assert library.alive == [False, False]
    assert driver.kinds[-3:] == ["allocate", "clear", "launch"]
    enqueue(device, plan_of(driver, device, zero=1 << 24), call(), 7, library)
    assert driver.kinds[-3:] == ["clear", "free", "launch"]


def test_what_is_kept_is_the_drivers_where_a_librarys_memory_passes(driver, device):
    library, plan = Library(), plan_of(driver, device)
    library.passing = True
    for _ in range(2):
        enqueue(device, plan, call(), 7, library)
    assert driver.kinds == ["allocate", "clear", "launch", "launch"]
    assert library.asked == []
    driver.set(logged=0, allocate_result=2)
    enqueue(device, plan, call(8), 8, library)  # the driver has none left
    assert library.asked == [plan.bytes]
    assert library.alive == [False]
    assert driver.kinds[-2:] == ["clear", "launch"]


def test_a_librarys_memory_is_taken_each_time_for_what_needs_more(driver, device):
    library, large = Library(), plan_of(driver, device, scratch=MOST_ARENA + 1)
    for _ in range(2):
        enqueue(device, large, call(), 7, library)
    assert library.asked == [large.bytes] * 2
    assert library.alive == [False] * 2
    assert driver.kinds == ["clear", "launch"] * 2
    driver.set(logged=0, capture=1)
    enqueue(device, large, call(), 7, library)
    assert driver.kinds == ["allocate", "clear", "launch", "free"]


def test_an_arena_that_is_given_back_meanwhile_is_made_anew(driver, device, monkeypatch):
    made = []

    def given_back_at_once(*arguments):
        arena_for(*arguments)
        made.append(1)
        if len(made) == 1:
            arenas.core().tilewright_arena_release(ctypes.c_void_p(CONTEXT))

    monkeypatch.setattr(arenas, "arena_for", given_back_at_once)
    enqueue(device, plan_of(driver, device), call(), 7, Library())
    assert len(made) == 2
    assert len(driver.launches) == 1


def test_a_librarys_memory_that_is_not_there_is_said_to_be_of_the_workspace(driver, device):
    def memory(ordinal, size):
        raise OutOfMemoryError(f"cannot allocate {size} bytes")

    for scratch in (1000, MOST_ARENA + 1):
        with pytest.raises(WorkspaceError, match="cannot allocate"):
            enqueue(device, plan_of(driver, device, scratch=scratch), call(), 7, memory)
    assert driver.log == []


def test_memory_that_cannot_be_cleared_goes_back(driver, device):
    plan, library = plan_of(driver, device), Library()
    device.api.cuMemsetD8Async = lambda *_: (1,)
    with pytest.raises(LaunchError, match="clearing"):
        arena_for(device, plan, 7, library)
    assert library.alive == [False]
    assert not plan.start(call())


@pytest.fixture
def devices(driver, device, monkeypatch):
    """Two devices, of which one was never used."""
    other = Device(driver)
    del other.context
    monkeypatch.setattr(probe, "count", lambda: 2)
    monkeypatch.setattr(cuda_device, "device_at", lambda ordinal: (device, other)[ordinal])


def test_nothing_is_freed_of_a_context_whose_address_another_one_has(driver, device):
    """Its memory went with it, and may be somebody else's."""
    for stream in (1, 2):
        plan_of(driver, device).run(call(stream))
    number = ctypes.c_ulonglong.in_dll(driver.library, "fake_context")
    before, number.value = number.value, 77
    try:
        for stream in range(3, 4 + MANY):  # the first two are the oldest
            plan_of(driver, device).run(call(stream))
        mine = driver.kinds.count("free")
        with driver.within(CONTEXT):
            assert arenas.core().tilewright_arena_release(ctypes.c_void_p(CONTEXT)) == 0
    finally:
        number.value = before
    assert driver.kinds.count("allocate") == 3 + MANY
    assert (mine, driver.kinds.count("free")) == (1, 1 + MANY)


def test_a_full_queue_holds_no_other_stream_up(driver, device):
    """Whose launches the first one's device may wait for."""
    plan, done = plan_of(driver, device), []
    for stream in (7, 8):
        plan.run(call(stream))
    driver.set(full=7)
    threads = [
        threading.Thread(target=lambda at=at: done.append((plan.run(call(at)), at)), daemon=True)
        for at in (7, 8, 7, 9)
    ]
    for thread in threads:
        thread.start()
    for thread in threads[1::2]:
        thread.join(10)
    found = sorted(at for _, at in done)
    driver.set(full=0)
    for thread in threads:
        thread.join(10)
    assert found == [8, 9]
    assert sorted(at for _, at in done) == [7, 7, 8, 9]


def test_release_gives_everything_back_after_waiting(driver, device, devices):
    release()
    assert driver.log == []
    plan, library = plan_of(driver, device), Library()
    for stream in (7, 8):
        plan.run(call(stream))
    enqueue(device, plan, call(9), 9, library)
    taken = {one.memory for one in driver.log if one.kind == "allocate"}
    driver.set(logged=0)
    release()
    assert driver.kinds == ["wait", "free", "free"]
    assert {one.context for one in driver.log} == {CONTEXT}
    assert {one.memory for one in driver.log if one.kind == "free"} == taken
    assert library.alive == [False]
    assert not any(plan.start(call(stream)) for stream in (7, 8, 9))
    release()
    assert driver.kinds == ["wait", "free", "free"]


def test_release_gives_back_what_it_can_where_a_device_is_lost(driver, device, devices):
    plan, library = plan_of(driver, device), Library()
    plan.run(call())
    enqueue(device, plan, call(8), 8, library)
    driver.set(wait_result=719)
    with pytest.raises(LaunchError, match="waiting"):
        release()
    assert driver.kinds[-1] == "free"
    assert library.alive == [False]


def test_no_device_keeps_an_arena_where_another_is_lost(driver, device, monkeypatch):
    """Or its calls would write to memory that the library has given to somebody else."""
    other = Device(driver)
    other.context, other.ordinal = OTHER, 1
    monkeypatch.setattr(probe, "count", lambda: 2)
    monkeypatch.setattr(cuda_device, "device_at", lambda ordinal: (device, other)[ordinal])
    plan, library = plan_of(driver, other), Library()
    enqueue(device, plan_of(driver, device), call(7), 7, library)
    enqueue(other, plan, call(8), 8, library)
    driver.set(wait_result=719)
    with pytest.raises(LaunchError, match="waiting"):
        release()
    driver.set(wait_result=0)
    assert library.alive == [False, False]
    assert not plan.start(call(8))
