"""Kernels whose tiles come in boxes are chosen for operands that the copy engine can read only.

It reads columns that begin at multiples of 16 bytes: leading dimensions say so, and the address of
the first element.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tilewright.library.choose import begin_aligned, choose, default_choice, served
from tilewright.library.shipped import shipped, tables

from tests.library.test_choose import winner
from tilewright.backend import GemmCall, Operand
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.library import choose as choosing
from tilewright.library.gemm import Request, prepare_gemm
from tilewright.library.split.chain import Chain
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.stencil import TensorMap, Variant
from tilewright.stencil.simt_async import SimtAsync

FAMILY = SimtAsync()
# As its driver reports it; the shipped table is of this model.
H100 = replace(
    architecture_spec("sm_90a"), name="NVIDIA H100 80GB HBM3", multiprocessors=132
)  # fmt: skip
# Of a size at which a kernel with boxes won.
WON = Problem(4096, 4096, 4096, "s", "N", "T")


class Hopper:
    """A device that compiles nothing and launches nothing."""

    fingerprint, dialect, backend = "", "cuda", "cuda"

    def __init__(self, spec=H100, fingerprint=""):
        self.spec, self.fingerprint = spec, fingerprint

    def compile(self, source):
        return source


def laid(problem, lda=0, ldb=0):
    """Return a problem with other leading dimensions, by elements that they are longer."""
    return replace(problem, lda=problem.lda + lda, ldb=problem.ldb + ldb)


def in_boxes(choice):
    return bool(choice.config.get("tma", 0))


def test_what_won_is_served_where_it_can_be_read():
    assert in_boxes(served(Hopper(), WON))
    assert in_boxes(served(Hopper(), laid(WON, lda=4, ldb=8)))


@pytest.mark.parametrize(("lda", "ldb"), [(1, 0), (0, 2), (3, 3)])
def test_columns_that_begin_anywhere_are_left_to_threads(lda, ldb):
    problem = laid(WON, lda, ldb)
    for chosen in (choose(Hopper(), problem), served(Hopper(), problem)):
        assert not in_boxes(chosen)
        assert chosen.tuned_on  # by the table, which has others


def test_operands_that_begin_anywhere_are_left_to_threads():
    for chosen in (choose(Hopper(), WON, aligned=False), served(Hopper(), WON, aligned=False)):
        assert not in_boxes(chosen)
        assert chosen.tuned_on


@settings(deadline=None)  # a first choice reads a table
@given(
    sizes=st.tuples(*[st.integers(1, 9000)] * 3),
    more=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    letter=st.sampled_from("sc"),
    trans=st.sampled_from(["NN", "NT", "TN", "TT"]),
    aligned=st.booleans(),
)
def test_no_choice_is_for_other_operands(sizes, more, letter, trans, aligned):
    problem = laid(Problem(*sizes, letter, *trans), *more)
    chosen = served(Hopper(), problem, aligned)
    assert chosen.stencil.takes(chosen.config, problem)
    assert aligned or chosen.stencil.operand_alignment(chosen.config) == 1
    assert chosen.config in chosen.stencil.space(Variant.of(problem), H100)


def boxed():
    """Return a config in boxes that anybody may have tuned."""
    found = FAMILY.starts(Variant.of(WON), H100)
    return next(config for config in found if config.get("tma", 0))


def test_a_winner_in_boxes_serves_no_other_operands():
    """Of one's own, where no table is; the next best does, else the default."""
    here = Hopper(replace(H100, name="a GPU", multiprocessors=7), "a1b2c3d4e5f6")
    facts = {"stencil_version": FAMILY.version, "device_name": "a GPU"}
    winner(here, WON, 0, config=boxed(), **facts)
    odd = laid(WON, lda=1)
    assert choose(here, WON).config == boxed()
    assert choose(here, odd) == choose(here, WON, aligned=False)
    assert choose(here, odd) == default_choice(Variant.of(WON), here.spec)
    near = FAMILY.default(Variant.of(WON), H100)
    winner(here, Problem(64, 64, 64, "s", "N", "T"), 0, config=near, **facts)
    assert choose(here, odd).config == near
    assert choose(here, WON).config == boxed()


def test_a_table_of_nothing_but_boxes_leaves_others_to_the_default(monkeypatch):
    table = shipped(H100, Variant.of(WON))
    only = replace(table, rows=tuple(row for row in table.rows if row.config.get("tma", 0)))
    assert only.rows
    monkeypatch.setattr(choosing, "shipped", lambda *_: only)
    assert in_boxes(choose(Hopper(), WON))
    for chosen in (choose(Hopper(), laid(WON, ldb=1)), choose(Hopper(), WON, aligned=False)):
        assert chosen == default_choice(Variant.of(WON), H100)


def test_the_table_has_boxes_of_floats_for_operands_along_m_and_n_only():
    """Complex doubles in boxes are never turned, so that they are for all cases."""
    rows = [row for table in tables() for row in table.rows if row.config.get("tma", 0)]
    of = {variant for row in rows for variant in map(Variant.of, row.ns)}
    assert {one for one in of if one.precision.letter == "s"} == {Variant.of(WON)}
    assert {one.precision.letter for one in of} == {"s", "z"}


# -- what a call is seen to begin at -------------------------------------------------------


def call(a=0x1000, b=0x2000, offset=0, letter="s"):
    """Return a call of the size that boxes won, its operands at some addresses."""
    side, of = 4096, precision(letter)
    operands = Operand(a, offset, side), Operand(b, 0, side), Operand(0x3000, 0, side)
    return GemmCall(of, side, side, side, 1, operands[0], operands[1], 0, operands[2])


@pytest.mark.parametrize(
    ("made", "aligned"),
    [
        (call(), True),
        (call(a=0x1010, offset=4), True),
        (call(a=0x1004), False),
        (call(b=0x2008), False),
        (call(offset=1), False),
        (call(a=0x1004, offset=3), True),  # the first element counts
        (call(offset=1, letter="z"), True),
        (call(offset=1, letter="c"), False),
        (call(a=object(), b=object()), True),  # handles, of memory that begins so
        (call(a=object(), offset=2), False),
    ],
)
def test_where_operands_begin(made, aligned):
    assert begin_aligned(made) is aligned


@pytest.mark.parametrize(("a", "boxes"), [(0x1000, 1), (0x1004, 0)])
def test_gemm_launches_what_can_read_its_arrays(a, boxes):
    made = call(a=a)
    request = Request(
        made.precision, made.m, made.n, made.k, 1, 0, Trans.N, Trans.T, None, None, None
    )
    prepared = prepare_gemm(Hopper(), request, ((made.a, False), (made.b, False), (made.c, False)))
    assert prepared.kernel.defines["TMA"] == boxes
    assert prepared.common is not bool(boxes)  # other addresses would need other maps
    maps = [x for x in prepared.arguments if isinstance(x, TensorMap)]
    assert [x.memory for x in maps] == [a, 0x2000][: 2 * boxes]


@pytest.mark.parametrize(("a", "boxes"), [(0x1000, 1), (0x1004, 0)])
def test_so_does_the_last_step_of_fp32_arithmetic(a, boxes):
    """Which multiplies as IEEE says where the guard decides so."""
    made = call(a=a)
    step = Chain(Hopper(), None, WON, made, "fp32", made)._ieee("decision")
    assert step.source.defines["TMA"] == boxes
    assert sum(isinstance(x, TensorMap) for x in step.arguments) == 2 * boxes
