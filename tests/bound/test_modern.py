"""Bounds of later devices: never below what was measured, and for stated reasons."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from tilewright.bounds import Compiled, bound, modern
from tilewright.bounds.units import ARITHMETIC
from tilewright.hardware import catalogue_device
from tilewright.problem import Problem

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "h100"
H100 = catalogue_device("h100")


def measured(value):
    """Yield (problem, peer, FLOP/s) of every GEMM in a results file, however deep."""
    if isinstance(value, list):
        for one in value:
            yield from measured(one)
    elif isinstance(value, dict):
        if {"precision", "trans", "size", "flops_per_second"} <= set(value):
            size = value["size"] if isinstance(value["size"], list) else [value["size"]] * 3
            problem = Problem(*size, value["precision"], *value["trans"])
            for peer, rate in value["flops_per_second"].items():
                yield problem, peer, rate
        else:
            yield from measured(list(value.values()))


def committed():
    return [
        (path.name, *row)
        for path in sorted(RESULTS.glob("*.json"))
        for row in measured(json.loads(path.read_text()))
    ]


def test_no_committed_measurement_exceeds_the_bound():
    found = committed()
    assert len(found) >= 8  # SGEMM in four transpose cases, two peers
    for name, problem, peer, rate in found:
        limit = bound(problem, H100, warm_cache=True).limit
        assert rate < limit, f"{name}: {peer} on {problem}"


def test_the_measurements_do_bind():
    # Ten percent fewer multiprocessors would be refuted by no file; half of them are.
    half = {
        **H100.quantities,
        "multiprocessors": replace(H100.quantities["multiprocessors"], value=66),
    }
    slow = replace(H100, quantities=half)
    assert any(r > bound(p, slow, warm_cache=True).limit for _, p, _, r in committed())


@pytest.mark.parametrize(
    ("letter", "peak"),
    [("s", 66.9), ("d", 66.9), ("c", 66.9), ("z", 66.9), ("e", 1.154), ("f", 2.77)],
)
def test_h100_bounds(letter, peak):
    found = bound(Problem(4096, 4096, 4096, letter), "h100")
    assert found.term("arithmetic peak").value == pytest.approx(peak * 1e12, rel=2e-3)
    assert 0.9 * peak * 1e12 < found.limit <= found.term("arithmetic peak").value
    assert found.missing.keys() == {"clock under the power limit", "shared cache (L2)"}


def test_issue_slots_bind_128_lanes_but_not_64():
    assert bound(Problem(4096, 4096, 4096, "s"), "h100").limiting.resource == "issue slots"
    mixes = [t[3] for t in modern.tiles(catalogue_device("a100"), "fma_lanes.s", 1, 1)]
    assert max(mixes) == 1  # half the issue slots are free there


def test_a_tile_by_hand():
    found = {
        (r, c): (share, mix) for r, c, share, mix, _ in modern.tiles(H100, "fma_lanes.s", 1, 1)
    }
    assert found[8, 8] == pytest.approx((64 / 68, 64 / 68))  # 2 + 2 loads of 128 bits
    assert found[8, 16] == pytest.approx((128 / 134, 128 / 134))
    assert (16, 16) not in found  # 256 accumulators
    for rows, columns in found:
        assert rows * columns + min(rows, columns) + 4 <= 255


def test_tail_wave_by_hand():
    problem = Problem(4096, 4096, 4096, "s")
    # 1024 blocks of 128 x 128 on 132 multiprocessors: the fullest takes 8.
    assert modern.tail_efficiency(problem, 132, 128, 128, 1) == pytest.approx(1024 / (8 * 132))
    # Halves in k: 2048 on 132, the fullest takes 16 of half the work.
    assert modern.tail_efficiency(problem, 132, 128, 128, 4) == pytest.approx(4096 / (32 * 132))
    assert modern.tail_efficiency(Problem(1, 1, 9, "s"), 132, 64, 64, 1) < 1e-5


def test_more_of_anything_never_lowers_a_bound():
    problem = Problem(1000, 3000, 500, "s")
    base = bound(problem, H100).limit
    for name in ("clock_hz", "memory_bytes_per_s", "issue_lanes", "max_registers_per_thread"):
        more = {**H100.quantities, name: replace(H100.quantities[name], value=H100.needs(name) * 2)}
        assert bound(problem, replace(H100, quantities=more)).limit >= base


@pytest.mark.parametrize("device", ["a100", "h100", "h200", "b200", "mi300x", "rtx4070"])
def test_odd_sizes_stay_below_the_peak(device):
    for m, n, k in product((1, 7, 4096), repeat=3):
        found = bound(Problem(m, n, k, "s"), device)
        assert 0 < found.limit <= found.term("arithmetic peak").value


def test_thin_products_are_bound_by_memory():
    thin = bound(Problem(8192, 1, 8192, "s"), "h100")
    assert thin.limiting.name == "device memory"
    # A is read once: 2 FLOP for 4 bytes, and little else.
    assert thin.limit == pytest.approx(3.352e12 / 2, rel=1e-3)
    assert bound(Problem(512, 1, 512, "s"), "h100", warm_cache=True).limit > thin.limit


def test_the_shared_cache_reads_thin_blocks_once():
    # 1 x n: one block as wide as registers hold reads A once, B once.
    thin = Problem(1, 4096, 4096, "s")
    once = (4096 + 4096**2) * 4
    assert modern.cache_rate(thin, 1e12, 256, 4) == pytest.approx(1e12 * thin.flops / once)


@pytest.mark.parametrize("arithmetic", [a for a in ARITHMETIC if a != "ieee"])
@pytest.mark.parametrize("device", ["a100", "h100", "h200", "b200", "mi300x", "rtx4070"])
def test_tensor_rates_are_data(device, arithmetic):
    problem = Problem(8192, 8192, 8192, "s")
    reduced, ieee = bound(problem, device, arithmetic=arithmetic), bound(problem, device)
    assert reduced.limit > ieee.limit or device == "rtx4070"
    with pytest.raises(ValueError, match=r"goes with precision s"):
        bound(Problem(8, 8, 8, "d"), device, arithmetic=arithmetic)


def test_published_tensor_peaks():
    problem = Problem(8192, 8192, 8192, "s")
    for arithmetic, teraflops in (("tf32", 156), ("fp16", 312), ("bf16", 312), ("int8", 624)):
        peak = bound(problem, "a100", arithmetic=arithmetic).term("arithmetic peak").value
        assert peak == pytest.approx(teraflops * 1e12, rel=2e-3)
    assert "tensor.fp16" in bound(problem, "gtx580", arithmetic="fp16").missing["arithmetic peak"]


def test_a_compiled_kernel_has_a_bound_of_its_own():
    problem = Problem(4096, 4096, 4096, "s")
    whole = bound(problem, "h100").term("arithmetic peak").value
    own = bound(problem, "h100", compiled=Compiled(useful_share=0.93, port_share=0.8))
    assert own.limiting.name == "register ports"
    assert own.limit == pytest.approx(0.8 * whole)
    with pytest.raises(ValueError, match=r"port_share=1\.5 is no share"):
        Compiled(port_share=1.5)


def test_transfer():
    problem = Problem(1024, 1024, 1024, "s")
    alone, summed = bound(problem, "h100"), bound(problem, "h100", transfer=True)
    hidden = bound(problem, "h100", transfer=True, overlap=True)
    assert summed.limiting.resource == hidden.limiting.resource == "host link"
    assert summed.limit < hidden.limit < alone.limit
    assert summed.limit == pytest.approx(
        problem.flops / (4 * 4 * 1024**2 / 64e9 + problem.flops / alone.limit)
    )
    assert (
        "link_bytes_per_s"
        in bound(problem, "gtx580", transfer=True).missing["host transfer (Nakasato eqs. 3-5)"]
    )
