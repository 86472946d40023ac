"""serve/calls.py on CUDA: what is laid out again, what memory is for, and who is told."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tests.core.inside.arrays import F4, CuPyArray, know_them
from tests.core.inside.driver import Device, loaded
from tilewright.backend import GemmCall, LaunchError, Operand, OutOfMemoryError
from tilewright.backend.cuda import device as cuda_device
from tilewright.portfolio import reload
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.serve import arenas, calls, warm
from tilewright.serve.arenas import WorkspaceError
from tilewright.serve.arrays import device as on_device
from tilewright.serve.arrays.device import View
from tilewright.serve.calls import Wanted, start
from tilewright.serve.decision import Decision
from tilewright.serve.laid_out import A, B, C
from tilewright.serve.request import Request
from tilewright.serve.steps import Laid
from tilewright.serve.unproved import serve_unproved
from tilewright.stencil import Launch

GRID = Launch((1, 1), (32, 1))


class Live(Device):
    """A device that also gives memory, and events."""

    def __init__(self, driver):
        super().__init__(driver)
        self.freed, self.taken, self.refuses = [], 0, False

    def allocate(self, size):
        if self.refuses:
            raise OutOfMemoryError(f"cannot allocate {size} bytes")
        self.taken += 1
        return 0x9000 + 256 * self.taken

    def free(self, memory):
        self.freed.append(memory)

    def between_events(self, enqueue, stream=None, *_):
        enqueue()
        return SimpleNamespace(wait=lambda: None)


class Routes:
    """Lays out launches that are told all there is, and counts how often."""

    def __init__(self, driver, monkeypatch):
        self.driver, self.made, self.scratch, self.launches = driver, [], 0, 1
        monkeypatch.setattr(calls, "lay_out", self)
        monkeypatch.setattr(calls, "_plans", type(calls._plans)())
        monkeypatch.setattr(arenas, "_owners", {})

    def __call__(
        self,
        live,
        problem,
        call,
        arithmetic,
        space,
        *,
        report=None,
        copies=True,
        repeats=(),
        triangle=None,
        residues=None,
    ):
        self.made.append((call, arithmetic, report, copies))
        pieces = [space.need("x", self.scratch)] if self.scratch and copies else []
        real, imaginary = (np.float64(complex(call.alpha).real), np.float64(call.alpha.imag))
        arguments = (call.a.memory, call.b.memory, call.c.memory, real, imaginary, report, *pieces)
        function = loaded(self.driver.function(len(arguments)))
        guarded = arithmetic == "fp32"
        return Laid(
            [(function, GRID, arguments)] * self.launches, "gemm", arithmetic, "", guarded, repeats
        )


@pytest.fixture
def live(driver):
    return Live(driver)


@pytest.fixture
def routes(driver, monkeypatch):
    return Routes(driver, monkeypatch)


def wanted(a=0x10000, b=0x20000, c=0x30000, alpha=1, beta=0, letter="s", arithmetic="", n=8):
    of = precision(letter)
    call = GemmCall(of, n, n, n, alpha, Operand(a, 0, n), Operand(b, 0, n), beta, Operand(c, 0, n))
    return Wanted(Problem(n, n, n, letter), call, False, arithmetic)


def test_equal_calls_are_laid_out_once_whatever_their_addresses(routes, live, driver):
    for a, alpha in ((0x10000, 1), (0x50000, 2.5), (0x50010, np.float32(3))):
        start(live, wanted(a=a, alpha=alpha), 7)
    assert len(routes.made) == 1
    assert [one.word(0) for one in driver.launches] == [0x10000, 0x50000, 0x50010]
    assert [one.numbers(3, "<d")[0] for one in driver.launches] == [1, 2.5, 3]
    [(call, *_)] = routes.made
    assert (call.a.memory, call.b.memory, call.c.memory) == (A, B, C)


def test_what_a_layout_depends_on_makes_another(routes, live):
    base = wanted()
    others = [
        wanted(a=0x10004), wanted(b=0x20008), wanted(alpha=0), wanted(n=9), wanted(letter="d"),
        wanted(letter="c"), wanted(letter="c", alpha=1j), wanted(arithmetic="bf16x9"),
        replace(base, problem=replace(base.problem, trans_a=Trans.T)),
    ]  # fmt: skip
    for one in (base, *others):
        start(live, one, 7)
    assert len(routes.made) == len(others) + 1
    for one in (wanted(c=0x30004), wanted(beta=2), wanted(letter="c", beta=2j)):
        start(live, one, 7)  # where C begins, and what its old numbers count
    assert len(routes.made) == len(others) + 1
    reload()
    start(live, base, 7)
    with serve_unproved():
        start(live, base, 7)  # IEEE arithmetic is the same everywhere
        start(live, wanted(arithmetic="bf16x9"), 7)
    assert len(routes.made) == len(others) + 3
    assert routes.made[1][0].a.memory == A + 4
    calls.forget_plans()
    start(live, base, 7)
    assert len(routes.made) == len(others) + 4


def test_plans_that_were_used_longest_ago_make_room(routes, live, monkeypatch):
    monkeypatch.setattr(calls, "_MOST_PLANS", 2)
    first, second, third = (wanted(n=n) for n in (8, 9, 10))
    for one in (first, second, first, third, first):
        start(live, one, 7)
    assert len(routes.made) == 3
    start(live, second, 7)
    assert len(routes.made) == 4


def test_where_memory_is_short_ieee_arithmetic_serves_without_it(routes, live, driver):
    routes.scratch = 1000
    driver.set(allocate_result=2)
    for arithmetic in ("", "fp32"):
        driver.set(logged=0)
        told = Decision() if arithmetic else None
        found = start(live, wanted(arithmetic=arithmetic), 7, told)
        assert found.lean
        assert found.laid.arithmetic == ""
        assert driver.kinds == ["launch"]
    assert (told.variant, told.reason) == (
        "ieee", "the device has too little memory left for parts",
    )  # fmt: skip
    assert live.taken == len(live.freed)
    with pytest.raises(WorkspaceError):  # a scheme that was named is no other
        start(live, wanted(arithmetic="bf16x9"), 7)
    driver.set(allocate_result=0)
    assert not start(live, wanted(), 7).lean


def test_a_call_that_changed_c_is_not_made_again(routes, live, driver):
    """beta C of what the first launches wrote would be wrong."""
    routes.scratch, routes.launches = 1000, 3
    driver.set(launch_result=2, fails_after=1)
    with pytest.raises(OutOfMemoryError):
        start(live, wanted(beta=2), 7)
    assert len(routes.made) == 1
    assert len(driver.launches) == 1


def test_a_guards_memory_is_the_reports_or_goes_back(routes, live, driver):
    told = Decision()
    start(live, wanted(arithmetic="fp32"), 7, told)
    assert driver.launches[0].word(5) == 0x9100
    assert live.freed == []
    del told
    assert live.freed == [0x9100]
    driver.set(launch_result=701)
    with pytest.raises(LaunchError):
        start(live, wanted(arithmetic="fp32"), 7, Decision())
    assert live.freed == [0x9100, 0x9200]
    driver.set(launch_result=0)
    routes.scratch, live.refuses, told = 1000, True, Decision()
    calls.forget_plans()
    assert start(live, wanted(arithmetic="fp32"), 7, told).lean
    assert told.variant == "ieee"


def test_complex_products_have_twice_the_terms(routes, live, monkeypatch):
    seen = []
    monkeypatch.setattr(Decision, "pending", lambda *given: seen.append(given[-1].k))
    for letter in "sc":
        start(live, wanted(arithmetic="fp32", letter=letter), 7, Decision())
    assert seen == [8, 16]


def test_what_is_timed_is_laid_out_before_the_stream_is_held(routes, live, driver):
    """Events count from when the device comes to the first, with all launches behind it."""
    routes.launches = 2
    order = []

    def between_events(enqueue, stream, after, keep, name, held):
        order.append((len(routes.made), held, stream))
        enqueue()
        return "event"

    live.between_events = between_events
    for timed, laid in ((False, 0), (True, 2)):
        calls.forget_plans()
        assert calls.launch(live, wanted(), 7, timed=timed) == "event"
        assert order[-1] == (laid, laid, 7)
        assert len(routes.made) == max(1, laid)
    assert len(driver.launches) == 4


# -- what is remembered --------------------------------------------------------------------


@pytest.fixture
def on_the_device(routes, live, monkeypatch):
    """Return what calls with CuPy's arrays, and tells whether the next like it is looked at."""
    know_them()
    warm.forget()
    monkeypatch.setattr(on_device, "device_at", lambda ordinal: live)
    monkeypatch.setattr(cuda_device, "device_at", lambda ordinal: live)

    def view(x):
        return View(x, x.data.ptr, x.shape, x.strides, x.dtype, x.data.device_id)

    def run(a, b, c, **options):
        arithmetic = options.pop("arithmetic", "")
        m, k, n = *a.shape, b.shape[1]
        request = Request(
            precision("s"), m, n, k, 1, options.pop("beta", 0), Trans.N, Trans.N,
            *map(view, (a, b, c)), arithmetic, options.pop("report", None),
        )  # fmt: skip
        on_device.run(request, None, options.pop("stream", lambda ordinal: 7), None, 0)
        return warm.again(
            a, b, c, 1, request.beta, "N", "N", arithmetic or "ieee", None, None
        ) is not None  # fmt: skip

    yield run
    warm.forget()


