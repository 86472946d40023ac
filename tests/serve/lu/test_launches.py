"""What factorisations and solutions launch, done by NumPy, beside SciPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.serve.lu import by_numpy
from tests.serve.lu.by_numpy import LIVE, Machine, Queues
from tilewright.precision import precision
from tilewright.problem import Trans
from tilewright.serve.laid_out import A, B, C
from tilewright.serve.lu import factor
from tilewright.serve.lu.factor import Factorisation, blocks_of
from tilewright.serve.lu.solve import Solution
from tilewright.stencil.lu import LUKernels

linalg = pytest.importorskip("scipy.linalg")


@pytest.fixture(autouse=True)
def noted(monkeypatch):
    by_numpy.pretend(monkeypatch)


def drawn(rng, shape, dtype):
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def factored(letter, a, first):
    """Return the rows with their factors, how many elements they have, pivots, and kernels.

    Launches run in an order that streams let them, those `first` that may.
    """
    of, n = precision(letter), len(a)
    made = Factorisation(LIVE, of, n, n + 4)
    rows = np.full((n, n + 4), np.nan, of.dtype)
    rows[:, :n] = a
    pivots = np.zeros(n, np.int32)
    machine = Machine(of.dtype, LUKernels(of).width, {A: rows, B: np.zeros(made.bytes), C: pivots})
    queues = Queues(made._on)
    made._begin_stages(queues, queues.begin)
    for launch in queues.launches(first):
        machine.run([launch])
    return rows, pivots, machine


@pytest.mark.every(2)
@pytest.mark.parametrize(("letter", "n"), [("s", 1), ("z", 333), ("d", 700), ("d", 1300)])
def test_factors_are_lapacks_and_solve(letter, n, monkeypatch):
    monkeypatch.setattr(factor, "_PART", 128)
    monkeypatch.setattr(factor, "_WIDTHS", ((1200, 512), (700, 256), (0, 128)))
    of, rng = precision(letter), np.random.default_rng(n)
    a = drawn(rng, (n, n), of.dtype)
    rows, pivots, machine = factored(letter, a, rng.permutation(6))
    expected, found = linalg.lu_factor(a)
    eps = np.finfo(of.dtype).eps
    assert np.array_equal(pivots, found)
    assert np.abs(rows[:, :n] - expected).max() < 100 * n * eps * np.abs(expected).max()
    assert np.isnan(rows[:, n:]).all()
    for trans in "NTC":
        b = drawn(rng, (n, 3), of.dtype)
        x = b.copy()
        made, space = Solution(LIVE, of, n, n + 4, 3, Trans.parse(trans, "trans")).plan
        pool = next(iter(space.asked))
        memory = {A: rows, B: x, C: pivots, pool: np.zeros(space.pool_bytes, np.uint8)}
        Machine(of.dtype, machine.width, memory).run(made)
        op = {"N": a, "T": a.T, "C": a.conj().T}[trans]
        scale = n * eps * np.abs(op).sum(axis=1).max() * np.abs(x).max()
        assert np.abs(op @ x - b).max() < 10 * scale


@pytest.mark.parametrize("n", [1, 512, 5000, 16384])
def test_blocks_cover_all_columns_once(n):
    made = blocks_of(n)
    assert [one.first for one in made] == [0, *(one.last for one in made[:-1])]
    assert made[-1].last == n
