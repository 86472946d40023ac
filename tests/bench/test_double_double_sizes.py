"""Which sizes and configs double_double.py looks at, and what is expected of them; no GPU."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.library.waves import Timed
from tilewright.stencil import stencil

ROOT = Path(__file__).parents[2]
H100 = replace(architecture_spec("sm_90a"), name="NVIDIA H100 80GB HBM3", multiprocessors=132)
NAMES = ("double_double_predict", "double_double_scan", "double_double_candidates")


@pytest.fixture
def modules(monkeypatch):
    """The scripts beside the benchmarks, imported as they import one another."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield [__import__(name) for name in NAMES]
    for name in NAMES:
        del sys.modules[name]


@pytest.fixture
def document(modules):
    return json.loads(modules[0].TIMES.read_text())


def test_times_of_shares_carry_over_from_size_to_size(modules, document):
    """Within 5 %, all but a few within 3, which ranks candidates between the sizes timed."""
    predict = modules[0]
    for letter in "ef":
        off = predict.carried(document, predict.variant_of(letter, "NN"), H100)
        shares = [one for kind, found in off.items() if "share" in kind for one in found]
        assert len(shares) > 3
        assert max(map(abs, shares)) < 0.05
        assert sum(abs(share) < 0.03 for share in shares) > 0.9 * len(shares)


def test_a_size_beside_a_multiple_pays_for_its_edges(modules, document):
    predict = modules[0]
    variant = predict.variant_of("e", "TT")
    timed = predict.timed_of(document, variant)
    least, worst = (
        predict.expected(timed, predict.square(n, variant), H100, 132) for n in (1024, 1025)
    )
    assert (least.edges, least.remainder) == (1.0, 1.0)
    assert worst.edges == pytest.approx((33 * 32 / 1025) ** 2)
    assert 0.9 < worst.rate / least.rate < 0.96
    assert 0.99 < worst.done / least.done < 1.02


def test_a_scan_has_the_worst_the_best_and_others(modules, document):
    predict, scan, _ = modules
    variants = [predict.variant_of("f", trans) for trans in ("NN", "TN")]
    rows = document | {"scan": []}  # as before its own scan, whose sizes are not taken again
    timed = {variant: predict.timed_of(rows, variant) for variant in variants}
    sizes = scan.sizes_to_scan(timed, H100, 1024, 8192, 12)
    again = {variant: predict.timed_of(document, variant) for variant in variants}
    others = scan.sizes_to_scan(again, H100, 1024, 8192, 12)
    assert len(others) == 12
    assert not {size.n for one in again.values() for x in one for size in x.ns} & {*others}
    assert sizes == scan.sizes_to_scan(timed, H100, 1024, 8192, 12)
    assert len(set(sizes)) == len(sizes) == 12
    assert sizes[0] == 1025  # the slowest, drawn from all
    assert all(1024 < n < 8192 for n in sizes)
    assert sizes[1] % 32 == 0  # the fastest: whole blocks
    rates = [
        predict.expected(rows, predict.square(n, variant), H100, 132).rate
        for variant, rows in timed.items()
        for n in sizes[:2]
    ]
    assert rates[0] < rates[1]
    assert rates[2] < rates[3]


def test_a_scan_of_what_was_not_timed_has_sizes_too(modules):
    """Where the time was up before any candidate ran, there is nothing to expect."""
    sizes = modules[1].sizes_to_scan({}, H100, 64, 128, 5)
    assert len(sizes) == 5
    assert all(64 <= n <= 128 for n in sizes)


def test_a_table_says_how_flat_each_case_is(modules, capsys):
    rows = [{"precision": "e", "trans": "NN", "n": n, "flops_per_second": 1e12} for n in (8, 16)]
    scanned = [
        {"precision": "e", "trans": "NN", "n": 9, "flops_per_second": 0.9e12,
         "served_flops_per_second": 0.8e12},
        {"precision": "e", "trans": "NN", "n": 12, "reason": "no candidate ran"},
    ]  # fmt: skip
    modules[1].scan_table(rows, scanned)
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("e NN best     3 sizes, 900.0 GFLOP/s at 9 to 1000.0 at")
    assert said[-1] == "e best, every case scanned: flat within 10.0%"


class Live:
    """As much of a device as choosing candidates wants."""

    spec, fingerprint = H100, ""


@pytest.mark.parametrize("trans", ["NN", "TN"])
def test_small_blocks_that_share_are_tried_first(modules, trans):
    predict, _, candidates = modules
    family, variant = stencil("simt_async"), predict.variant_of("f", trans)
    found = candidates.likely(Live(), family, variant, candidates.FEW, 0)
    space = family.space(variant, H100)
    assert all(one in space for one in found)
    assert found[0]["stream_k"] == 1
    assert (found[0]["block_m"], found[0]["block_n"], found[0]["block_k"]) == (32, 32, 8)
    assert "persistent" not in found[1]
    # What serves untuned is always timed.
    assert family.default(variant, H100) in found
    assert {one.get("stream_k", 0) for one in found} == {0, 1, 2}


def test_a_rate_needs_no_more_than_one_time(modules):
    """A config timed at one size is carried from there."""
    predict = modules[0]
    variant = predict.variant_of("e", "NN")
    config = stencil("simt_async").default(variant, H100)
    one = Timed(config, {predict.square(2048, variant): 1.2e7})
    found = predict.expected([one], predict.square(2048, variant), H100, 132)
    assert found.rate == pytest.approx(2 * 2048**3 / 1.2e7 * 1e9)
