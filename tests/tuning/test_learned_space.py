"""A learned stage of the funnel: about a tenth stays, with the best of the problem that is new."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.space import Config, Parameter, Space
from tilewright.tuning.learned_space import KEPT, LearnedSpace
from tilewright.tuning.strategies import Background, Lesson, strategy

pytest.importorskip("sklearn")


@pytest.fixture
def space():
    return Space("toy", [Parameter(x, tuple(range(10)), "a step", "nothing") for x in "xyz"])


def seconds(config, middle):
    return 1 + sum((config.integer(n) - best) ** 2 for n, best in zip("xyz", middle, strict=True))


def background(space, count=600):
    configs = space.sample(count, 1)
    times = np.array([seconds(config, (7, 3, 5)) for config in configs], float)
    lesson = Lesson(configs, times, np.zeros((count, 0)))
    return Background(lessons=lambda: (lesson,))


def test_a_tenth_stays_with_the_best_of_a_problem_like_the_lessons(space):
    pruned = LearnedSpace(space, background(space))
    kept = list(pruned.enumerate())
    assert 0.5 * KEPT < len(kept) / space.count() < 2 * KEPT
    assert pruned.count() == pytest.approx(len(kept), abs=5)
    everything = sorted(space.enumerate(), key=lambda one: seconds(one, (7, 3, 5)))
    assert all(pruned.contained(everything[:10]))
    assert everything[-1] not in pruned
    assert pruned.stage.survivors + pruned.stage.removed == space.count()
    assert "600 measurements" in pruned.stage.reason


def test_it_is_searched_like_any_space(space):
    start = Config("toy", {"x": 0, "y": 9, "z": 0})
    pruned = LearnedSpace(space, background(space), [start])
    assert start in pruned
    assert all(one in pruned for one in pruned.sample(20, 5))
    assert len(set(pruned.sample(20, 5))) == 20
    assert pruned.sample(20, 5) == pruned.sample(20, 5)
    for name in ("climb", "random", "exhaustive"):
        chosen = strategy(name, pruned, 0, [start])
        seen = []
        while (config := chosen.propose()) is not None:
            seen.append(config)
            chosen.observe(config, seconds(config, (7, 3, 5)))
        assert set(seen) <= set(pruned.enumerate())
        assert len(seen) == len(set(seen)) >= pruned.count()


def test_too_few_measurements_teach_nothing(space):
    with pytest.raises(ValueError, match="pruning='learned' has 50 measurements"):
        LearnedSpace(space, background(space, 50))
