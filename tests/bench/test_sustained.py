"""Races in turns of a second: who has turns, what counts, and what is told of it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tests.library.test_shipped import script
from tilewright.precision import precision
from tilewright.problem import Problem
from tilewright.space import Config


@pytest.fixture
def sustained():
    return script("sustained")


def test_the_winner_of_the_race_by_launches_comes_first(sustained):
    """Then what else was fast in the search, one of each shape, and what was named besides."""
    log = sustained.ship.load("hopper_d.json")["log"]
    won = next(
        row for row in log if row["kind"] == "final" and (row["trans"], row["size"]) == ("NN", 8192)
    )
    named = Config("mma_f64", {**won["config"], "raster_rows": 16})
    found = sustained.candidates("d", "NN", 8192, [named])
    assert found[0] == Config(won["stencil"], won["config"])
    assert found[-1] == named
    assert len(found) == sustained.CANDIDATES + 1
    shapes = {sustained.shape_of(one) for one in found[:-1]}
    assert len(shapes) == sustained.CANDIDATES


def test_every_case_of_a_size_is_raced_before_the_next(sustained):
    given = sustained.arguments(["--precision", "d", "--trans", "NN,TT"])
    assert [(trans, size) for trans, size, _ in sustained.plan(given)] == [
        ("NN", 4096), ("TT", 4096), ("NN", 8192), ("TT", 8192),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--sizes", "12,a"], "12,a has no sides; give 512,1024"),
        (["--precision", "d", "--trans", "NN,NC"], "--trans=NC is none of NN, NT, TN, TT"),
        (["--table", "--json", "nowhere"], "nowhere cannot be read"),
    ],
)
def test_wrong_words_are_a_line(sustained, capsys, words, told):
    with pytest.raises(SystemExit):
        sustained.arguments(words)
    assert told in capsys.readouterr().err


def test_what_could_not_be_compiled_is_left_out(sustained, monkeypatch):
    """All candidates of all races are compiled before the first, each once."""
    asked = []

    def compiled(arch, jobs, workers, until):
        asked.extend(jobs)
        yield from ((*job, "no registers" if job[1] == "NN" else "") for job in jobs)

    monkeypatch.setattr(sustained, "compiled", compiled)
    given = sustained.arguments(["--precision", "d", "--trans", "NN,TT"])
    found = list(sustained.ready(given, "sm_90a", 0.0))
    assert [(trans, size) for trans, size, _ in found] == [("TT", 4096), ("TT", 8192)]
    assert len(asked) == len(set(asked))
    assert {config for _, trans, config in asked if trans == "TT"} == {
        config for _, _, tried in found for config in tried
    }


class Bench:
    """Kernels that take as long as their block has rows."""

    letter, live = "d", None

    def workload(self, trans, size):
        problem = Problem(size, size, size, "d", *trans)
        return SimpleNamespace(problem=problem, run=lambda k, f, config: config.integer("block_m"))

    def kernel(self, trans, config):
        return object()

    @property
    def cublas(self):
        return SimpleNamespace(prepare=lambda load: lambda: 200)


def test_the_fastest_candidate_meets_cublas_in_turns(sustained, monkeypatch):
    order, checked = [], []

    def turn(live, call, seconds=sustained.TURN):
        order.append((call(), seconds))
        return {"ns": [call()], "clock_hz": 1.5e9, "power_w": 600.0}

    monkeypatch.setattr(sustained, "turn", turn)
    monkeypatch.setattr("tilewright.tuning.verify.screen", lambda *of: checked.append(of[3]))
    tried = [Config("mma_f64", {"block_m": rows}) for rows in (256, 100, 128)]
    row = sustained.race(Bench(), "NT", 4096, tried)
    trial, whole = sustained.TRIAL, sustained.TURN
    assert order == [
        (256, trial),  # warms the device up
        *((ns, trial) for ns in (256, 100, 128)),
        *((ns, whole) for ns in (100, 200, 100, 200)),
    ]
    assert checked == tried
    assert (row["config"], row["ratio"], row["wanted"]) == ({"block_m": 100}, 2.0, 1.18)
    assert [one["config"]["block_m"] for one in row["trials"]] == [256, 100, 128]
    flops = Problem(4096, 4096, 4096, precision("d").letter).flops
    assert row["tflops"]["cublas"] == pytest.approx(flops / 200e3)
    json.dumps(row)
    assert "2.000 of 1.18*" in sustained.told(row)
    # Two operations a multiply-add: 600 W at so many of them a second.
    assert f"1.500 GHz, {2 * 600 / row['tflops']['cublas']:.1f} pJ" in sustained.told(row)


def test_races_of_an_earlier_file_are_kept_but_those_run_anew(sustained, monkeypatch, tmp_path):
    import hopper.bench

    earlier = tmp_path / "earlier.json"
    run = {"date": "then", "commit": "abc"}
    rows = [
        {"precision": "d", "trans": trans, "size": 4096, "ratio": 0.5} for trans in ("NN", "TT")
    ]
    earlier.write_text(json.dumps({"environment": run, "rows": rows}))

    def race(bench, trans, size, tried):
        return {"precision": "d", "trans": trans, "size": size, "ratio": 2.0}

    monkeypatch.setattr(hopper.bench, "Bench", lambda *of: SimpleNamespace(
        live=SimpleNamespace(arch="sm_90a"), cublas=None))  # fmt: skip
    monkeypatch.setattr("tilewright.bench.record.device_record", lambda *of: {"name": "it"})
    monkeypatch.setattr(sustained, "ready", lambda *of: iter([("NN", 4096, []), ("NN", 8192, [])]))
    monkeypatch.setattr(sustained, "race", race)
    monkeypatch.setattr(sustained, "told", lambda row: "")
    out = tmp_path / "new.json"
    command = ["--precision", "d", "--keep", str(earlier), "--json", str(out)]
    sustained.measure(sustained.arguments(command))
    found = json.loads(out.read_text())["rows"]
    assert [(row["trans"], row["size"], row["ratio"]) for row in found] == [
        ("TT", 4096, 0.5), ("NN", 4096, 2.0), ("NN", 8192, 2.0),
    ]  # fmt: skip
    assert [row.get("of") for row in found] == [run, None, None]
