"""``tilewright microbench`` and ``devices --probe`` as a person uses them."""

from __future__ import annotations

import json
import tomllib

import pytest

from tilewright.backend import device
from tilewright.cli.app import run
from tilewright.microbench import Experiment, experiments, session


def test_experiments_by_name_write_a_file_after_each(tmp_path, capsys):
    path = tmp_path / "out.json"
    command = ["microbench", "peak", "link", "--device", "opencl:0", "--seconds", "4"]
    assert run([*command, "-o", str(path)]) == 0
    told = capsys.readouterr().out
    assert "Copies between host and device" in told
    document = json.loads(path.read_text())
    assert list(document["experiments"]) == ["peak", "link"]
    assert document["device"]["fingerprint"] == device("opencl:0").fingerprint
    assert document["environment"]["tilewright"]
    rows = document["experiments"]["peak"]["rows"]
    assert rows[0]["flops_per_second"] > 0
    assert document["experiments"]["link"]["sensors"]  # why there is no clock


def test_json_is_what_the_file_holds(capsys):
    assert run(["microbench", "peak", "--device", "opencl:0", "--seconds", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["experiments"]["peak"]["rows"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["microbench", "luck"], "experiment='luck' is unknown; use one of"),
        (["microbench", "--seconds", "0"], "--seconds"),
        (["microbench", "peak", "--device", "gtx580"], "device='gtx580' is not here"),
        (["devices", "--device", "opencl:0"], "--device='opencl:0' goes with --probe"),
        (["devices", "--probe", "-o", "x.json"], "give a name in .toml"),
        (["bound", "--device", "nowhere.toml"], "device='nowhere.toml' cannot be read"),
    ],
)
def test_wrong_usage_is_told_in_one_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.glob("x.*")) == []


def test_a_failing_experiment_ends_neither_the_run_nor_the_file(monkeypatch, tmp_path, capsys):
    def fails(live, emit, seconds):
        emit({"value": 1.0})
        raise ValueError("out of luck")

    sorry = Experiment("zz-sorry", "Fails", ("opencl",), fails)
    session.experiments()
    monkeypatch.setitem(experiments(), sorry.name, sorry)
    path = tmp_path / "out.json"
    command = ["microbench", "zz-sorry", "peak", "--device", "opencl:0", "--seconds", "3"]
    assert run([*command, "-o", str(path)]) == 0
    assert "zz-sorry ended early: out of luck" in capsys.readouterr().out
    told = json.loads(path.read_text())["experiments"]
    assert told["zz-sorry"]["rows"] == [{"value": 1.0}]
    assert told["peak"]["error"] == ""


def test_an_experiment_of_another_backend_is_refused(monkeypatch, capsys):
    session.experiments()
    other = Experiment("zz-other", "Elsewhere", ("cuda",), lambda *_: None)
    monkeypatch.setitem(experiments(), other.name, other)
    assert run(["microbench", "zz-other", "--device", "opencl:0"]) == 2
    assert "runs on cuda, not on opencl:0" in capsys.readouterr().err
    assert other not in session.fitting(device("opencl:0"))


def test_a_probe_is_a_device_for_bounds(tmp_path, capsys):
    path = tmp_path / "here.toml"
    command = ["devices", "--probe", "--device", "opencl:0", "--seconds", "4", "-o", str(path)]
    assert run(command) == 0
    assert f"tilewright bound --device {path}" in capsys.readouterr().out
    written = tomllib.loads(path.read_text())
    for name in ("memory_bytes_per_s", "link_bytes_per_s"):
        assert written["numbers"][name]["source"].startswith("measured: experiment ")
    assert run(["bound", "--device", str(path), "--size", "512", "--transfer", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["device"] == "here"
    assert told["flops_per_second"] > 0


def test_a_probe_says_which_experiment_ended_early(capsys, monkeypatch):
    def ended(device, chosen, seconds, done, *_):
        done(session.Result("mixes", "Mixtures", error="the loop is not what it was"))
        return []

    monkeypatch.setattr(session, "run_experiments", ended)
    assert run(["devices", "--probe", "--device", "cpu", "--seconds", "1"]) == 0
    printed = capsys.readouterr()
    assert "Mixtures: the loop is not what it was" in printed.err
    assert tomllib.loads(printed.out)["kind"] == "cpu"


def test_a_probe_goes_to_stdout_without_a_file(capsys, monkeypatch):
    monkeypatch.setattr(session, "run_experiments", lambda *_: [])
    assert run(["devices", "--probe", "--device", "opencl:0", "--seconds", "1"]) == 0
    written = tomllib.loads(capsys.readouterr().out)
    assert written["kind"] == "cpu"
    assert "memory_bytes_per_s" not in written["numbers"]  # unknown stays unknown
