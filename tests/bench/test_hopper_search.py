"""The search beside cuBLAS, on the emulator and against a peer that stands in for cuBLAS."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.portable_harness import variant
from tests.stencil.test_simt_async import small
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.stencil import stencil

ROOT = Path(__file__).parents[2]


@pytest.fixture
def hopper(monkeypatch):
    """The package beside the benchmarks, imported as they import it."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import hopper
    from hopper import bench, candidates, cases, log, search, watching

    yield hopper, bench, candidates, cases, log, search, watching
    for name in [name for name in sys.modules if name.split(".")[0] == "hopper"]:
        del sys.modules[name]


class Peer:
    """Says that it took twice as long."""

    def __init__(self, live):
        self.live = live

    def prepare(self, load):
        return lambda: 2


@pytest.mark.parametrize("letter", "sdcz")
def test_candidates_are_points_of_their_spaces(hopper, letter):
    _, _, candidates, cases, *_ = hopper
    device = architecture_spec("sm_90a")
    for trans in cases.cases_of(letter)[:2]:
        found = candidates.candidates(letter, trans)
        assert len(found) == len({(one.stencil, one.id) for one in found}) > 10
        for one in found:
            space = stencil(one.stencil).space(cases.variant_of(letter, trans), device)
            assert one in space


@pytest.mark.parametrize(("letter", "first"), [("z", 20), ("c", 15)])
def test_blocks_that_stay_are_tried_early(hopper, letter, first):
    """Each way to share, in every case, and of complex doubles with one block and with two."""
    _, _, candidates, cases, *_ = hopper
    for trans in cases.cases_of(letter):
        found = candidates.candidates(letter, trans)[:first]
        stay = [one for one in found if one.get("persistent")]
        assert {one.get("stream_k", 0) for one in stay} == {0, 1, 2}
        if letter == "z":
            assert {one["resident"] for one in stay} == {1, 2}
            # Instructions of 8 steps spill beside complex sums.
            assert {one["mma_k"] for one in found} == {4}
        else:
            assert {(one["block_m"], one["block_n"]) for one in stay} > {(128, 64), (64, 64)}


def test_an_earlier_search_leaves_room_for_what_is_new(hopper, tmp_path):
    _, _, candidates, _, log, search, _ = hopper
    found = candidates.candidates("c", "NN")
    best = found[-6:]
    rows = [
        {"kind": "tried", "trans": "NN", "id": one.id, "ns": {"1024": 100 + at}}
        for at, one in enumerate(best)
    ]
    seed = tmp_path / "seed.json"
    seed.write_text(json.dumps({"log": rows}))
    jobs = search.jobs_of("c", ["NN"], log.Log(tmp_path / "x.log"), seed)
    first = search.FROM_SEED
    assert [job[2] for job in jobs[:first]] == best[:first]
    assert [job[2] for job in jobs[first:]] == [one for one in found if one not in best[:first]]


def test_only_what_a_list_names_is_tried(hopper, tmp_path):
    """Rescheduled kernels too, which no list of candidates has."""
    _, _, candidates, _, log, search, _ = hopper
    one = candidates.candidates("s", "NT")[0]
    named = [
        {"precision": letter, "trans": "NT", "stencil": one.stencil, "config": dict(config)}
        for letter, config in (("s", one.replace(schedule=2)), ("s", one), ("c", one))
    ]
    only = tmp_path / "only.json"
    only.write_text(json.dumps(named))
    jobs = search.jobs_of("s", ["NN", "NT"], log.Log(tmp_path / "log"), None, only)
    assert jobs == [("s", "NT", one.replace(schedule=2)), ("s", "NT", one)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "cannot be read: No such file"),
        ("rows", "holds no JSON"),
        ('[{"precision": "s"}]', "row 0: KeyError: 'trans'"),
        ('["NT"]', "row 0: TypeError"),
        ("NO POINT", "is no point of the space of s NT"),
        ("NO LEVEL", "is no point of the space of s NT"),
    ],
)
def test_a_list_of_something_else_is_refused_in_one_line(hopper, tmp_path, capsys, text, told):
    """Before anything is compiled: a config from a file is data."""
    _, _, candidates, *_ = hopper
    import importlib.util

    spec = importlib.util.spec_from_file_location("command", ROOT / "benchmarks" / "hopper.py")
    command = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(command)
    one = candidates.candidates("s", "NT")[0]
    row = {"precision": "s", "trans": "NT", "stencil": one.stencil}
    made = {
        "NO POINT": json.dumps([row | {"config": dict(one) | {"block_m": 7}}]),
        "NO LEVEL": json.dumps([row | {"config": dict(one) | {"schedule": 77}}]),
    }
    path = tmp_path / "only.json"
    if text is not None:
        path.write_text(made.get(text, text))
    with pytest.raises(SystemExit) as ended:
        command.arguments(["--only", str(path)])
    assert ended.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert "argument --only: " in last
    assert told in last


