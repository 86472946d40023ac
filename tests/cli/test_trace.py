"""``--trace``: every command can write what it did when, for Perfetto."""

from __future__ import annotations

import json
from collections import Counter
from weakref import WeakKeyDictionary

import jsonschema
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from tests.timeline.test_timeline import SCHEMA
from tilewright import timeline
from tilewright.backend import device
from tilewright.cli.app import app, run
from tilewright.cli.trace_option import add_trace_option
from tilewright.microbench.numbers import live_numbers
from tilewright.serve import kernels


def document(path):
    told = json.loads(path.read_text())
    jsonschema.validate(told, SCHEMA)
    return told


def spans(path):
    """Return how often each span occurs, and the spans of one process."""
    events = [event for event in document(path)["traceEvents"] if event["ph"] == "X"]
    return Counter(event["name"] for event in events), events


def commands(group, before=()):
    for command in group.registered_commands:
        yield [*before, command.name or command.callback.__name__.rstrip("_")]
    for inner in group.registered_groups:
        yield from commands(inner.typer_instance, (*before, inner.name))


@pytest.mark.parametrize("command", list(commands(app)), ids=" ".join)
def test_every_command_has_it(command, capsys):
    assert run([*command, "--help"]) == 0
    assert "--trace" in capsys.readouterr().out


def test_a_sweep_shows_compiling_copies_launches_and_waits(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(kernels, "_kernels", WeakKeyDictionary())  # none is loaded yet
    live_numbers(device())  # whose clock is measured by launches, once a process
    out = tmp_path / "out.json"
    command = ["bench", "--size", "64", "--rounds", "3", "--with-transfers", "--json"]
    assert run([*command, "--trace", str(out)]) == 0
    told = capsys.readouterr()
    json.loads(told.out)  # is left alone
    assert "open it at https://ui.perfetto.dev" in told.err
    count, events = spans(out)
    # On a CPU device each call that counts follows one that does not.
    products = 2 * 2 + 3 * 2 * 2
    assert count["gemm"] == count["launch"] == count["wait"] == products
    assert count["compile"] == 1
    assert count["copy to device"] == 3 + 2 * (2 + 6)
    assert count["copy to host"] == 3 + (2 + 6)
    assert count["SGEMM NN 64"] == count["command"] == 1
    copies = {event["args"]["bytes"] for event in events if event["name"] == "copy to device"}
    assert copies == {64 * 64 * 4}


def test_kernels_lie_between_their_launch_and_the_next(tmp_path):
    out = tmp_path / "out.json"
    assert run(["bench", "--size", "300", "--rounds", "5", "--trace", str(out)]) == 0
    _, events = spans(out)
    named = {name: [e for e in events if e["name"] == name] for name in ("launch", "gemm")}
    for name in named:
        named[name].sort(key=lambda event: event["ts"])
    for kernel, launch in zip(named["gemm"], named["launch"], strict=True):
        assert kernel["cat"] == "device"
        assert launch["ts"] <= kernel["ts"] + 100  # microseconds: two clocks drift
    for kernel, following in zip(named["gemm"], named["launch"][1:], strict=False):
        assert kernel["ts"] + kernel["dur"] <= following["ts"]


def test_a_tuning_run_shows_its_workers(tmp_path, capsys):
    out = tmp_path / "out.json"
    command = ["tune", "--size", "64", "--budget", "2s", "--strategy", "random"]
    assert run([*command, "--trace", str(out)]) == 0
    count, events = spans(out)
    assert count["search"] == count["race"] == count["certify"] == 1
    assert count["candidate: prepare"] > 0
    assert count["candidate: race"] in (1, 2)  # where there were many a heat comes first
    assert count["candidate: certify"] == 1
    candidates = [event for event in events if event["name"] == "candidate: prepare"]
    me = next(event["pid"] for event in events if event["name"] == "command")
    assert me not in {event["pid"] for event in candidates}
    assert all("block_m" in event["args"] for event in candidates)
    # One clock for all processes: workers work while the command runs.
    command = next(event for event in events if event["name"] == "command")
    assert all(command["ts"] <= e["ts"] <= command["ts"] + command["dur"] for e in candidates)


def test_a_product_of_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.ones((8, 8), "f4"))
    command = ["multiply", "a.npy", "a.npy", "-o", "c.npy", "--trace", "out.json"]
    assert run(command) == 0
    count, _ = spans(tmp_path / "out.json")
    assert count["choose"] == count["launch"] == count["gemm"] == 1


def test_a_command_that_fails_leaves_its_timeline(tmp_path, capsys):
    out = tmp_path / "out.json"
    assert run(["tune", "--size", "big", "--trace", str(out)]) == 2
    assert "size='big'" in capsys.readouterr().err
    assert spans(out)[0] == {"command": 1}
    assert not timeline.is_recording()


def test_a_timeline_that_could_not_be_written_is_not_said_to_be(tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device", "out.json")

    monkeypatch.setattr("tilewright.timeline.chrome.write_atomically", full)
    assert run(["bound", "--device", "h100", "--trace", str(tmp_path / "out.json")]) == 1
    told = capsys.readouterr().err
    assert "No space left" in told
    assert "spans" not in told


def test_nothing_runs_where_the_file_cannot_be(tmp_path, capsys):
    assert run(["tune", "--size", "big", "--trace", str(tmp_path)]) == 1
    assert f"{tmp_path} is not a plain file" in capsys.readouterr().err


def test_options_and_documentation_of_a_command_stay():
    """What typer makes of the changed function is the command as it was, and one option."""
    app = typer.Typer()

    @app.command()
    def greet(name: str, times: int = 2, loud: bool = False) -> None:
        """Say it."""
        typer.echo((name.upper() if loud else name) * times)

    @app.command()
    def other() -> None:
        """Do nothing."""

    add_trace_option(app)
    runner = CliRunner()
    assert runner.invoke(app, ["greet", "ha", "--loud", "--times", "3"]).output == "HAHAHA\n"
    assert "Say it." in runner.invoke(app, ["greet", "--help"]).output
    assert runner.invoke(app, ["greet"]).exit_code == 2
