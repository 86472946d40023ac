"""Scores of searches: 0 for random search, 1 for who knows the optimum; ours and Kernel Tuner's."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.tuning.measurement_examples import example
from tests.tuning.recorded.examples import cache
from tilewright.bench.searches.compare import PEER, compared, means, names_of
from tilewright.bench.searches.kernel_tuner import KernelTuner
from tilewright.bench.searches.score import budget_candidates, progress, random_search, score
from tilewright.cli.app import app
from tilewright.hardware.catalogue import recognised
from tilewright.problem import Problem
from tilewright.stencil import Variant, stencil
from tilewright.tuning.background import FEATURES
from tilewright.tuning.budget import Budget
from tilewright.tuning.recorded import read_recordings
from tilewright.tuning.recorded.known import lessons_from
from tilewright.tuning.recorded.simulate import Trajectory, simulate
from tilewright.tuning.t4 import write_t4


@pytest.fixture
def recording(tmp_path):
    return read_recordings(cache(tmp_path / "cache.json"))[0]


def test_random_search_is_expected_to_get_better_until_the_optimum(recording):
    expected = random_search(recording, np.arange(1.0, 127.0))
    assert np.all(np.diff(expected) <= 0)
    assert expected[0] == pytest.approx(np.median(recording.sorted_seconds), rel=0.1)
    assert expected[-1] == pytest.approx(recording.best)


def test_who_knows_the_optimum_scores_one_and_random_search_zero(recording):
    end = budget_candidates(recording)
    best = int(np.nanargmin(recording.seconds))
    others = [row for row in range(end + 1) if row != best][:end]
    knows = Trajectory(np.array([best, *others]), np.zeros(1 + len(others)))
    assert score(recording, [knows]) == pytest.approx(1.0)
    drawn = [simulate(recording, "random", seed, Budget(candidates=end)) for seed in range(60)]
    assert abs(score(recording, drawn)) < 0.35
    moments, standing = progress(recording, drawn, clock=True)
    assert len(moments) == len(standing)
    assert moments[-1] == pytest.approx(end * 0.5)


@pytest.mark.parametrize("name", ["random_sample", "simulated_annealing", "genetic_algorithm"])
def test_kernel_tuners_strategies_try_points_once(recording, name):
    pytest.importorskip("kernel_tuner")
    peer = KernelTuner(recording)
    run = peer.run(name, 1, 30)
    assert len(set(run.rows.tolist())) == len(run.rows) <= 30
    assert run.best_so_far(recording)[-1] < np.nanmedian(recording.seconds)


def test_rows_are_made_once_and_means_are_sorted(recording):
    rows = list(compared([recording], ["random", "climb"], 3))
    assert not list(compared([recording], ["random", "climb"], 3, rows))
    lines = means(rows)
    assert [line[0] for line in lines] == ["climb", "random"]
    assert lines[0][2] == max(row["score"] for row in rows)


def test_strategies_are_named():
    assert "exhaustive" not in names_of("all")
    assert names_of("climb,random,climb") == ["climb", "random"]
    assert PEER + "pso" in names_of("kernel_tuner")
    with pytest.raises(ValueError, match="strategies='guess'"):
        names_of("guess")


def test_the_command_writes_a_file_and_goes_on_from_it(tmp_path):
    file, output = cache(tmp_path / "cache.json"), tmp_path / "out.json"
    asked = ["bench", "strategies", str(file), "--seeds", "2", "-o", str(output)]
    for strategies in ("random", "random,climb"):
        done = CliRunner().invoke(app, [*asked, "--strategies", strategies])
        assert done.exit_code == 0, done.output
    rows = json.loads(output.read_text())["results"]
    assert [row["strategy"] for row in rows] == ["random", "climb"]


def test_tuning_is_simulated_without_a_device(tmp_path):
    file = cache(tmp_path / "cache.json")
    asked = ["tune", "--simulate", str(file), "--budget", "60 candidates", "--json"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.output)
    assert len(found["tried"]) == 60
    assert found["best_seconds"][-1] == pytest.approx(found["optimum_seconds"])


def test_pruning_is_judged_by_models_of_other_problems(tmp_path):
    pytest.importorskip("sklearn")
    family = stencil("simt_async")
    spec = recognised("NVIDIA H100 80GB HBM3").spec
    configs = family.space(Variant.of(Problem(1, 1, 1, "s")), spec).sample(60, 2)
    measured = [
        replace(
            example(config=config, times=(1000 * config.integer("stages") + at,)),
            problem=Problem(size, 512, 512, "s"), device_name="NVIDIA H100 80GB HBM3",
        )
        for size in (256, 512)
        for at, config in enumerate(configs)
    ]  # fmt: skip
    write_t4(tmp_path / "two.json", measured)
    first, second = lessons_from(
        [tmp_path / "two.json", cache(tmp_path / "cache.json")], family, Problem(1, 1, 1, "s")
    )
    assert first.configs == second.configs == configs
    assert first.features.shape == (60, len(FEATURES))
    done = CliRunner().invoke(app, ["bench", "pruning", str(tmp_path / "two.json"), "--json"])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.output)["results"]
    assert [row["points"] for row in rows] == [60, 60]
    for row in rows:
        assert row["thresholds"] == {"kept": 60, "of_best": 10, "fastest_share": 1.0}
        assert row["learned_tenth"]["kept"] == 6
        assert row["learned_tenth"]["fastest_share"] > 0.9
