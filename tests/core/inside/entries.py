"""table.c, arrays.c: what entries keep and for how long, when nothing is looked up, and errors."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import weakref

import numpy as np
import pytest

import tilewright as tw
from tests.core.inside.arrays import C8, DESCRIBED, F4, KINDS, CuPyArray, Tensor, now
from tests.core.inside.driver import MOST_ARENA
from tests.core.inside.remembering import MOST, again, order, pair, plan_of, remember
from tilewright import timeline
from tilewright.backend import LaunchError, OutOfMemoryError
from tilewright.portfolio import reload
from tilewright.serve import warm
from tilewright.serve.unproved import serve_unproved

both = pytest.mark.parametrize("kind", KINDS)


pytestmark = pytest.mark.usefixtures("knowing")


# -- who keeps what -------------------------------------------------------------------------


@both
def test_entries_keep_what_they_need_and_no_arrays(driver, device, kind):
    made = plan_of(driver, device)
    a, b = pair(kind, dtype=np.dtype([("x", "f4")]))  # a type of its own
    dtype = a.dtype
    kinds = sys.getrefcount(dtype)
    plan_gone, array_gone, shape = weakref.ref(made), weakref.ref(a), (8, 4)
    held = sys.getrefcount(shape)
    warm.remember(
        (a, b, None, *order({})), kind((8, 4)), made, shape, a.dtype, 0, False, False, False, MOST,
        1, 1, 1,
    )  # fmt: skip
    assert sys.getrefcount(shape) == held + 1
    of_operands = 0 if DESCRIBED and kind is Tensor else 2
    assert sys.getrefcount(dtype) == kinds + of_operands + 1  # of a new C, too
    del made
    gc.collect()
    assert plan_gone() is not None
    for _ in range(100):
        assert again(a, b) is not None
    assert sys.getrefcount(shape) == held + 1
    del a, b
    gc.collect()
    assert array_gone() is None
    warm.forget()
    assert plan_gone() is None
    assert sys.getrefcount(shape) == held
    assert sys.getrefcount(dtype) == kinds - 2  # the arrays are gone


def test_calls_that_are_not_found_leak_nothing(plan):
    a, b = pair(CuPyArray)
    remember(plan, a, b)
    watched = [a, b, a.dtype, a.shape, a.strides, a.data, None]
    before = [sys.getrefcount(x) for x in watched[:-1]]
    for _ in range(1000):
        again(a, b, alpha="x")
        again(a, b, trans_a=5)
        again(b, a)
        again(a, b, beta=1)
    assert [sys.getrefcount(x) for x in watched[:-1]] == before


def test_more_calls_than_are_kept_forget_the_oldest(driver, device):
    first, last = plan_of(driver, device), plan_of(driver, device)
    gone = weakref.ref(first)
    b = CuPyArray((6, 4))
    a = CuPyArray((8, 6))
    used = CuPyArray((8, 6))
    remember(first, a, b)
    remember(last, used, CuPyArray((6, 5)))
    del first
    for i in range(4096):
        if i % 1000 == 0:
            assert again(used, CuPyArray((6, 5))) is not None  # which stays
        remember(last, CuPyArray((9 + i, 6)), b)
        if i == 4093:
            assert gone() is not None
    assert gone() is None
    assert again(a, b) is None
    assert again(used, CuPyArray((6, 5))) is not None
    assert again(CuPyArray((9, 6)), b) is None
    assert again(CuPyArray((9 + 4095, 6)), b) is not None
    assert again(CuPyArray((9 + 2000, 6)), b) is not None


def test_remembering_again_keeps_the_first_plan(driver, device):
    first, second = plan_of(driver, device), plan_of(driver, device)
    a, b = pair(CuPyArray)
    gone = weakref.ref(second)
    remember(first, a, b)
    remember(second, a, b)
    del second
    assert gone() is None
    assert again(a, b) is not None


@pytest.mark.parametrize("wrong", ["x", None, -1, 2**70])
def test_what_is_no_size_is_not_remembered(plan, wrong):
    a, b = pair(CuPyArray)
    held = sys.getrefcount(plan)
    warm.remember(
        (a, b, None, *order({})), CuPyArray((8, 4)), plan, (8, 4), F4, 0, False, False, False, MOST,
        1, wrong, 1,
    )  # fmt: skip
    assert again(a, b) is None
    assert sys.getrefcount(plan) == held


# -- when it is off -------------------------------------------------------------------------


def test_other_kernels_to_serve_forget_all_calls(driver, plan):
    a, b = pair(CuPyArray)
    remember(plan, a, b)
    assert again(a, b) is not None
    reload()
    assert again(a, b) is None


def test_a_timeline_sees_launches_made_in_python(plan):
    a, b = pair(CuPyArray)
    remember(plan, a, b)
    timeline.start()
    try:
        assert again(a, b) is None
    finally:
        timeline.stop()
    assert again(a, b) is not None


def test_what_is_served_by_a_special_rule_is_looked_at(plan):
    """Calls that were remembered know nothing of it."""
    a, b = pair(CuPyArray)
    remember(plan, a, b, accuracy="fp32")
    with serve_unproved():
        assert again(a, b, accuracy="fp32") is None


def test_gemm_itself_asks_the_table(driver, plan):
    a, b = pair(CuPyArray)
    remember(plan, a, b)
    assert tw.gemm(a, b).shape == (8, 4)
    assert len(driver.launches) == 1


# -- what goes wrong -------------------------------------------------------------------------


class Raises:
    """An attribute that cannot be read; counts how often Python ran with an error waiting."""

    def __init__(self, error):
        self.error = error

    def __get__(self, x, kind=None):
        raise self.error


@pytest.mark.parametrize("name", ["data", "shape", "strides", "dtype"])
@pytest.mark.parametrize("error", [AttributeError("x"), ValueError("x"), RecursionError("x")])
def test_errors_of_attributes_do_not_leak(plan, monkeypatch, name, error):
    a, b = pair(CuPyArray)
    remember(plan, a, b)
    del a.__dict__[name]
    monkeypatch.setattr(CuPyArray, name, Raises(error), raising=False)
    assert again(a, b) is None
    assert sys.exc_info() == (None, None, None)
    monkeypatch.undo()
    assert again(*pair(CuPyArray)) is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("shape", 5), ("shape", [8, 6]), ("shape", (8, 6, 1)), ("shape", ("8", 6)),
        ("shape", (8, None)), ("shape", (2**70, 6)), ("strides", None), ("strides", (24, "4")),
    ],
)  # fmt: skip
def test_attributes_that_are_no_sizes_take_a_closer_look(plan, name, value):
    a, b = pair(CuPyArray)
    remember(plan, a, b)
    setattr(a, name, value)
    assert again(a, b) is None


@pytest.mark.parametrize(
    "name", ["data_ptr", "stride", "get_device", "is_conj", "is_neg", "layout", "requires_grad"]
)
@pytest.mark.parametrize("error", [AttributeError("x"), KeyError("x")])
def test_errors_of_tensors_do_not_leak(plan, monkeypatch, name, error):
    a, b = pair(Tensor, dtype=C8)
    remember(plan, a, b)
    a.__dict__.pop(name, None)
    monkeypatch.setattr(Tensor, name, Raises(error), raising=False)
    assert again(a, b) is None
    monkeypatch.undo()
    assert again(*pair(Tensor, dtype=C8)) is not None


def test_python_does_not_run_while_an_error_waits(plan):
    """It would end with a SystemError, and somebody's code would see an error that is not its."""
    a, b = pair(CuPyArray)
    remember(plan, a, b)
    seen = []

    class Data:
        @property
        def ptr(self):
            raise ValueError("x")

        @property
        def device_id(self):
            seen.append("device_id")
            return 0

    a.data = Data()
    assert again(a, b) is None
    assert seen == []


