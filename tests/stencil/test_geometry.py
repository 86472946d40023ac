"""Launches that follow from a kernel's geometry: they cover C, in the mode that a problem asks for.

Compared with what counting tile by tile gives.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.portfolio.examples import H100, geometries
from tilewright.backend import device
from tilewright.portfolio.kernel import geometry_from_json, geometry_to_json
from tilewright.precision import PRECISIONS
from tilewright.problem import Problem, Trans
from tilewright.stencil import Variant, stencils
from tilewright.stencil.geometry import (
    MODES,
    MOST_SHARES,
    PART_BYTES_A_CYCLE,
    WAVE_CYCLES,
    Geometry,
    Mode,
    SplitK,
)

SIZES = st.integers(1, 3000)


def starts():
    """Every stencil's configs that tuning begins with, on a GPU and a CPU."""
    for family, spec, letter in itertools.product(stencils(), (H100, device().spec), "sdcz"):
        for ops in ((Trans.N, Trans.T), (Trans.T, Trans.N)):
            of = Variant(PRECISIONS[letter], *ops)
            if not family.computes(of):
                continue
            try:
                found = [one for one in family.starts(of, spec) if one in family.space(of, spec)]
            except ValueError:  # the stencil is not for such devices
                continue
            yield from ((family, one) for one in found)


STARTS = list({(family.name, one.id): (family, one) for family, one in starts()}.values())


def tiles_of(m: int, n: int, geometry: Geometry) -> int:
    """Count the tiles of C one by one, those that fill up clusters included."""
    along = [0, 0]
    for at, (size, tile, cluster) in enumerate(
        ((m, geometry.tile_m, geometry.cluster_m), (n, geometry.tile_n, geometry.cluster_n))
    ):
        begin = 0
        while begin < size:  # a cluster of tiles begins here
            along[at] += cluster
            begin += tile * cluster
    return along[0] * along[1]


@pytest.mark.parametrize(
    ("family", "config"), STARTS, ids=[f"{family.name}-{one.id}" for family, one in STARTS]
)
def test_launches_of_every_stencil_cover_the_result(family, config):
    geometry = family.geometry(config)
    for m, n in ((1, 1), (127, 300), (2048, 2048), (5000, 3)):
        launch = family.launch(config, m, n)
        blocks = launch.grid[0] * launch.grid[1]
        assert blocks % (tiles_of(m, n, geometry) * geometry.cluster_k) == 0
        assert launch.block == geometry.threads
        assert geometry.tile_m * geometry.tile_n >= 1
        on_device = launch.on(132)
        assert 1 <= on_device.grid[0] <= launch.grid[0]
        assert on_device.grid[0] % launch.cluster == 0


@given(geometries(["plain", "unfolded", "cluster", "shared", "tma"]), SIZES, SIZES, SIZES)
def test_a_data_parallel_launch_has_a_block_for_each_tile(geometry, m, n, k):
    launch = geometry.launch(m, n, k)
    blocks = tiles_of(m, n, geometry) * geometry.cluster_k
    assert launch.grid[0] * launch.grid[1] == blocks
    assert (launch.grid[1] == 1) or not geometry.folded
    assert launch.on(7) == launch
    cluster = geometry.cluster_m * geometry.cluster_n * geometry.cluster_k
    assert blocks % cluster == 0
    assert launch.cluster == (cluster if geometry.folded else 1)


@given(geometries(["persistent", "stream"]), SIZES, SIZES, SIZES, st.integers(1, 200))
def test_blocks_that_stay_are_as_many_as_the_device_holds(geometry, m, n, k, multiprocessors):
    work = tiles_of(m, n, geometry) * (MOST_SHARES if geometry.stream_k else 1)
    on_device = geometry.launch(m, n, k).on(multiprocessors)
    assert on_device.grid == (min(work, geometry.resident * multiprocessors), 1)


@given(st.integers(1, 4), st.integers(1, 4), SIZES, SIZES, st.integers(1, 200))
def test_clusters_that_stay_are_whole(cluster_m, cluster_n, m, n, multiprocessors):
    geometry = Geometry(
        128, 64, (128, 1), resident=1, cluster_m=cluster_m, cluster_n=cluster_n, persistent=True
    )
    blocks = geometry.launch(m, n, 100).on(multiprocessors).grid[0]
    assert blocks % (cluster_m * cluster_n) == 0
    assert blocks == cluster_m * cluster_n or blocks <= multiprocessors


