"""A measurement refuses what nothing could have measured."""

import math
from dataclasses import replace

import pytest

from tests.tuning.measurement_examples import example
from tilewright.problem import Problem
from tilewright.space.config import Config
from tilewright.tuning.measurement import DETAIL_LIMIT, Status


def test_the_median_does_not_mind_the_order():
    measured = example(size=100, times=(3000, 1000, 2000))
    assert measured.median_ns == 2000
    assert measured.flops_per_second == pytest.approx(2e6 / 2e-6)


def test_without_times_a_measurement_sorts_last():
    failed = example(status="crash")
    assert failed.median_ns == math.inf
    assert failed.flops_per_second == 0


def test_what_is_not_a_number_is_infinitely_wrong():
    assert example(status="wrong-result", error=math.nan).error == math.inf


def test_a_reason_is_one_line_and_never_empty():
    assert example(status="crash", reason=" a\nb\t c ").reason == "a b c"
    assert example(status="crash", reason="").reason == "crash"


def test_the_middle_of_a_long_log_is_cut():
    log = example(status="compile-error", detail="head" + "x" * 10**6 + "tail").detail
    assert len(log) <= DETAIL_LIMIT
    assert log.startswith("head")
    assert log.endswith("tail")
    assert "left out" in log


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"status": "fine"}, "status"),
        ({"stage": "later"}, "stage"),
        ({"times_ns": (0,)}, "times_ns"),
        ({"times_ns": (2**63,)}, "times_ns"),
        ({"error": -1.0}, "error"),
        ({"compile_seconds": math.inf}, "compile_seconds"),
        ({"created": "2026-11-20 10:00"}, "created"),
        ({"created": "yesterday"}, "created"),
        ({"device": ""}, "device"),
        ({"device_name": "two\nlines"}, "device_name"),
        ({"backend": "a b"}, "backend"),
        ({"stencil_version": 0}, "stencil_version"),
        ({"problem": Problem(2**63, 1, 1)}, "m does not fit"),
        ({"environment": {"clock": math.nan}}, "environment"),
        ({"environment": {"driver": object()}}, "environment"),
        ({"config": Config("portable", {"block_m": 2**63})}, "block_m"),
        # A macro's value must not smuggle in another option.
        ({"config": Config("portable", {"order": "rows -I/etc"})}, "order"),
        ({"config": Config("portable", {"a b": 1})}, "a b"),
        ({"config": Config("../portable", {})}, "stencil"),
    ],
)
def test_impossible_values_are_refused_by_name(changes, names):
    with pytest.raises(ValueError, match=names) as refused:
        example(**changes)
    assert "\n" not in str(refused.value)


def test_statuses_are_the_ones_that_are_promised():
    assert set(Status) == {
        "ok",
        "compile-error",
        "wrong-result",
        "crash",
        "timeout",
        "out-of-memory",
        "launch-error",
    }
    assert replace(example(), status="crash").status is Status.CRASH
