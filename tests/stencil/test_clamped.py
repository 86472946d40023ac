"""Blocks longer than a side of the matrix that copy whole tiles: nothing outside is read or stored.

What lies outside is not copied, and what is multiplied with what shared memory holds in its place
is never stored (`simt_async/copies.cuh`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.double_double.oracle import spoils_as_a_plain_loop
from tests.stencil.contract import faulty, has_mode
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.features.edges import ELEMENT
from tests.stencil.portable_harness import variant
from tests.stencil.ways import MMA, SHARING, SIMT, TINY, simt
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.problem import Problem
from tilewright.stencil import Stencil, Variant
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.verify import Check, WrongResultError

H100 = architecture_spec("sm_90a")
needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


@needs_compiler
@settings(max_examples=16)
@given(
    m=st.integers(1, 31),
    n=st.integers(1, 90),
    k=st.integers(1, 400),
    blocks=st.integers(1, 5),
    stream_k=st.sampled_from([0, 1, 2]),
    seed=st.integers(0, 2**32 - 1),
)
def test_blocks_that_stay_share_short_sides(
    emulated: EmulatedDevice, m: int, n: int, k: int, blocks: int, stream_k: int, seed: int
) -> None:
    way = simt("sTN", "clamped", **TINY, persistent=1, stream_k=stream_k)
    way.bench(emulated, blocks).exact(Check(m, n, k, beta=1), np.random.default_rng(seed))


@needs_compiler
@pytest.mark.parametrize("name", ["sTN", "sNT"])
def test_all_modes_work_together(emulated: EmulatedDevice, name: str) -> None:
    """Short sides, columns that begin anywhere, results staged, parts added up by halves."""
    mode = "scalar+clamped+staged" if name == "sNT" else "clamped+staged"
    for blocks in (3, 7):
        run = simt(name, mode, **TINY, **SHARING, tree_reduction=1).bench(emulated, blocks)
        for sizes in ((21, 90, 500), (97, 13, 333), (7, 5, 700)):
            check = Check(*sizes, beta=1, padding=1, offset=3)
            run.exact(check, np.random.default_rng(blocks))


@needs_compiler
@pytest.mark.parametrize("name", ["eNT", "fTN"])
def test_sums_outside_are_not_computed_anew(emulated: EmulatedDevice, name: str) -> None:
    """37 rows in blocks of 64: Inf and NaN are a plain loop's, and nothing outside is looked at."""
    spoils_as_a_plain_loop(simt(name, "clamped").bench(emulated), 70)


@needs_compiler
def test_of_a_thin_problem_all_copies_are_clamped(emulated: EmulatedDevice) -> None:
    """But the remainder's: they are what its result is made of."""
    broken, thin = faulty(SimtAsync, ELEMENT + ";", ";"), Check(8, 8, 64)
    clamped = simt("sTN", "clamped").bench(emulated, family=broken)
    with pytest.raises(WrongResultError):
        clamped.exact(thin, np.random.default_rng(0))
    simt("sTN").bench(emulated, family=broken).exact(thin, np.random.default_rng(0))


@pytest.mark.parametrize("family", [SIMT, MMA], ids=lambda family: family.name)
@pytest.mark.parametrize("trans", ["NN", "NT", "TN", "TT"])
def test_every_config_may_be_clamped(family: Stencil, trans: str) -> None:
    """Whatever else it is, but for boxes, which need no such thing."""
    of = variant("d" + trans)
    space = family.space(of, H100)
    for config in space.sample(20, seed=3):
        assert has_mode(family, config, of, H100, "clamped") is not bool(config.get("tma", 0))


def changed(family: Stencil, problem: Problem) -> str:
    """Return the launch mode of copies that a problem asks a default for."""
    config = family.default(Variant.of(problem), H100).replace(block_m=128, block_n=64)
    return str(replace(family.geometry(config).mode(problem), staged=False))


def test_clamped_loads_are_asked_for_where_a_side_is_shorter_than_a_block() -> None:
    assert changed(SIMT, Problem(128, 64, 500, "s", "T", "N")) == "plain"
    assert changed(SIMT, Problem(127, 64, 500, "s", "T", "N")) == "clamped"
    assert changed(SIMT, Problem(500, 63, 500, "s", "T", "N")) == "clamped"
    # Single elements where columns of 16 bytes' pieces do not end with the matrix.
    assert changed(SIMT, Problem(100, 500, 500, "s", "N", "T")) == "clamped"
    padded = Problem(99, 500, 500, "s", "N", "T", lda=100)
    assert changed(SIMT, padded) == "scalar+clamped"
    assert changed(SIMT, Problem(500, 63, 500, "s", "N", "N")) == "clamped"
    assert changed(MMA, Problem(99, 500, 500, "d", "T", "N")) == "clamped"
    assert changed(MMA, Problem(99, 500, 501, "d", "T", "N")) == "scalar+clamped"
