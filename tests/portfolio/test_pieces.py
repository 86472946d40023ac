"""Long sums over few tiles are cut, where that costs little."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tilewright.hardware.catalogue import catalogue_device
from tilewright.portfolio.choose import choose
from tilewright.portfolio.held import held_rows
from tilewright.portfolio.pieces import pieces_of_k
from tilewright.problem import Problem
from tilewright.stencil import Variant

H100 = SimpleNamespace(portfolio_key="", spec=catalogue_device("h100").spec)


@pytest.fixture(autouse=True)
def ship():
    """Leave the package's portfolios where they are."""


def chain(problem):
    """Return how many products a sum of the kernel that serves adds up."""
    table, kernel = held_rows(H100, Variant.of(problem)), choose(H100, problem).kernel
    found = table.model.chains(problem, H100.spec.multiprocessors)
    return found[next(at for at, one in enumerate(table.kernels) if one is kernel)]


@pytest.mark.parametrize("letter", "sdcz")
def test_sums_of_few_tiles_are_short(letter):
    for size in ((3683, 716, 37737), (2229, 2229, 32440), (485, 485, 258119), (3086, 205, 68406)):
        problem = Problem(*size, letter)
        pieces = pieces_of_k(H100, problem)
        assert [first for first, _ in pieces] == [0, *(end for _, end in pieces[:-1])]
        assert pieces[-1][1] == size[2]
        assert all(first % 64 == 0 for first, _ in pieces)
        assert chain(problem) / len(pieces) <= 8192


@pytest.mark.parametrize("size", [(16384, 16384, 16384), (512, 512, 512), (1, 4096, 65536)])
def test_large_results_and_short_sums_are_whole(size):
    assert pieces_of_k(H100, Problem(*size, "s")) == [(0, size[2])]
    assert pieces_of_k(H100, Problem(*size, "bf16")) == [(0, size[2])]
