"""Writes of one register under a condition and its opposite: one of them never happens."""

from __future__ import annotations

import pytest

from tests.sass.words import FFMA, word
from tilewright.reschedule.hazards import hazards
from tilewright.sass import Instruction
from tilewright.sass.decode import decode_one

# MOV R, Rb; ISETP.EQ P0, Ra, Rb: an `alu` result, which an FFMA overtakes within three cycles.
MOV, ISETP = 0x202, 0x20C
ALL_LANES, TO_P0 = 0xF << 72, 0 << 81 | 7 << 84 | 7 << 87 | 7 << 68
OPPOSITE = 8  # the bit that negates a guard
EXIT = 0x94D


def listing(*words: int) -> list[Instruction]:
    """Return instructions one behind another, and an end."""
    made = [*words, word(EXIT, extra=7 << 87, stall=5)]
    return [decode_one(raw, 16 * place, 90) for place, raw in enumerate(made)]


def moved(guard: int, stall: int = 1) -> int:
    return word(MOV, 16, b=20, guard=guard, extra=ALL_LANES, stall=stall)


def multiplied(guard: int) -> int:
    return word(FFMA, 16, 24, 25, 26, guard=guard)


def test_either_of_two_writes_may_follow_the_other_at_once() -> None:
    assert not hazards(listing(moved(0 | OPPOSITE), multiplied(0)))
    assert not hazards(listing(moved(1), multiplied(1 | OPPOSITE)))


@pytest.mark.parametrize(
    ("first", "second"),
    [(0, 0), (7, 0), (0, 7), (0 | OPPOSITE, 1), (0 | OPPOSITE, 0 | OPPOSITE)],
)
def test_two_writes_that_may_both_happen_are_found(first: int, second: int) -> None:
    (found,) = hazards(listing(moved(first), multiplied(second)))
    assert "overwrites R16" in found.reason


def test_a_condition_that_changes_between_is_another() -> None:
    """P0 is set anew between: what was written under its old value may be overtaken."""
    compare = word(ISETP, 0, 30, 31, extra=TO_P0, stall=1)
    found = hazards(listing(moved(0 | OPPOSITE), compare, multiplied(0)))
    assert any("overwrites R16" in one.reason for one in found)


def test_a_write_before_both_still_counts() -> None:
    """The opposite write hides no earlier one of its class that has no condition."""
    (found,) = hazards(listing(moved(7), moved(0 | OPPOSITE), multiplied(0)))
    assert "overwrites R16" in found.reason


def test_long_ago_does_not_count() -> None:
    assert not hazards(listing(moved(7, stall=9), moved(0 | OPPOSITE), multiplied(0)))
