"""group.c: which groups are like one before, and what is launched then."""

from __future__ import annotations

import contextlib
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import tilewright as tw
from tests.core.inside.arrays import C8, KINDS, CuPyArray, Tensor, now
from tests.core.inside.driver import loaded
from tests.core.inside.remembering import MOST
from tilewright import timeline
from tilewright.backend import BackendError
from tilewright.portfolio import reload
from tilewright.serve import warm
from tilewright.serve.arrays.device import View
from tilewright.serve.grouped import members
from tilewright.serve.laid_out import ALPHA, BETA, A, B, C, Space, member
from tilewright.serve.plan import Plan
from tilewright.stencil import Launch

both = pytest.mark.parametrize("kind", KINDS)

pytestmark = pytest.mark.usefixtures("knowing")

DEFAULTS = {
    "alpha": 1, "beta": 0, "trans_a": "N", "trans_b": "N", "out_dtype": None,
}  # fmt: skip


def group(a, b, c=None, **given):
    return warm.group(a, b, c, *(DEFAULTS | given).values())


@pytest.fixture
def plan(driver, device):
    """Return plans of some products, told the addresses of each and the scalars."""

    def made(count=1):
        addresses = [member(which, at) for at in range(count) for which in (A, B, C)]
        arguments = (*addresses, np.float64(ALPHA.real), np.float64(BETA.real))
        step = loaded(driver.function(len(arguments))), Launch((1, 1), (32, 1)), arguments
        return Plan(device, [step], Space(), is_group=True)

    return made


def remember(plans, a, b, c=None, *, places=None, **given):
    """Remember a group whose plans are of one product each; c is new without `places` of it."""
    about = {"keep": None, "make": None, "refuse": None, "rest": (), "extents": None}
    about |= {name: given.pop(name) for name in tuple(about) if name in given}
    count = len(a)
    if places is None:
        places = [[at, count + at, 2 * count + at] for at in range(count)]
    extents = about.pop("extents")
    if extents is None:
        extents = [4 * x.shape[0] * x.shape[1] for some in (a, b, c or []) for x in some]
    extents = np.resize(np.array(extents, np.uint64), 3 * count)
    warm.remember_group(
        (a, b, c, *(DEFAULTS | given).values()), [(one, at) for at, one in enumerate(plans)],
        *about.values(), np.array(places, np.uint32).tobytes(), extents.tobytes(),
        False, False, MOST,
    )  # fmt: skip


def lists(kind, count=2, **options):
    """Return matrices of so many products, the second ones larger."""
    shapes = [((8, k), (k, 4), (8, 4)) for k in range(4, 4 * count + 4, 4)]
    return tuple([kind(one[which], **options) for one in shapes] for which in range(3))


def at(*arrays):
    return [x.data.ptr if isinstance(x, CuPyArray) else x.data_ptr() for x in arrays]


@both
def test_a_group_is_repeated_elsewhere_with_other_scalars(driver, plan, kind):
    a, b, c = lists(kind)
    assert group(a, b, c) is None
    remember([plan(), plan()], a, b, c, rest=(5,), places=[[1, 3, 5], [2, 0, 4]])
    a, b, c = lists(kind)
    counts = [sys.getrefcount(x) for x in (*a, *b, *c)]
    made, rest = group(a, b, c, alpha=2.5, beta=-3)
    assert made is c
    assert rest == (5,)
    del made
    assert [sys.getrefcount(x) for x in (*a, *b, *c)] == counts
    first, second = driver.launches
    assert [first.word(i) for i in range(3)] == at(a[1], b[1], c[1])
    assert [second.word(i) for i in range(3)] == at(b[0], a[0], c[0])  # exchanged
    assert [first.numbers(i, "<d")[0] for i in (3, 4)] == [2.5, -3]
    assert (first.stream, second.stream) == (7, 7)


@both
def test_one_launch_has_many_products(driver, plan, kind):
    a, b, c = lists(kind)
    remember([plan(2)], a, b, c)
    c = [kind(x.shape) for x in c]
    group([a[0], a[1]], b, c)
    [found] = driver.launches
    assert [found.word(i) for i in range(6)] == at(a[0], b[0], c[0], a[1], b[1], c[1])


@both
def test_what_is_another_group(plan, kind):
    a, b, c = lists(kind)
    remember([plan(), plan()], a, b, c)
    assert group(a, b, c) is not None
    for x in (
        kind((8, 8), np.dtype("f8")), kind((8, 8), at=(1 << 30) + 4), kind((8, 9)),
        kind((8, 8), strides=(36, 4)),
    ):  # fmt: skip
        assert group([a[0], x], b, c) is None
    for given in (
        {"trans_a": "T"}, {"trans_b": "C"}, {"alpha": 0}, {"out_dtype": "f4"}, {"alpha": 1j},
        {"beta": np.longdouble(2)}, {"alpha": 2 * MOST}, {"trans_a": "x"}, {"trans_a": None},
    ):  # fmt: skip
        assert group(a, b, c, **given) is None
    assert group(a, b) is None
    assert group(a[:1], b[:1], c[:1]) is None
    warm.forget()
    assert group(a, b, c) is None