def arrays(m=8, n=4, k=6):
    return CuPyArray((m, k), F4), CuPyArray((k, n), F4), CuPyArray((m, n), F4)


def test_a_call_is_remembered(on_the_device, routes, driver):
    assert on_the_device(*arrays())
    assert on_the_device(*arrays(), arithmetic="fp32")
    assert len(driver.launches) == 4
    assert driver.launches[0].arguments == driver.launches[1].arguments
    assert len(routes.made) == 2


def test_an_empty_sum_is_remembered(on_the_device):
    """Its operands have no bytes, wherever they are said to begin."""
    a, b, c = arrays(k=0)
    b.strides = (400, 4)
    assert View(b, 0, b.shape, b.strides, F4, 0).extent == 0
    assert on_the_device(a, b, c, beta=2)


def test_what_is_not_as_others_will_be_is_not_remembered(on_the_device, routes, driver):
    assert not on_the_device(*arrays(), arithmetic="fp32", report=Decision())
    with serve_unproved():
        assert not on_the_device(*arrays(), arithmetic="fp32")
        assert on_the_device(*arrays())  # IEEE arithmetic is the same everywhere
    assert not on_the_device(*arrays(m=24), stream=lambda _: reload() or 7)
    routes.scratch = 1000
    calls.forget_plans()
    driver.set(allocate_result=2)
    assert not on_the_device(*arrays(m=16))  # did without memory
    driver.set(allocate_result=0)
    assert on_the_device(*arrays(m=16))
