"""What a space is for, by example: pruning, funnels, huge counts, fair samples."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tilewright.space import Config, Constraint, Parameter, Space, automaton, component, composed


def choice(name, *values):
    return Parameter(name, values, f"sets {name}", f"more {name} costs more")


def block_space(**changes):
    """Return a small GEMM space with one constraint of each kind."""
    constraints = [
        Constraint(
            "threads",
            lambda dim_m, dim_n: dim_m * dim_n <= 256,
            "a thread block holds at most 256 threads",
            "hardware",
        ),
        Constraint(
            "whole tiles",
            lambda block_m, dim_m: block_m % dim_m == 0,
            "every thread computes as many rows",
            "divisibility",
        ),
        Constraint(
            "reuse",
            lambda block_m, dim_m: block_m // dim_m >= 2,
            "each load should feed two multiply-adds",
            "heuristic",
        ),
    ]
    parameters = [
        choice("block_m", 16, 32, 48, 64),
        choice("dim_m", 8, 16, 32),
        choice("dim_n", 8, 16, 32),
        choice("layout", "row", "column"),
    ]
    return Space("toy", parameters, changes.get("constraints", constraints))


def test_a_composed_predicate_names_the_parameters_of_its_quantities():
    """Arguments with a default are constants; quantities that it does not name are left out."""
    predicate = composed(
        lambda threads, dim_n: threads <= 32 * dim_n,
        threads=lambda *, dim_m, dim_n, warps=2: dim_m * dim_n * warps,
        unused=lambda block_m: block_m,
    )
    rule = Constraint("few", predicate, "many threads wait for each other", "heuristic")
    assert sorted(rule.variables) == ["dim_m", "dim_n"]
    space = block_space(constraints=[rule])
    assert {point["dim_m"] for point in space} == {8, 16}


def test_the_funnel_tells_what_each_constraint_removes():
    rows = [(s.name, s.kind, s.survivors, s.removed) for s in block_space().funnel()]
    assert rows == [
        ("threads", "hardware", 48, 24),
        ("whole tiles", "divisibility", 44, 4),
        ("reuse", "heuristic", 38, 6),
    ]


def test_the_funnel_of_a_free_space_is_empty():
    funnel = block_space(constraints=[]).funnel()
    assert (len(funnel), funnel.survivors) == (0, 72)


def test_columns_are_compact():
    columns = block_space().columns()
    assert {name: column.dtype.kind for name, column in columns.items()} == {
        "block_m": "u", "dim_m": "u", "dim_n": "u", "layout": "U",
    }  # fmt: skip
    assert columns["block_m"].itemsize == 1


def test_negative_and_large_values_keep_their_values():
    space = Space("toy", [choice("x", -1, 200), choice("y", 2**40, 0), choice("z", -1, 2**62)])
    columns = space.columns()
    assert [columns[n].itemsize for n in "xyz"] == [2, 8, 8]
    assert set(columns["x"].tolist()) == {-1, 200}
    assert set(columns["z"].tolist()) == {-1, 2**62}


def test_products_of_values_do_not_overflow():
    big = Constraint("big", lambda x, y: x * y >= 2**40, "must be big", "heuristic")
    space = Space("toy", [choice("x", 1, 2**21), choice("y", 1, 2**21)], [big])
    assert [(c["x"], c["y"]) for c in space] == [(2**21, 2**21)]


def test_a_huge_space_is_counted_and_sampled_exactly():
    # 30 chained parameters of 10 values: 1e30 raw points.  Valid are the sequences that
    # never step down; combinatorics counts those.
    names = [f"x{i}" for i in range(30)]
    parameters = [choice(name, *range(10)) for name in names]
    constraints = [
        Constraint(f"{a}<={b}", eval(f"lambda {a}, {b}: {a} <= {b}"), "ascending", "heuristic")
        for a, b in itertools.pairwise(names)
    ]
    space = Space("toy", parameters, constraints)
    assert space.raw_size == 10**30
    assert space.count() == math.comb(39, 9)
    assert space.funnel().stages[0].survivors == 55 * 10**28
    assert all(config in space for config in space.sample(50, seed=1))


def test_a_huge_component_with_more_points_than_64_bits():
    # Neighbours differ: 10 * 9**29 points, in one component.
    names = [f"x{i}" for i in range(30)]
    constraints = [
        Constraint(f"{a}!={b}", eval(f"lambda {a}, {b}: {a} != {b}"), "differ", "heuristic")
        for a, b in itertools.pairwise(names)
    ]
    space = Space("toy", [choice(name, *range(10)) for name in names], constraints)
    assert space.count() == 10 * 9**29
    drawn = space.sample(20, seed=3)
    assert len(set(drawn)) == 20
    assert all(config in space for config in drawn)
    first = list(itertools.islice(space, 3))
    assert all(config in space for config in first)
    with pytest.raises(ValueError, match=r"would not fit in memory; use enumerate\(\) or sample"):
        space.columns()


def test_free_parameters_are_never_expanded():
    parameters = [choice(f"x{i}", *range(10)) for i in range(100)]
    space = Space("toy", parameters)
    assert space.count() == 10**100
    assert len(set(space.sample(10, seed=0))) == 10
    assert next(iter(space)) == Config("toy", {f"x{i}": 0 for i in range(100)})


def test_direct_evaluation_splits_into_blocks_yet_stays_exact(monkeypatch):
    monkeypatch.setattr(automaton, "TABLE_POINTS", 10)
    monkeypatch.setattr(component, "MOST_EDGES", 1000)
    names = "abcdef"
    total = Constraint("sum", lambda a, b, c, d, e, f: a + b + c + d + e + f == 12, "", "heuristic")
    space = Space("toy", [choice(name, *range(5)) for name in names], [total])
    expected = sum(sum(p) == 12 for p in itertools.product(range(5), repeat=6))
    assert space.count() == expected
    assert len(set(space)) == expected


@pytest.mark.parametrize("edges", [2**22, 4], ids=["one diagram", "blocks"])
def test_samples_are_uniform(monkeypatch, edges):
    monkeypatch.setattr(component, "MOST_EDGES", edges)
    space = block_space()
    order = {config: i for i, config in enumerate(space)}
    draws, size = 2000, 3
    hits = np.zeros(len(order))
    first = np.zeros(len(order))
    for seed in range(draws):
        drawn = space.sample(size, seed=seed)
        first[order[drawn[0]]] += 1
        for config in drawn:
            hits[order[config]] += 1
    # 37 degrees of freedom: chi-square exceeds 69.3 once in a thousand, and less often
    # where draws without replacement make the hits more even.
    for counts, total in ((hits, draws * size), (first, draws)):
        mean = total / len(order)
        assert ((counts - mean) ** 2 / mean).sum() < 69.3


def test_a_sample_depends_on_its_seed_alone():
    assert block_space().sample(10, seed=5) == block_space().sample(10, seed=5)
    assert block_space().sample(10, seed=5) != block_space().sample(10, seed=6)


def test_neighbours_come_nearest_first():
    space = block_space(constraints=[])
    start = Config("toy", {"block_m": 16, "dim_m": 16, "dim_n": 8, "layout": "row"})
    changed = [
        next((name, config[name]) for name in start if config[name] != start[name])
        for config in space.neighbours(start)
    ]
    assert changed == [
        ("block_m", 32), ("dim_m", 8), ("dim_m", 32), ("dim_n", 16), ("layout", "column"),
        ("block_m", 48), ("dim_n", 32), ("block_m", 64),
    ]  # fmt: skip


def test_many_points_are_asked_at_once():
    space = block_space()
    points = [
        dict(zip(("block_m", "dim_m", "dim_n", "layout"), values, strict=True))
        for values in itertools.product((16, 32, 48, 99), (8, 16, 32), (8, 16), ("row", "up"))
    ]
    points += [{"block_m": 16}, Config("another", points[0]), *space.sample(3, seed=0)]
    found = space.contained(points)
    assert found == [point in space for point in points]
    assert 0 < sum(found) < len(points)
    assert space.contained([]) == []
    assert space.contained([{}]) == [False]


def test_string_values_take_part_in_constraints():
    only = Constraint(
        "rows", lambda layout, dim_m: (layout == "row") | (dim_m == 8), "", "heuristic"
    )
    space = block_space(constraints=[only])
    assert {(c["layout"], c["dim_m"]) for c in space} == {
        ("row", 8), ("row", 16), ("row", 32), ("column", 8),
    }  # fmt: skip


def test_a_default_argument_is_a_constant():
    limit = Constraint("limit", lambda dim_m, most=16: dim_m <= most, "", "hardware")
    assert limit.variables == ("dim_m",)
    assert block_space(constraints=[limit]).count() == 48


def later_space():
    """A space whose parameter `stays` came after configs that still hold."""
    stays = Parameter("stays", (0, 1), "whether blocks stay", "registers", unnamed=0)
    apart = Constraint(
        "apart", lambda split, stays: (split == 1) | (stays == 0), "one or the other", "heuristic"
    )
    return Space("toy", [choice("split", 1, 2), stays], [apart])


def test_a_parameter_that_came_later_leaves_older_configs_what_they_were():
    old = Config("toy", {"split": 2})
    space = later_space()
    assert old in space
    assert space.config({"split": 2, "stays": 0}) == old
    assert space.config({"split": 2, "stays": 0}).id == old.id
    assert [dict(one) for one in space] == [{"split": 1}, {"split": 1, "stays": 1}, {"split": 2}]
    assert space.count() == len(set(space)) == 3
    assert set(space.sample(3, 0)) == set(space)


def test_neighbours_of_an_older_config_have_the_newer_parameter():
    space = later_space()
    assert [dict(one) for one in space.neighbours({"split": 1})] == [
        {"split": 2},
        {"split": 1, "stays": 1},
    ]
    assert dict(space.neighbours({"split": 1, "stays": 1})[0]) == {"split": 1}
    with pytest.raises(ValueError, match="stays=1 fails"):
        space.config({"split": 2, "stays": 1})


def test_what_goes_without_saying_must_be_a_value():
    with pytest.raises(ValueError, match="stays=2 is not a choice"):
        Parameter("stays", (0, 1), "whether blocks stay", "registers", unnamed=2)


def test_a_parameter_that_came_later_goes_without_saying() -> None:
    """Any stencil may add one: what is stored keeps its meaning."""
    old = Parameter("x", (1, 2), "as ever", "nothing")
    new = Parameter("late", (0, 1), "new", "nothing", unnamed=0)
    space = Space("test", [old, new])
    assert {tuple(sorted(c.items())) for c in space} == {
        (("x", 1),), (("x", 2),), (("late", 1), ("x", 1)), (("late", 1), ("x", 2)),
    }  # fmt: skip
    assert space.config({"x": 1}) == Config("test", {"x": 1}) == space.config({"x": 1, "late": 0})
    (back,) = (c for c in space.neighbours({"x": 1, "late": 1}) if c["x"] == 1)
    assert back == Config("test", {"x": 1})
    assert len(space.columns()["late"]) == 4
    with pytest.raises(ValueError, match="late=7 is not a choice"):
        Parameter("late", (0, 1), "new", "nothing", unnamed=7)
    with pytest.raises(ValueError, match="x is missing"):
        space.config({"late": 1})
