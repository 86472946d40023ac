"""The kernel for bits that do not depend on m: one for all of a variant and k, without split-K."""

from __future__ import annotations

from itertools import product

import pytest

from tests.portfolio.examples import H100, Hopper
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.portfolio.held import held_rows
from tilewright.portfolio.invariant import choose_invariant
from tilewright.problem import Problem, Trans
from tilewright.stencil import Variant

SIDES = (1, 3, 8, 200, 1024, 16384)
LETTERS = ("s", "d", "c", "z", "fp16", "bf16", "bf16_f32")


@pytest.fixture(autouse=True)
def ship():
    """Leave the package's portfolios where they are."""


def of(letter: str, trans: str, m: int, n: int, k: int) -> Problem:
    """Return a problem in columns that begin at multiples of 16 bytes."""
    op_a, op_b = map(Trans, trans)
    stored = (k if op_a.transposed else m), (n if op_b.transposed else k), m
    return Problem(m, n, k, letter, op_a, op_b, *(-(-one // 8) * 8 for one in stored))


@pytest.mark.parametrize("spec", [H100, architecture_spec("sm_80")], ids=["ships", "by default"])
@pytest.mark.parametrize("letter", LETTERS)
def test_one_kernel_serves_all_sides_and_sums_all_of_k_in_order(letter, spec):
    if spec != H100 and len(letter) > 1:
        pytest.skip("tensor cores of that device are not served")
    for trans, k in product(("NN", "TN", "NT"), (1, 100, 4096)):
        chosen = [choose_invariant(Hopper(spec), of(letter, trans, m, 512, k)) for m in SIDES]
        assert len({(one.stencil.name, one.config) for one in chosen}) == 1
        for one in chosen:
            cut = one.geometry
            assert (cut.stream_k, cut.streamed, cut.split_k) == (0, 0, None)


def test_it_is_the_fastest_of_them_at_a_middling_size():
    problem = of("s", "NT", 1024, 1024, 1024)
    table = held_rows(Hopper(), Variant.of(problem))
    expected = table.model.expected(problem, H100.multiprocessors)
    chosen = choose_invariant(Hopper(), problem)
    rest = [
        ns
        for one, ns in zip(table.kernels, expected, strict=True)
        if one.modes and one.geometry.split_k is None
        and not (one.geometry.stream_k or one.geometry.streamed or one.geometry.tma)
    ]  # fmt: skip
    assert expected[table.kernels.index(chosen.kernel)] == min(rest)
