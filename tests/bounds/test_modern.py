"""Bounds of later devices: never below what was measured, and for stated reasons."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from tilewright.bounds import Compiled, lai_seznec, modern
from tilewright.hardware.catalogue import catalogue_device
from tilewright.hardware.quantity import Mix, Quantity
from tilewright.problem import Problem
from tilewright.serve.bound import bound

H100 = replace(catalogue_device("h100"), mixes=())  # the units' rates, without its table


@pytest.mark.parametrize(
    ("letter", "peak"),
    [("s", 66.9), ("d", 66.9), ("c", 66.9), ("z", 66.9), ("e", 1.593), ("f", 2.77)],
)
def test_h100_bounds(letter, peak):
    found = bound(Problem(4096, 4096, 4096, letter), "h100")
    assert found.term("arithmetic peak").value == pytest.approx(peak * 1e12, rel=2e-3)
    assert 0.8 * peak * 1e12 < found.limit <= found.term("arithmetic peak").value
    assert found.missing.keys() <= {"shared cache (L2)"}


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


@pytest.mark.parametrize(
    ("device", "sides"),
    [("h100", (1, 7, 4096))]
    + [(device, (1, 4096)) for device in ("a100", "h200", "b200", "mi300x", "rtx4070")],
)
def test_odd_sizes_stay_below_the_peak(device, sides):
    for m, n, k in product(sides, repeat=3):
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


@pytest.mark.parametrize("letter", ["tf32", "fp16", "bf16_f32", "int8"])
@pytest.mark.parametrize("device", ["a100", "h100", "h200", "b200", "mi300x", "rtx4070"])
def test_tensor_rates_are_data(device, letter):
    reduced, ieee = (bound(Problem(8192, 8192, 8192, one), device) for one in (letter, "s"))
    assert reduced.limit > ieee.limit or device == "rtx4070"


def test_fp8_is_promoted_and_needs_its_rate():
    whole, half = (bound(Problem(8192, 8192, 8192, one), "h100") for one in ("e4m3", "fp16"))
    assert whole.term("arithmetic peak").value == 2 * half.term("arithmetic peak").value
    assert "promotion (additions)" in {term.name for term in whole.terms}
    assert "tensor.fp8" in bound(Problem(64, 64, 64, "e5m2"), "a100").missing["arithmetic peak"]


def test_published_tensor_peaks():
    for letter, teraflops in (("tf32", 156), ("fp16", 312), ("bf16", 312), ("int8", 624)):
        peak = bound(Problem(8192, 8192, 8192, letter), "a100").term("arithmetic peak").value
        assert peak == pytest.approx(teraflops * 1e12, rel=2e-3)
    without = bound(Problem(8192, 8192, 8192, "fp16"), "gtx580")
    assert "tensor.fp16" in without.missing["arithmetic peak"]
    # What memory would allow is no bound of units that nobody knows to be there.
    with pytest.raises(ValueError, match=r"device='gtx580' has no bound .*tensor\.fp16"):
        without.limit  # noqa: B018
    assert without.as_dict()["flops_per_second"] is None


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


def known(**numbers):
    """Return an H100 with more numbers."""
    return replace(
        H100,
        quantities={
            **H100.quantities,
            **{name: Quantity(name, value, "", "here") for name, value in numbers.items()},
        },
    )


def test_an_endless_run_is_bound_by_the_clock_that_power_leaves():
    problem = Problem(8192, 8192, 8192, "s")
    device = known(**{"sustained_clock_hz.s": 1900e6})
    short, endless = bound(problem, device), bound(problem, device, sustained=True)
    assert endless.limit == pytest.approx(short.limit * 1900 / 1980)
    assert short.limit == bound(problem, H100).limit  # a short run keeps the highest clock
    assert endless.term("arithmetic peak").value == short.term("arithmetic peak").value
    assert "clock under the power limit" in endless.explain()
    # A measured clock above the nominal one gains nothing, an unknown one is named.
    fast = known(**{"sustained_clock_hz.s": 2100e6})
    assert bound(problem, fast, sustained=True).limit == short.limit
    matrix = bound(Problem(8192, 8192, 8192, "d"), device, sustained=True)
    assert "sustained_clock_hz.matrix" in matrix.missing["clock under the power limit"]


def test_clusters_ask_less_of_the_shared_cache():
    problem = Problem(8192, 8192, 8192, "s")
    term = "shared cache (L2)"
    alone = bound(problem, known(l2_bytes_per_s=5.5e12, cluster_blocks=1)).term(term)
    shared = bound(problem, known(l2_bytes_per_s=5.5e12, cluster_blocks=16)).term(term)
    # Blocks of 256 x 256: b / 4 FLOP a byte; sixteen of them are 1024 x 1024.
    assert alone.value == pytest.approx(5.5e12 * 256 / 4)
    assert shared.value == pytest.approx(4 * alone.value)


def table(**points):
    """Return an H100 with a table of mixes: FFMA a cycle by the ratio."""
    return replace(
        H100,
        mixes=tuple(
            Mix(128, ratio, rate * (ratio + 1) / ratio, "measured", "here")
            for ratio, rate in ((float(name[1:]), rate) for name, rate in points.items())
        ),
    )


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (5, 80),  # what the next ratio above has: fewer loads never slow multiply-adds down
        (8, 80),
        (9, 110),
        (16, 110),
        (20, 110),  # 24 has less, which cannot be but for noise: 16 has shown more
        (24, 110),
    ],
)
def test_a_tile_has_at_most_what_the_next_ratio_of_the_table_has(ratio, expected):
    device = table(r8=80, r16=110, r24=105)
    share = ratio / (ratio + 1)
    found = modern.tabulated_mix(device, "fma_lanes.s", share, 1.0)
    assert found == pytest.approx(expected / 128)
    assert modern.tabulated_mix(device, "fma_lanes.s", share, 0.5) == 0.5  # units stay limits
    assert modern.tabulated_mix(H100, "fma_lanes.s", share, 0.9) == 0.9


def test_beyond_the_table_the_last_derating_stays():
    device = table(r8=80, r24=0.9 * 128 * 24 / 25)  # 90 % of the issue slots at 24
    share = 40 / 41
    assert modern.tabulated_mix(device, "fma_lanes.s", share, share) == pytest.approx(0.9 * share)


def test_broadcast_loads_bound_where_they_were_measured():
    own, same = Mix(128, 16, 100.0, "measured", "x"), Mix(128, 16, 120.0, "measured", "y")
    narrow = Mix(64, 16, 90.0, "measured", "z")
    same = replace(same, lanes="broadcast")
    assert modern.table_of(replace(H100, mixes=(own, narrow))) == (own,)
    assert modern.table_of(replace(H100, mixes=(own, same, narrow))) == (same,)
    # A table that was cut short does not count.
    longer = replace(own, ratio=64)
    assert modern.table_of(replace(H100, mixes=(own, same, longer))) == (own, longer)
    # Figure 2 is the paper's: every lane has words of its own.
    both = replace(H100, mixes=(own, same))
    assert lai_seznec.derating(both, 16, 128) == pytest.approx(100 / 128)


@pytest.mark.parametrize(
    ("ratio", "left"), [(8, 0.7), (64 / 68 / (4 / 68), 0.9), (12, 0.9), (20, 0.9), (30, 0.8)]
)
def test_between_points_of_figure_2_the_better_one_counts(ratio, left):
    mixes = (
        Mix(128, 8, 0.7 * 72, "measured", "here"),  # load/store units allow 72
        Mix(128, 16, 0.9 * 128, "measured", "here"),
        Mix(128, 24, 0.8 * 128, "measured", "here"),
        Mix(64, 20, 1.0, "measured", "here"),  # another width
        Mix(128, 0, 8.0, "measured", "here"),  # loads alone
    )
    device = replace(H100, mixes=mixes)
    assert lai_seznec.derating(device, ratio, 128) == pytest.approx(left)
    assert lai_seznec.derating(H100, ratio, 128) == 1


def test_a_tabulated_bound_keeps_the_tail():
    mixes = (Mix(128, 20, 0.9 * 128, "measured", "here"),)
    small, large = (
        bound(Problem(n, n, n, "s"), replace(H100, mixes=mixes)).term("tabulated mix (eq. 11)")
        for n in (1024, 16384)
    )
    tails = [next(q.value for q in t.inputs if q.name == "tail") for t in (small, large)]
    assert tails[0] < tails[1] <= 1
    whole = bound(Problem(16384, 16384, 16384, "s"), H100).term("instruction mix and tail wave")
    assert large.value == pytest.approx(0.9 * whole.value, rel=0.01)


def test_measured_mixes_are_what_binds_sgemm_on_an_h100():
    found = bound(Problem(16384, 16384, 16384, "s", "N", "T"), "h100")
    assert found.limiting.name == "tabulated mix (eq. 11)"
    assert found.limit < found.term("instruction mix and tail wave").value
    assert not found.missing
