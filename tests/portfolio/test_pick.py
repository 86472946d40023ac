"""Few kernels are picked that lose little beside all."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tilewright.portfolio.pick import pick


def losses(ns, columns):
    """Return what each problem loses with some kernels; one not timed counts as 10."""
    found = []
    for row in ns:
        have = [row[at] / min(row) - 1 if math.isfinite(row[at]) else 10.0 for at in columns]
        found.append(min(have))
    return found


def fewest(ns, mean, most):
    """Return the fewest kernels that keep both limits, by trying all sets."""
    for count in range(1, ns.shape[1] + 1):
        for columns in itertools.combinations(range(ns.shape[1]), count):
            lost = losses(ns, columns)
            if sum(lost) / len(lost) <= mean and max(lost) <= most:
                return count
    raise AssertionError("all together lose nothing")


def draw(seed: int, problems: int = 12, kernels: int = 6):
    """Return times with some that nobody took."""
    rng = np.random.default_rng(seed)
    ns = rng.integers(100, 200, (problems, kernels)).astype(float)
    ns[rng.random(ns.shape) < 0.2] = math.inf
    ns[np.isinf(ns).all(axis=1), 0] = 100.0
    return ns


@given(st.integers(0, 2**32), st.floats(0, 0.2), st.floats(0, 0.5))
def test_limits_are_kept(seed, mean, most):
    ns = draw(seed)
    picked = pick(ns, mean, most)
    assert len(set(picked)) == len(picked)
    lost = losses(ns, picked)
    assert np.mean(lost) <= mean + 1e-12
    assert max(lost) <= most + 1e-12
    before = losses(ns, picked[:-1]) if len(picked) > 1 else [10.0]
    assert np.mean(before) > mean or max(before) > most  # the last one was needed


def test_hardly_more_kernels_than_the_fewest_are_picked():
    """One after the other is not always the fewest, which nobody can find among hundreds."""
    drawn = [draw(seed, problems=8) for seed in range(20)]
    picked = sum(len(pick(ns, 0.05, 0.2)) for ns in drawn)
    assert picked <= 1.25 * sum(fewest(ns, 0.05, 0.2) for ns in drawn)


def test_one_kernel_is_enough_where_it_is_always_the_best():
    ns = np.array([[3.0, 1.0, 2.0], [6.0, 2.0, 2.0]])
    assert pick(ns, 0.0, 0.0) == (1,)


def test_each_problem_with_a_kernel_of_its_own_keeps_all():
    ns = np.full((4, 4), 1000.0)
    np.fill_diagonal(ns, 100.0)
    assert sorted(pick(ns, 0.01, 0.05)) == [0, 1, 2, 3]


def test_a_kernel_that_is_bad_somewhere_does_not_stay_alone():
    """Its mean is within the limit, one problem is not."""
    ns = np.full((10, 2), 100.0)
    ns[0, 0], ns[1:, 1] = 120.0, 101.0
    assert len(pick(ns, 0.05, 0.3)) == 1
    assert len(pick(ns, 0.05, 0.005)) == 2


def test_so_many_and_no_more():
    ns = np.full((4, 4), 1000.0)
    np.fill_diagonal(ns, 100.0)
    assert len(pick(ns, 0.0, 0.0, limit=2)) == 2
