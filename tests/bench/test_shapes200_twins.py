"""Which problems and which twins of a choice the race of random shapes times."""

from __future__ import annotations

import json
import sys

import pytest

from tests.library.test_shipped import device, script
from tilewright.problem import Problem


@pytest.fixture
def shapes200():
    before = set(sys.modules)
    yield script("shapes200")
    for name in set(sys.modules) - before:
        if name.split(".")[0] == "hopper":
            del sys.modules[name]


def test_an_earlier_run_says_what_was_slow(shapes200, tmp_path):
    """Below a ratio, or without one: what failed may run now."""
    sizes = {"kind": "shape", "trans": "NT", "n": 65, "k": 66}
    rows = [{**sizes, "m": m, "ratio": ratio} for m, ratio in ((70, 0.5), (71, 0.94), (72, 0.95))]
    rows.append({**sizes, "kind": "cliff", "m": 73, "reason": "no memory"})
    path = tmp_path / "earlier.json"
    path.write_text(json.dumps({"rows": rows}))
    found = shapes200.slow(path, 0.95)
    assert [kind for kind, _ in found] == ["shape", "shape", "cliff"]
    assert [one.m for _, one in found] == [70, 71, 73]
    assert found[0][1] == Problem(70, 65, 66, "s", "N", "T")


def test_a_choice_is_timed_beside_what_it_was_before_each_fit(shapes200):
    """Staged and not, in one run; configs that are the same are timed once."""

    def twins(*sizes: int) -> dict[str, set[str]]:
        found = shapes200.chosen(device(), Problem(*sizes, "s", "N", "N"))
        ours = set(found["tilewright"].config)
        return {name: ours - set(one.config) for name, one in found.items()}

    assert twins(4096, 4096, 64) == {"tilewright": set()}
    alone = shapes200.chosen(device(), Problem(5017, 822, 156, "s", "N", "N"), alone=True)
    assert set(alone) == {"tilewright"}
    both = twins(5017, 822, 156)
    assert both["unstaged"] == {"staged"}
    assert both["unfitted"] >= {"staged", "narrow"}
    assert twins(1021, 1024, 4096) == {"tilewright": set(), "unfitted": {"narrow"}}


def test_the_table_tells_twins_apart(shapes200, capsys):
    rates = {"tilewright": 20.0, "cublas": 10.0, "unstaged": 16.0}
    row = {
        "kind": "shape", "trans": "NN", "m": 5017, "n": 822, "k": 156, "ratio": 2.0,
        "tflops": rates,
        "errors": {name: {"eta": 1e-7, "frobenius": 1e-7} for name in rates},
    }  # fmt: skip
    shapes200.lines([row, {**row, "tflops": {"tilewright": 1.0, "cublas": 1.0}}])
    shapes200.table([row])
    said = capsys.readouterr().out
    assert "NN  5017   822   156  2.000  unstaged 1.600" in said
    assert "times the rate of unstaged, 1 rows: 1.250, at worst 1.250" in said
