"""Which kernel computes one triangle, of those that are compiled for it; nothing is run."""

from __future__ import annotations

from dataclasses import replace

from tests.portfolio.examples import H100, Hopper, costs, kernel
from tilewright.portfolio import choose
from tilewright.portfolio.kernel import TRIANGLE
from tilewright.portfolio.triangles import choices_for_triangle
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Variant, stencil
from tilewright.stencil.geometry import PLAIN, Mode

SQUARE = Problem(4096, 4096, 4096, "s", "N", "T")
NT = Variant.of(SQUARE)
DEFAULT = stencil("simt_async").default(NT, H100)
LARGE, SMALL = (
    DEFAULT.replace(block_m=side, block_n=side, tile_m=8, tile_n=8, persistent=1, min_blocks=2)
    for side in (128, 64)
)
LARGE_GEOMETRY = stencil("simt_async").geometry(LARGE)
TMA = Config("simt_async", {**LARGE, "tma": 1})


def for_triangles(config, ns_a_step, problem=SQUARE):
    """Return a kernel that is compiled for triangles, too."""
    one = kernel(problem, config, costs=costs(ns_a_step))
    return replace(one, triangle=dict(one.modes))


def square(n: int, **lds: int) -> Problem:
    return Problem(n, n, n, "s", "N", "T", **lds)


def test_the_shortest_time_is_of_the_triangle_s_tiles(ship):
    ship(for_triangles(LARGE, 1000.0), for_triangles(SMALL, 300.0))
    few, many = (choices_for_triangle(Hopper(), square(n)) for n in (512, 8192))
    assert [one.config for one in few] == [SMALL, LARGE]  # 36 tiles, or 10, at once
    assert [one.config for one in many] == [LARGE, SMALL]
    assert all((one.form, one.mode) == (TRIANGLE, PLAIN) for one in many)
    assert many[0].digest() == many[0].kernel.triangle[PLAIN]
    # 64 squares down: 2080 tiles in eight rounds of 2 x 132 blocks, which 4096 tiles take 16 of.
    assert many[0].ns < 0.55 * choose(Hopper(), square(8192)).ns


def test_operands_that_do_not_lie_as_a_kernel_takes_them_have_another(ship):
    ship(for_triangles(TMA, 1.0), for_triangles(LARGE, 1000.0))
    assert choices_for_triangle(Hopper(), SQUARE)[0].config == TMA
    for given in ((SQUARE, False), (square(4096, lda=4097, ldb=4097), True)):
        assert [one.config for one in choices_for_triangle(Hopper(), *given)] == [LARGE]


def test_the_launch_mode_is_the_problem_s(ship):
    one = kernel(SQUARE, LARGE, (PLAIN, Mode(scalar=True)), costs=costs(1.0))
    ship(replace(one, triangle=dict(one.modes)))
    for n, ld, mode in ((4096, 4096, PLAIN), (4097, 4100, Mode(scalar=True))):
        [chosen] = choices_for_triangle(Hopper(), square(n, lda=ld, ldb=ld))
        assert chosen.mode == mode
        assert chosen.launch(square(n)).grid[0] < 0.6 * LARGE_GEOMETRY.launch(n, n, n).grid[0]


def test_there_is_none_without_machine_code_or_costs(ship):
    ship(kernel(SQUARE, LARGE, costs=costs(1.0)))
    assert choices_for_triangle(Hopper(), SQUARE) == []
    ship(replace(kernel(SQUARE, LARGE), triangle={PLAIN: ""}))
    assert choices_for_triangle(Hopper(), SQUARE) == []
