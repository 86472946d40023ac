"""docs/ladder.md is true: its tables are drawn from results, its links and commands exist."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

from tilewright.bench.ladder.rungs import RUNGS
from tilewright.bench.ladder.tensor.rungs import TENSOR_RUNGS
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
    for kind in (draw.SIMT, draw.TENSOR):
        text = kind.page.read_text()
        assert draw.page_with(text, draw.tables(kind)) == text


def test_the_tensor_ladder_becomes_tables_and_a_figure(draw, tmp_path, monkeypatch):
    out = tmp_path / "device" / "ladder_tensor.json"
    out.parent.mkdir()
    command = ["ladder", "--kind", "tensor", "--size", "16", "--rounds", "1", "-o", str(out)]
    assert run(command) == 0
    monkeypatch.setattr(draw, "RESULTS", tmp_path)
    text = draw.tables(draw.TENSOR)
    assert "BF16 GEMM, C = A B^T in FP32 16x16x16, row-major" in text
    assert text.count("has no wgmma") == len(TENSOR_RUNGS) + 1
    assert len({line.count("|") for line in text.splitlines() if line.startswith("| ")}) == 1
    pytest.importorskip("matplotlib")
    draw.figure(tmp_path / "t.svg", draw.documents(draw.TENSOR)[0], draw.TENSOR.title)
    assert "tensor ladder" in (tmp_path / "t.svg").read_text()


def test_every_rung_of_the_tensor_ladder_is_explained():
    page = ROOT / "docs" / "tensor_ladder.md"
    text = page.read_text()
    for one in TENSOR_RUNGS:
        place = f"../src/tilewright/bench/ladder/kernels/tensor/{one.name}.cu"
        assert f"| [{one.name}]({place}) |" in text
    for link in re.findall(r"\]\((\.\./[^)]+)\)", text):
        assert (page.parent / link).exists(), link


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


def test_what_the_page_says_of_the_h100_is_so():
    """The statements under "What it says", against the rates they speak of."""
    results = json.loads((ROOT / "benchmarks/results/h100/ladder.json").read_text())["devices"][0]
    small, *large = ({one["name"]: one for one in result["rungs"]} for result in results["results"])
    names = [one.name for one in RUNGS] + ["v8_tuned"]
    for climb in large:
        rates = [climb[name]["flops_per_second"] for name in names]
        assert rates == sorted(rates)
        assert climb["v6_warp_tile"]["percent_of_library"] >= 80
    assert [climb["v8_tuned"]["percent_of_library"] > 100 for climb in large] == [True, False]
    last = ("v6_warp_tile", "v7_async")
    assert (
        max(small[name]["flops_per_second"] for name in last)
        < (small["v5_vectors"]["flops_per_second"])
    )
    blocks = {(small[name]["config"]["block_m"], small[name]["config"]["block_n"]) for name in last}
    assert blocks == {(128, 128)}
    assert "64 of them" in PAGE.read_text()