def cycles(cut: SplitK, parts: int, steps: int, tiles: int, at_once: int) -> float:
    """Return what so many parts are expected to take."""
    waves = (tiles * parts + at_once - 1) // at_once
    each = (steps + parts - 1) // parts
    passes = parts * tiles * cut.part_bytes / PART_BYTES_A_CYCLE
    second = cut.reduction_cycles if parts > 1 else 0
    return waves * (each * cut.step_cycles + WAVE_CYCLES) + passes + second


@given(
    geometries(["split", "streamed"]),
    st.integers(0, 4000),
    st.integers(1, 300),
    st.integers(1, 600),
)
def test_parts_are_as_many_as_take_the_shortest_time(geometry, steps, tiles, at_once):
    cut = geometry.split_k
    most = max(1, min(steps, cut.most_parts))
    times = [cycles(cut, parts, steps, tiles, at_once) for parts in range(1, most + 1)]
    assert cut.parts(steps, tiles, at_once) == times.index(min(times)) + 1


@given(geometries(["split", "streamed"]), SIZES, SIZES, st.integers(0, 50000), st.integers(1, 200))
def test_a_launch_in_parts_has_a_block_for_each_and_a_reduction_behind_it(geometry, m, n, k, many):
    launch, tiles, cut = geometry.launch(m, n, k), tiles_of(m, n, geometry), geometry.split_k
    assert launch.grid == (tiles, 1)
    on_device = launch.on(many)
    steps = (k + geometry.tile_k - 1) // geometry.tile_k
    parts = cut.parts(steps, tiles, max(1, geometry.resident) * many)
    assert on_device.grid == (tiles * parts, 1)
    assert on_device.on(many) == on_device
    second = on_device.second
    if cut.reduction_cycles and parts == 1:
        assert second is None
        return
    assert second.grid == (tiles * parts * cut.reduction_blocks, 1)
    assert second.block == (cut.reduction_threads, 1)
    assert second.early


def test_parts_fill_a_device():
    """Whole waves: 12 tiles are 11 parts each for 132 multiprocessors, as long as k is long."""
    cut = SplitK(2048, 2**17, 1, 128)
    assert cut.parts(618, 12, 132) == 11
    assert cut.parts(618, 18, 132) == 7
    assert cut.parts(618, 132, 132) == 1
    assert cut.parts(4, 12, 132) <= 4


# -- modes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "mode"),
    [
        (Problem(4096, 4096, 4096, "s"), "plain"),
        (Problem(4097, 4097, 4097, "s"), "scalar+staged"),
        (Problem(4096, 4096, 4097, "s", "T"), "plain"),  # copied by elements along k anyway
        (Problem(4096, 4096, 4096, "s", lda=4097), "scalar"),
        (Problem(4096, 4096, 4096, "s", ldc=4097), "staged"),
        (Problem(64, 4096, 4096, "s"), "clamped"),
        (Problem(63, 4096, 64, "s"), "scalar+clamped+staged"),
    ],
    ids=str,
)
def test_modes_of_a_kernel_that_copies_along_m_and_n(problem, mode):
    geometry = Geometry(128, 128, (128, 1), tile_k=16, stages_k=5000)
    assert str(geometry.mode(problem)) == mode


def test_long_sums_and_small_stages_store_as_they_are():
    geometry, problem = Geometry(128, 128, (128, 1), 16, stages_k=100), Problem(513, 512, 101)
    assert not geometry.mode(problem).staged
    assert replace(geometry, stages_k=101).mode(problem).staged
    assert not replace(geometry, stages_k=101, threads=(1024, 1)).mode(problem).staged


@pytest.mark.parametrize("text", ["", "scalar+", "plain+scalar", "Scalar"])
def test_other_words_are_no_mode(text):
    with pytest.raises(ValueError, match="is unknown"):
        Mode.parse(text)


def test_the_copy_engine_takes_aligned_columns_only():
    boxes = Geometry(64, 64, (64, 1), tma=True)
    assert boxes.takes(Problem(64, 64, 64, "s", lda=68))
    assert not boxes.takes(Problem(64, 64, 64, "s", lda=65))
    assert not boxes.takes(Problem(64, 64, 64, "s"), False)
    lines = replace(boxes, tma_line_bytes=128)
    assert lines.takes(Problem(64, 32, 64, "s", "N", "T"))
    assert not lines.takes(Problem(68, 32, 64, "s", "N", "T"))  # no whole lines along m
    assert lines.takes(Problem(68, 32, 64, "s", "T", "T"))
    assert replace(boxes, tma=False).takes(Problem(64, 64, 64, "s", lda=65))


