"""What things cost is found from times; a kernel with few times borrows from its like."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.portfolio.examples import costs, kernel, rows_of
from tilewright.portfolio.fit import alike_costs, fitted_costs
from tilewright.portfolio.instances import NOT_STAGED
from tilewright.portfolio.model import TERMS, Model
from tilewright.problem import Problem
from tilewright.stencil.geometry import Geometry

PLAIN = Geometry(128, 64, (128, 1), tile_k=16, stages=3, resident=2)
STEPS = [TERMS.index("vector steps"), TERMS.index("scalar steps")]
SHARING = replace(PLAIN, persistent=True, stream_k=1)
LEAST = 128 * 64 / 256  # ns for the multiply-adds of a step
TRUE = {
    "launch": 2500.0,
    "vector steps": 39.0,
    "scalar steps": 55.0,
    "tiles": 300.0,
    "memory": 40.0,
}


def shapes(count: int, seed: int = 0) -> list[Problem]:
    rng = np.random.default_rng(seed)
    sides = np.exp2(rng.uniform(5, 12, (count, 3))).astype(int)
    sides[::2] = np.maximum(8, sides[::2] // 8 * 8)
    return [Problem(*map(int, side), "s") for side in sides]


def synthetic(geometry: Geometry, true: np.ndarray) -> dict[Problem, float]:
    model = Model((geometry,), true[None])
    return {one: float(model.expected(one, 132)[0]) for one in shapes(80)}


def test_steps_on_tensor_cores_may_cost_less_than_multiply_adds():
    """Of 16-bit operands a step of this tile takes 2 ns at their peak; other units take 32."""
    geometry = replace(PLAIN, tma=True)
    true = rows_of({"launch": 2500.0, "vector steps": 3.0, "memory": 400.0})
    model = Model((geometry,), true[None])
    problems = [replace(one, precision="bf16") for one in shapes(80)]
    times = {one: float(model.expected(one, 132)[0]) for one in problems}
    assert fitted_costs(geometry, times, times, 132)[STEPS[0]] == pytest.approx(3.0, rel=1e-6)


@pytest.mark.parametrize("geometry", [PLAIN, SHARING], ids=["plain", "sharing"])
def test_known_costs_are_found_again(geometry):
    true = rows_of(TRUE)
    times = synthetic(geometry, true)
    found = fitted_costs(geometry, times, times, 132)
    assert found == pytest.approx(true, rel=1e-6, abs=1e-6 * true.max())


@settings(max_examples=25)
@given(st.lists(st.floats(0, 1000), min_size=len(TERMS), max_size=len(TERMS)), st.integers(0, 9))
def test_costs_are_never_negative_and_times_come_out_again(true, seed):
    true = np.array(true) + 1e-3
    true[STEPS] += LEAST
    times = synthetic(SHARING, true)
    found = fitted_costs(SHARING, times, times, 132)
    assert (found >= 0).all()
    model = Model((SHARING,), found[None])
    for problem, ns in times.items():
        assert model.expected(problem, 132)[0] == pytest.approx(ns, rel=1e-4)
    noise = np.random.default_rng(seed).uniform(0.5, 2, len(times))
    spoilt = {one: ns * x for (one, ns), x in zip(times.items(), noise, strict=True)}
    assert (fitted_costs(SHARING, spoilt, spoilt, 132) >= 0).all()


@pytest.mark.parametrize("letter", ["s", "c"])
def test_a_step_costs_its_multiply_adds_whatever_the_times_say(letter):
    """Of the same short k alone, steps are told from tiles by nothing."""
    times = {Problem(m, 64, 16, letter): 5000.0 for m in range(128, 8192, 512)}
    found = fitted_costs(PLAIN, times, times, 132)
    assert (found[STEPS] >= LEAST * (4 if letter == "c" else 1)).all()
    long = Problem(128, 64, 160_000, letter)
    least = long.k * LEAST * (4 if letter == "c" else 1)
    assert Model((PLAIN,), found[None]).expected(long, 132)[0] >= least


def test_copies_that_were_never_timed_cost_what_the_others_do():
    aligned = {one: ns for one, ns in synthetic(PLAIN, rows_of(TRUE)).items() if not one.k % 8}
    aligned = {one: ns for one, ns in aligned.items() if not (one.m % 8 or one.n % 8)}
    vector, scalar = fitted_costs(PLAIN, aligned, aligned, 132)[STEPS]
    assert vector == pytest.approx(TRUE["vector steps"], rel=0.01)
    assert scalar == vector


def test_columns_of_c_that_were_never_timed_unaligned_are_not_free():
    """As of kernels that tensor maps feed: copies of A and B leave C as it is."""
    times = {one: ns for one, ns in synthetic(PLAIN, rows_of(TRUE)).items() if one.m % 4 == 0}
    found = fitted_costs(PLAIN, times, times, 132)
    assert found[TERMS.index("ragged C")] == NOT_STAGED


def test_what_is_slow_beside_the_best_weighs_less():
    """Half of the times are ten times as long; others are much faster there."""
    true = rows_of(TRUE)
    times = synthetic(PLAIN, true)
    slow = dict(list(times.items())[::2])
    spoilt = times | {one: 10 * ns for one, ns in slow.items()}
    best = times | {one: ns / 1000 for one, ns in slow.items()}
    kept = [one for one in times if one not in slow]
    model = Model((PLAIN,), fitted_costs(PLAIN, spoilt, best, 132)[None])
    for one in kept:
        assert model.expected(one, 132)[0] == pytest.approx(times[one], rel=0.02)


def test_a_kernel_with_one_time_takes_the_costs_of_the_most_similar_one():
    problem = Problem(1024, 1024, 1024, "s")
    near = kernel(problem, geometry=PLAIN, costs=costs(7.0))
    far = kernel(problem, geometry=replace(PLAIN, tile_m=32, persistent=True), costs=costs(1.0))
    untimed = kernel(problem, geometry=PLAIN)
    mine = replace(PLAIN, tile_k=32)
    found = alike_costs(mine, {problem: 5e5}, [far, untimed, near], 132)
    assert Model((mine,), found[None]).expected(problem, 132)[0] == pytest.approx(5e5)
    ratio = found[0] / near.costs[0]
    assert found == pytest.approx(np.array(near.costs) * ratio)


def test_costs_of_short_sums_are_not_borrowed_for_longer_ones():
    """However alike tiles are; and those of longer ones by nobody who is for short ones."""
    problem = Problem(1024, 1024, 4, "s")
    short = kernel(problem, geometry=replace(PLAIN, most_k=4), costs=costs(1.0))
    far = replace(PLAIN, tile_m=32, tile_n=32, tile_k=64, persistent=True)
    other = kernel(problem, geometry=far, costs=costs(7.0, launch=5000.0))
    for mine, lender in ((PLAIN, other), (short.geometry, short)):
        found = alike_costs(mine, {problem: 5e5}, [short, other], 132)
        ratio = found[0] / lender.costs[0]
        assert found == pytest.approx(np.array(lender.costs) * ratio)


def test_without_any_costs_there_is_nothing_to_borrow():
    problem = Problem(64, 64, 64, "s")
    assert not len(alike_costs(PLAIN, {problem: 1.0}, [kernel(problem)], 132))
