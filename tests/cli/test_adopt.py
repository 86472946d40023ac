"""A device is adopted in pieces: a run goes on where the one before it stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from functools import partial
from types import SimpleNamespace

import pytest

from tilewright.bench import beside_defaults
from tilewright.cli import adopt
from tilewright.cli.app import run
from tilewright.portfolio import reload
from tilewright.portfolio.find import generation, own
from tilewright.portfolio.timers import LostToError
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.space import Config
from tilewright.stencil import Variant
from tilewright.tuning.cluster import RemoteDevice


def adopted(capsys, *options: str) -> dict:
    assert run(["adopt", "--precision", "s", "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, hasty: None) -> None:
    monkeypatch.setattr(adopt, "_SIZES", {"cpu": (64,), "gpu": (64,)})
    monkeypatch.setattr(adopt, "_TRANSPOSES", ("NN", "TT"))
    monkeypatch.setattr(adopt, "_LEAST_SECONDS", {"cpu": 2.0, "gpu": 2.0})
    monkeypatch.setattr(beside_defaults, "_COMPARED", 1)


def test_pieces_are_done_once_and_what_was_tuned_serves(cpu, small, capsys, monkeypatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_DEVICE", cpu.id)
    first = adopted(capsys, "--budget", "1s")
    assert list(first["done"]) == ["microbenchmarks"]
    assert first["left"] == ["tune s NN 64", "tune s TT 64", "compare"]
    assert first["gained"] == {}

    whole = first
    while whole["left"]:  # in one go, unless the machine is busy
        whole = adopted(capsys, "--budget", "20s")
    assert first["done"].items() <= whole["done"].items()
    ratios = whole["gained"]["s"]["times as fast as"]
    assert set(ratios) == {"the default", "numpy"}
    assert all(ratio > 0 for ratio in ratios.values())
    reload()
    served = own(cpu.portfolio_key, "s")
    assert served is not None
    assert {size for one in served.kernels for size in one.won} == {(64, 64, 64)}

    assert adopted(capsys, "--budget", "1s") == whole


def test_what_is_built_of_several_precisions_has_as_much_more_time(tmp_path) -> None:
    """Tensor cores' portfolio is one of four paces, each with kernels of its own."""
    gpu = SimpleNamespace(spec=SimpleNamespace(kind="gpu"), backend="cuda")
    of = {
        one.name: one.weight for one in adopt._Adoption(gpu, tmp_path, False).pieces(["s", "short"])
    }
    for what in ("build", "verify"):
        assert of[f"{what} short"] == 4 * of[f"{what} s"]


def test_what_serves_is_compared_again_once_more_is_done(cpu, tmp_path) -> None:
    ran, whole = [], {"verify": False, "compare": True}

    def run(name, seconds):
        ran.append((name, generation()))
        return whole[name]

    def pieces():
        for name in whole:
            yield adopt._Piece(name, 1.0, partial(run, name), local=False)

    work, until = adopt._Adoption(cpu, tmp_path, False), time.monotonic() + 60
    assert list(work.do(list(pieces()), until)) == ["compare"]
    assert ran[1][1] > ran[0][1]  # what is not whole serves, too
    whole["verify"] = True
    for _ in range(2):
        assert list(work.do(list(pieces()), until)) == ["verify", "compare"]
    assert [name for name, _ in ran] == ["verify", "compare"] * 2


def test_precisions_that_a_device_is_not_tuned_for_are_named(capsys) -> None:
    assert run(["adopt", "--precision", "s,int8", "--device", "opencl"]) == 2
    assert "precision='s,int8' has 'int8'; opencl:0 takes s, d" in capsys.readouterr().err


def test_nothing_verifies_after_an_interrupt(cpu, tmp_path, monkeypatch) -> None:
    begun = []

    class Verifier(subprocess.Popen):
        def __init__(self, *_, **__) -> None:
            super().__init__(["sleep", "60"])
            begun.append(self)

        def communicate(self, *_):
            raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", Verifier)
    (tmp_path / "built-s").mkdir()
    with pytest.raises(KeyboardInterrupt):
        adopt._Adoption(cpu, tmp_path, False)._verify("s", 60.0)
    assert begun
    assert {one.returncode for one in begun} == {-signal.SIGTERM}


@pytest.fixture
def timing(cpu, tmp_path, monkeypatch) -> SimpleNamespace:
    """An adoption whose processes time nothing; `bad` configs lose the device in turn."""
    made = SimpleNamespace(asked=[], bad=[], cases={}, unaligned=[])

    def measure_apart(live, letter, name, count, seconds, also, without, unaligned):
        made.asked.append((name, list(without)))
        made.unaligned += [name] * unaligned
        for one in made.bad:
            if one.stencil == name and one not in without:
                raise LostToError(one, f"{one} of 8x8x8: lost")
        case = {"shapes": [], "configs": [], "ns": [], "won": []}
        return {"precision": "s", "cases": {"NN": case}, "rescheduled": []}

    families = [SimpleNamespace(name=name) for name in ("simt_async", "skinny", "outer")]
    monkeypatch.setattr("tilewright.backend.cuda.device.CUDADevice", object)
    monkeypatch.setattr("tilewright.portfolio.measure_apart.measure_apart", measure_apart)
    monkeypatch.setattr("tilewright.stencil.stencils_for", lambda *_: families)
    stored = SimpleNamespace(cases=made.cases)
    monkeypatch.setattr("tilewright.cli.portfolio_build.stored", lambda *_: iter([stored]))
    monkeypatch.setattr(adopt._Adoption, "_listed", lambda *_: {})
    made.adoption = adopt._Adoption(cpu, tmp_path, False)
    return made


