"""Batches in one launch: of operands as they lie, or of copies of all of them at once."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.portfolio.examples import H100, Hopper, costs, kernel
from tilewright.backend import GemmCall, Operand
from tilewright.portfolio.portfolio import Copying
from tilewright.problem import Problem
from tilewright.serve.routes.plain import lay_out_plain
from tilewright.stencil import Variant, stencil

COUNT, HEADS = 9, 8


@pytest.fixture
def hopper(ship):
    """A device with a kernel of boxes, and one of any alignment that takes three times as long."""
    family, of = stencil("wgmma"), Variant.of(Problem(1, 1, 1, "bf16"))
    starts = [one for one in family.starts(of, H100) if family.batches(one, of)]
    boxed, copied = (
        next(one for one in starts if family.geometry(one).tma == tma) for tma in (True, False)
    )
    made = kernel(of, boxed, costs=costs(10.0)), kernel(of, copied, costs=costs(30.0))
    both = [replace(one, batched=one.modes) for one in made]
    ship(*both, name="short", copying=Copying(5000.0, 1000.0))
    return Hopper()


def laid_out(live, side: int, lda: int, *repeats: tuple[int, int, int], begins: int = 0):
    """Return the entries of what is launched, the repeats that are left, and what was asked for."""
    asked = []
    space = SimpleNamespace(need=lambda name, size: asked.append((name, size)) or 1 << 40)
    problem = Problem(side, side, side, "bf16", "N", "N", lda, side, side)
    a, b, c = Operand(1 << 30, begins, lda), Operand(2 << 30, 0, side), Operand(3 << 30, 0, side)
    call = GemmCall(problem.precision, side, side, side, 1, a, b, 0, c)
    counts = (COUNT, HEADS)[: len(repeats)]
    every = tuple((count, *one) for count, one in zip(counts, repeats, strict=True))
    found = lay_out_plain(live, problem, call, space, repeats=every)
    live.launches, live.arguments = [list(x) for x in list(zip(*found.steps, strict=True))[1:]]
    names = [one.entry for one, _, _ in found.steps]
    return names, found.repeats, asked


def test_small_products_are_read_as_they_lie(hopper):
    names, left, asked = laid_out(hopper, 64, 65, (64 * 65, 64 * 64, 64 * 64))
    assert (names, left, asked) == (["gemm_plain"], (), [])


@pytest.mark.parametrize(("lda", "begins"), [(2049, 0), (2048, 1)])
@pytest.mark.parametrize("apart", [1, 3])
def test_an_operand_of_all_large_products_is_copied_at_once(hopper, lda, begins, apart):
    side = 2048
    steps = (apart * side * lda, side * side, side * side)
    names, left, asked = laid_out(hopper, side, lda, steps, begins=begins)
    assert (names, left) == (["realign", "gemm_plain"], ())
    assert asked == [("realigned a", COUNT * side * side * 2)]
    blocks = (side // 64) ** 2 * COUNT
    assert hopper.launches[0].grid == (blocks, 1)


def test_dimensions_that_do_not_step_alike_are_one_in_a_copy(hopper):
    """Heads of attention, which lie beside each other in a column."""
    side, lda = 128, HEADS * 128
    size = side * side
    heads = (side * lda, HEADS * size, HEADS * size), (side, size, size)
    names, left, asked = laid_out(hopper, side, lda, *heads)
    assert (names, left) == (["realign", "gemm_plain"], ())
    assert asked == [("realigned a", COUNT * HEADS * size * 2)]
    assert [int(x) for x in hopper.arguments[0][-3:]] == [HEADS, side, side * lda]


def test_results_that_do_not_step_alike_are_launched_apart(hopper):
    side = 64
    size = side * side
    first, second = (HEADS * size, HEADS * size, 2 * HEADS * size), (size, size, size)
    names, left, asked = laid_out(hopper, side, side, first, second)
    assert (names, asked) == (["gemm_plain"], [])
    assert left == ((HEADS, *second),)


def test_aligned_products_are_read_in_boxes(hopper):
    side = 2048
    names, left, asked = laid_out(hopper, side, side, (side * side,) * 3)
    assert (names, left, asked) == (["gemm_plain"], (), [])
    assert len(hopper.loaded) == 1
