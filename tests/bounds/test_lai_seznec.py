"""Lai & Seznec's bound against the numbers that their paper prints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.bounds import lai_seznec
from tilewright.hardware.catalogue import catalogue_device
from tilewright.hardware.quantity import Mix
from tilewright.precision import precision
from tilewright.problem import Problem
from tilewright.serve.bound import bound

S, D = precision("s"), precision("d")
GTX580, GTX680 = catalogue_device("gtx580"), catalogue_device("gtx680")


def sgemm(device):
    return bound(Problem(4800, 4800, 4800, "s", "N", "T"), device)


@pytest.mark.parametrize(
    ("device", "gigaflops"), [("gtx280", 933), ("gtx580", 1581), ("gtx680", 3090)]
)
def test_table_1_peaks(device, gigaflops):
    peak = sgemm(device).term("arithmetic peak").value
    assert peak == pytest.approx(gigaflops * 1e9, rel=1e-3)


def test_63_registers_as_section_4_1_lists_them():
    prefetch, a_and_b, pointers, end, store, load = 12, 6 + 2, 2, 1, 2, 2
    listed = 36 + prefetch + a_and_b + pointers + end + store + load
    assert listed == 63
    assert lai_seznec.tight_registers(6, 256, 16, 64, S, async_copy=False) == listed
    # Asynchronous copies need no staging registers.
    assert lai_seznec.tight_registers(6, 256, 16, 64, S, async_copy=True) == listed - prefetch
    # An element of twice the size doubles all but the indices.
    assert (
        lai_seznec.tight_registers(4, 256, 4, 64, D, async_copy=False) == 2 * (16 + 2 + 4 + 1) + 7
    )


def test_the_search_chooses_the_papers_blocking():
    best = lai_seznec.best_blocking(GTX580, S, 1581e9)
    assert (best.b_r, best.t_b, best.stride, best.registers) == (6, 256, 16, 63)
    assert best.width_bits == 64
    assert best.b_sh == 96
    assert best.blocks * best.t_b == 512  # "can support up to 512 threads"


def test_every_blocking_satisfies_the_equations():
    found = list(lai_seznec.blockings(GTX580, S, 1581e9))
    assert len(found) > 100
    for b in found:
        side = round(b.t_b**0.5)
        assert side * side == b.t_b
        assert b.blocks * b.t_b >= lai_seznec.least_threads(GTX580)  # 1
        assert b.registers <= 63  # 2
        assert b.blocks * b.t_b * b.registers <= 32768  # 3
        assert b.b_r**2 + b.b_r + 1 < 63  # 4
        assert side * b.b_r * b.stride % b.t_b == 0  # 5
        assert b.blocks * 2 * side * b.b_r * b.stride * 4 <= 49152  # 6


@pytest.mark.parametrize(
    ("width", "percent", "ratio", "rate"),
    [(32, 75.0, 3, 31.3), (64, 85.7, 6, 30.4), (128, 92.3, 12, 24.5)],
)
def test_shares_and_throughputs_of_register_blocking_6(width, percent, ratio, rate):
    share = lai_seznec.ffma_share(6, width, S)
    assert 100 * share == pytest.approx(percent, abs=0.05)
    assert share / (1 - share) == pytest.approx(ratio)
    assert lai_seznec.throughput(GTX580, ratio, width)[0] == pytest.approx(rate)


def best_of_width(width):
    found = [b for b in lai_seznec.blockings(GTX580, S, 1.0) if (b.b_r, b.width_bits) == (6, width)]
    return max(found, key=lambda b: b.p_sm)


def test_the_papers_bounds():
    half, wide = best_of_width(64), best_of_width(128)
    # "About 85 %" takes 30.4 of 32 as full throughput.
    assert half.share == pytest.approx(0.857, abs=5e-4)
    assert half.p_sm == pytest.approx(0.857 * 30.4 / 32, abs=5e-4)
    # "Around 76.5 % of SMs' throughput" with LDS.128, of which 12 in 13 are multiply-adds.
    assert wide.throughput_share == pytest.approx(0.765, abs=1e-3)
    assert wide.p_sm == pytest.approx(0.765 * 12 / 13, abs=1e-3)


def test_gtx580_is_bound_by_its_multiprocessors_not_by_memory():
    found = sgemm("gtx580")
    peak = found.term("arithmetic peak").value
    assert found.limiting.name == "multiprocessor (eq. 11)"
    assert found.limiting.resource == "issue slots"
    assert found.limit < found.term("memory (eq. 10)").value
    assert 0.80 < found.limit / peak < 0.86
    # What the paper measured, at 1566 MHz.
    assert found.limit > 1173e9 / 1566 * 1544


def test_gtx680_is_bound_by_its_load_store_units_to_half_of_its_peak():
    found = sgemm("gtx680")
    assert found.limiting.resource == "load/store units"
    assert found.limit / found.term("arithmetic peak").value <= 0.5 * (1 + 1e-9)


def test_the_paper_leaves_a_number_of_the_gtx280_open():
    found = sgemm("gtx280")
    assert "shared_load_lanes" in found.missing["multiprocessor (eq. 11)"]
    assert found.limit == found.term("arithmetic peak").value


def test_the_table_decides_the_bound():
    worse = [replace(m, throughput=m.throughput / 2) for m in GTX580.mixes]
    slow = sgemm(replace(GTX580, mixes=tuple(worse)))
    assert slow.limit == pytest.approx(sgemm("gtx580").limit / 2)
    assert sgemm(replace(GTX580, mixes=())).limit > sgemm("gtx580").limit


def test_memory_bound_counts_elements():
    # Equation 10 for 4-byte elements and B_Sh = 96: 96 / 4 FLOP a byte.
    assert lai_seznec.memory_bound(192.4e9, 96, S) == pytest.approx(192.4e9 * 24)
    assert lai_seznec.memory_bound(192.4e9, 96, D) == pytest.approx(192.4e9 * 12)


def test_a_measured_table_bounds_a_modern_device_too():
    h100 = catalogue_device("h100")
    problem = Problem(4096, 4096, 4096, "s")
    mixes = (Mix(128, 28, 64.0, "measured", "here"),)  # half of what 128 issue slots allow
    found = bound(problem, replace(h100, mixes=mixes))
    assert found.limiting.name == "tabulated mix (eq. 11)"
    assert found.limit == pytest.approx(
        bound(problem, h100).term("arithmetic peak").value / 2, rel=0.05
    )
