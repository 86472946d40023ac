"""What may be asked of accuracy="fp64" besides: a certificate, and a bounded workspace."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.backend import devices
from tilewright.problem import Problem
from tilewright.serve.calls import forget_plans
from tilewright.serve.kernels import kernel_of
from tilewright.serve.ordered import OrderedPlan
from tilewright.serve.plan import WorkspaceError
from tilewright.serve.routes.residues import chain, cuts, worth
from tilewright.serve.routes.residues.cuts import workspace_bytes
from tilewright.serve.routes.residues.options import Residues
from tilewright.serve.unproved import serve_unproved
from tilewright.stencil import Launch, Source
from tilewright.stencil.source_files import read_source

_GPUS = [pytest.param(d.id, marks=pytest.mark.gpu) for d in devices() if d.backend == "cuda"]


@pytest.fixture(params=["opencl", *_GPUS])
def multiply(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Multiply in residues whatever the size, on a device."""

    def run(*arrays: Any, **options: Any) -> Any:
        with serve_unproved():
            return tw.gemm(*arrays, accuracy="fp64", device=request.param, **options)

    run.on_gpu = request.param != "opencl"  # type: ignore[attr-defined]
    forget_plans()
    yield run
    forget_plans()


def drawn(seed: int, m: int, n: int, k: int, dtype: str) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    made = [rng.standard_normal(shape) for shape in ((m, k), (k, n))]
    if dtype == "c16":
        made = [x + 1j * rng.standard_normal(x.shape) for x in made]
    return made[0], made[1]


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_a_certified_product_says_so(multiply, dtype):
    a, b = drawn(0, 70, 50, 200, dtype)
    told = tw.Decision()
    c = multiply(a, b, certify=True, report=told)
    assert told.as_dict()["certified"] is True
    assert "certified" in told.explain()
    np.testing.assert_array_equal(c, multiply(a, b, report=told))
    assert "certified" not in told.as_dict()
    a[3, 5] = np.inf
    assert not np.isfinite(multiply(a, b, certify=True, report=told)[3]).any()
    assert told.variant == "ieee"
    assert "certified" not in told.as_dict()


def test_a_batch_is_certified_as_a_whole(multiply):
    (a, _), (_, b) = drawn(1, 60, 20, 90, "f8"), drawn(2, 20, 30, 90, "f8")
    told = tw.Decision()
    np.testing.assert_allclose(
        multiply(a.reshape(3, 20, 90), b, certify=True, report=told), a.reshape(3, 20, 90) @ b,
        atol=1e-13,
    )  # fmt: skip
    assert told.as_dict()["certified"] is True


# One bit of one byte.
_FAULT = "KERNEL void fault(GLOBAL unsigned char *x, isize at) { x[at] ^= 4; }"


@pytest.mark.every(2)
@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.parametrize("memory", ["residues a", "residues c"])
def test_a_fault_in_a_residue_is_found(multiply, monkeypatch, dtype, memory):
    """Whether it is one of an operand or of the product."""

    def faulty(of: Any, *arguments: Any) -> Iterator[Any]:
        text = f"{read_source(f'prelude/dialect_{of.live.dialect}.h')}\n{_FAULT}"
        rows, columns = of._whole
        plane, column = (of.cut.m * 208, 208) if memory == "residues a" else (rows * columns, rows)
        where = of._need(memory)[0], np.int64(plane + 7 * column + 5)
        fault = kernel_of(of.live, Source(text, {}, "fault")), Launch((1, 1), (1, 1)), where
        steps = list(products(of, *arguments))
        yield from (fault, *steps) if memory == "residues a" else (*steps, fault)

    products = chain.Chain._products
    a, b = drawn(3, 70, 50, 200, dtype)
    right = multiply(a, b, certify=True)
    monkeypatch.setattr(chain.Chain, "_products", faulty)
    forget_plans()
    assert np.any(multiply(a, b) != right)  # as it was before it was looked at
    with pytest.raises(tw.CertificateError, match="certify=True: what came out is not A B"):
        multiply(a, b, certify=True)
    monkeypatch.undo()
    forget_plans()
    np.testing.assert_array_equal(multiply(a, b, certify=True), right)