@pytest.mark.parametrize(("letter", "is_for_aligned"), [("tf32", False), ("bf16", True)])
def test_elements_are_copied_one_by_one_where_the_copy_engine_does_not_take_them(
    letter, is_for_aligned
):
    copies = Geometry(64, 64, (64, 1), any_alignment=True)
    assert copies.takes(Problem(64, 64, 64, letter, lda=65))
    assert copies.takes(Problem(64, 64, 64, letter), False)
    assert copies.takes(Problem(64, 64, 64, letter, lda=72)) is is_for_aligned
    assert copies.takes(Problem(64, 64, 64, letter, lda=65, batch=2))
    assert not copies.takes(Problem(64, 64, 64, letter, lda=72, batch=2))
    assert replace(copies, most_k=64).takes(Problem(64, 64, 64, letter))


def test_what_is_for_short_sums_takes_no_longer_ones():
    short = Geometry(128, 32, (128, 1), tile_k=4, most_k=4)
    assert short.takes(Problem(999, 777, 4, "s"))
    assert short.takes(Problem(999, 777, 0, "s"), False)
    assert not short.takes(Problem(999, 777, 5, "s"))


@pytest.mark.parametrize(("streamed", "is_for"), [(1, (70, 3)), (2, (3, 70))])
def test_what_streams_an_operand_takes_products_whose_other_side_is_no_longer(streamed, is_for):
    geometry = Geometry(64, 8, (256, 1), streamed=streamed)
    along_k = "bf16", "T", "N"
    assert geometry.takes(Problem(*is_for, 9, *along_k))
    assert geometry.takes(Problem(5, 5, 9, *along_k))
    assert not geometry.takes(Problem(*reversed(is_for), 9, *along_k))
    assert not geometry.takes(Problem(*reversed(is_for), 9, "int8", "T", "N"))
    assert geometry.takes(Problem(*reversed(is_for), 9, "s"))  # costs tell, of wider elements


def test_what_streams_short_columns_of_16_bits_takes_them_along_k_alone():
    a = Geometry(64, 8, (256, 1), streamed=1)
    assert a.takes(Problem(8, 3, 99, "bf16"))
    assert not a.takes(Problem(7, 3, 99, "bf16"))
    assert a.takes(Problem(7, 3, 99, "bf16", "T"))
    assert a.takes(Problem(7, 3, 99, "int8", "T"))
    assert a.takes(Problem(7, 3, 99, "s"))
    b = replace(a, streamed=2)
    assert not b.takes(Problem(3, 7, 99, "bf16", "N", "T"))
    assert b.takes(Problem(3, 7, 99, "bf16"))


def test_maps_hold_places_of_31_bits_and_strides_below_2_to_the_40():
    geometry = Geometry(64, 64, (64, 1), tma=True)
    assert geometry.takes(Problem(2**31 - 4, 64, 64, "s"))
    assert not geometry.takes(Problem(2**31, 64, 64, "s"))
    assert not geometry.takes(Problem(2**30, 64, 64, "z"))
    assert not geometry.takes(Problem(64, 64, 64, "s", lda=2**38))


# -- data --------------------------------------------------------------------------------


@given(geometries())
def test_a_geometry_is_the_same_after_json(geometry):
    row = json.loads(json.dumps(geometry_to_json(geometry)))
    assert geometry_from_json(row) == geometry


@pytest.mark.parametrize(
    "more",
    [{"tile_p": 1}, {"tile_k": "16"}, {"folded": 1}, {"stages": 2.5}, {"threads": [1]},
     {"split_k": {"parts": 3}}, {"split_k": [1]}],
    ids=str,
)  # fmt: skip
def test_anything_else_is_no_geometry(more):
    row = geometry_to_json(Geometry(8, 8, (32, 1))) | more
    with pytest.raises((ValueError, TypeError)):
        geometry_from_json(row)


def test_modes_have_numbers_and_names():
    assert [mode.number for mode in MODES] == list(range(8))
    assert [Mode.parse(str(mode)) for mode in MODES] == list(MODES)
    assert Mode(scalar=True) | Mode(staged=True) == MODES[5]
    with pytest.raises(ValueError, match="'narrow' is unknown; use plain, or clamped, scalar"):
        Mode.parse("scalar+narrow")
