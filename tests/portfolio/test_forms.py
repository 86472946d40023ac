"""Which kernels have instances for groups, and for one triangle."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.portfolio.examples import H100, costs, kernel
from tests.portfolio.times import STARTS
from tilewright.portfolio.build import instances_of
from tilewright.portfolio.forms import with_groups, with_triangles
from tilewright.portfolio.kernel import GROUPED, TRIANGLE
from tilewright.portfolio.select import Selected
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Variant, stencil
from tilewright.stencil.geometry import PLAIN, Mode

SQUARE = Problem(4096, 4096, 4096, "s", "N", "T")
DEFAULT = stencil("simt_async").default(Variant.of(SQUARE), H100)
LARGE, SMALL = (
    DEFAULT.replace(block_m=side, block_n=side, tile_m=8, tile_n=8, persistent=1, min_blocks=2)
    for side in (128, 64)
)
TMA = Config("simt_async", {**LARGE, "tma": 1})


def test_groups_have_instances_of_what_serves_batches_and_of_the_fastest_large_kernel():
    of = Variant.of(Problem(1, 1, 1, "s"))
    small = stencil("simt_async").batch_configs(of)[1]
    large = {**STARTS[0], "persistent": 1}
    tma = Config("simt_async", {**large, "tma": 1})
    kernels = [
        replace(kernel(of, small, ()), batched={Mode(clamped=True): ""}),
        kernel(of, Config("simt_async", large), costs=costs(5.0)),
        kernel(of, STARTS[1], costs=costs(500.0)),
        kernel(of, tma, costs=costs(1.0)),  # whose operands come in boxes
    ]
    found = with_groups(kernels)
    assert [set(one.grouped) for one in found] == [{Mode(clamped=True)}, {PLAIN}, set(), set()]
    [first, second] = [x for x in instances_of(map(Selected, found)) if x.form == GROUPED]
    assert first.source.defines["PERSISTENT"] == second.source.defines["PERSISTENT"] == 0
    assert "PROBLEMS" in first.source.defines


@pytest.mark.parametrize(("letter", "are_groups"), [("bf16", True), ("tf32", False)])
def test_what_takes_16_bits_of_any_alignment_has_instances_for_groups(letter, are_groups):
    of = Variant.of(Problem(1, 1, 1, letter))
    starts = stencil("wgmma").starts(of, H100)
    copied = [one for one in starts if stencil("wgmma").geometry(one).reads_unaligned]
    whole = next(one for one in copied if not one.get("parallel_split_k", 0))
    slices = next(one for one in copied if one.get("parallel_split_k", 0))
    kernels = [
        kernel(of, one, costs=costs(x))
        for one, x in ((starts[0], 1.0), (whole, 9.0), (slices, 9.0))
    ]
    found = with_groups(kernels)
    assert [bool(one.grouped) for one in found] == [True, are_groups, False]
    made = [one for one in instances_of(map(Selected, found)) if one.form == GROUPED]
    assert [one.source.defines.get("TMA", 1) for one in made] == [1] + [0] * are_groups


def test_the_fastest_kernels_of_blocks_that_stay_have_instances():
    scalar = Mode(scalar=True)
    kernels = [
        kernel(SQUARE, LARGE, (PLAIN, scalar, Mode(clamped=True)), costs=costs(1000.0)),
        kernel(SQUARE, SMALL, costs=costs(300.0)),
        kernel(SQUARE, DEFAULT.replace(persistent=0), costs=costs(1.0)),
        kernel(SQUARE, TMA, (), costs=costs(1.0)),  # for batches alone
        kernel(SQUARE, LARGE.replace(swizzle_rows=4), costs=costs(1e5)),
    ]
    found = with_triangles(kernels)
    assert [set(one.triangle) for one in found] == [{PLAIN, scalar}, {PLAIN}, set(), set(), set()]
    made = [one for one in instances_of(Selected(x, 5) for x in found) if one.form == TRIANGLE]
    assert [one.level is not None for one in made] == [True, False, True]
    assert all(one.source.defines["TRIANGLE"] == 1 for one in made)


def test_products_of_other_matrices_have_no_triangles():
    other = Problem(4096, 4096, 4096, "s", "N", "N")
    assert [one.triangle for one in with_triangles([kernel(other, LARGE, costs=costs(1))])] == [{}]
