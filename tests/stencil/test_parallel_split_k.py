"""Parallel split-K, whose parts of C a reduction kernel adds up: kernels run on the CPU.

What is asked here: how a launch is cut, that both kernels agree on who left which part, and who
stores which element, at every edge; and that grids of any number of slices are right.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.stencil.contract import checks, compiled, computes_the_product, fault_is_found, faulty
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.mma_f64 import test_stencil as test_mma_f64
from tests.stencil.portable_harness import variant
from tests.stencil.simt_async import test_stencil as test_simt_async
from tests.tuning.measurement_examples import example
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.problem import Problem
from tilewright.sass import read_cubin
from tilewright.space import Config
from tilewright.stencil import Variant
from tilewright.stencil.mma_f64 import MmaF64
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.forecast import forecast
from tilewright.tuning.reproduce import reproducer
from tilewright.tuning.verify import Bench, Check, certify

SIMT, MMA = SimtAsync(), MmaF64()

needs_nvrtc = pytest.mark.skipif(nvrtc() is None, reason="needs NVRTC: tilewright[tune]")
needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


def small(live: EmulatedDevice, name: str, family: Any = SIMT, **changes: int) -> Config:
    """Return a config of few threads with slices."""
    smalls = test_mma_f64.small if isinstance(family, MmaF64) else test_simt_async.small
    return smalls(variant(name), live, **{"parallel_split_k": 1, **changes})


def bench(live: EmulatedDevice, name: str, family: Any = SIMT, **changes: int) -> Bench:
    """Return such a config, compiled."""
    of, config = variant(name), small(live, name, family, **changes)
    return Bench(live, compiled(live, family, config, of), family, config, of)


@pytest.mark.every(3)
@needs_compiler
@pytest.mark.parametrize("name", ["sNT", "cCN", "dNN"])
def test_the_contract_is_kept(emulated: EmulatedDevice, name: str) -> None:
    """All classes of alpha and beta, ragged sizes, paddings, offsets, NaN and Inf."""
    run = bench(emulated, name, MMA if name[0] == "d" else SIMT)
    certify(emulated, run.kernel, run.stencil, run.config, run.variant)


# Copies of every kind: what a block does with its steps is the same as without slices.
WAYS: list[dict[str, Any]] = [
    {"name": "sTT"},
    {"name": "sNN", "lanes_m": 4, "block_n": 64},
    {"name": "sNT", "mode": "scalar"},
    {"name": "sTN", "mode": "clamped"},
    {"name": "zNC"},
]


@pytest.mark.every(2)
@needs_compiler
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_every_way_to_copy_serves_slices(emulated: EmulatedDevice, way: dict[str, Any]) -> None:
    name, mode = way["name"], way.get("mode", "plain")
    changes = {key: value for key, value in way.items() if key not in ("name", "mode")}
    config = small(emulated, name, **changes)
    computes_the_product(emulated, SIMT, config, variant(name), mode)


@pytest.mark.every(2)
@needs_compiler
@pytest.mark.parametrize("name", ["dTN", "zTC"])
def test_tensor_cores_have_slices(emulated: EmulatedDevice, name: str) -> None:
    computes_the_product(emulated, MMA, small(emulated, name, MMA), variant(name))


class Cut(SimtAsync):
    """The stencil with launches of so many slices, however many there are steps."""

    slices = 1

    def launch(self, config: Config, m: int, n: int, k: int = 0) -> Any:
        """Return the same launch, cut otherwise."""
        launch = super().launch(config, m, n, k)
        behind = launch.second_blocks if self.slices > 1 else 0
        grid = (launch.grid[0] * self.slices, 1)
        return replace(launch, grid=grid, split_k=None, second_blocks=behind)


@needs_compiler
@pytest.mark.parametrize("slices", [1, 2, 3, 7, 20])
def test_any_number_of_slices_is_right(emulated: EmulatedDevice, slices: int) -> None:
    """More than there are steps, too: those without a step leave zeros."""
    family = Cut()
    family.slices = slices
    of, config = variant("sNN"), small(emulated, "sNN")
    run = Bench(emulated, compiled(emulated, family, config, of), family, config, of)
    rng = np.random.default_rng(slices)
    for check in (Check(70, 40, 100, beta=1), Check(65, 33, 47, -3, 2, padding=3, offset=5)):
        run.exact(check, rng)


@needs_compiler
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(check=checks(4, 300), seed=st.integers(0, 2**32))
def test_any_problem_is_computed_exactly(emulated: EmulatedDevice, check: Check, seed: int) -> None:
    bench(emulated, "sNT").exact(check, np.random.default_rng(seed))


FAULTS = {
    "a slice too few": ("slice < slices;", "slice + 1 < slices;"),
    "a slice twice": ("slice = 1; slice < slices", "slice = 0; slice < slices"),
    "another tile's part": ("part_at(workspace, tile) +", "part_at(workspace, tile ^ 1) +"),
    "another slice's steps": ("BLOCK_ID / tiles, GRID", "0, GRID"),
}


@needs_compiler
@pytest.mark.parametrize("fault", FAULTS)
def test_the_emulator_finds(emulated: EmulatedDevice, fault: str) -> None:
    wrong, of = faulty(SimtAsync, *FAULTS[fault]), variant("sNT")
    fault_is_found(emulated, wrong, small(emulated, "sNT"), of)


@pytest.mark.every(2)
@needs_nvrtc
@pytest.mark.parametrize("name", ["sNT", "zCN"])
def test_a_forecast_is_of_what_multiplies(name: str) -> None:
    """Of both kernels of a cubin; a grid of few tiles is judged as it is cut."""
    of, device = variant(name), architecture_spec("sm_90a")
    config = SIMT.default(of, device).replace(parallel_split_k=1)
    source = SIMT.source(config, of, "cuda")
    cubin = compile_cubin(source, "sm_90a")
    assert {one.name for one in read_cubin(cubin.code).kernels} == {source.entry, source.second}
    launch = SIMT.launch(config, 256, 256, 8000)
    cut = forecast(cubin.code, launch, 132, source.dynamic_shared_bytes)
    few = forecast(cubin.code, replace(launch, split_k=None), 132, source.dynamic_shared_bytes)
    assert cut is not None
    assert few is not None
    assert cut > 5 * few


def test_slices_are_not_reproduced() -> None:
    """A reproducer is of one kernel, and says so."""
    device = architecture_spec("sm_90a")
    config = SIMT.default(variant("sNN"), device).replace(parallel_split_k=1)
    source = SIMT.source(config, variant("sNN"), "cuda")
    with pytest.raises(ValueError, match="two kernels"):
        reproducer(example(config=config, backend="cuda"), source, partial(SIMT.launch, config))


def test_a_launch_is_cut_where_k_is_known() -> None:
    config = SIMT.space(variant("sNN"), architecture_spec("sm_90a")).config(
        {**dict(SIMT.default(variant("sNN"), architecture_spec("sm_90a"))), "parallel_split_k": 1}
    )
    plain, cut = SIMT.launch(config, 300, 300), SIMT.launch(config, 300, 300, 100_000)
    assert plain.on(132).grid == plain.grid == cut.grid
    assert cut.on(132).grid[0] % plain.grid[0] == 0
    assert cut.on(132).grid[0] > plain.grid[0]
    assert cut.on(132).second.grid[0] % cut.on(132).grid[0] == 0


def test_results_of_slices_are_not_staged() -> None:
    device = architecture_spec("sm_90a")
    config = SIMT.default(variant("sNN"), device).replace(parallel_split_k=1)
    problem = Problem(301, 301, 100, "s")
    wanted = SIMT.geometry(config).mode(problem)
    assert not wanted.staged
    able = SIMT.modes(config, Variant.of(problem), device)
    assert wanted in able
    assert not any(mode.staged for mode in able)


def test_pairs_have_none() -> None:
    space = SIMT.space(variant("eNN"), architecture_spec("sm_90a"))
    config = SIMT.default(variant("eNN"), architecture_spec("sm_90a"))
    assert config in space
    assert config.replace(parallel_split_k=1) not in space
