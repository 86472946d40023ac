"""Which kernels of random shapes are rescheduled, where they are timed, which of them serve."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import unscheduled
from tilewright.stencil.schedule import with_unproved

ROOT = Path(__file__).parents[2]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark, on an H100 where every level is proved, with few shapes."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    module: Any = importlib.import_module("schedule_fitted")
    known = module.device()
    monkeypatch.setattr(module, "device", lambda: with_unproved(known))
    monkeypatch.setattr(module, "DRAWN", 90)
    return module


def test_a_kernel_is_timed_at_shapes_that_it_serves(made: Any) -> None:
    rows = made.picked("c", 10)
    assert len(rows) == 10
    assert [row["weight"] for row in rows] == sorted((row["weight"] for row in rows), reverse=True)
    for row in rows:
        config = Config(row["stencil"], row["config"])
        assert config["schedule"] == made.LEVEL
        for name, staged in (("shapes", 0), ("staged", 1)):
            for shape in row[name]:
                fits = made.FAMILY.fitted(unscheduled(config), Problem(*shape, "c", *row["trans"]))
                assert fits.get("staged", 0) == staged
                if not staged:
                    assert fits == unscheduled(config)
    assert {row["trans"] for row in made.picked("c", 1000)} == set(made.cases_of("c"))


def test_its_shapes_are_from_short_to_long(made: Any) -> None:
    of = [made.Served(float(ns), Problem(ns, 1, 1, "s"), False) for ns in (9, 1, 5, 7, 3, 11)]
    assert made.some(of) == [[3, 1, 1], [7, 1, 1], [11, 1, 1]]
    assert made.some(of[:1]) == [[9, 1, 1]]
    assert made.some([]) == []


def test_what_was_won_is_told_by_precision(made: Any) -> None:
    row = {
        "precision": "c", "status": "same", "weight": 1.0, "ns": {"9x9x9": [[100], [90]]},
        "ns_staged": {"9x9x149": [[100], [120]], "9x9x150": [[100], [95]]},
    }  # fmt: skip
    told = list(made.summary([row, {**row, "weight": 3.0, "ns": {"9x9x9": [[100], [100]]}}]))
    assert len(told) == 3
    assert "2 proved, 2 timed: saved 5.0% in the median" in told[0]
    assert "0.0% at least, 2.5% by what they serve; 1 serve" in told[0]
    assert "k below 150: 2 shapes, saved -20.0%" in told[1]
    assert "k from 150: 2 shapes, saved 5.0%" in told[2]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--pick", "0"), "give 1 or more"),
        (("--table",), "cannot be read: No such file or directory; --pick makes one"),
    ],
)
def test_a_wrong_argument_is_a_line(
    made: Any, monkeypatch: Any, capsys: Any, tmp_path: Path, words: Any, says: str
) -> None:
    command = ["schedule_fitted.py", *words, "--json", str(tmp_path / "none.json")]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit):
        made.main()
    assert says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("row", "serves"),
    [
        ({"status": "same", "ns": {"9x9x9": [[100, 100], [95, 96]]}}, True),
        ({"status": "same", "ns": {"9x9x9": [[100], [95]], "9x9x8": [[100], [110]]}}, False),
        ({"status": "wrong", "ns": {"9x9x9": [[100, 100], [95, 96]]}}, False),
        ({"status": "same", "ns": {}}, False),
        ({"status": "late"}, False),
    ],
    ids=["faster", "slower in the mean", "other bits", "not timed", "did not run"],
)
@pytest.mark.usefixtures("made")
def test_what_serves_was_right_and_faster(row: Any, serves: bool) -> None:
    ship = sys.modules["ship"]
    assert ship.saves(row) is serves
    row |= {"precision": "c", "level": "walked", "trans": "NT", "stencil": "simt_async"}
    found = list(ship.faster_rows({"rows": [row | {"config": {"schedule": 5}}]}))
    assert len(found) == serves
    if serves:
        assert found[0]["raced"] == [[9, 9, 9, 96, 100]]
