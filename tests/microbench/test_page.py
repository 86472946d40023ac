"""docs/microbenchmarks.md says what the committed measurement says."""

from __future__ import annotations

import json

import pytest
from benchmarks.microbench_page import COPIES, PAGE, RESULT, page_with
from benchmarks.port_rule import page_with as with_table

DOCUMENT, OF_COPIES = (json.loads(path.read_text()) for path in (RESULT, COPIES))


def test_tables_are_what_the_measurement_says() -> None:
    text = PAGE.read_text()
    for document in (DOCUMENT, OF_COPIES):
        assert page_with(text, document) == text


def test_another_measurement_changes_them() -> None:
    other = json.loads(json.dumps(DOCUMENT))
    for row in other["experiments"]["rates"]["rows"]:
        row["multiply_adds_per_cycle"] *= 2
    changed = page_with(PAGE.read_text(), other)
    assert "| 200.0% |" in changed
    assert "| 200.0% |" not in PAGE.read_text()


def test_no_point_of_the_committed_measurement_failed() -> None:
    experiments = DOCUMENT["experiments"]
    assert set(experiments) == {"peak", "bandwidth", "link", "power", "mixes", "ports", "rates"}
    rows = [row for one in experiments.values() for row in one["rows"]]
    assert not [row for row in rows if "error" in row]
    assert f"{len(rows)} rows and no failed one" in PAGE.read_text()
    assert not [row for row in OF_COPIES["experiments"]["copies"]["rows"] if "error" in row]


def test_a_kernel_counted_the_clock_that_its_sensor_read() -> None:
    """On the device, as `test_power` asks of any GPU."""
    whole = [r for r in DOCUMENT["experiments"]["power"]["rows"] if "at_seconds" not in r]
    counted = [r for r in whole if "counted_clock_hz" in r]
    assert len(counted) == 2
    for row in counted:
        assert row["counted_clock_hz"] == pytest.approx(row["clock_hz"], rel=0.005)


def test_the_port_rules_table_is_put_between_its_marks() -> None:
    page = "a\n<!-- port_rule: begin -->\n```\nold\n```\n<!-- port_rule: end -->\nb\n"
    assert with_table(page, "new 50 %") == page.replace("old", "new 50 %")
