"""Nakasato's models against the numbers that his paper prints."""

from __future__ import annotations

import pytest

from tilewright.bounds import double_double, nakasato
from tilewright.hardware.catalogue import catalogue_device
from tilewright.precision import precision
from tilewright.problem import Problem
from tilewright.serve.bound import bound

CYPRESS = catalogue_device("hd5870")
S, D = precision("s"), precision("d")
AVAILABLE = 1.088e12  # of 20 texture cache units, section 3


def test_peaks():
    for letter, gigaflops in (("s", 2720), ("d", 544)):
        peak = bound(Problem(64, 64, 64, letter), CYPRESS).term("arithmetic peak").value
        assert peak == pytest.approx(gigaflops * 1e9)
    c2050 = [bound(Problem(64, 64, 64, p), "c2050").term("arithmetic peak").value for p in "sd"]
    assert c2050 == pytest.approx([1.03e12, 515e9], rel=1e-3)


def test_required_bandwidth():
    caches = CYPRESS.needs("cache_bytes_per_s") * CYPRESS.needs("multiprocessors")
    assert caches == pytest.approx(AVAILABLE)
    assert nakasato.required_bandwidth(544e9, 1, 8) == pytest.approx(4.352e12)
    assert nakasato.required_bandwidth(544e9, 4, 8) == pytest.approx(1.088e12)
    assert nakasato.required_bandwidth(2.72e12, 8, 4) == pytest.approx(1.36e12)
    assert nakasato.required_bandwidth(37.5e9, 1, 16) == pytest.approx(0.6e12)


@pytest.mark.parametrize("letter", "sdcz")
def test_attainable_is_required_bandwidth_turned_around(letter):
    p = precision(letter)
    rate = nakasato.attainable(1e12, 7, p.element_bytes, p.flops)
    assert nakasato.required_bandwidth(rate, 7, p.element_bytes, p.flops) == pytest.approx(1e12)


def test_required_bandwidth_at_every_level():
    cypress = bound(Problem(4096, 4096, 4096, "d"), CYPRESS)
    cache, memory = cypress.levels
    assert cache.available == pytest.approx(AVAILABLE)
    assert cache.required == pytest.approx(544e9 * 8 / cache.b)
    assert memory.available == 153.6e9
    # A, B, C in and C out for 2 N^3.
    assert memory.required == pytest.approx(544e9 * 32 * 4096**2 / (2 * 4096**3))
    fermi = bound(Problem(4800, 4800, 4800, "s"), "gtx580")
    assert [level.b for level in fermi.levels[:2]] == [6, 96]
    assert fermi.levels[1].required == pytest.approx(fermi.limit * 4 / 96)
    for letter in "sdcz":
        for level in bound(Problem(4096, 4096, 4096, letter), "a100").levels:
            assert level.required < level.available
            assert level.name in bound(Problem(4096, 4096, 4096, letter), "a100").explain()
    assert bound(Problem(4096, 4096, 4096, "s"), "h200").levels[1].available is None  # L2


def test_the_kernel_of_b_8_stays_below_what_the_cache_feeds():
    cache = CYPRESS.needs("cache_bytes_per_s") * CYPRESS.needs("multiprocessors")
    attainable = nakasato.attainable(cache, 8, S.element_bytes, S.flops)
    assert attainable == pytest.approx(2.72e12 * 1.088 / 1.36)
    assert attainable > 2014e9  # Table 2
    assert nakasato.attainable(cache, 12, S.element_bytes, S.flops) > 2.72e12  # the peak
    assert nakasato.attainable(cache, 4, D.element_bytes, D.flops) == pytest.approx(544e9)


def test_threads_against_registers():
    assert nakasato.active_threads(25, CYPRESS) == 40
    assert nakasato.active_threads(37, CYPRESS) == 24
    assert nakasato.tile_registers(8, S) == 25
    assert nakasato.tile_registers(4, D) == 8 + 2 * 2 + nakasato.SPARE_REGISTERS
    with pytest.raises(ValueError, match="wave_registers of device='gtx580' is unknown"):
        nakasato.active_threads(25, catalogue_device("gtx580"))


def test_double_double_peaks():
    problem = Problem(1024, 1024, 1024, "e")
    for sequence, gigaflops in (("nakasato", 23.7), ("nakasato-fma", 37.5)):
        found = bound(problem, CYPRESS, sequence=sequence)
        assert found.limit == pytest.approx(gigaflops * 1e9, abs=0.05e9)
    # Table 2: 31 and 23 GFLOP/s were measured.
    assert bound(problem, CYPRESS, sequence="nakasato-fma").limit > 31e9
    fast = bound(problem, CYPRESS, sequence="dot2").limit
    assert fast > bound(problem, CYPRESS, sequence="accurate").limit


def test_double_double_sequences_on_an_h100():
    problem = Problem(4096, 4096, 4096, "e")
    instructions = 132 * 64 * 1.98e9
    for name in ("accurate", "sloppy", "chained", "dot2"):
        peak = bound(problem, "h100", sequence=name).term("arithmetic peak").value
        assert peak == pytest.approx(2 * instructions / double_double.SEQUENCES[name].instructions)
    for letter, name in double_double.SEQUENCE_OF.items():
        asked = Problem(4096, 4096, 4096, letter)
        assert bound(asked, "h100").limit == bound(asked, "h100", sequence=name).limit
    with pytest.raises(ValueError, match="sequence='fast' is unknown"):
        bound(problem, "h100", sequence="fast")


@pytest.mark.parametrize("n", [512, 1024, 2048, 4096])
def test_transfer_model(n):
    seconds = 32 * n**2 / 3e9 + 2 * n**3 / 450e9  # equations 3 to 5
    problem = Problem(n, n, n, "d")
    assert nakasato.transfer_bytes(problem) == 32 * n * n
    assert nakasato.transfer_rate(problem, 3e9, 450e9) == pytest.approx(2 * n**3 / seconds)
    hidden = nakasato.transfer_rate(problem, 3e9, 450e9, overlap=True)
    assert nakasato.transfer_rate(problem, 3e9, 450e9) < hidden <= 450e9


def test_the_size_where_the_link_stops_mattering():
    n = nakasato.size_where_link_fades(10e9, 450e9, D)
    reached = nakasato.transfer_rate(Problem(round(n), round(n), round(n), "d"), 10e9, 450e9)
    assert reached == pytest.approx(0.9 * 450e9, rel=1e-3)
    assert 3 * 2048 < n < 3 * 2300  # the paper calls N >= 2048, three quarters, enough with 10 GB/s
