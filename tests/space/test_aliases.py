"""Stored configs, which spell their names as they were."""

from __future__ import annotations

import pytest

from tests.stencil.portable_harness import variant
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.space.aliases import (
    LAUNCH_MODES,
    RENAMED,
    RETIRED,
    current,
    oldest,
    oldest_macros,
)
from tilewright.stencil import Mode, stencil
from tilewright.stencil.geometry import MODES, PLAIN
from tilewright.stencil.stored import config_and_mode, stored_config
from tilewright.stencil.wgmma.named import variant_of

OF, H100 = variant("sNN"), architecture_spec("sm_90a")
SPACE = stencil("simt_async").space(OF, H100)
NOW = stencil("simt_async").default(OF, H100)
# As an older Tilewright wrote it.
STORED = {
    "b_first": 0, "block_k": 16, "block_m": 256, "block_n": 128, "copy_groups": 4, "k_vectors": 0,
    "lanes_m": 4, "raster_rows": 8, "resident": 1, "split_k": 1, "stages": 2, "tile_m": 16,
    "tile_n": 8, "unroll_k": 16, "walk": 1,
}  # fmt: skip


def test_at_the_value_that_is_left_it_is_the_point_without_it():
    stored = Config("simt_async", STORED)
    assert stored == NOW
    assert "k_vectors" not in stored
    assert stored in SPACE
    assert STORED in SPACE
    assert SPACE.config(STORED) == NOW
    assert SPACE.contained([STORED, stored]) == [True, True]
    assert SPACE.neighbours(STORED) == SPACE.neighbours(NOW)
    assert NOW.replace(k_vectors=0) == NOW


def test_it_keeps_the_id_under_which_it_was_stored():
    assert Config("simt_async", STORED).id == NOW.id == "4cc0a3423e9f"
    assert NOW.replace(walk=0).replace(walk=1).id == NOW.id


def test_at_another_value_it_is_no_point():
    other = Config("simt_async", STORED | {"k_vectors": 1})
    assert other["k_vectors"] == 1
    assert other.id != NOW.id
    assert other not in SPACE
    with pytest.raises(ValueError, match="k_vectors=1 is no parameter of simt_async"):
        SPACE.config(other)


def test_other_stencils_may_have_a_parameter_of_that_name():
    assert dict(Config("toy", {"k_vectors": 0})) == {"k_vectors": 0}
    assert current("toy", {"k_vectors": 0}) == {"k_vectors": 0}


def test_one_that_was_renamed_before_it_went_keeps_its_id():
    now = stencil("mma_f64").default(variant("dNN"), H100)
    for name in ("ahead", "double_buffered"):
        assert Config("mma_f64", {**now, name: 1}) == now
    assert now.id == "009858a5b0d2"


@pytest.mark.parametrize("name", RETIRED)
def test_what_is_retired_is_no_parameter(name):
    of = variant("dNN")
    names = {parameter.name for parameter in stencil(name).space(of, H100).parameters}
    assert not names & set(RETIRED[name])


# -- launch modes, which were parameters -----------------------------------------------------


def test_a_mode_at_0_goes_without_saying():
    named = NOW.replace(narrow=0, guarded=0, staged=0)
    assert (named, named.id) == (NOW, NOW.id)
    assert {**NOW, "narrow": 0} in SPACE


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("name", LAUNCH_MODES)
def test_a_stored_config_tells_its_mode(name, mode):
    config = stencil(name).default(variant("dNN"), H100)
    stored = stored_config(config, mode)
    assert config_and_mode(name, stored) == (config, mode)
    assert (stored.id == config.id) is (mode == PLAIN)


def test_ids_of_stored_configs_are_those_that_older_versions_gave():
    older = Config("simt_async", {**STORED, "narrow": 1, "staged": 1})
    assert older.id == stored_config(NOW, Mode(scalar=True, staged=True)).id == "ddcd1da82919"
    assert older not in SPACE


def test_a_mode_that_is_neither_on_nor_off_is_of_no_space():
    config, mode = config_and_mode("simt_async", {**NOW, "narrow": 2})
    assert mode == PLAIN
    assert config not in SPACE


@pytest.mark.parametrize("name", ["portable", "wgmma"])
def test_other_stencils_have_no_such_names(name):
    config, mode = config_and_mode(name, {"narrow": 1})
    assert (dict(config), mode) == ({"narrow": 1}, PLAIN)


# -- parameters of another name --------------------------------------------------------------


@pytest.mark.parametrize("name", RENAMED)
def test_a_stored_config_is_read_by_its_first_names(name):
    family = stencil(name)
    of = variant("sNN") if name != "mma_f64" else variant("dNN")
    of = of if name != "wgmma" else variant_of(Problem(1, 1, 1, "bf16"))
    now = family.default(of, H100)
    stored = oldest(name, now)
    assert (Config(name, stored), Config(name, stored).id) == (now, now.id)
    assert now.keys() & set(RENAMED[name].values())
    assert not now.keys() & set(RENAMED[name])
    names = {parameter.name for parameter in family.space(of, H100).parameters}
    assert set(RENAMED[name].values()) <= names | set(RETIRED.get(name, ()))
    assert not names & set(RENAMED[name])
    assert family.space(of, H100).config(stored) == now


def test_a_change_by_a_first_name_is_a_change_of_the_parameter():
    assert NOW.replace(split_k=2) == NOW.replace(cluster_k=2) != NOW
    assert NOW.replace(raster_rows=4)["swizzle_rows"] == 4


def test_macros_are_parameters():
    assert oldest_macros("wgmma", {"PINGPONG": 1, "TRANS_A": 0}) == {"TURNS": 1, "TRANS_A": 0}
    assert oldest_macros("copies", {"PINGPONG": 1}) == {"PINGPONG": 1}