@both
def test_strides_are_not_asked_for_while_an_error_waits(monkeypatch, kind):
    (x, y), asked = pair(kind), []

    def fails(_):
        raise ValueError("x")

    strides = "strides" if kind is CuPyArray else "stride"
    for name, get in (("shape", fails), (strides, asked.append)):
        x.__dict__.pop(name, None)
        monkeypatch.setattr(kind, name, property(get), raising=False)
    assert again(x, y) is None
    assert asked == []


@both
def test_errors_of_the_library_are_left_to_the_closer_look(driver, plan, kind):
    a, b = pair(kind)
    remember(plan, a, b)
    now.error = RuntimeError("no stream")
    assert again(a, b) is None
    now.error = None

    def out_of_memory():
        raise MemoryError

    now.before = out_of_memory
    assert again(a, b) is None
    now.before, now.made_on = None, 1
    assert again(a, b) is None  # made on another device than the operands'
    assert driver.log == []


@both
def test_an_interruption_from_the_keyboard_is_not_lost(plan, kind):
    a, b = pair(kind)
    remember(plan, a, b)
    now.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        again(a, b)


@both
def test_a_refused_launch_is_raised(driver, plan, kind, monkeypatch):
    a, b = pair(kind)
    remember(plan, a, b)
    from tilewright.backend.cuda import device as cuda_device

    class Live:
        id = "cuda:0"

        def failed(self, error):
            return error

    monkeypatch.setattr(cuda_device, "device_at", lambda ordinal: Live())
    driver.set(launch_result=701)
    with pytest.raises(LaunchError, match="launching on cuda:0"):
        again(a, b)


