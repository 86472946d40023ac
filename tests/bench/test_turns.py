"""Turns of some seconds: what counts, what sensors tell, and what a sweep makes of it."""

from __future__ import annotations

import csv
import itertools
import json
from contextlib import nullcontext

import numpy as np
import pytest

from tilewright.backend import device
from tilewright.bench import turns
from tilewright.bench.peers import peer
from tilewright.bench.record import environment_record
from tilewright.bench.sweep import Method, sweep
from tilewright.cli.app import run
from tilewright.microbench.power import PowerSamples
from tilewright.microbench.sensors import Reading
from tilewright.problem import Problem


class Clock:
    """Time that only products take: a quarter of a second each, numbered 0, 1, ..."""

    def __init__(self, each=0.25):
        self.now, self.each, self.count = 0.0, each, 0

    def perf_counter(self):
        return self.now

    def product(self):
        self.now += self.each
        self.count += 1
        return self.count - 1


def no_sensors(live):
    raise ValueError("no sensors here")


@pytest.fixture
def blind(monkeypatch):
    monkeypatch.setattr("tilewright.microbench.power.sensors", no_sensors)


def test_what_begins_before_the_clock_has_settled_does_not_count(blind, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(turns, "time", clock)
    # Products begin at 0, 0.25, 0.5 and 0.75 s; 0.4 of the second do not count.
    assert turns.turn_of(None, clock.product, 1.0) == turns.Turn((2, 3), None, None)


def test_a_product_longer_than_its_turn_counts_once_it_has_warmed_up(blind, monkeypatch):
    clock = Clock(each=7.0)
    monkeypatch.setattr(turns, "time", clock)
    assert turns.turn_of(None, clock.product, 1.0).ns == (1,)


def test_sensors_are_read_of_what_counts_only(monkeypatch):
    """A device slows down as it settles: the medians are of the rest."""
    clock = Clock()
    monkeypatch.setattr(turns, "time", clock)

    readings = [(at / 10, Reading(2e9 - at * 1e8, 400.0 + at, None, None, 0)) for at in range(10)]
    monkeypatch.setattr(turns, "sample_power", lambda live: nullcontext(PowerSamples(readings)))
    found = turns.turn_of(None, clock.product, 1.0)
    assert (found.clock_hz, found.power_w) == (2e9 - 6.5e8, 406.5)


def test_everybody_has_as_many_turns_one_after_another(blind):
    order = []

    def call(name):
        order.append(name)
        return 5

    calls = {name: (lambda name=name: call(name)) for name in "ab"}
    times, sensed = turns.long_turns(None, calls, rounds=2, seconds=1e-4)
    assert set(times) == set(sensed) == {"a", "b"}
    assert all(set(of) == {5e-9} for of in times.values())
    assert [name for name, _ in itertools.groupby(order)] == ["a", "b", "a", "b"]


def test_energy_is_of_two_operations():
    """700 W at 50 TFLOP/s are 28 pJ for a multiply-add; unknown power is no energy."""
    assert turns.energy_j(700.0, 50e12) == pytest.approx(28e-12)
    assert turns.energy_j(None, 50e12) is None


def test_a_sweep_may_be_in_turns():
    live = device()
    problem = Problem(70, 60, 50, "s")
    method = Method(rounds=2, turn_seconds=0.05)
    (row,) = sweep(live, [problem], [peer("numpy", live)], method)
    assert set(row.seconds) == set(row.sensed) == {"tilewright", "numpy"}
    assert all(len(times) > 2 and min(times) > 0 for times in row.seconds.values())
    assert row.rate("tilewright") == problem.flops / np.median(row.seconds["tilewright"])
    assert row.total_seconds == {}
    told = environment_record(method)["method"]
    assert told.endswith("turns of 0.05 s, of which the first 0.02 s do not count")


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"turn_seconds": -1.0}, "turn_seconds=-1.0 is no time; use 0"),
        ({"turn_seconds": float("nan")}, "turn_seconds=nan is no time; use 0"),
        ({"turn_seconds": 1.0, "cache": "cold"}, "turn_seconds=1 keeps a device busy; leave out"),
        ({"turn_seconds": 1.0, "transfers": True}, "turn_seconds=1 keeps a device busy; leave out"),
    ],
)
def test_what_turns_are_not_for_is_refused(choices, message):
    with pytest.raises(ValueError, match=message):
        Method(**choices)


COMMAND = ["bench", "--size", "48", "--peer", "numpy", "--rounds", "1", "--turn", "0.05s"]


def test_the_command_tells_clocks_and_energies(tmp_path, monkeypatch, capsys):
    """In JSON, in CSV and in a line of its own; other rows stay without."""
    found = turns.Sensed(1.7e9, 700.0)
    taken = turns.long_turns
    monkeypatch.setattr(
        "tilewright.bench.sweep.long_turns",
        lambda *given: (taken(*given)[0], dict.fromkeys(("tilewright", "numpy"), found)),
    )
    out, lines = tmp_path / "bench.json", tmp_path / "bench.csv"
    assert run([*COMMAND, "--resume", str(out), "-o", str(lines)]) == 0
    assert capsys.readouterr().out.count("1.70 GHz;") == 2
    (row,) = json.loads(out.read_text())["devices"][0]["results"]
    assert row["options"]["turn_seconds"] == 0.05
    sensed = {"clock_hz": 1.7e9, "power_w": 700.0}
    assert row["sensed"] == {"tilewright": sensed, "numpy": sensed}
    with lines.open() as file:
        told = list(csv.DictReader(file))
    assert {(line["power_w"], line["rounds"]) for line in told} == {("700.0", "1")}
    # Single products are another measurement of the same problem.
    assert run([*COMMAND[:-2], "--resume", str(out)]) == 0
    both = json.loads(out.read_text())["devices"][0]["results"]
    assert ["sensed" in row for row in both] == [True, False]


def test_a_turn_that_is_no_time_is_one_line(capsys):
    assert run([*COMMAND[:-1], "long"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "turn='long' is not a duration; write it like" in line
