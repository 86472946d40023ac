"""Register patterns: every measured one is made again by its name, as the rule predicts it."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.microbench.compiled import trip, wide
from tilewright.microbench.port_patterns import TRIP, named, pattern, placed, sequences
from tilewright.microbench.ports import points
from tilewright.sass import Ports
from tilewright.sass.decode import decode_one

FFMA, NO_GUARD, NO_BARRIERS = 0x223, 7 << 12, 7 << 110 | 7 << 113


def predicted(name: str) -> int:
    """Return the rule's cycles for a trip of a pattern that begins with nothing to read."""
    ports, last = Ports(), -1
    for number, i in enumerate(pattern(name)):
        operands = i.d << 16 | i.a << 24 | i.b << 32 | i.c << 64
        control = 1 << 105 | 1 << 109 | i.reuse << 122
        raw = FFMA | NO_GUARD | NO_BARRIERS | operands | control
        last = ports.issue(decode_one(raw, 16 * number, 90), last + 1)
    return ports.drained()


def test_every_point_of_the_experiment_is_a_pattern() -> None:
    found = list(points())
    assert len(found) == len(set(found))
    assert {name for name, *_ in found} <= {*named(), *sequences(), "--- ---"}


@pytest.mark.parametrize(("name", "cycles"), [("--- ---", 1), ("EEO OEO", 1.5), ("EEE EEE", 3)])
def test_a_bank_serves_one_read_a_cycle(name: str, cycles: float) -> None:
    """Three operands of one bank take three cycles, and no fewer than what is issued."""
    assert predicted(name) >= TRIP
    assert predicted(name) == pytest.approx(cycles * TRIP, rel=0.03)


def test_a_sequence_has_the_banks_of_its_name_and_different_registers() -> None:
    body = pattern("EEO O-E")
    assert len(body) == TRIP
    for at, one in enumerate(body):
        banks = "".join("-" if r == 255 else "EO"[r % 2] for r in (one.a, one.b, one.c))
        assert banks == ("EEO", "O-E")[at % 2]
    near = [r for i in body[:8] for r in (i.a, i.b, i.c) if r != 255]
    assert len(set(near)) == len(near)


@pytest.mark.parametrize("name", ["", "EEX", "EE EE", "no such pattern"])
def test_an_unknown_pattern_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not known"):
        pattern(name)


def test_reuse_saves_a_read_until_the_register_is_written() -> None:
    """Three in one bank take three cycles; one of them kept, two.

    Now and then the walk through the bank comes by the register itself, and a read is saved.
    """
    assert predicted("a const none EE") == pytest.approx(3 * TRIP, rel=0.03)
    assert predicted("a const reuse EE") == pytest.approx(2 * TRIP, rel=0.03)


@pytest.mark.parametrize("name", ["EEO OEO", "gemm 8x8 pair entry calt", "random 7"])
@pytest.mark.parametrize("yields", [False, True])
def test_a_pattern_keeps_its_banks_and_flags_in_the_cubin(name: str, yields: bool) -> None:
    loop = wide()
    body = placed(pattern(name), loop.even, loop.odd, yields)
    found = trip(loop, body)
    sums = [i for i in found.instructions if i.mnemonic == "FFMA"]
    assert len(sums) == TRIP
    for one, meant in zip(sums, pattern(name), strict=True):
        banks = [o.value % 2 for o in one.srcs]
        assert banks == [r % 2 for r in (meant.a, meant.b, meant.c)]
        assert sum(flag << i for i, flag in enumerate(one.control.reuse)) == meant.reuse
        assert one.control.yields == yields
        assert one.control.stall == 1


def test_registers_of_a_pattern_stay_different_in_the_cubin() -> None:
    loop = wide()
    for name in ("random 3", "same ab EO"):
        own = {}
        for slot, meant in zip(
            placed(pattern(name), loop.even, loop.odd), pattern(name), strict=True
        ):
            for register, number in zip(slot[1:5], meant[:4], strict=True):
                assert own.setdefault(number, register) == register
        assert max(Counter(own.values()).values()) == 1


def test_names_of_the_two_families_do_not_meet() -> None:
    assert not set(named()) & set(sequences())
    assert len(named()) == 186
    assert len(sequences()) == 2070
