"""Recorded spaces: read from every kind of file, searched like any space."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest

from tests.tuning.measurement_examples import example
from tests.tuning.recorded.examples import cache
from tilewright.cli.app import run
from tilewright.problem import Problem
from tilewright.tuning.budget import Budget, Within, budget_of
from tilewright.tuning.measurement import Status
from tilewright.tuning.recorded import read_recordings
from tilewright.tuning.recorded.reading import RecordingError
from tilewright.tuning.recorded.simulate import simulate
from tilewright.tuning.strategies import strategy
from tilewright.tuning.t4 import write_t4


@pytest.fixture
def recording(tmp_path):
    return read_recordings(cache(tmp_path / "cache.json"))[0]


@pytest.mark.parametrize("cut", [False, True])
def test_kernel_tuners_caches_are_read_whole_or_cut(tmp_path, cut):
    (one,) = read_recordings(cache(tmp_path / "cache.json", cut=cut))
    assert [p.name for p in one.space.parameters] == ["x", "y", "z"]
    assert (len(one), int(np.isnan(one.seconds).sum())) == (8 * 6 * 3, 18)
    assert one.best == pytest.approx(1e-3)
    assert one.typical_cost == pytest.approx(0.5)
    assert one.about == {"device": "a device", "fixed": {"fixed": 7}}


def test_our_exports_hold_a_recording_for_each_problem(tmp_path):
    other = Problem(64, 32, 16, "d")
    measured = [example(block=block) for block in range(3)]
    measured += [replace(one, problem=other) for one in measured]
    measured.append(example(block=9, status=Status.CRASH))
    write_t4(tmp_path / "plain.json", measured)
    packed = tmp_path / "packed.json.gz"
    packed.write_bytes(gzip.compress((tmp_path / "plain.json").read_bytes()))
    for path in (tmp_path / "plain.json", packed):
        first, second = read_recordings(path)
        assert (len(first), len(second)) == (4, 3)
        assert np.isnan(first.seconds[3])
        assert first.reasons[3] == "runtime"
        assert second.about["problem"]["k"] == 16


def test_numbers_of_machine_code_are_features_and_rates_are_not(tmp_path):
    entries = [
        {
            "configuration": {"x": x},
            "invalidity": "correct",
            "measurements": [
                {"name": "time", "value": 1.0 + x, "unit": "ms"},
                {"name": "GFLOP/s", "value": 9.0, "unit": "GFLOP/s"},
                {"name": "registers", "value": 10 * x, "unit": "static"},
            ],
        }
        for x in range(3)
    ]
    path = tmp_path / "t4.json"
    path.write_text(json.dumps({"schema_version": "1.0.0", "results": entries}))
    (one,) = read_recordings(path)
    assert list(one.features) == ["registers"]
    assert one.features["registers"].tolist() == [0, 10, 20]


@pytest.mark.parametrize("text", ["", "{}", '{"results": [{}]}', '{"cache": {}}', "\0"])
def test_other_files_are_refused_in_one_line(tmp_path, text):
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(RecordingError, match=r"^[^\n]*file\.json[^\n]*$"):
        read_recordings(path)
    with pytest.raises(RecordingError, match="missing"):
        read_recordings(tmp_path / "missing.json")


def _cache(*times):
    points = {str(x): {"x": x, "time": time} for x, time in enumerate(times)}
    return json.dumps({"tune_params_keys": ["x"], "cache": points})


def _cache_of(values):
    points = {str(at): {"x": x, "time": 1.0} for at, x in enumerate(values)}
    return json.dumps({"tune_params_keys": ["x"], "cache": points})


def _named(first, second):
    points = {f"{x}": {first: x % 2, second: x // 2, "time": 1.0} for x in range(4)}
    return json.dumps({"tune_params_keys": [first, second], "cache": points})


def test_a_time_beyond_all_numbers_is_none(tmp_path):
    path = tmp_path / "file.json"
    path.write_text(_cache(1.0, 2.0, 10**400))
    (one,) = read_recordings(path)
    assert np.isnan(one.seconds[2])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "JSON, but no recorded space"),
        ("null", "JSON, but no recorded space"),
        (_cache(1.0), "one point only"),
        (_named("a-b", "a.b"), "two parameters are 'a_b'"),
        (_cache_of([1, "1"]), "repeats a value"),
        (_cache(1.0, 0.0), r'time 0 ms of {"x": 1} is none'),
        (_cache(-2.5, 1.0), r'time -2.5 ms of {"x": 0} is none'),
    ],
)
def test_what_cannot_be_searched_is_named_with_its_file(tmp_path, text, said):
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(RecordingError, match=rf"^[^\n]*file\.json: [^\n]*{said}[^\n]*$"):
        read_recordings(path)


@pytest.mark.parametrize(
    "given",
    ["--precision=d", "--size=1024", "--trans=TN", "--pruning=learned", "--device=x", "--afresh",
     "--unproved-schedules"],
)  # fmt: skip
def test_options_of_devices_are_refused_beside_simulated_ones(tmp_path, capsys, given):
    simulated = ["tune", "--simulate", str(cache(tmp_path / "cache.json"))]
    assert run([*simulated, "--strategy", "random", "--budget", "3 candidates"]) == 0
    assert run([*simulated, given]) == 2
    assert f"{given.partition('=')[0]}" in capsys.readouterr().err


def test_neighbours_are_the_recorded_points_that_differ_in_one_parameter(recording):
    space = recording.space
    here = space.configs[space.row({"x": 4, "y": 2, "z": 1})]
    near = space.neighbours(here)
    assert len(near) == 7 + 5 + 2
    assert {tuple(one.values()) for one in near[:6]} == {
        (3, 2, 1), (5, 2, 1), (4, 1, 1), (4, 3, 1), (4, 2, 0), (4, 2, 2),
    }  # fmt: skip
    assert {"x": 9, "y": 0, "z": 0} not in space
    assert space.sample(5, 3) == space.sample(5, 3)
    assert space.contained([here, {"x": 9, "y": 0, "z": 0}]) == [True, False]


def test_a_simulated_search_finds_the_optimum_and_repeats(recording):
    runs = [simulate(recording, "climb", 4, Budget(candidates=100)) for _ in range(2)]
    assert runs[0].rows.tolist() == runs[1].rows.tolist()
    assert len(set(runs[0].rows.tolist())) == 100
    assert runs[0].best_so_far(recording)[-1] == recording.best
    assert runs[0].spent(recording)[-1] >= 50.0


def test_budgets_end_a_search(recording):
    assert len(simulate(recording, "random", 0, Budget(seconds=5.2))) == 11
    assert len(simulate(recording, "random", 0, Budget(candidates=7))) == 7
    ended = simulate(recording, "random", 1, Budget(patience=10)).best_so_far(recording)
    assert ended[-11] == ended[-1] < ended[-12]
    assert len(simulate(recording, "random", 1, Budget())) == len(recording)


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("90s", Budget(seconds=90)),
        (7, Budget(seconds=7)),
        ("10m, 500 candidates", Budget(seconds=600, candidates=500)),
        ("converged", Budget(patience=100)),
        ("converged 25,2h", Budget(seconds=7200, patience=25)),
    ],
)
def test_budgets_are_written_in_words(text, budget):
    assert budget_of(text) == budget


@pytest.mark.parametrize("text", ["", "soon", "0s", "-3", "0 candidates", "converged 0", True])
def test_other_budgets_are_named(text):
    with pytest.raises(ValueError, match=f"budget={text!r}"):
        budget_of(text)


def test_a_strategy_within_a_budget_proposes_no_more(recording):
    few = Within(strategy("random", recording.space, 0, []), Budget(candidates=3))
    assert sum(few.propose() is not None for _ in range(5)) == 3
    patient = Within(strategy("random", recording.space, 0, []), Budget(patience=4))
    for _ in range(5):
        patient.observe(patient.propose(), 1.0)
    assert patient.propose() is None
