"""Register patterns: every measured one is made again by its name, as the rule predicts it."""

from __future__ import annotations

import json
import random
import statistics
from collections import Counter

import pytest
from benchmarks.port_rule import NOTHING, RESULT, compare, predicted, rows_in

from tests.microbench.compiled import trip, wide
from tilewright.microbench.port_patterns import TRIP, named, pattern, placed, sequences
from tilewright.microbench.ports import points

ROWS = list(rows_in(json.loads(RESULT.read_text())))


def test_the_experiment_makes_every_recorded_point() -> None:
    recorded = {(r["pattern"], bool(r["yields"]), r["warps_per_scheduler"]) for r in ROWS}
    assert recorded == set(points())
    assert len(ROWS) == len(recorded) == 3186


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


def test_the_rule_predicts_a_sample_of_the_measured_patterns() -> None:
    """All of them take a minute: `python benchmarks/port_rule.py`."""
    alone = [r for r in ROWS if r["warps_per_scheduler"] == 1 and not r["yields"]]
    draw = random.Random(5)
    sample = draw.sample(alone, 60) + [r for r in alone if r["pattern"].startswith("a const")]
    sample += [r for r in alone if r["pattern"] == NOTHING]
    errors = [error for kind in compare(sample).values() for error, _ in kind]
    # The loop's own time, told by the pattern that reads nothing, is some cycles less in others.
    assert statistics.median(map(abs, errors)) < 0.01
    assert sum(abs(error) < 0.02 for error in errors) >= len(errors) - 1


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
