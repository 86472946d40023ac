"""The scheduler's page shows what its committed predictions say."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "scheduling.md"
RESULT = ROOT / "benchmarks" / "results" / "schedule_predicted.json"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    sys.path.insert(0, str(ROOT / "benchmarks"))  # as when it is run: it asks its neighbours
    try:
        import schedule
    finally:
        sys.path.pop(0)
    return schedule


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(RESULT.read_text())["rows"]
    return found


def test_the_page_has_the_table_of_the_file(script: ModuleType) -> None:
    text = PAGE.read_text()
    assert script.page_with(text, script.table(rows())) == text


def test_every_version_is_proved_and_every_step_is_there(script: ModuleType) -> None:
    assert {row["variant"] for row in rows()} == set(script.VARIANTS)
    for row in rows():
        assert row["proved_same"], row["reasons"]


def test_a_row_says_why_it_has_no_numbers(script: ModuleType) -> None:
    failed = {"trans": "NN", "variant": "all", "reason": "TimeoutError: late"}
    assert "late" in script.table([failed])


def test_a_measured_row_tells_gain_and_cublas(script: ModuleType) -> None:
    measured = {
        "compared": {"calm": 100, "beside another kernel": 50},
        "ns": {"4096": {"plain": [110], "scheduled": [100], "cublas": [105]}},
    }
    text = script.table([rows()[0] | {"measured": measured}])
    assert "same in 150, +10.0 % (1.050)" in text