@pytest.mark.parametrize(("dtype", "orders", "trans"), [("f8", "CC", "NN"), ("c16", "FF", "NC")])
def test_bits_do_not_depend_on_tiles_and_pieces(multiply, monkeypatch, dtype, orders, trans):
    m, n, k = (700, 600, 900) if multiply.on_gpu else (70, 50, 300)
    side, depth = (256, 256) if multiply.on_gpu else (32, 128)
    a, b = drawn(4, m, n, k, dtype)
    a, b = (
        np.array(a, order=orders[0]),
        np.array(b if trans == "NN" else b.conj().T, order=orders[1]),
    )
    monkeypatch.setattr(cuts, "TILE", side)
    monkeypatch.setattr(chain, "TILE", side)
    told = tw.Decision()
    right = multiply(a, b, trans_b=trans[1], report=told)
    assert told.variant == "residues"
    np.testing.assert_allclose(right, a @ (b if trans == "NN" else b.conj().T), atol=1e-11)
    for tile_m, tile_n, piece in product((m, side), (n, side), (k, depth)):
        monkeypatch.setattr(chain, "best_cut", lambda *_: cuts.Cut(tile_m, tile_n, piece))  # noqa: B023
        forget_plans()
        c = np.ones_like(right)
        multiply(a, b, c, beta=1, trans_b=trans[1], certify=True, report=told)
        assert told.as_dict()["certified"] is True
        np.testing.assert_array_equal(c, right + 1)


@pytest.fixture
def short_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small products be cut, too."""
    for module in (cuts, chain):
        monkeypatch.setattr(module, "TILE", 32)
    monkeypatch.setattr(cuts, "_LEAST_SIDE", 32)
    monkeypatch.setattr(cuts, "_LEAST_K", 64)
    worth.best_cut.cache_clear()
    yield
    worth.best_cut.cache_clear()


def test_workspace_is_within_its_limit(short_cuts):
    p, spec = Problem(300, 200, 600, "z"), devices()[0].spec
    every = [workspace_bytes(p, cut, True) for cut in cuts.cuts_of(p)]
    assert len(set(every)) > 10
    for most in sorted(every):
        cut = worth.best_cut(spec, p, Residues(True, most))
        assert workspace_bytes(p, cut, True) <= most
    assert worth.best_cut(spec, p, Residues(True, min(every) - 1)) is None


@pytest.mark.parametrize("certify", [False, True])
def test_a_limit_is_kept_or_ieee_serves(short_cuts, monkeypatch, certify):
    a, b = drawn(5, 100, 90, 300, "f8")
    taken: list[int] = []

    def start(self: OrderedPlan, *arguments: Any) -> Any:
        taken.append(self.bytes)
        if self.bytes > most:
            raise WorkspaceError("no more")
        return plain(self, *arguments)

    plain, most, told = OrderedPlan.start, 1 << 40, tw.Decision()
    monkeypatch.setattr(OrderedPlan, "start", start)

    def multiply(**options: Any) -> Any:
        with serve_unproved():
            return tw.gemm(
                a, b, accuracy="fp64", device="opencl", report=told, certify=certify, **options
            )

    right = multiply()
    whole = taken.pop()
    for limit in (whole - 1, whole // 2):
        np.testing.assert_array_equal(multiply(max_workspace=limit), right)
        assert taken.pop() <= limit
        assert told.variant == "residues"
    assert np.allclose(multiply(max_workspace=1000), right)
    assert told.variant == "ieee"
    assert "bytes of workspace, and it has 1000" in told.reason
    # The same where the device has no more.
    most = whole // 2
    np.testing.assert_array_equal(multiply(), right)
    assert told.variant == "residues"
    most = 1000
    assert np.allclose(multiply(), right)
    assert told.variant == "ieee"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"certify": True},
            "certify=True is for accuracy='fp64' of float64 and complex128 arrays, not 'ieee'",
        ),
        ({"certify": 1, "accuracy": "fp64"}, "certify=1 is neither True nor False"),
        (
            {"max_workspace": 5},
            "max_workspace=5 is for accuracy='fp64' and 'accurate' DoubleDouble arrays, not 'ieee'",
        ),
        ({"max_workspace": 0, "accuracy": "fp64"}, "max_workspace=0 is not a number of bytes"),
        ({"max_workspace": 2.5, "accuracy": "fp64"}, "max_workspace=2.5 is not a number of bytes"),
        (
            {"certify": True, "accuracy": "fp64", "max_device_memory": 1 << 20},
            "certify=True is of one product",
        ),
    ],
)
def test_options_that_mean_nothing_are_refused(options, message):
    x = np.ones((2, 2))
    with pytest.raises(ValueError, match=re.escape(message)):
        tw.gemm(x, x, **options)
