"""Which launches compute a triangle on a described GPU: nothing is compiled or run."""

from __future__ import annotations

from math import prod
from types import SimpleNamespace

import pytest

from tilewright.backend import GemmCall, Operand
from tilewright.hardware.catalogue import catalogue_device
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.serve.routes import rank_k
from tilewright.serve.triangle import Triangle

H100 = SimpleNamespace(portfolio_key="", spec=catalogue_device("h100").spec, dialect="cuda")


@pytest.fixture(autouse=True)
def ship():
    """Leave the package's portfolios where they are."""


@pytest.fixture
def update(monkeypatch):
    """What lays out an update of so many columns, of k as many."""
    monkeypatch.setattr(rank_k, "ready_by", lambda *_: SimpleNamespace())

    def of(letter, n):
        row, matrix = precision(letter), Operand(0, 0, n)
        problem = Problem(n, n, n, row, Trans.N, Trans.T)
        call = GemmCall(row, n, n, n, 1, matrix, matrix, 0, matrix)
        space = SimpleNamespace(need=lambda *_: 0)
        return rank_k._Update(H100, problem, call, space, Triangle(True))

    return of


@pytest.mark.parametrize(("letter", "n"), [("bf16", 4096), ("s", 4096), ("d", 4096)])
def test_blocks_fill_waves_of_tiles(update, letter, n):
    found = update(letter, n)
    group, many = found._group, H100.spec.multiprocessors
    assert group is not None
    tiles = sum(
        prod(group.chosen.geometry.tiles(one.rows, one.columns))
        for one in found.pieces
        if (one.row, one.column) != group.apart
    )
    assert -tiles % many < 0.15 * tiles


def test_a_block_apart_is_below_the_diagonal(update):
    found = update("bf16", 4096)
    assert found._group.apart in [(x.row, x.column) for x in found.pieces if x.row > x.column]


def test_one_matrix_is_copied_once_for_both_operands(monkeypatch):
    copied = []
    monkeypatch.setattr(rank_k, "masked", lambda _, *given: copied.append(given) or [])
    monkeypatch.setattr("tilewright.serve.routes.realigned.kernel_of", lambda *_: "copy")
    row, n = precision("tf32"), 4096
    problem = Problem(n, n, n, row, Trans.N, Trans.T)
    matrix = Operand(0, 0, n)
    call = GemmCall(row, n, n, n, 1, matrix, matrix, 0, matrix)
    space = SimpleNamespace(need=lambda *_: 64)
    laid = rank_k.lay_out_triangle(H100, problem, call, "", space, Triangle(True))
    [(problem, call, _)] = copied
    assert [kernel for kernel, _, _ in laid.steps] == ["copy"]
    assert problem.trans == "TN"
    assert call.a == call.b
