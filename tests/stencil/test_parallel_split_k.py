"""Parallel split-K: how a launch is cut, and who may have slices; `test_contract` runs them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from tests.stencil.contract import cut
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.portable_harness import variant
from tests.stencil.ways import SIMT, simt
from tests.tuning.measurement_examples import example
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.problem import Problem
from tilewright.sass import read_cubin
from tilewright.stencil import Variant
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.forecast import forecast
from tilewright.tuning.reproduce import reproducer
from tilewright.tuning.verify import Check

needs_nvrtc = pytest.mark.skipif(nvrtc() is None, reason="needs NVRTC: tilewright[tune]")
needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


@needs_compiler
@pytest.mark.parametrize("slices", [1, 2, 3, 7, 20])
def test_any_number_of_slices_is_right(emulated: EmulatedDevice, slices: int) -> None:
    """More than there are steps, too: those without a step leave zeros."""
    run = simt("sNN", parallel_split_k=1).bench(emulated, family=cut(SimtAsync, slices))
    rng = np.random.default_rng(slices)
    for check in (Check(70, 40, 100, beta=1), Check(65, 33, 47, -3, 2, padding=3, offset=5)):
        run.exact(check, rng)


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


def test_slices_are_reproduced_by_what_tunes() -> None:
    """A plain launch has no second kernel, and the program says so."""
    device = architecture_spec("sm_90a")
    config = SIMT.default(variant("sNN"), device).replace(parallel_split_k=1)
    source = SIMT.source(config, variant("sNN"), "cuda")
    text = reproducer(example(config=config, backend="cuda"), source, partial(SIMT.launch, config))
    assert "two kernels" in text
    compile(text, "reproduce.py", "exec")


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