@both
def test_integers_are_told_apart_by_their_own_types(plan, kind):
    """PyTorch has several that DLPack describes alike."""
    one, other = np.dtype("i1"), np.dtype("i1", metadata={"bits": 4})
    a, b, c = lists(kind, 1, dtype=one)
    remember([plan()], a, b, c)
    assert group(a, b, c) is not None
    assert group([kind((8, 4), other)], b, c) is None


@both
def test_new_results_are_made_by_the_library(driver, plan, kind):
    a, b, c = lists(kind)
    likes = []

    def make(like):
        likes.append(like)
        return list(c)

    remember([plan(), plan()], a, b, make=make, keep=make)
    made, rest = group(a, b)
    assert all(x is y for x, y in zip(made, c, strict=True))
    assert (likes, rest) == ([a[0]], ())
    assert [one.word(2) for one in driver.launches] == at(*c)
    assert group(a, b, beta=1) is None
    assert group(a, b, c) is None  # given ones are another group
    c.pop()
    assert group(a, b) is None
    c.append(kind((8, 4), device=1))
    assert group(a, b) is None
    assert len(driver.launches) == 2


@both
def test_matrices_without_elements_may_be_nowhere(driver, plan, kind):
    a, b, c = lists(kind)
    a[0], b[0] = kind((8, 0), at=0), kind((0, 4), at=0)
    remember([plan()], a, b, c, places=[[1, 3, 5]])
    assert group(a, b, c) is not None
    [found] = driver.launches
    assert found.word(2) == at(c[1])[0]


@both
def test_results_whose_spans_meet_others_are_looked_at_once(driver, plan, kind):
    asked, error = [], None

    def refuse(*given):
        asked.append(given)
        if error is not None:
            raise error

    a, b, _ = lists(kind)
    c = [kind((8, 4), at=base, strides=(64, 4)) for base in (1 << 30, (1 << 30) + 16)]
    remember([plan(), plan()], a, b, c, extents=[4] * 4 + [464] * 2, refuse=refuse)
    for _ in range(3):
        assert group(a, b, c) is not None
    assert asked == [(a, b, c)]
    error = ValueError("c[0] overlaps c[1]")
    c[1] = kind((8, 4), at=(1 << 30) + 32, strides=(64, 4))
    with pytest.raises(ValueError, match=r"c\[0\] overlaps c\[1\]"):
        group(a, b, c)
    assert len(driver.launches) == 6


def test_spans_that_meet_are_found(plan):
    """As beside one another, whatever the order of addresses in this call and in the last one."""

    def refuse(*_):
        raise ValueError("they meet")

    rng = np.random.default_rng(0)
    for count, step in ((1, 16), (2, 16), (3, 1 << 12), (5, 1 << 20), (8, 1 << 44), (40, 16)):
        a, b, c = lists(CuPyArray, count)
        extents = rng.integers(0, 5, 3 * count) * step
        remember([plan()], a, b, c, places=[[0, 1, 2]], extents=extents, refuse=refuse)
        for _ in range(60):
            first = rng.integers(1, rng.choice([4, 4 * count]) * count * 3, 3 * count) * step
            for x, address in zip((*a, *b, *c), first.tolist(), strict=True):
                x.data.ptr = address
            end = first + extents
            meets = any(
                first[i] < end[j] and first[j] < end[i] and extents[i] and extents[j] and i != j
                for i in range(2 * count, 3 * count)
                for j in range(3 * count)
            )
            with pytest.raises(ValueError, match="meet") if meets else contextlib.nullcontext():
                assert group(a, b, c) is not None
        warm.forget()


@both
def test_unusual_groups_take_a_closer_look(driver, plan, kind):
    a, b, c = lists(kind)
    remember([plan(), plan()], a, b, c)
    other = Tensor if kind is CuPyArray else CuPyArray
    stepless = kind((8, 8))
    stepless.strides = stepless._strides = ()
    for x in (
        None, object(), other((8, 8)), kind((8, 8), device=1), kind((8, 8), at=0), stepless,
        kind((8, 8, 2), strides=(64, 8, 4)), Tensor((8, 8), C8, conj=True),
        Tensor((8, 8), requires_grad=True), Tensor((8, 8), neg=True),
    ):  # fmt: skip
        assert group([a[0], x], b, c) is None
        assert group([x, a[1]], b, c) is None
    for given in ((a, b[:1], c), (a, [*b, b[0]], c), (a, b, c[:1]), (a, b, []), ([], [], [])):
        assert group(*given) is None
    for given in ((tuple(a), b, c), (a, tuple(b), c), (None, b, c), (a, b, 5)):
        assert group(*given) is None
    timeline.start()
    try:
        assert group(a, b, c) is None
    finally:
        timeline.stop()
    assert not driver.launches
    assert group(a, b, c) is not None


