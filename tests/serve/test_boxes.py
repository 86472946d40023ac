"""Kernels whose tiles come in boxes are chosen for operands that the copy engine can read only.

It reads columns that begin at multiples of 16 bytes: leading dimensions say so, and the address of
the first element.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.portfolio.examples import H100, Hopper, costs, cubin_of, kernel
from tilewright.backend import GemmCall, Operand
from tilewright.precision import precision
from tilewright.problem import Problem
from tilewright.serve.kernels import begin_aligned
from tilewright.serve.routes.direct import direct
from tilewright.serve.routes.split.chain import Chain
from tilewright.stencil import TensorMap, Variant
from tilewright.stencil.geometry import PLAIN
from tilewright.stencil.simt_async import SimtAsync

FAMILY = SimtAsync()
# Of a size at which a kernel with boxes won.
WON = Problem(4096, 4096, 4096, "s", "N", "T")


def laid(problem, lda=0, ldb=0):
    """Return a problem with other leading dimensions, by elements that they are longer."""
    return replace(problem, lda=problem.lda + lda, ldb=problem.ldb + ldb)


@pytest.fixture
def boxes(ship):
    """A package whose fastest kernels for WON come in boxes; others do as well."""
    of = Variant.of(WON)
    found = [one for one in FAMILY.starts(of, H100) if one in FAMILY.space(of, H100)]
    boxed = next(one for one in found if one.get("tma", 0))
    other = next(one for one in found if not one.get("tma", 0))
    routed = [PLAIN]
    ship(kernel(of, boxed, routed=routed, costs=costs(1.0)),
         kernel(of, other, routed=routed, costs=costs(5.0)))  # fmt: skip
    return {1: boxed, 0: other}


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


@pytest.mark.parametrize(("a", "boxed"), [(0x1000, 1), (0x1004, 0)])
def test_gemm_launches_what_can_read_its_arrays(boxes, a, boxed):
    kernel, _, arguments = direct(Hopper(), WON, call(a=a))
    assert kernel.code == cubin_of(boxes[boxed], Variant.of(WON), PLAIN)
    maps = [x for x in arguments if isinstance(x, TensorMap)]
    assert [x.memory for x in maps] == [a, 0x2000][: 2 * boxed]


@pytest.mark.parametrize(("a", "boxed"), [(0x1000, 1), (0x1004, 0)])
def test_so_does_the_last_step_of_fp32_arithmetic(boxes, a, boxed):
    """Which multiplies as IEEE says where the guard decides so."""
    made = call(a=a)
    space = SimpleNamespace(need=lambda *_: "decision")
    kernel, _, arguments = Chain(Hopper(), space, WON, made, "fp32").ieee(WON, made)
    assert kernel.code == cubin_of(boxes[boxed], Variant.of(WON), PLAIN, "routed")
    assert sum(isinstance(x, TensorMap) for x in arguments) == 2 * boxed
