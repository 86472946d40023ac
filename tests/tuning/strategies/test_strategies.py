"""Strategies on a landscape whose best point is known: no device needed."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from tilewright.space import Config, Constraint, Parameter, Space
from tilewright.tuning.recorded.space import RecordedSpace
from tilewright.tuning.strategies import STRATEGIES, Background, Lesson, base, strategy
from tilewright.tuning.strategies.lessons import Experience
from tilewright.tuning.strategies.pool import Pool
from tilewright.tuning.strategies.surrogate import Surrogate


@pytest.fixture
def space():
    values = tuple(range(12))
    parameters = [Parameter(name, values, "a step", "nothing") for name in "xyz"]
    rule = Constraint("off the diagonal", lambda x, y: x != y, "for the test", "heuristic")
    return Space("toy", parameters, [rule])


def seconds(config):
    """A valley with its floor at (7, 3, 9)."""
    return 1 + sum(
        (config.integer(n) - best) ** 2 for n, best in zip("xyz", (7, 3, 9), strict=True)
    )


def drive(chosen, tries):
    """Run a strategy as the tuner does; return the configs in order."""
    seen = []
    for _ in range(tries):
        config = chosen.propose()
        if config is None:
            break
        seen.append(config)
        chosen.observe(config, seconds(config))
    return seen


@pytest.fixture
def small():
    parameters = [Parameter(name, tuple(range(4)), "a step", "nothing") for name in "xyz"]
    rule = Constraint("off the diagonal", lambda x, y: x != y, "for the test", "heuristic")
    return Space("toy", parameters, [rule])


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_every_point_once_and_nothing_else(name, small, space):
    if name in ("climb", "random", "exhaustive", "guided"):
        small = space
    seen = drive(strategy(name, small, 0, []), 10_000)
    assert len(seen) == len(set(seen)) == small.count()
    assert all(config in small for config in seen)


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_points_without_neighbours_are_all_tried(name, space):
    rng = np.random.default_rng(0)
    codes = np.stack([rng.permutation(12) for _ in space.parameters], axis=1)
    thin = RecordedSpace("toy", space.parameters, codes)
    seen = drive(strategy(name, thin, 0, []), 10_000)
    assert len(seen) == len(set(seen)) == 12
    assert all(config in thin for config in seen)


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_results_may_come_late_and_out_of_order(name, small):
    chosen, under_way, seen = strategy(name, small, 3, []), [], []
    for _ in range(400):
        config = chosen.propose()
        if config is not None:
            seen.append(config)
            under_way.append(config)
        if under_way and (config is None or len(under_way) > 6):
            told = under_way.pop(len(under_way) // 2)
            chosen.observe(told, seconds(told) if told["x"] else None)
        elif config is None:
            break
    assert len(seen) == len(set(seen)) == small.count()


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_starting_points_come_first_and_choices_repeat(name, space):
    start = [Config("toy", {"x": 1, "y": 2, "z": 3})]
    first = drive(strategy(name, space, 5, start), 60)
    assert first[0] == start[0]
    assert first == drive(strategy(name, space, 5, start), 60)


def test_climbing_finds_the_floor_in_a_fraction_of_the_space(space):
    seen = drive(strategy("climb", space, 0, []), 250)
    assert min(map(seconds, seen)) == 1
    assert len(seen) < space.count() / 6


def test_the_model_finds_the_floor_in_a_few_candidates(space):
    seen = drive(strategy("learned", space, 0, []), 60)
    assert min(map(seconds, seen)) == 1


def test_a_model_is_not_fitted_for_each_of_many_that_are_under_way(space, monkeypatch):
    fitted, fit = [], Surrogate.fit
    monkeypatch.setattr(
        Surrogate, "fit", lambda self, *about: (fitted.append(about), fit(self, *about))
    )
    chosen = strategy("learned", space, 0, [])
    drive(chosen, 6)
    fitted.clear()
    under_way = [chosen.propose() for _ in range(64)]
    assert len(set(under_way)) == 64
    assert len(fitted) < 16


def test_lessons_of_another_problem_come_first(space):
    configs = list(space.enumerate())
    times = np.array([seconds(config) for config in configs])
    lesson = Lesson(configs, times, np.zeros((len(configs), 0)))
    known = Background(lessons=lambda: (lesson,))
    seen = drive(strategy("learned", space, 0, [], known), 5)
    assert min(map(seconds, seen)) <= 2


def test_what_numbers_do_not_tell_of_a_kernel_is_known_from_other_sizes(space):
    configs = list(space.enumerate())
    times = np.array([seconds(config) for config in configs])
    odd = configs.index(min(configs, key=lambda one: (one["x"] != 2, seconds(one))))
    times[odd] = 0.5  # the fastest, among slow neighbours
    places = {}
    for alike in (False, True):
        lesson = Lesson(configs, times, np.zeros((len(configs), 0)), alike)
        pool = Pool(space, 0, Background())
        scores = Experience([lesson], pool, 0).of(configs)
        places[alike] = int(np.sum(scores < scores[odd]))
    assert places[True] == 0 < places[False]


def test_a_static_model_ranks_what_is_tried(small):
    known = Background(forecast=lambda configs: np.array([one["x"] - one["z"] for one in configs]))
    first, second = drive(strategy("guided", small, 0, [], known), 2)
    assert {(one["x"], one["z"]) for one in (first, second)} == {(3, 0)}


def test_a_generation_waits_for_its_times(space):
    chosen = strategy("evolutionary", space, 0, [])
    while (config := chosen.propose()) is not None:
        last = config
        if config["x"] < 2:
            chosen.observe(config, None)
    chosen.observe(last, 1.0)
    assert chosen.propose() is None


def test_climbing_survives_failures(space):
    chosen = strategy("climb", space, 0, [])
    for _ in range(40):
        chosen.observe(chosen.propose(), None)
    assert chosen.propose() is not None


def test_climbing_goes_on_from_what_others_measured(space):
    chosen = strategy("climb", space, 0, [])
    near = Config("toy", {"x": 7, "y": 3, "z": 8})
    chosen.observe(near, seconds(near))
    seen = drive(chosen, 60)
    assert near not in seen
    assert min(map(seconds, seen)) == 1


def test_unknown_strategy_is_named(space):
    with pytest.raises(ValueError, match="strategy='guess'"):
        strategy("guess", space, 0, [])


@pytest.mark.parametrize("fitted", [Surrogate, Experience])
def test_models_take_one_thread_while_others_compile(space, monkeypatch, fitted):
    threads = []
    begun = fitted.__init__

    def watched(*args):
        threads.extend(one["num_threads"] for one in threadpool_info())
        begun(*args)

    monkeypatch.setattr(fitted, "__init__", watched)
    points = space.sample(50, 1)
    lesson = Lesson(points, np.array([seconds(one) for one in points]), np.zeros((50, 0)))
    known = Background(lessons=(lambda: [lesson]) if fitted is Experience else tuple)
    with threadpool_limits(2):
        drive(strategy("learned", space, 0, [], known), 12)
    assert set(threads) == {1}


@pytest.mark.parametrize(("name", "package"), [("learned", "sklearn"), ("evolutionary", "pymoo")])
def test_a_missing_package_is_told_at_once(name, package, space, monkeypatch):
    monkeypatch.setattr(base, "find_spec", lambda wanted: None)
    with pytest.raises(RuntimeError, match=f"{package}.*search"):
        strategy(name, space, 0, [])
    with pytest.raises(RuntimeError, match=r"sklearn.*search"):
        Experience([], None, 0)
