"""Which rank-k updates are one launch of tensor cores on a described GPU; nothing is run."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tilewright.backend import BackendError, GemmCall, Operand
from tilewright.hardware.catalogue import catalogue_device
from tilewright.portfolio.kernel import TRIANGLE
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.serve.passes import sources
from tilewright.serve.routes import masked as route
from tilewright.serve.triangle import Triangle

H100 = SimpleNamespace(portfolio_key="", spec=catalogue_device("h100").spec, dialect="cuda")


@pytest.fixture(autouse=True)
def ship():
    """Leave the package's portfolios where they are."""


@pytest.fixture
def steps(monkeypatch):
    """Launches of an update of n columns by k, whose kernels are their sources."""
    monkeypatch.setattr(route, "kernel_of", lambda _, source: source)

    def of(letter, n, k, ops="NT", *, lower=True, filled=False, live=H100, ld=0, **changes):
        row = precision(letter)
        problem = Problem(n, n, k, row, Trans(ops[0]), Trans(ops[1]), ld, ld)
        a = Operand(0, 0, problem.lda)
        call = GemmCall(row, n, n, k, 1, a, a, 0, Operand(0, 0, n))
        return route.masked(live, problem, replace(call, **changes), Triangle(lower, filled=filled))

    return of


@pytest.mark.parametrize(
    ("letter", "ops"),
    [(x, "TN") for x in route.TRIANGLES] + [("bf16", "NT"), ("fp16_f32", "NT")],
)
@pytest.mark.parametrize("n", [512, 2048, 4096, 8192])
def test_a_kernel_that_ships_serves(steps, letter, ops, n):
    [(source, launch, arguments)] = steps(letter, n, n, ops)
    assert source.identity in {one.identity for _, one in sources(H100.spec)}
    assert 0 < launch.grid[0] <= n * (n + 512) // 2 // (64 * 64)
    assert arguments[-1] == np.int32(1)


@pytest.mark.parametrize(("letter", "kind"), [("int8", np.int32), ("e4m3", np.float32)])
def test_scalars_are_of_the_sums_type(steps, letter, kind):
    """Integers of 32 bits are more than single precision has digits for."""
    alpha, beta = 2**24 + 1, -3
    [(_, _, arguments)] = steps(letter, 4096, 4096, "TN", alpha=alpha, beta=beta)
    found = [x for x in arguments if type(x) is kind][:2]
    assert found == [kind(alpha), kind(beta)]


def test_the_upper_triangle_is_told_apart(steps):
    [(_, _, arguments)] = steps("bf16", 4096, 4096, lower=False)
    assert arguments[-1] == np.int32(0)


@pytest.mark.parametrize(
    "changes",
    [
        {"letter": "s"},
        {"letter": "int8"},
        {"letter": "e4m3"},
        {"letter": "e5m2", "ops": "TN"},
        {"ops": "TT"},
        {"ld": 4100},
        {"alpha": 0},
        {"k": 0},
        {"a": Operand(2, 0, 4096)},
        {"live": SimpleNamespace(spec=H100.spec, dialect="opencl")},
    ],
)
def test_others_are_products_of_blocks(steps, changes):
    given = {"letter": "bf16", "n": 4096, "k": 4096} | changes
    assert steps(**given) is None


def test_both_triangles_are_one_mirrored_or_a_whole_product(steps, monkeypatch):
    monkeypatch.setattr(route, "ready_by", lambda *_: "whole")
    [(kernel, _, _)] = steps("bf16", 1024, 1024, filled=True)
    assert kernel == "whole"
    [(source, _, _), (second, launch, _)] = steps("bf16", 4096, 4096, filled=True)
    assert (source.entry, second.entry) == ("gemm", "mirror_triangle")
    assert launch.grid == (64 * 65 // 2, 1)


def test_blocks_serve_where_a_kernel_cannot_be_had(steps, monkeypatch):
    def refused(*_):
        raise BackendError("nothing to compile with")

    monkeypatch.setattr(route, "ready_by", lambda *_: None)
    assert steps("bf16", 1024, 1024, filled=True) is None
    monkeypatch.setattr(route, "kernel_of", refused)
    assert steps("bf16", 4096, 4096) is None


@pytest.fixture
def tiles(monkeypatch):
    """The same launches of S, D, C and Z, whose kernels are what was chosen."""
    monkeypatch.setattr(route, "kernel_of", lambda _, source: source)
    monkeypatch.setattr(route, "ready_by", lambda _, chosen, variant: chosen)

    def of(letter, n, ops="NT", *, live=H100, offset=0, k=None, alpha=1, **which):
        row, k = precision(letter), n if k is None else k
        problem = Problem(n, n, k, row, Trans(ops[0]), Trans(ops[1]))
        a, b = (Operand(0, offset, ld) for ld in (problem.lda, problem.ldb))
        call = GemmCall(row, n, n, k, alpha, a, b, 0, Operand(0, 0, n))
        which = {"lower": True, "hermitian": "C" in ops} | which
        return route.by_tiles(live, problem, call, Triangle(**which))

    return of


@pytest.mark.parametrize("letter", ["s", "d", "c", "z"])
@pytest.mark.parametrize("ops", ["NT", "TN", "NC", "CN"])
@pytest.mark.parametrize("n", [1500, 4096, 8192])
def test_kernels_of_products_that_ship_serve_triangles(tiles, letter, ops, n):
    if "C" in ops and letter in "sd":
        pytest.skip("real matrices are not conjugated")
    for lower in (True, False):
        [(chosen, launch, arguments)] = tiles(letter, n, ops, lower=lower)
        assert chosen.digest()
        whole = chosen.geometry.launch(n, n, n)
        assert launch.resident == whole.resident
        assert launch.grid[0] < 0.65 * whole.grid[0]
        assert arguments[:2] == (n, n if lower else -n)


def test_a_hermitian_result_of_copied_conjugates_is_another_way_s(tiles):
    assert tiles("c", 4096, "TN", hermitian=True) is None
    assert tiles("d", 4096, "TN", hermitian=True) is not None


@pytest.mark.parametrize("offset", [0, 1])
def test_columns_may_begin_anywhere(tiles, offset):
    [(chosen, _, _)] = tiles("d", 4097, offset=offset)
    assert chosen.mode.scalar


def test_both_triangles_of_floats_are_one_mirrored(tiles):
    [(chosen, _, _), (second, _, _)] = tiles("s", 4096, filled=True)
    assert (chosen.form, second.entry) == (TRIANGLE, "mirror_triangle")


def test_small_results_and_other_devices_have_other_launches(tiles, monkeypatch):
    assert tiles("s", 128) is None
    assert tiles("s", 4096, k=0) is None
    assert tiles("s", 4096, alpha=0) is None
    assert tiles("s", 4096, live=SimpleNamespace(**{**vars(H100), "dialect": "opencl"})) is None
    monkeypatch.setattr(route, "ready_by", lambda *_: None)
    assert tiles("s", 4096) is None


def test_long_sums_of_few_columns_are_a_whole_product_in_slices(steps):
    assert steps("bf16", 128, 65536) is None
    assert steps("bf16", 4096, 65536) is not None
