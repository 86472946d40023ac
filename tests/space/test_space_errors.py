"""Every refusal is one line that names the argument, its value and what to do."""

from __future__ import annotations

import math

import pytest

from tilewright.space import Config, Constraint, Parameter, Space

GOOD = {"block_m": 64, "dim_m": 8, "layout": "row"}


@pytest.fixture
def space():
    return Space(
        "toy",
        [
            Parameter("block_m", (16, 64), "rows of a tile", "shared memory"),
            Parameter("dim_m", (8, 32), "threads along rows", "registers"),
            Parameter("layout", ("row", "column"), "order in shared memory", "nothing"),
        ],
        [
            Constraint(
                "whole tiles",
                lambda block_m, dim_m: block_m % dim_m == 0,
                "every thread computes as many rows",
                "divisibility",
            )
        ],
    )


def one_line(caught):
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (GOOD | {"dim_m": 9}, "dim_m=9 is not a choice; use one of 8, 32"),
        (GOOD | {"dim_m": 8.0}, "dim_m=8.0 is not a choice; use one of 8, 32"),
        (GOOD | {"dim_m": "8"}, "dim_m='8' is not a choice; use one of 8, 32"),
        (GOOD | {"layout": 1}, "layout=1 is not a choice; use one of 'row', 'column'"),
        (GOOD | {"layout": ["row"]}, "layout=['row'] is not a choice; use one of 'row', 'column'"),
        (
            GOOD | {"dim_x": 1},
            "dim_x=1 is no parameter of toy; leave it out or use one of block_m, dim_m, layout",
        ),
        ({"block_m": 16, "dim_m": 8}, "layout is missing; give one of 'row', 'column'"),
    ],
)
def test_points_outside_the_space(space, values, message):
    for check in (space.config, space.violated, space.neighbours):
        with pytest.raises(ValueError, match="is ") as caught:
            check(values)
        assert one_line(caught) == message
    assert values not in space


def test_a_config_from_a_file_is_checked(space):
    assert space.config(GOOD) == Config("toy", GOOD)
    with pytest.raises(ValueError, match="whole tiles") as caught:
        space.config(GOOD | {"block_m": 16, "dim_m": 32})
    assert one_line(caught) == (
        "block_m=16, dim_m=32 fails constraint 'whole tiles' (divisibility): "
        "every thread computes as many rows; change one of them"
    )


def test_another_stencils_config_is_refused(space):
    stranger = Config("other", GOOD)
    assert stranger not in space
    assert 7 not in space
    with pytest.raises(ValueError, match="belongs to 'other'; give one of 'toy'"):
        space.config(stranger)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("2x", (1,), "name='2x' is not an identifier"),
        ("for", (1,), "name='for' is not an identifier"),
        ("x", (), "of parameter x is empty"),
        ("x", (1, 2, 1), "of parameter x repeats a value"),
        ("x", (1, "a"), "of parameter x must be all int or all str"),
        ("x", (1.5,), "of parameter x must be all int or all str"),
        ("x", (True, False), "of parameter x holds a bool; use 0 and 1"),
        ("x", (2**63,), "of parameter x exceeds 64 bits"),
    ],
)
def test_bad_parameters(name, values, message):
    with pytest.raises(ValueError, match=message) as caught:
        Parameter(name, values, "", "")
    one_line(caught)


@pytest.mark.parametrize(
    ("predicate", "kind", "message"),
    [
        (lambda x: x > 0, "magic", "kind='magic' of constraint 'bad' is unknown"),
        (lambda *x: True, "hardware", r"takes \*x; name each parameter"),
        (lambda: True, "hardware", "takes no parameter"),
        (math.hypot, "hardware", "constraint 'bad'"),
        (7, "hardware", "has no signature; wrap it in a lambda"),
    ],
)
def test_bad_constraints(predicate, kind, message):
    with pytest.raises(ValueError, match=message) as caught:
        Constraint("bad", predicate, "", kind)
    one_line(caught)


@pytest.mark.parametrize(
    "predicate",
    [
        lambda x: x > 0 and x < 9,
        lambda x: x + 1,
        lambda x: x > [1, 2, 3],
        lambda x: x.missing,
    ],
)
def test_a_predicate_that_is_not_elementwise_is_named(predicate):
    space = Space(
        "toy", [Parameter("x", (1, 2), "", "")], [Constraint("bad", predicate, "", "hardware")]
    )
    with pytest.raises(ValueError, match=r"constraint 'bad' failed on arrays .* elementwise"):
        space.count()


def test_bad_spaces():
    x = Parameter("x", (1, 2), "", "")
    on_y = Constraint("needs y", lambda x, y: x < y, "", "hardware")
    on_x = Constraint("same", lambda x: x > 1, "", "hardware")
    with pytest.raises(ValueError, match="constraint 'needs y' looks at 'y', which is no param"):
        Space("toy", [x], [on_y])
    with pytest.raises(ValueError, match="give at least one Parameter"):
        Space("toy", [])
    with pytest.raises(ValueError, match="parameters has two named 'x'; rename one"):
        Space("toy", [x, x])
    with pytest.raises(ValueError, match="constraints has two named 'same'; rename one"):
        Space("toy", [x], [on_x, on_x])


def test_bad_requests(space):
    with pytest.raises(ValueError, match="count=9 of 6 valid points; ask for 0 to 6"):
        space.sample(9, seed=0)
    with pytest.raises(ValueError, match="count=-1 of 6 valid points"):
        space.sample(-1, seed=0)
    with pytest.raises(ValueError, match="chunk=0 is not positive"):
        space.enumerate(chunk=0)
