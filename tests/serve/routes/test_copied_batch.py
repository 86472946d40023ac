"""Batches of operands that are copied at once, or read as they lie."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.portfolio.examples import H100, Hopper, costs, cubin_of, kernel
from tilewright.backend import GemmCall, Operand
from tilewright.portfolio.portfolio import Copying
from tilewright.precision import precision
from tilewright.problem import Problem
from tilewright.serve.routes.copied_batch import _levels, _read
from tilewright.serve.routes.plain import lay_out_plain
from tilewright.stencil import Variant, stencil
from tilewright.stencil.geometry import PLAIN

COUNT, HEADS = 9, 8


@pytest.fixture
def hopper(ship):
    """A device with a kernel of boxes, and one of any alignment that takes three times as long."""
    return shipping(ship, 10.0, 30.0)


def shipping(ship, boxed_ns: float, by_threads_ns: float, letter: str = "bf16", trans: str = "NN"):
    """Return a device with such kernels, as far as tensor cores have them."""
    family, of = stencil("wgmma"), Variant.of(Problem(1, 1, 1, letter, *trans))
    starts = [one for one in family.starts(of, H100) if family.batches(one, of)]
    kernels = []
    for tma, ns in ((True, boxed_ns), (False, by_threads_ns)):
        for config in [one for one in starts if family.geometry(one).tma == tma][:1]:
            one = kernel(of, config, costs=costs(ns))
            kernels.append(replace(one, batched=one.modes))
    ship(*kernels, name="short", copying=Copying(5000.0, 1000.0))
    live = Hopper()
    live.boxed = cubin_of(kernels[0].config, of, PLAIN)
    return live


def laid_out(
    live, side: int, lda: int, *repeats: tuple[int, int, int], begins: int = 0, letter: str = "bf16"
):
    """Return the entries of what is launched, the repeats that are left, and what was asked for."""
    asked = []
    space = SimpleNamespace(need=lambda name, size: asked.append((name, size)) or 1 << 40)
    problem = Problem(side, side, side, letter, "N", "N", lda, side, side)
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


def test_aligned_products_are_read_in_boxes(ship):
    """Of which alone it is known what they take for a batch."""
    side, live = 256, shipping(ship, 30.0, 10.0)
    names, left, asked = laid_out(live, side, side, (side * side,) * 3)
    assert (names, left, asked) == (["gemm_plain"], (), [])
    assert live.loaded == [live.boxed]


@pytest.mark.parametrize(("side", "blocks"), [(16, -(-COUNT * 16 // 64)), (17, COUNT)])
def test_small_products_are_turned_as_one_where_each_begins_at_16_bytes(ship, side, blocks):
    """Of a column of them all."""
    live, size = shipping(ship, 10.0, 30.0, "int8", "TN"), side * side
    names, left, _ = laid_out(live, side, side, (size, size, size), letter="int8")
    copies = 2 if side % 16 else 1  # of what runs along k already none, if it is aligned
    assert (names, left) == (["realign"] * copies + ["gemm_plain"], ())
    assert live.launches[0].grid == (blocks, 1)


@settings(max_examples=200)
@given(
    letter=st.sampled_from(["bf16", "s", "int8", "tf32"]),
    sides=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    many=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    order=st.permutations(range(3)),
    gaps=st.tuples(*[st.integers(0, 3)] * 4),
    is_along=st.booleans(),
    shared=st.sampled_from([None, 0, 1, 2]),
    begins=st.integers(0, 3),
)
def test_each_product_finds_its_operand_in_the_copy(
    letter, sides, many, order, gaps, is_along, shared, begins
):
    """However its matrices lie, or where some products have one."""
    (side, k), of = sides, precision(letter)
    along, across = (k, side) if is_along else (side, k)
    shape = np.array([*many, across, along]) + gaps
    places = np.arange(shape.prod()).reshape(*shape[list(order)], shape[3])
    places = places.transpose(*np.argsort(order), 3)[: many[0], : many[1], :across, :along]
    first = tuple(slice(1 if shared in (at, 2) else None) for at in range(2))
    places = np.broadcast_to(places[first], places.shape)  # a view
    steps = [x // places.itemsize for x in places.strides]
    x = Operand(1 << 30, begins, steps[2])
    p = Problem(side, 1, k, letter, "T" if is_along else "N", "N", steps[2])
    dimensions = [one for one in zip(many, steps, strict=False) if one[0] > 1]
    levels = _levels(dimensions or [(1, 0)])
    found = _read(p, x, sides, is_along, levels)
    if found.copy is None:
        assert (found.ld, found.step) == (x.ld, levels[0][1])
        return
    copy, (within, step_within, step_beyond) = found.copy, found.batch
    step_inner, step_outer = (x.ld, 1) if copy.transposed else (1, x.ld)
    made = np.full((copy.batch, copy.outer, copy.ld), -1)
    for z in range(copy.batch):
        begin = begins + z % within * step_within + z // within * step_beyond
        inner, outer = np.ogrid[: copy.inner, : copy.outer]
        made[z, :, : copy.inner] = (begin + inner * step_inner + outer * step_outer).T
    is_k_first = of.reads_along_k or is_along
    for z, place in enumerate(places.reshape(-1, across, along)):
        i, j = np.ogrid[:across, :along]  # side and k, or k and side
        if is_k_first != is_along:
            i, j = j, i
        read = made.ravel()[z * found.step + i * found.ld + j]
        np.testing.assert_array_equal(read, place + begins)
        assert (z * found.step * of.element_bytes) % 16 == 0
