"""Which launches compute a triangle on a described GPU: nothing is compiled or run."""

from __future__ import annotations

from math import prod
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.backend import GemmCall, Operand
from tilewright.hardware.catalogue import catalogue_device
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.serve.laid_out import A, C, Space
from tilewright.serve.passes import sources
from tilewright.serve.routes import masked, rank_k
from tilewright.serve.routes.residues import chain as residues
from tilewright.serve.routes.split import chain as parts
from tilewright.serve.routes.split import product
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


@pytest.mark.parametrize(
    ("letter", "accuracy"),
    [("s", "fp32"), ("d", "fp64"), ("z", "fp64"), ("e", "accurate"), ("w", "accurate")],
)
@pytest.mark.parametrize("n", [4096, 6144])
@pytest.mark.parametrize(("op", "hermitian", "filled"), [("N", False, False), ("N", True, True)])
def test_kernels_behind_a_guard_ship(monkeypatch, letter, accuracy, n, op, hermitian, filled):
    """Those of chains, and what is held back; native ones are chosen among what ships."""
    asked = list[Any]()
    for module in (rank_k, masked, parts, product, residues):
        monkeypatch.setattr(module, "kernel_of", lambda _, source: asked.append(source))
    monkeypatch.setattr(parts, "ready", lambda *_, **__: (Native(), None))
    row = precision(letter)
    other = Trans.C if hermitian and row.is_complex else Trans.T
    problem, matrix = Problem(n, n, n, row, Trans(op), other), Operand(A, 0, n)
    call = GemmCall(row, n, n, n, 1, matrix, matrix, 1, Operand(C, 0, n))
    triangle = Triangle(True, hermitian and row.is_complex, filled)
    rank_k.lay_out_triangle(H100, problem, call, accuracy, Space(), triangle)
    assert len(asked) > 5
    shipped = {one.identity for _, one in sources(H100.spec)}
    assert not [one.entry for one in asked if not one.unit or one.identity not in shipped]


class Native:
    """A kernel that is chosen elsewhere."""

    stencil = SimpleNamespace(arguments=lambda *_: ())
    config = None

    def launch(self, problem):
        return None


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
