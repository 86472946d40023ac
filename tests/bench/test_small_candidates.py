"""What a search tries of small squares: many kinds of blocks, ranked by an estimate."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.library.test_shipped import script
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.stencil import stencil

ROOT = Path(__file__).parents[2]


@pytest.fixture
def small(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from hopper.candidates import small

    yield small
    for name in [name for name in sys.modules if name.split(".")[0] == "hopper"]:
        del sys.modules[name]


@pytest.mark.slow
@pytest.mark.parametrize(("letter", "trans"), [("s", "TN"), ("d", "NN"), ("z", "CT")])
def test_many_kinds_of_points_of_the_space(small, letter, trans):
    from hopper.cases import variant_of

    found = small.candidates(letter, trans)
    space = stencil(found[0].stencil).space(variant_of(letter, trans), architecture_spec("sm_90a"))
    assert all(one in space for one in found)
    assert len(found) == len(set(found)) > small.EACH
    kinds = Counter(tuple(one.get(name) for name in small.SINCE) for one in found)
    assert max(kinds.values()) <= small.OF_A_KIND * len(small.SIZES)
    assert len({(one["block_m"], one["block_n"]) for one in found}) > 4
    # Alone, in clusters, in slices, and blocks that stay and share.
    assert {one["split_k"] for one in found} >= {1, 2}
    for name in ("persistent", "stream_k"):
        assert {one[name] for one in found} == {0, 1}


@pytest.fixture
def block(small):
    """A config of `mma_f64`: warps of 64 x 32, one resident block."""
    from tilewright.space import Config

    values = {"block_m": 128, "block_n": 128, "warp_m": 64, "warp_n": 32, "mma_m": 16, "mma_k": 8,
              "block_k": 16, "stages": 3, "ahead": 1, "turns": 8, "walk": 0, "resident": 1,
              "raster_rows": 8, **small.ALONE}  # fmt: skip
    return Config("mma_f64", values)


def test_blocks_that_fill_the_device_cost_less_than_few(small, block):
    """1024 x 1024 has 64 tiles of 128 x 128 for 132 multiprocessors."""
    halves = block.replace(block_n=64)
    assert small.cycles("d", 1024, halves) < small.cycles("d", 1024, block)
    shares = block.replace(split_k=2)
    assert small.cycles("d", 1024, shares) < small.cycles("d", 1024, block)
    # A sixteenth more than a wave takes two of them, unless the rest is shared.
    waves = small.cycles("d", 2176, block) / small.cycles("d", 1408, block)
    assert waves > 3
    staying = block.replace(persistent=1, stream_k=1)
    assert small.cycles("d", 2176, staying) < small.cycles("d", 2176, block)


def test_complex_elements_take_four_times_as_long(small, block):
    assert small.cycles("z", 2048, block) / small.cycles("d", 2048, block) == pytest.approx(
        4, rel=0.1
    )


def test_a_file_in_no_directory_is_a_line(small, capsys):
    with pytest.raises(SystemExit):
        script("hopper").arguments(["--small", "/nowhere/small.json"])
    assert "--small: /nowhere/small.json is in no directory" in capsys.readouterr().err


def test_the_file_is_what_a_search_reads(small, block, tmp_path, monkeypatch, capsys):
    hopper, path = script("hopper"), tmp_path / "small.json"
    monkeypatch.setattr(hopper.small, "candidates", lambda letter, trans: [block])
    command = ["hopper.py", "--precision", "d", "--trans", "NN,TT", "--small", str(path)]
    monkeypatch.setattr(sys, "argv", command)
    hopper.main()
    assert "2 candidates of 2 cases" in capsys.readouterr().out
    assert [row["trans"] for row in json.loads(path.read_text())] == ["NN", "TT"]
    given = hopper.arguments(["--precision", "d", "--only", str(path)])
    assert given.named["NN"] == given.named["TT"] == [block]
    assert given.named["NT"] == []


def test_trips_that_copies_outlast_cost_more(small):
    """512 x 512: four layers have 512 cycles of multiply-adds in 32 steps, and two stages no more
    time than that for copies."""
    from tilewright.space import Config

    values = {"block_m": 64, "block_n": 32, "block_k": 32, "tile_m": 8, "tile_n": 8, "lanes_m": 8,
              "unroll_k": 8, "stages": 2, "resident": 1, **small.ALONE, "warps_k": 4}  # fmt: skip
    short = Config("simt_async", values)
    later = short.replace(stages=3)
    longer = short.replace(warps_k=8, block_k=64)
    for one in (later, longer):
        assert small.cycles("s", 512, one) < small.cycles("s", 512, short)
    # With multiply-adds enough in a trip copies are there in time.
    wide = short.replace(block_m=128, block_n=128)
    assert small.cycles("s", 4096, wide.replace(stages=3)) == small.cycles("s", 4096, wide)