def test_what_an_earlier_run_tried_and_raced_is_kept_beside_new_races(hopper, tmp_path):
    """Its rows say which run they are of."""
    *_, watching = hopper
    tried = [{"kind": "tried", "trans": "NN", "id": key, "ns": {"512": n}} for n, key in
             enumerate("abc")]  # fmt: skip
    races = [{"kind": "final", "trans": "NN", "size": size} for size in (512, 4096)]
    new = tmp_path / "new.json"
    run = {"date": "2026-01-01", "commit": "0" * 7, "cores": 2, "method": "medians of 21"}
    old = {"environment": run, "log": [*tried[:2], *races]}
    new.write_text(json.dumps({"environment": {}, "log": [*tried[1:], races[0]]}))
    watching.keep(new, old)
    rows = json.loads(new.read_text())["log"]
    assert [row["id"] for row in rows if row["kind"] == "tried"] == ["a", "b", "c"]
    kept = [row for row in rows if "of" in row]
    assert [row.get("size") for row in kept] == [None, 4096]
    about = {"date": "2026-01-01", "commit": "0" * 7, "held": False}
    assert all(row["of"] == about for row in kept)
    assert [row["size"] for row in rows if row["kind"] == "final"] == [4096, 512]


@pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")
def test_a_search_ends_in_races_and_a_table(hopper, monkeypatch, tmp_path, capsys):
    """A candidate that is right is raced; one that does not compile is a row with a reason."""
    _, _, _, _, log, search, watching = hopper
    live = EmulatedDevice(tmp_path, multiprocessors=8)
    live.arch = "sm_90a"
    good = small(variant("sNN"), live)
    bad = good.replace(block_k=8)
    monkeypatch.setattr("tilewright.backend.device", lambda name: live)
    monkeypatch.setattr("tilewright.bench.peers.cublas.CuBLAS", Peer)
    monkeypatch.setattr("tilewright.bench.record.device_record", lambda *given: {"name": "it"})
    monkeypatch.setattr(search, "candidates", lambda letter, trans: [good, bad])
    monkeypatch.setattr(
        search,
        "compiled",
        lambda arch, jobs, workers, until: [
            (*job, "CompileError: no" if job[2] == bad else "") for job in jobs
        ],
    )
    found = log.Log(tmp_path / "x.log")
    search.measure(found, "s", ["NN"], (32, 64), 1e12, 1)
    tried = {row["id"]: row for row in found.of("tried")}
    assert tried[good.id]["reason"] == ""
    assert set(tried[good.id]["ns"]) == {32, 64}
    assert tried[bad.id]["reason"] == "CompileError: no"
    assert [row["ratio"] for row in found.of("final")] == [2.0, 2.0]
    # A process that was cut off goes on where it was; what hung is not tried again.
    found.add(kind="started", precision="s", trans="NN", stencil="simt_async", id="0", config={})
    again = log.Log(tmp_path / "x.log")
    watching.blame(again)
    assert again.of("tried")[-1]["reason"] == "the process crashed or hung"
    assert search.jobs_of("s", ["NN"], again) == []
    watching.write(tmp_path / "x.json", again)
    assert json.loads((tmp_path / "x.json").read_text())["device"] == {"name": "it"}
    watching.table(again, "s", [32, 64], ["NN"])
    assert "2.000*" in capsys.readouterr().out


def test_random_shapes_are_the_same_in_every_run(hopper, monkeypatch):
    import shapes200

    first = shapes200.shapes()
    assert first == shapes200.shapes()
    assert len(first) == 200
    assert len({one.trans for one in first}) == 4
    sides = np.array([(one.m, one.n, one.k) for one in first])
    assert sides.min() >= 64
    assert sides.max() <= 8192
    assert np.median(sides) < 1200  # log-uniform: half lie below the geometric mean of the ends
