"""`schedule`: one more parameter of CUDA stencils, for proved architectures only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.stencil.portable_harness import variant
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.space import Config, Parameter, Space
from tilewright.stencil import schedule_of, unscheduled
from tilewright.stencil.schedule import LEVELS, macros, permission, with_unproved
from tilewright.stencil.simt_async import SimtAsync

ROOT = Path(__file__).parents[2]
FAMILY = SimtAsync()
NT = variant("sNT")
H100 = architecture_spec("sm_90a")
CONFIG = FAMILY.default(NT, H100)


def against(config: Config, device, of=NT) -> list[str]:
    return [rule.kind for rule in FAMILY.space(of, device).violated(config)]


def test_nothing_is_rescheduled_where_nobody_proved_it() -> None:
    bare = replace(H100, schedules=())
    space = FAMILY.space(NT, bare)
    assert CONFIG in space
    for level in range(1, len(LEVELS)):
        assert against(CONFIG.replace(schedule=level), bare) == ["proof"]
    with pytest.raises(ValueError, match=r"schedule=1 fails .* \(proof\): rescheduled code runs"):
        space.config({**CONFIG, "schedule": 1})
    drawn = space.sample(50, seed=1)
    assert all(unscheduled(config) == config for config in drawn)


def test_a_proof_is_of_a_level_a_stencil_and_a_precision() -> None:
    level = LEVELS[1]
    assert level is not None
    device = replace(H100, schedules=(permission(FAMILY.name, "s", level),))
    assert against(CONFIG.replace(schedule=1), device) == []
    assert against(CONFIG.replace(schedule=2), device) == ["proof"]
    of = variant("cNT")
    assert against(FAMILY.default(of, device).replace(schedule=1), device, of) == ["proof"]
    other = replace(H100, schedules=(permission("another", "s", level),))
    assert against(CONFIG.replace(schedule=1), other) == ["proof"]


def test_whoever_asks_may_try_every_level_on_a_modelled_architecture_only() -> None:
    free = with_unproved(H100)
    assert against(CONFIG.replace(schedule=2), free) == []
    assert {n.get("schedule", 0) for n in FAMILY.space(NT, free).neighbours(CONFIG)} == set(
        range(len(LEVELS))
    )
    older = with_unproved(architecture_spec("sm_80"))
    config = FAMILY.default(NT, older).replace(schedule=1)
    assert against(config, older) == ["hardware"]


def test_a_config_without_the_parameter_is_that_of_no_schedule() -> None:
    """Configs stored before there was one keep their identity."""
    space = FAMILY.space(NT, H100)
    before = FAMILY.default(NT, H100)
    assert "schedule" not in before
    config = space.config({**before, "schedule": 0})
    assert config.id == before.id
    assert config == before


def test_the_text_never_sees_the_schedule() -> None:
    twin = FAMILY.source(CONFIG, NT, "cuda")
    made = FAMILY.source(CONFIG.replace(schedule=2), NT, "cuda")
    assert twin.schedule is None
    assert made.schedule == LEVELS[2]
    assert replace(made, schedule=None) == twin
    assert "SCHEDULE" not in macros(CONFIG.replace(schedule=2))
    assert schedule_of(CONFIG) is None


@pytest.mark.parametrize("level", [-1, len(LEVELS), "all"])
def test_a_level_that_there_is_not(level) -> None:
    with pytest.raises(ValueError, match=f"schedule={level!r} is no level; use one of 0 to"):
        schedule_of({"schedule": level})


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
