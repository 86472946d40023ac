"""What is said of lanes' values holds, whatever the numbers are that nobody knows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.sass.lane_values import (
    EXACT,
    UNIFORM,
    UNWRITTEN,
    Lanes,
    LaneValue,
    add,
    bitwise,
    join,
    literal,
    made,
    multiply,
    negate,
    pointwise,
    select,
    shift_right,
)

LANE = np.arange(32, dtype=np.uint64).reshape(1, 32)
MOST = np.uint64(EXACT - 1)
WORDS = st.integers(0, EXACT - 1)


@st.composite
def values(draw: st.DrawFn) -> tuple[LaneValue, Lanes]:
    """Draw what is known of a register, and what might be in it."""
    step = 1 << draw(st.sampled_from([0, 1, 4, 7, 24, 32, 32]))
    rows = LANE - LANE % np.uint64(draw(st.sampled_from([32, 32, 16, 8, 1])))
    patterns = (LANE * np.uint64(draw(st.sampled_from([0, 0, 1, 16, 128]))), LANE // np.uint64(4))
    lanes = patterns[draw(st.integers(0, 1))] ^ np.uint64(
        draw(st.sampled_from([0, 0, 0, 1, 6, 96, 300]))
    )
    lanes = lanes + np.uint64(draw(st.sampled_from([0, 0, 1 << 20, 1 << 31])))
    value = made(lanes, step, rows if step < EXACT else np.zeros((1, 1), np.uint64))
    unknown = np.array(draw(st.lists(WORDS, min_size=32, max_size=32)), np.uint64)
    first = np.broadcast_to(value.first, (1, 32)).astype(np.intp)
    return value, (value.lanes + unknown[first] * np.uint64(step)) & MOST


def holds(value: LaneValue | None, lanes: Lanes) -> bool:
    """Whether lanes' numbers are what is said of them."""
    if value is None:
        return True
    apart = np.broadcast_to(lanes - value.lanes & MOST, (1, 32))
    first = np.broadcast_to(value.first, apart.shape).astype(np.intp)
    alike = apart == np.take_along_axis(apart, first, axis=1)
    return bool(alike.all()) and not bool((apart % np.uint64(value.step)).any())


def table(number: int) -> Callable[..., Lanes]:
    """Return LOP3's function of three words' bits."""

    def function(*words: Lanes) -> Lanes:
        a, b, c = np.broadcast_arrays(*words)
        found = np.zeros_like(a)
        for row in range(8):
            if number >> row & 1:
                term = a if row & 4 else ~a
                term = term & (b if row & 2 else ~b) & (c if row & 1 else ~c)
                found |= term
        return found

    return function


@given(values(), values(), values(), st.integers(0, 255), st.integers(0, 31), st.booleans())
def test_what_is_said_of_results_holds(
    one: tuple[LaneValue, Lanes],
    other: tuple[LaneValue, Lanes],
    third: tuple[LaneValue, Lanes],
    number: int,
    by: int,
    signed: bool,
) -> None:
    (a, x), (b, y), (c, z) = one, other, third
    assert holds(a, x)
    assert holds(b, y)
    assert holds(add(a, b), x + y & MOST)
    assert holds(negate(a), ~x + np.uint64(1) & MOST)
    assert holds(multiply(a, b), x * y & MOST)
    assert holds(bitwise(table(number), a, b, c), table(number)(x, y, z) & MOST)
    for way in (x, y):
        assert holds(join(a, b), way)
    kind = np.int32 if signed else np.uint32
    shifted = (x.astype(np.uint32).view(kind) >> kind(by)).view(np.uint32).astype(np.uint64)
    assert holds(shift_right(a, by, signed), shifted)
    condition = pointwise(lambda lanes: lanes & np.uint64(1), c)
    assert holds(select(condition, a, b), np.where(z & np.uint64(1) == 1, x, y))


def lanes_of(value: LaneValue | None) -> list[int]:
    """Return what lanes hold, up to what is not known."""
    assert value is not None
    return np.broadcast_to(value.lanes, (1, 32))[0].astype(int).tolist()


def test_bits_below_a_base_may_be_exchanged() -> None:
    base = multiply(UNIFORM, literal(1 << 10))  # an address that is aligned to 1024 bytes
    at = add(base, made(LANE * np.uint64(64), EXACT))
    found = bitwise(table(0x3C), at, made(LANE % np.uint64(4) * np.uint64(32), EXACT), literal(0))
    assert found is not None
    assert found.step == 1 << 10
    assert lanes_of(found) == [lane * 64 ^ lane % 4 * 32 for lane in range(32)]
    # Where nothing is known of the base, or of a bit that a carry may reach, nothing is.
    plain = add(UNIFORM, made(LANE, EXACT))
    assert bitwise(table(0x3C), plain, literal(1), literal(0)) is None


def test_rows_are_an_unknown_leading_dimension_apart() -> None:
    row, column = made(LANE // np.uint64(8), EXACT), made(LANE % np.uint64(8), EXACT)
    at = add(multiply(row, UNIFORM), column)
    assert at is not None
    assert not at.shared
    assert at.first[0].astype(int).tolist() == [lane // 8 * 8 for lane in range(32)]
    assert lanes_of(at) == [lane % 8 for lane in range(32)]
    # A step along them all leaves it so; one that differs in a row does not.
    moved = add(at, multiply(UNIFORM, literal(64)))
    assert join(at, moved) is not None
    assert join(at, add(at, column)) is None
    # Halves of a row that are an unknown distance apart, too, share what is unknown with nobody.
    halves = add(at, multiply(made(LANE // np.uint64(4) % np.uint64(2), EXACT), UNIFORM))
    assert halves is not None
    assert halves.first[0].astype(int).tolist() == [lane // 4 * 4 for lane in range(32)]


@pytest.mark.parametrize(("step", "known"), [(4, 4), (48, 16), (0, EXACT)])
def test_a_counter_keeps_what_divides_its_steps(step: int, known: int) -> None:
    begin = literal(7)
    found = join(begin, add(begin, literal(step)))
    assert found is not None
    assert found.step == known


def test_what_nothing_wrote_is_what_another_way_wrote() -> None:
    lane = made(LANE, EXACT)
    assert join(UNWRITTEN, lane) is lane
    assert join(lane, UNWRITTEN) is lane
    assert join(literal(0), lane) is None
    assert lanes_of(add(UNWRITTEN, lane)) == list(range(32))
