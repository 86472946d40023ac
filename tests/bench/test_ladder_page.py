"""docs/ladder.md is true: its tables are drawn from results, its links and commands exist."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

from tilewright.bench.ladder.rungs import RUNGS
from tilewright.cli.app import run

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "ladder.md"


@pytest.fixture
def draw():
    spec = importlib.util.spec_from_file_location(
        "draw_ladder", ROOT / "benchmarks" / "draw_ladder.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_are_what_the_results_say(draw):
    text = PAGE.read_text()
    assert draw.page_with(text, draw.tables()) == text


def test_a_climb_becomes_tables_and_a_figure(draw, tmp_path, monkeypatch, capsys):
    out = tmp_path / "device" / "ladder.json"
    out.parent.mkdir()
    assert run(["ladder", "--size", "16,8x24x5", "--rounds", "1", "-o", str(out)]) == 0
    monkeypatch.setattr(draw, "RESULTS", tmp_path)
    text = draw.tables()
    rungs = json.loads(out.read_text())["devices"][0]["results"][1]["rungs"]
    assert "SGEMM NN 8x24x5, row-major" in text
    for one in rungs:
        assert text.count(f"| {one['name']} |") == 2
        if one["kernel_seconds"]:
            assert f"{one['kernel_seconds'] * 1e3:.3f} ms" in text
    assert len({line.count("|") for line in text.splitlines() if line.startswith("| ")}) == 1
    pytest.importorskip("matplotlib")
    draw.figure(tmp_path / "ladder.svg", draw.documents()[0])
    assert (tmp_path / "ladder.svg").read_text().lstrip().startswith("<?xml")


def test_every_rung_is_explained_and_every_link_leads_somewhere():
    text = PAGE.read_text()
    for one in RUNGS:
        assert f"[{one.name}](../src/tilewright/bench/ladder/{one.file})" in text
    for link in re.findall(r"\]\((\.\./[^)]+)\)", text):
        assert (PAGE.parent / link).exists(), link
