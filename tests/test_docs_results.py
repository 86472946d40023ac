"""Tables that pages take from committed results are what the files say, and so is the prose."""

from __future__ import annotations

import importlib.util
import json
import re
import statistics
import sys
from pathlib import Path

import jsonschema
import pytest

from tests.test_timeline import SCHEMA
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.precision import precision
from tilewright.problem import Trans
from tilewright.stencil import Variant, stencils_for

ROOT = Path(__file__).parents[1]
DOCS, RESULTS = ROOT / "docs", ROOT / "benchmarks" / "results" / "h100"


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(ROOT / "benchmarks"))  # as when it is run: it asks its neighbours
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module


@pytest.fixture(scope="module")
def draw():
    return loaded("draw_pages")


@pytest.fixture(scope="module")
def tensor():
    return loaded("draw_tensor")


@pytest.mark.parametrize("script", ["draw_pages", "draw_tensor"])
def test_tables_are_what_the_results_say(draw, script):
    for name, parts in loaded(script).PARTS.items():
        text = (DOCS / name).read_text()
        for mark, drawn in parts.items():
            assert draw.page_with(text, mark, drawn()) == text, (name, mark)


def test_the_trace_shown_is_one_that_perfetto_reads():
    jsonschema.validate(json.loads((RESULTS / "s4096_trace.json").read_text()), SCHEMA)


def test_single_precision_from_parts_is_as_fast_as_its_page_says(tensor):
    """Every bar, with the guard and without; the ratios in the page's first part."""
    rows = {key: row for key, row in tensor.races().items() if key[0] == "fp16x3"}
    assert len(rows) == 4 * 5
    assert all(tensor.is_met(row, ours) for row in rows.values() for ours in tensor.OURS)
    text = (DOCS / "fp32_accurate.md").read_text()
    least = {
        size: min(
            row["tflops"]["guarded"] / row["tflops"]["cublas"]
            for key, row in rows.items()
            if key[2] == size
        )
        for size in (1024, 2048, 4096, 8192)
    }
    said = re.search(r"is (.+?) times as fast .*? at 1024, (.+?) at 2048, (.+?) at 4096 and"
                     r" (.+?) to", text)  # fmt: skip
    assert [f"{one:.1f}" for one in least.values()] == list(said.groups())


def test_errors_of_the_guarded_call_are_no_worse_than_cublas(tensor):
    for row in tensor.log("accuracy"):
        ours, theirs = row["errors"]["guarded"], row["errors"]["sgemm"]
        assert ours["eta"] <= theirs["eta"]
        assert ours["median_relative"] <= theirs["median_relative"]


def double_double(letter):
    document = json.loads((RESULTS / "double_double.json").read_text())
    return [row for row in document["rows"] if row["precision"] == letter]


@pytest.mark.parametrize(("letter", "least"), [("e", 1.0e12), ("f", 2.2e12)])
def test_double_double_reached_what_its_page_says(letter, least):
    """The goals named below the table, and flatness: accurate from 1024 on, fast from 2048 on."""
    rows = double_double(letter)
    cases = {(row["trans"], row["n"]): row["flops_per_second"] for row in rows}
    assert len(cases) == 4 * 4
    assert min(cases.values()) >= least
    for trans in ("NN", "NT", "TN", "TT"):
        large = [cases[trans, n] for n in (1024, 2048, 4096, 8192)][letter == "f" :]
        assert min(large) >= 0.95 * max(large)


def test_only_fast_double_double_is_four_times_mplapack(draw):
    least = {
        letter: min(row["flops_per_second"] for row in double_double(letter)) for letter in "ef"
    }
    assert least["f"] >= 4 * draw.MPLAPACK_FLOPS > least["e"]


def test_only_accurate_double_double_keeps_errors_below_2_to_the_minus_100():
    document = json.loads((RESULTS / "double_double.json").read_text())
    worst = dict.fromkeys("ef", 0.0)
    for one in document["accuracy"]:
        letter = one["variant"][0]
        worst[letter] = max(worst[letter], one["eta_phi_0"], one["eta_phi_2"])
    assert worst["e"] < 2.0**-100 < worst["f"] < 2.0**-98


def test_double_double_on_a_cpu_is_as_fast_as_its_page_says():
    path = ROOT / "benchmarks/results/cpu/double_double_512.json"
    text = (DOCS / "double_double.md").read_text()
    rows = json.loads(path.read_text())["devices"][0]["results"]
    for choose in (statistics.median, min):
        times = [{name: choose(found) for name, found in row["seconds"].items()} for row in rows]
        accurate, fast = (one["flint"] / one["tilewright"] for one in times)
        assert re.search(f"{accurate:.1f} .*{fast:.1f} times", text)


def test_untuned_double_double_is_near_what_won_at_1024():
    """As near as the page says: it was timed there, too."""
    device, behind = architecture_spec("sm_90a"), []
    for row in double_double("e") + double_double("f"):
        variant = Variant(precision(row["precision"]), *map(Trans, row["trans"]))
        family = stencils_for(device, variant.precision)[0]
        assert row["stencil"] == family.name == "simt_async"
        if row["n"] == 1024:
            untuned = row["ns"][family.default(variant, device).id]
            behind.append(untuned / min(row["ns"].values()) - 1)
    text = (DOCS / "double_double.md").read_text()
    assert f"within {100 * max(behind):.1f} % of the best at 1024" in text
