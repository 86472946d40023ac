"""The README is true: its table is drawn from results, its Python runs, its commands exist."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from tilewright.cli.app import run

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
HEAD = README.partition("## ")[0]


def load_draw(name="draw"):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(ROOT / "benchmarks"))  # as when it is run: it asks its neighbours
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module


def test_table_is_what_the_results_say():
    draw = load_draw()
    assert draw.readme_with(README, draw.table()) == README


def test_the_range_in_the_first_sentences_is_that_of_the_races():
    ratios = [row["ratio"] for row in load_draw("draw_hopper").races().values()]
    assert f"{shares(ratios)} faster than cuBLAS" in HEAD


def test_what_the_first_sentences_say_of_doubles_is_what_the_races_say():
    draw = load_draw("draw_races")
    races = draw.races("d")
    large, short = (
        [row["ratio"] for (_, size), row in races.items() if (size >= 2048) is kind]
        for kind in (True, False)
    )
    assert f"DGEMM {shares(large)} from 2048 on, and {shares(short)} below" in HEAD
    single = [row["ratio"] for (_, size), row in draw.races("c").items() if size >= 2048]
    assert f"CGEMM {shares(single)} from 2048 on" in HEAD
    lasting = [row["ratio"] for row in draw.load("h100/sustained_z.json")["rows"]]
    assert f"ZGEMM {shares(lasting)} at the power limit" in HEAD
    turns = [row["ratio"] for row in draw.races("z").values()]
    assert f"{shares(turns)} where launches take turns" in HEAD


def shares(ratios):
    least, most = (round(100 * (ratio - 1)) for ratio in (min(ratios), max(ratios)))
    return f"{least} % to {most} %"


def test_the_page_on_hopper_is_what_the_results_say():
    draw, page = load_draw("draw_hopper"), (ROOT / "docs" / "hopper.md").read_text()
    assert draw.page_with(page, draw.text()) == page


def test_pages_have_the_tables_of_all_races():
    draw = load_draw("draw_hopper")
    for page, mark, drawn in draw.PARTS:
        text = page.read_text()
        assert draw.page_with_part(text, mark, drawn()) == text, (page.name, mark)


def test_what_pages_say_of_races_is_true():
    """Ranges that prose names, beside the tables that are drawn."""
    draw = load_draw("draw_races")
    for letter, page in (("c", "hopper"), ("d", "dgemm"), ("z", "dgemm")):
        ratios = [row["ratio"] for row in draw.races(letter).values()]
        least, most = (f"{ratio:.2f}" for ratio in (min(ratios), max(ratios)))
        assert f"{least} to {most}" in (ROOT / "docs" / "design.md").read_text()
        assert draw.race_line(letter) in (ROOT / "docs" / f"{page}.md").read_text()


def test_the_page_on_hopper_says_what_was_compiled():
    draw, page = load_draw("draw_static"), (ROOT / "docs" / "hopper.md").read_text()
    assert draw.page_with(page, draw.text()) == page


@pytest.mark.slow
def test_python_example_runs():
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL).group(1)
    exec(code.replace("60s", "6s").replace("1024", "128"), {})


def test_every_command_named_exists(capsys):
    for command in set(re.findall(r"`tilewright (\w+)", README)):
        assert run([command, "--help"]) == 0
    for command in ("list", "show", "export", "import", "prune", "reproduce"):
        assert run(["db", command, "--help"]) == 0
