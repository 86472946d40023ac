"""Few repetitions first, more for those near the best."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.tuning.measure import REPETITIONS, repeat


def runs(ns: int, best_ns: int | None) -> int:
    """Return how many times count of a kernel that always takes as long."""
    workload: Any = SimpleNamespace(run=lambda *_: ns, first_run=lambda *_: ns)
    what: Any = None
    return len(repeat(workload, what, what, what, best_ns=best_ns))


@pytest.mark.parametrize(
    ("ns", "counted"),
    [(2500, 1), (1900, 3), (1100, 5), (1040, REPETITIONS), (900, REPETITIONS)],
)
def test_a_candidate_is_run_the_more_often_the_nearer_it_is_to_the_best(ns, counted):
    assert runs(ns, 1000) == counted
    assert runs(ns, None) == REPETITIONS


def test_what_takes_seconds_is_run_as_often_as_three_of_them_allow():
    assert runs(4 * 10**9, None) == 1
    assert runs(10**9, None) == 3
