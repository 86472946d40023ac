"""docs/benchmarking.md is true: its commands run, its options are all there."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright.cli.app import run

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "benchmarking.md").read_text()
COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    for line in block.strip().splitlines()
]


@pytest.mark.slow
def test_every_command_shown_runs(tmp_path, monkeypatch, capsys):
    """In the order of the page: later ones go on with earlier ones' files."""
    monkeypatch.chdir(tmp_path)
    (shapes,) = re.findall(r"```csv\n(.*?)```", TEXT, re.DOTALL)
    Path("shapes.csv").write_text(shapes)
    for line in COMMANDS:
        program, *arguments = shlex.split(line)
        assert program == "tilewright"
        assert run(arguments) == 0, (line, capsys.readouterr().err)
    told = json.loads(Path("sweep.json").read_text())["devices"][0]["results"]
    assert [row["size"][0] for row in told] == [64, 128, 256, 96, 144, 216]
    assert Path("out.json").exists()


def test_the_options_listed_are_the_commands(capsys):
    listed = set(re.findall(r"--[a-z][a-z-]+", TEXT.split("**Sizes.**")[0]))
    assert run(["bench", "--help"]) == 0
    shown = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert listed == shown


def test_the_python_shown_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(code, {"tw": tw, "a": np.ones((4, 4)), "b": np.ones((4, 4))})
    names = {event["name"] for event in json.loads(Path("out.json").read_text())["traceEvents"]}
    assert {"my step", "launch", "gemm"} <= names


def test_the_cost_told_is_the_cost_measured():
    measured = json.loads((ROOT / "benchmarks/results/cpu/timeline_cost.json").read_text())
    assert f"costs {measured['least_ns']['off']:.0f} ns" in TEXT
    assert measured["met"]
