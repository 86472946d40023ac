"""`schedule`: a parameter of what is tuned, for proved levels on modelled architectures only."""

from __future__ import annotations

import pytest

from tests.stencil.portable_harness import variant
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.reschedule.levels import (
    LEVELS,
    baseline_and_level,
    level_of,
    may_reschedule,
    permission,
    schedule_space,
    unscheduled,
)
from tilewright.space import Config
from tilewright.stencil.geometry import MODES
from tilewright.stencil.portable import Portable
from tilewright.stencil.simt_async import SimtAsync

FAMILY = SimtAsync()
NT = variant("sNT")
H100 = architecture_spec("sm_90a")
CONFIG = FAMILY.default(NT, H100)
WALKED, AHEAD = LEVELS
ALL = [permission(FAMILY.name, "s", one) for one in LEVELS.values()]


def against(config: Config, proved=(), device=H100, of=NT) -> list[str]:
    return [rule.kind for rule in schedule_space(FAMILY, of, device, proved).violated(config)]


def test_nothing_is_rescheduled_where_nobody_proved_it() -> None:
    space = schedule_space(FAMILY, NT, H100)
    assert CONFIG in space
    for level in LEVELS:
        assert against(CONFIG.replace(schedule=level)) == ["proof"]
    with pytest.raises(ValueError, match=r"schedule=5 fails .* \(proof\): rescheduled code runs"):
        space.config({**CONFIG, "schedule": 5})
    drawn = space.sample(50, seed=1)
    assert all(unscheduled(config) == config for config in drawn)


def test_a_proof_is_of_a_level_a_stencil_and_a_precision() -> None:
    proved = [permission(FAMILY.name, "s", LEVELS[WALKED])]
    assert against(CONFIG.replace(schedule=WALKED), proved) == []
    assert against(CONFIG.replace(schedule=AHEAD), proved) == ["proof"]
    of = variant("cNT")
    config = FAMILY.default(of, H100).replace(schedule=WALKED)
    assert against(config, proved, of=of) == ["proof"]
    other = [permission("another", "s", LEVELS[WALKED])]
    assert against(CONFIG.replace(schedule=WALKED), other) == ["proof"]


def test_every_level_is_a_neighbour_on_a_modelled_architecture_only() -> None:
    space = schedule_space(FAMILY, NT, H100, ALL)
    assert {n.get("schedule", 0) for n in space.neighbours(CONFIG)} == {0, *LEVELS}
    older = architecture_spec("sm_80")
    config = FAMILY.default(NT, older).replace(schedule=WALKED)
    assert against(config, ALL, older) == ["hardware"]


def test_staged_kernels_are_not_rescheduled() -> None:
    assert [may_reschedule(mode) for mode in MODES] == [not mode.staged for mode in MODES]


def test_a_config_without_the_parameter_is_that_of_no_schedule() -> None:
    """Configs stored before there was one keep their identity."""
    space = schedule_space(FAMILY, NT, H100)
    assert "schedule" not in CONFIG
    config = space.config({**CONFIG, "schedule": 0})
    assert config.id == CONFIG.id
    assert config == CONFIG


def test_only_a_stencil_that_is_rescheduled_has_levels() -> None:
    of, other = variant("sNN"), Portable()
    names = {one.name for one in schedule_space(other, of, H100, ALL).parameters}
    assert names == {one.name for one in other.space(of, H100).parameters}
    config = Config("portable", {"schedule": 5})
    assert baseline_and_level(config) == (config, None)


def test_the_stencil_sees_its_own_parameters() -> None:
    assert baseline_and_level(CONFIG) == (CONFIG, None)
    assert baseline_and_level(CONFIG.replace(schedule=AHEAD)) == (CONFIG, LEVELS[AHEAD])
    assert "schedule" not in {one.name for one in FAMILY.space(NT, H100).parameters}


@pytest.mark.parametrize("level", [-1, 1, 4, 7, "all"])
def test_a_level_that_there_is_not(level) -> None:
    """1 to 4 were: a store may hold measurements of them."""
    with pytest.raises(ValueError, match=f"schedule={level!r} is no level; use 5 or 6, or 0"):
        level_of({"schedule": level})


def test_measurements_of_a_level_that_was_are_no_points() -> None:
    space = schedule_space(FAMILY, NT, H100, ALL)
    assert space.contained([CONFIG, CONFIG.replace(schedule=4)]) == [True, False]
