"""The kernel of benchmarks/figure1.py has the counts that the paper's formula says."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from tilewright.backend.cuda.compiler import nvrtc

ROOT = Path(__file__).parents[1]


def load():
    spec = importlib.util.spec_from_file_location("figure1", ROOT / "benchmarks" / "figure1.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(nvrtc() is None, reason="NVRTC is not here")
@pytest.mark.parametrize(("blocking", "bits"), [(5, 32), (7, 64), (6, 128)])
def test_counts_are_the_formulas(blocking: int, bits: int) -> None:
    figure1 = load()
    found = figure1.point(blocking, bits)
    loads = -(-2 * blocking * 32 // bits)
    assert found["ffma"] == figure1.STEPS * blocking**2
    assert found["shared_loads"] == found["wide_loads"] == figure1.STEPS * loads
    assert found["share_of_ffma_and_loads"] == pytest.approx(found["formula"])
    assert found["share_of_all"] < found["formula"]


def test_the_committed_points_are_the_figures() -> None:
    document = json.loads((ROOT / "benchmarks/results/sm_90a/figure1.json").read_text())
    places = {(one["blocking"], one["load_bits"]) for one in document["points"]}
    assert places == {(b, w) for b in range(1, 17) for w in (32, 64, 128)}
    for one in document["points"]:
        assert one["share_of_ffma_and_loads"] == pytest.approx(one["formula"])
