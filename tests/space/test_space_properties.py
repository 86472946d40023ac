"""A space agrees with itertools.product in everything it says.

Random small spaces under random constraints are compared with the plain loop
over all points.  Each comparison runs in four ways: constraints tabulated or
evaluated directly, one diagram or many small blocks.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.space import Config, Constraint, Parameter, Space, automaton, component

NAMES = ("a", "b", "c", "d", "e")

# Each kind of condition a stencil writes, on one to four parameters.
PREDICATES = [
    (1, lambda x: x > 3),
    (1, lambda x: x % 2 == 0),
    (2, lambda x, y: x % y == 0),
    (2, lambda x, y: x * y <= 24),
    (2, lambda x, y: x != y),
    (3, lambda x, y, z: x * y + z <= 30),
    (3, lambda x, y, z: (x * y) % z == 0),
    (3, lambda x, y, z: x + y == z),
    (4, lambda x, y, z, w: np.minimum(x * y, z * w) >= 8),
    (4, lambda x, y, z, w: (x > y) | (z > w)),
    (2, lambda x, y: (x > 99) & (y > 99)),  # nothing passes
    (2, lambda x, y: (x > -99) | (y > -99)),  # everything passes
]


def renamed(predicate, variables, name):
    """Return a constraint whose predicate takes these names, as a stencil's lambda would."""
    arguments = ", ".join(variables)
    function = eval(f"lambda {arguments}: call({arguments})", {"call": predicate})
    return Constraint(name, function, f"reason {name}", "heuristic")


@st.composite
def spaces(draw):
    count = draw(st.integers(1, len(NAMES)))
    values = st.lists(st.integers(0, 12), min_size=1, max_size=5, unique=True)
    parameters = [Parameter(name, tuple(draw(values)), "", "") for name in NAMES[:count]]
    possible = [row for row in PREDICATES if row[0] <= count]
    constraints = []
    for i in range(draw(st.integers(0, 4))):
        arity, predicate = draw(st.sampled_from(possible))
        variables = draw(st.permutations(NAMES[:count]))[:arity]
        constraints.append(renamed(predicate, variables, f"constraint {i}"))
    return Space("toy", parameters, constraints)


@pytest.fixture(
    params=[(2**20, 2**22), (0, 2**22), (2**20, 1), (0, 1), (30, 20)],
    ids=["tables", "direct", "tables-blocks", "direct-blocks", "mixed"],
    scope="module",
)
def engine(request):
    """Run the engine's rare branches on spaces small enough to check."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(automaton, "TABLE_POINTS", request.param[0])
        patch.setattr(component, "MOST_EDGES", request.param[1])
        yield


def holds(constraint, point):
    # 0-d arrays, so that x % 0 is NumPy's 0 here too.
    values = [np.asarray(point[name]) for name in constraint.variables]
    with np.errstate(all="ignore"):
        return bool(constraint.predicate(*values))


def brute(space, stages=None):
    """Return the set of valid points, by trying them all."""
    names = [p.name for p in space.parameters]
    points = itertools.product(*(p.values for p in space.parameters))
    kept = space.constraints[:stages]
    return {
        point
        for point in points
        if all(holds(c, dict(zip(names, point, strict=True))) for c in kept)
    }


def as_tuple(space, config):
    return tuple(config[p.name] for p in space.parameters)


@given(space=spaces())
@settings(max_examples=60)
def test_counts_and_funnel(engine, space):
    expected = brute(space)
    assert space.raw_size == math.prod(len(p) for p in space.parameters)
    assert space.count() == len(expected)
    funnel = space.funnel()
    assert [s.survivors for s in funnel] == [
        len(brute(space, i)) for i in range(1, len(space.constraints) + 1)
    ]
    assert sum(s.removed for s in funnel) == funnel.raw_size - funnel.survivors
    assert [s.name for s in funnel] == [c.name for c in space.constraints]


@given(space=spaces(), chunk=st.integers(1, 50))
@settings(max_examples=60)
def test_enumeration_is_exact_and_in_the_documented_order(engine, space, chunk):
    listed = list(space.enumerate(chunk=chunk))
    assert {as_tuple(space, config) for config in listed} == brute(space)
    codes = [
        tuple(
            p.values.index(config[p.name])
            for name in space.order
            for p in space.parameters
            if p.name == name
        )
        for config in listed
    ]
    assert codes == sorted(set(codes))
    assert listed == list(space)
    columns = space.columns()
    assert list(columns) == [p.name for p in space.parameters]
    rows = list(zip(*(column.tolist() for column in columns.values()), strict=True))
    assert rows == [as_tuple(space, config) for config in listed]


@given(space=spaces(), seed=st.integers(0, 2**32), share=st.floats(0, 1))
@settings(max_examples=60)
def test_samples_are_valid_distinct_and_repeatable(engine, space, seed, share):
    wanted = int(share * space.count())
    drawn = space.sample(wanted, seed=seed)
    assert len(set(drawn)) == len(drawn) == wanted
    assert {as_tuple(space, config) for config in drawn} <= brute(space)
    assert drawn == space.sample(wanted, seed=seed)


@given(space=spaces(), data=st.data())
@settings(max_examples=60)
def test_one_point_is_judged_as_the_loop_judges_it(engine, space, data):
    point = {p.name: data.draw(st.sampled_from(p.values)) for p in space.parameters}
    assert space.violated(point) == [c for c in space.constraints if not holds(c, point)]
    valid = brute(space)
    assert (point in space) == (as_tuple(space, point) in valid)

    found = space.neighbours(Config("toy", point))
    assert len(set(found)) == len(found)

    def changes(candidate):
        return [
            abs(p.values.index(candidate[p.name]) - p.values.index(point[p.name]))
            for p in space.parameters
            if candidate[p.name] != point[p.name]
        ]

    names = [p.name for p in space.parameters]
    expected = {
        candidate
        for candidate in valid
        if len(changes(dict(zip(names, candidate, strict=True)))) == 1
    }
    assert {as_tuple(space, config) for config in found} == expected
    distances = [changes(config)[0] for config in found]
    assert distances == sorted(distances)
