"""table.c, seen.c, arrays.c: which calls are like one made before, and what is launched then."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

import tilewright as tw
from tests.core.inside.arrays import C8, F4, F8, KINDS, CuPyArray, Tensor, now
from tests.core.inside.remembering import MOST, again, pair, plan_of, remember

both = pytest.mark.parametrize("kind", KINDS)


pytestmark = pytest.mark.usefixtures("knowing")


# -- what is alike -------------------------------------------------------------------------


@both
def test_a_call_is_repeated_elsewhere_with_other_scalars(driver, plan, kind):
    a, b = pair(kind)
    c = kind((8, 4))
    assert again(a, b, c) is None
    remember(plan, a, b, c)
    (x, y), z = pair(kind), kind((8, 4))
    before = sys.getrefcount(z)
    assert again(x, y, z, alpha=2.5, beta=-3) is z
    assert sys.getrefcount(z) == before
    [found] = driver.launches
    places = [v.data.ptr if kind is CuPyArray else v.data_ptr() for v in (x, y, z)]
    assert [found.word(i) for i in range(3)] == places
    assert [found.numbers(i, "<d")[0] for i in range(3, 7)] == [2.5, 0, -3, 0]
    assert found.stream == 7


@both
def test_a_new_result_is_made_by_the_library(driver, plan, kind):
    a, b = pair(kind)
    remember(plan, a, b)
    made = again(a, b)
    assert type(made) is kind
    assert (made.shape, made.dtype) == ((8, 4), F4)
    assert sys.getrefcount(made) == 2
    assert again(a, b) is not made
    assert again(a, b, beta=1) is None
    assert again(a, b, beta=math.nan) is None
    assert again(a, b, kind((8, 4))) is None  # a given C is another call
    assert len(driver.launches) == 2


@both
def test_the_stream_is_the_devices(driver, plan, kind):
    a, b = pair(kind, device=1)
    remember(plan, a, b, used=kind((8, 4), device=1), where=1)
    now.streams = {1: 99}
    assert again(a, b) is not None
    assert driver.launches[-1].stream == 99


@both
def test_a_row_major_result_exchanges_the_operands(driver, plan, kind):
    a, b = pair(kind, at=None)
    remember(plan, a, b, exchanged=True)
    again(a, b)
    places = [v.data.ptr if kind is CuPyArray else v.data_ptr() for v in (b, a)]
    assert [driver.launches[0].word(i) for i in (0, 1)] == places


@both
def test_lower_case_transposes_are_the_same(plan, kind):
    a, b = kind((6, 8)), kind((6, 4))
    for trans in ("T", tw.problem.Trans.T):
        remember(plan, a, b, trans_a=trans, used=kind((8, 4)))
    assert again(a, b, trans_a="t") is not None
    assert again(a, b, trans_a="T", trans_b="n") is not None
    for wrong in ("C", "N", "", "TT", "R", "X", "ť", 1, None, b"T"):
        assert again(a, b, trans_a=wrong) is None


@both
def test_what_differs_is_another_call(driver, plan, kind):
    a, b = pair(kind)
    c = kind((8, 4))
    remember(plan, a, b, c)
    unit = 4 if kind is CuPyArray else 1
    others = [
        (kind((9, 6)), b, kind((9, 4))),
        (kind((8, 6), strides=(7 * unit, unit)), b, c),
        (kind((8, 6), strides=(unit, 8 * unit)), b, c),
        (a, kind((6, 4), strides=(5 * unit, unit)), c),
        (a, b, kind((8, 4), strides=(unit, 8 * unit))),
        (kind((8, 6), F8), kind((6, 4), F8), kind((8, 4), F8)),
        (a, b, kind((8, 4), F8)),
        (kind((8, 6), at=0x1004), b, c),
        (a, kind((6, 4), at=0x1008), c),
        (a, b, kind((8, 4), at=0x100C)),
        (kind((8, 6), device=1), b, c),
        (a, b, kind((8, 4), device=1)),
        tuple(kind(x.shape, device=1) for x in (a, b, c)),
        (a, b, None),
    ]
    for given in others:
        assert again(*given) is None
    for wrong in (
        {"accuracy": "fp32"}, {"accuracy": "ieee\0"}, {"accuracy": "IEEE"}, {"accuracy": ""},
        {"accuracy": "x" * 17}, {"accuracy": None}, {"accuracy": "\ud800"}, {"out_dtype": F4},
        {"device": "cuda:0"}, {"trans_a": "T"}, {"trans_b": "C"}, {"alpha": 0}, {"alpha": 0.0},
        {"alpha": -0.0}, {"alpha": 1j}, {"beta": 1j},
    ):  # fmt: skip
        assert again(a, b, c, **wrong) is None, wrong
    assert driver.log == []
    assert again(kind((8, 6), at=0x1010), b, c) is c
    assert again(a, b, c, device=None) is c


def test_conjugates_are_other_calls(plan):
    a, b = pair(Tensor, dtype=C8)
    lazy = Tensor((8, 6), C8, conj=True)
    remember(plan, a, b, complex=True)
    assert again(lazy, b) is None
    assert again(a, Tensor((6, 4), C8, conj=True)) is None
    remember(plan, lazy, b, complex=True)
    assert again(Tensor((8, 6), C8, conj=True), b) is not None
    assert again(lazy, b, Tensor((8, 4), C8, conj=True)) is None
    remember(plan, a, b, Tensor((8, 4), C8, conj=True))  # which nobody computes
    assert again(a, b, Tensor((8, 4), C8, conj=True)) is None


def test_tensors_that_take_a_closer_look(plan):
    a, b = pair(Tensor)
    remember(plan, a, b)
    wanted = Tensor((8, 6), requires_grad=True)
    for other in (
        Tensor((8, 6), neg=True), Tensor((8, 6), layout=object()), wanted,
        Tensor((8, 6), device=-1),
    ):  # fmt: skip
        assert again(other, b) is None
    now.grad = False
    assert again(wanted, b) is not None


@both
def test_only_exactly_such_arrays_are_looked_at(plan, kind):
    class Own(kind):
        pass

    a, b = pair(kind)
    remember(plan, a, b)
    assert again(Own((8, 6)), b) is None
    assert again(a, Own((6, 4))) is None
    other = CuPyArray if kind is Tensor else Tensor
    for wrong in (None, 5, "x", np.ones((8, 6), "f4"), object(), kind, other((8, 6))):
        assert again(wrong, b) is None
        assert again(a, wrong) is None
        if wrong is not None:
            assert again(a, b, wrong) is None


@both
def test_alpha_of_zero_is_a_plan_of_its_own(driver, device, plan, kind):
    a, b = pair(kind)
    c = kind((8, 4))
    other = plan_of(driver, device)
    remember(plan, a, b, c)
    remember(other, a, b, c, alpha=0, beta=2)
    again(a, b, c, alpha=0, beta=2)
    again(a, b, c, alpha=1)
    again(a, b, c, alpha=math.nan)
    assert len({one.function for one in driver.launches}) == 2
    assert driver.launches[1].function == driver.launches[2].function


# -- scalars --------------------------------------------------------------------------------


class Five:
    """A number of its own."""

    def __float__(self):
        return 5.0

    def __complex__(self):
        return 5j


class Odd(float):
    pass


@both
@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_scalars_that_need_a_closer_look(driver, plan, kind, name):
    a, b = pair(kind)
    c = kind((8, 4))
    remember(plan, a, b, c)
    for wrong in (
        "1", None, 1j, complex(1, math.nan), 1e39, -1e300, 10**400, -(10**400), True,
        np.longdouble(2), np.float64(1e300), np.array(2.0), Five(), Odd(2), [1], b"1",
    ):  # fmt: skip
        assert again(a, b, c, **{name: wrong}) is None, wrong
    assert driver.log == []
    right = (
        2, 2.0, 2 + 0j, -7.25, MOST, -MOST, math.inf, -math.inf, 2**53 + 1, np.float64(0.1),
        np.float32(0.1),
    )  # fmt: skip
    for value in right:
        assert again(a, b, c, **{name: value}) is c
    assert again(a, b, c, **{name: math.nan}) is c
    place = 3 if name == "alpha" else 5
    assert [one.numbers(place, "<d")[0] for one in driver.launches[:-1]] == [
        complex(x).real for x in right
    ]


@both
def test_complex_scalars_are_for_complex_calls(driver, plan, kind):
    a, b = pair(kind, dtype=C8)
    c = kind((8, 4), C8)
    remember(plan, a, b, c, complex=True)
    assert again(a, b, c, alpha=2j) is None  # laid out for real ones
    remember(plan, a, b, c, alpha=1j, complex=True)
    assert again(a, b, c, alpha=2 + 3j, beta=4 - 5j) is c
    assert [driver.launches[0].numbers(i, "<d")[0] for i in range(3, 7)] == [2, 3, 4, -5]
    assert again(a, b, c, alpha=complex(1, 1e300)) is None
    assert again(a, b, c, alpha=complex(math.nan, math.inf)) is c
    assert again(a, b, c, beta=1j) is c


@both
def test_integers_are_scalars_of_integers(driver, plan, kind):
    a, b = pair(kind)
    c = kind((8, 4))
    remember(plan, a, b, c, whole=True, most=2.0**31 - 1)
    for right in (2, 2.0, 2**31 - 1, -(2**31)):
        assert again(a, b, c, alpha=right) is c
    for wrong in (0.5, 2**31, -(2**31) - 1, math.nan, math.inf, 10**400, 1j, 1 + 0j):
        assert again(a, b, c, alpha=wrong) is None
        assert again(a, b, c, beta=wrong) is None


# -- memory that overlaps -------------------------------------------------------------------


@both
def test_overlap_is_left_to_the_closer_look_and_its_answer_kept(driver, plan, kind):
    a, b = kind((8, 6), at=0x10000), kind((6, 4), at=0x20000)
    c = kind((8, 4), at=0x30000)
    remember(plan, a, b, c)
    extents = {"a": 192, "b": 96, "c": 128}
    for at in (0x10000 - 112, 0x10000 + 176, 0x20000, 0x20000 + 80, 0x20000 - 112):
        assert again(a, b, kind((8, 4), at=at)) is None
    for at in (0x10000 - extents["c"], 0x10000 + extents["a"], 0x20000 + extents["b"]):
        assert again(a, b, kind((8, 4), at=at)) is not None
    # Rows of one matrix may meet without sharing an element: this distance was looked at.
    near = kind((8, 4), at=0x10010)
    remember(plan, a, b, near)
    assert again(a, b, near) is near
    moved = [kind(x.shape, at=at + 0x1000) for x, at in ((a, 0x10000), (b, 0x20000))]
    assert again(*moved, kind((8, 4), at=0x11010)) is not None
    assert again(a, moved[1], near) is None
    assert again(a, b, kind((8, 4), at=0x10020)) is None
    for i in range(8):  # the last eight are kept
        remember(plan, a, b, kind((8, 4), at=0x40000 + 0x1000 * i))
    assert again(a, b, near) is None


@both
def test_nothing_overlaps_beyond_the_address_space(plan, kind):
    a, b = kind((8, 6), at=2**64 - 4096), kind((6, 4), at=16)
    remember(plan, a, b, kind((8, 4), at=2**63))
    assert again(a, b, kind((8, 4), at=2**63)) is not None