BAD, WORSE, GOOD = (Config("simt_async", {"block_m": size}) for size in (32, 48, 64))


def test_what_lost_the_device_is_told_and_wins_nothing(timing, tmp_path, capsys) -> None:
    """Rescheduled neither; nor is it run again, unless all is done afresh."""
    timing.bad += [BAD, WORSE]
    raced = [BAD.replace(schedule=5), WORSE, GOOD.replace(schedule=5)]
    won = {Problem(n, n, n, "s"): (one, 5.0) for n, one in enumerate(raced, 1)}
    case = SimpleNamespace(won=won, fastest=lambda count, name: iter([BAD, WORSE, GOOD]))
    timing.cases[Variant(precision("s"), Trans.N, Trans.N)] = case
    (tmp_path / "also-s.json").write_text("{}")  # skinny's, of an older version
    assert timing.adoption._time("s", 60.0)
    assert [name for name, _ in timing.asked] == ["skinny", "outer", *["simt_async"] * 3]
    assert timing.asked[-1] == ("simt_async", [BAD, WORSE])
    assert capsys.readouterr().out.count("left out: ") == 2
    names = ("times-s", "also-skinny-s", "also-outer-s")
    times = [json.loads((tmp_path / f"{name}.json").read_text()) for name in names]
    assert [row["config"] for row in times[0]["cases"]["NN"]["won"]] == [dict(raced[-1])]
    assert not (tmp_path / "also-s.json").exists()
    assert [file.name for file in tmp_path.glob("lost-*")] == ["lost-s-simt_async.json"]

    timing.asked.clear()
    assert timing.adoption._time("s", 60.0)
    assert [without for name, without in timing.asked if name == "simt_async"] == [[BAD, WORSE]]
    timing.bad.clear()
    assert adopt._Adoption(timing.adoption.live, tmp_path, True)._time("s", 60.0)
    assert timing.asked[-1] == ("simt_async", [])
    assert not list(tmp_path.glob("lost-*"))


def test_kernels_that_take_columns_of_any_alignment_are_timed_by_themselves(
    timing, tmp_path, monkeypatch
) -> None:
    assert timing.adoption._time("s", 60.0)
    assert not timing.unaligned  # simt_async's see alignment by their launch mode
    families = [SimpleNamespace(name="wgmma"), SimpleNamespace(name="skinny")]
    monkeypatch.setattr("tilewright.stencil.stencils_for", lambda *_: families)
    assert timing.adoption._time("bf16", 60.0)
    assert timing.unaligned == ["wgmma"]
    assert [name for name, _ in timing.asked[-3:]] == ["skinny", "wgmma", "wgmma"]
    assert (tmp_path / "also-wgmma-unaligned-bf16.json").exists()


def test_no_process_begins_anew_when_time_is_up(timing) -> None:
    timing.bad += [BAD, WORSE]
    for _ in timing.bad:  # one less each time
        with pytest.raises(RuntimeError, match="simt_async has no time left; run it again"):
            timing.adoption._time("s", 0.0)
    assert timing.adoption._time("s", 0.0)


def test_what_is_right_serves_while_others_are_still_to_be_run(
    cpu, tmp_path, monkeypatch, capsys
) -> None:
    class Verifier:
        def __init__(self, asked, env, **_) -> None:
            assert env["OPENBLAS_NUM_THREADS"] == "1"
            asked[-1].write_text('{"ab12": "here"}')

        def communicate(self):
            return '[{"wrong": {}, "left": 1}]', None

        terminate = wait = lambda _: None

    built = []
    monkeypatch.setattr(subprocess, "Popen", Verifier)
    monkeypatch.setattr(adopt._Adoption, "_build", lambda _, *about: built.append(about))
    (tmp_path / "built-s").mkdir()
    assert not adopt._Adoption(cpu, tmp_path, False)._verify("s", 60.0)
    ((name, _, right),) = built
    assert (name, json.loads(right.read_text())) == ("s", {"ab12": "here"})
    assert "instances are still to be run" in capsys.readouterr().out


def test_a_cluster_of_another_device_is_refused(cpu, tmp_path) -> None:
    of = dict.fromkeys(RemoteDevice.__dataclass_fields__, "")
    told = {**of, "fingerprint": "another", "spec": SimpleNamespace(name="Another")}
    answer = SimpleNamespace(done=lambda: True, result=lambda timeout: told)
    client = SimpleNamespace(nthreads=lambda: {"tcp://one:1": 1}, submit=lambda *_, **__: answer)
    work = adopt._Adoption(cpu, tmp_path, False, None, client)
    with pytest.raises(ValueError, match=r"has Another .*, which is not adopted here"):
        work.look_at_workers()
