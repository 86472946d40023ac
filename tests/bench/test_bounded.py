"""Each result stands beside what the device could do, or beside why nobody knows that."""

from __future__ import annotations

from tilewright.bench.bounded import bound_of, bound_record
from tilewright.problem import Problem


def test_a_bound_is_named_with_its_resource(live):
    limit = bound_record(bound_of(live, Problem(256, 256, 256, "s")))
    assert limit["flops_per_second"] > 0
    assert limit["limiting"]
    assert limit["resource"]


def test_a_double_double_product_is_bound_by_its_sequence(live):
    double = bound_record(bound_of(live, Problem(4096, 4096, 4096, "d")))
    accurate, fast = (bound_record(bound_of(live, Problem(4096, 4096, 4096, x))) for x in "ef")
    rates = [x["flops_per_second"] for x in (double, fast, accurate)]
    assert rates == sorted(rates, reverse=True)
    if live.spec.kind == "cpu":  # a GPU's last wave of tiles may take longer
        assert "sequence chained" in accurate["resource"]


def test_what_has_no_bound_says_why(live):
    told = bound_record(bound_of(live, Problem(0, 8, 8, "s")))
    assert set(told) == {"missing"}
    assert "m=0" in told["missing"] or "empty" in told["missing"]