def test_without_a_workspace_the_closer_look_makes_one(driver, device):
    a, b = pair(CuPyArray)
    remember(plan_of(driver, device, scratch=1000), a, b)
    assert again(a, b) is None
    assert driver.log == []


# -- memory of the arrays' library ----------------------------------------------------------


class Owner:
    """What keeps memory."""


def lender(asked, at=1 << 45):
    """Return an allocator that notes what it is asked for, and who keeps what it gave."""

    def memory(ordinal, size):
        owner = Owner()
        asked.append((ordinal, size, weakref.ref(owner)))
        return at, owner

    return memory


@both
def test_what_needs_more_than_an_arena_keeps_is_borrowed_for_the_call(driver, device, kind):
    a, b = pair(kind)
    remember(plan_of(driver, device, scratch=MOST_ARENA + 1), a, b)
    asked = []
    now.memory = lender(asked)
    before = sys.getrefcount(None)
    for _ in range(100):
        assert again(a, b) is not None
    assert abs(sys.getrefcount(None) - before) < 50
    assert driver.kinds == ["launch"] * 100  # nothing is allocated, nothing cleared
    assert {one.word(7) for one in driver.launches} == {1 << 45}
    assert {(ordinal, size >= MOST_ARENA) for ordinal, size, _ in asked} == {(0, True)}
    assert all(owner() is None for _, _, owner in asked)


@both
def test_a_captured_call_has_memory_of_its_graph(driver, device, kind):
    a, b = pair(kind)
    remember(plan_of(driver, device, scratch=MOST_ARENA + 1), a, b)
    driver.set(capture=1)
    now.memory = None
    assert again(a, b) is not None
    assert driver.kinds == ["allocate", "launch", "free"]


@both
@pytest.mark.parametrize("answer", [(0, None), ("x", None), (), None, 5, (-1, None), (2**64, None)])
def test_no_memory_is_left_to_the_closer_look(driver, device, kind, answer):
    a, b = pair(kind)
    remember(plan_of(driver, device, scratch=MOST_ARENA + 1), a, b)
    now.memory = lambda ordinal, size: answer
    assert again(a, b) is None
    assert driver.log == []


@both
def test_errors_of_the_allocator_are_left_to_the_closer_look(driver, device, kind):
    a, b = pair(kind)
    remember(plan_of(driver, device, scratch=MOST_ARENA + 1), a, b)
    now.memory = raising(OutOfMemoryError("none left"))
    assert again(a, b) is None
    now.memory = raising(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        again(a, b)
    assert driver.log == []


def raising(error):
    """Return a function that raises."""

    def function(*_):
        raise error

    return function


@both
def test_memory_is_given_back_where_a_launch_is_refused(driver, device, kind, monkeypatch):
    from tilewright.backend.cuda import device as cuda_device

    monkeypatch.setattr(cuda_device, "device_at", lambda ordinal: device)
    a, b = pair(kind)
    remember(plan_of(driver, device, scratch=MOST_ARENA + 1), a, b)
    asked = []
    now.memory = lender(asked)
    driver.set(launch_result=701)
    with pytest.raises(LaunchError, match="launching on cuda:0"):
        again(a, b)
    assert asked[0][2]() is None


@both
def test_an_entry_that_is_forgotten_while_it_serves_still_serves(driver, device, kind):
    """Making C may run anything: another thread, which calls reload(), for one."""
    for _ in range(20):
        made = plan_of(driver, device)
        gone = weakref.ref(made)
        a, b = pair(kind)
        warm.remember(
            (a, b, None, *order({})), kind((8, 4)), made, (8, 4), F4, 0, False, False, False,
            MOST, 1, 1, 1,
        )  # fmt: skip
        del made

        def forget():
            warm.forget()
            gc.collect()

        now.before = forget
        result = again(a, b)
        assert result.shape == (8, 4)
        now.before = None
        assert gone() is None
    assert len(driver.launches) == 20


def test_threads_call_and_forget_at_once(driver, device):
    made = plan_of(driver, device)
    wrong, end = [], threading.Event()

    def work(number):
        b = CuPyArray((6, 4))
        for i in itertools.count():
            if end.is_set():
                return
            x = CuPyArray((8 + i % 50, 6))
            result = again(x, b)
            if result is None:
                remember(made, x, b)
            elif result.shape != (8 + i % 50, 4):
                wrong.append(result)
            if i % 97 == number:
                warm.forget()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        end.wait(1.5)
    finally:
        end.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert wrong == []


@pytest.mark.parametrize("count", [0, 9, 11])
def test_other_numbers_of_arguments_are_no_call(count):
    assert warm.again(*[None] * count) is None
