"""seen.c: double-double matrices, by their words."""

from __future__ import annotations

import pytest

from tests.core.inside.arrays import CuPyArray, Pairs, Tensor
from tests.core.inside.driver import MOST_ARENA
from tests.core.inside.remembering import again, pair, plan_of, remember

pytestmark = pytest.mark.usefixtures("knowing")


@pytest.mark.parametrize("is_complex", [False, True])
def test_a_call_like_one_made_before_is_started_at_its_words(driver, plan, is_complex):
    a, b = pair(Pairs, dtype=is_complex)
    remember(plan, a, b)
    a, b = pair(Pairs, dtype=is_complex)
    made = again(a, b, alpha=2.5)
    assert isinstance(made, Pairs)
    assert made.shape == (8, 4)
    assert made.is_complex == is_complex
    (launch,) = driver.launches
    assert [launch.word(at) for at in range(3)] == [x.words.data.ptr for x in (a, b, made)]
    assert launch.numbers(3, "<d") == (2.5,)


def test_what_lies_otherwise_is_another_call(driver, plan):
    a, b = pair(Pairs)
    remember(plan, a, b)
    others = [
        pair(Pairs, dtype=True), pair(Pairs, step=32), pair(CuPyArray), pair(Tensor),
        (a, Pairs((6, 4), device=1)), (a, b.words), (Pairs((6, 8)), b),
    ]  # fmt: skip
    for x, y in others:
        assert again(x, y) is None
    assert not driver.launches


@pytest.mark.parametrize(
    "change",
    [
        {"shape": (8, 6, 3)}, {"strides": (96, 16, 16)}, {"shape": (6, 2), "strides": (16, 8)},
    ],
)  # fmt: skip
def test_words_that_are_no_pairs_side_by_side_take_a_closer_look(driver, plan, change):
    a, b = pair(Pairs)
    remember(plan, a, b)
    for name, value in change.items():
        setattr(a.words, name, value)
    assert again(a, b) is None
    assert not driver.launches


def test_words_of_others_and_broken_ones_take_a_closer_look(driver, plan):
    a, b = pair(Pairs)
    remember(plan, a, b)
    a.words = Tensor((8, 6, 2), strides=(12, 2, 1))
    assert again(a, b) is None
    del a.words
    assert again(a, b) is None
    a, _ = pair(Pairs)
    del a.is_complex
    assert again(a, b) is None
    assert not driver.launches


def test_integers_beyond_one_word_take_a_closer_look(driver, plan):
    a, b = pair(Pairs)
    remember(plan, a, b, most=2.0**53 - 1)
    assert again(a, b, alpha=2**53 - 1) is not None
    for value in (2**53 + 1, -(2**53) - 1, 2**54 + 1):
        assert again(a, b, alpha=value) is None
    assert len(driver.launches) == 1


def test_memory_that_an_arena_does_not_keep_is_the_librarys(driver, device):
    a, b = pair(Pairs)
    remember(plan_of(driver, device, MOST_ARENA + 1), a, b)
    from tests.core.inside.arrays import now

    now.memory = lambda ordinal, size: (0x7000, object())
    assert again(a, b) is not None
    assert driver.launches[0].word(7) == 0x7000