@pytest.mark.parametrize("change", [list.clear, list.pop, lambda x: x.append(None)])
def test_lists_that_change_meanwhile_take_a_closer_look(plan, monkeypatch, change):
    a, b, c = lists(Tensor)
    remember([plan(), plan()], a, b, c)
    monkeypatch.setattr(Tensor, "is_neg", lambda _: bool(change(a) and 0))
    assert group(a, b, c) is None


def test_a_group_may_be_forgotten_while_it_is_computed(driver, plan):
    a, b, c = lists(CuPyArray)
    owner = SimpleNamespace()

    def make(like):
        warm.forget()
        return c

    before = sys.getrefcount(owner)
    remember([plan(), plan()], a, b, make=make, keep=owner)
    assert sys.getrefcount(owner) > before
    assert group(a, b) is not None
    assert sys.getrefcount(owner) == before
    assert len(driver.launches) == 2


def test_the_group_used_least_recently_makes_room(plan):
    owners = [SimpleNamespace() for _ in range(66)]
    groups = [lists(CuPyArray, count) for count in range(1, 67)]
    before = sys.getrefcount(owners[0])
    for some, owner in zip(groups, owners, strict=True):
        remember([plan()], *some, places=[[0, 1, 2]], keep=owner)
        assert group(*groups[0]) is not None
    assert group(*groups[1]) is None
    assert group(*groups[2]) is None
    assert all(group(*some) is not None for some in groups[3:])
    assert [sys.getrefcount(owners[at]) > before for at in range(4)] == [True, False, False, True]


@both
def test_errors_of_a_launch_are_raised(driver, plan, kind, monkeypatch):
    a, b, c = lists(kind)
    remember([plan(), plan()], a, b, c)
    failed = SimpleNamespace(id="cuda:0", failed=lambda error: error)
    monkeypatch.setattr("tilewright.backend.cuda.device.device_at", lambda _: failed)
    driver.set(launch_result=701)
    with pytest.raises(BackendError, match="launching on cuda:0"):
        group(a, b, c)


@both
def test_errors_of_the_library_are_left_to_the_closer_look(driver, plan, kind):
    a, b, c = lists(kind)
    remember([plan(), plan()], a, b, c)
    now.error = RuntimeError("no stream")
    assert group(a, b, c) is None
    assert not driver.launches


@both
def test_a_group_that_had_its_closer_look_is_served_again(driver, device, plan, monkeypatch, kind):
    def view(name, x):
        place = at(x)[0], x.shape, (4 * x.shape[1], 4), x.dtype, 0
        return View(x, *place)

    def stream_of(_):
        if len(looked) == 1:  # what such a call used is not remembered
            reload()
        return 7

    library = SimpleNamespace(
        __name__="acted", stream_of=stream_of, view=view, memory=None,
        new_arrays=lambda like, shapes, dtype: [kind(shape, dtype) for shape in shapes],
    )  # fmt: skip
    looked = []

    def refuse(*_):
        raise ValueError("overlap")

    monkeypatch.setattr(members, "refuse_overlaps", refuse)
    monkeypatch.setattr(members, "_library", lambda x: library)
    monkeypatch.setattr(members, "device_at", lambda ordinal: device)
    chosen = SimpleNamespace(geometry=SimpleNamespace(tma=False)), None
    monkeypatch.setattr(members, "choose_grouped", lambda *_: None)
    monkeypatch.setattr(members, "_chosen", lambda *_: chosen)
    monkeypatch.setattr(members, "_plan", lambda *x: looked.append(x[2]) or plan(len(x[2])))
    for is_new in (False, True):
        for _ in range(3):
            a, b, c = lists(kind)
            c = tw.grouped_gemm(a, b, None if is_new else c, alpha=np.float64(2))
            [found] = driver.launches
            # The longest sums come first; a row-major product is the transpose's.
            places = [place for i in (1, 0) for place in at(b[i], a[i], c[i])]
            assert [found.word(i) for i in range(6)] == places
            driver.reset()
        assert len(looked) == 2 + is_new
    with pytest.raises(ValueError, match="overlap"):
        tw.grouped_gemm(a, b, [b[1], c[1]])
