"""What accuracy="fp32" promises: its bound beside SGEMM's, and errors of whatever is drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilewright as tw
from tests.stencil.split import plainly
from tests.stencil.split.plainly import errors, sequential
from tilewright.backend import device
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.bench.fp32_data import DRAWN, NOT_FINITE
from tilewright.serve.routes.split.promise import FLOOR, error_bound, is_compensated
from tilewright.serve.unproved import serve_unproved
from tilewright.stencil.split import SCHEMES

DEVICE = "opencl"
H100 = replace(architecture_spec("sm_90a"), multiprocessors=132, name="H100")
LENGTHS = sorted({*range(64, 1200), *(2**i + j for i in range(6, 21) for j in (-1, 0, 1, 37))})


@pytest.mark.parametrize("name", ["fp16x3", "bf16x6"])
@pytest.mark.parametrize("side", [512, 4096])
def test_the_bound_is_no_larger_than_that_of_sgemm_in_one_chain_or_many(name, side):
    for k in (k for k in LENGTHS if k >= 64):
        ours = error_bound(SCHEMES[name], side, side, k, H100)
        for chains in range(1, min(32, k // 32) + 1):
            assert ours <= (-(-k // chains) + chains - 1) * 2.0**-24, (k, chains)


@pytest.mark.parametrize("name", ["fp16x3", "bf16x6"])
def test_compensated_sums_keep_to_the_floor_whatever_they_are_of(name):
    for k in (k for k in LENGTHS if k <= 8192):
        assert error_bound(SCHEMES[name], 1024, 1024, k, H100) <= FLOOR


def test_sums_of_few_tiles_are_compensated():
    """132 multiprocessors: 11 x 12 tiles are enough, one less is not."""
    of = SCHEMES["fp16x3"]
    assert not is_compensated(of, 11 * 128, 12 * 128, H100)
    assert not is_compensated(of, 11 * 128, 11 * 128 + 1, H100)
    assert is_compensated(of, 11 * 128, 11 * 128, H100)
    few, many = (error_bound(SCHEMES["fp16x3"], n, n, 2**13, H100) for n in (1024, 4096))
    assert few < 33 * 2**-24
    assert many > 8 * few


def test_compensated_sums_of_one_sign_do_not_err_more_for_being_longer():
    """3 u at most, where promotions that are rounded cost 10 u and more."""
    rng = np.random.default_rng(1)
    a, b = (rng.random(s, np.float32) for s in ((32, 4096), (4096, 32)))
    for name in ("fp16x3", "bf16x6"):
        c = tw.gemm(a, b, accuracy=name, device=DEVICE)
        assert errors(c, a, b)[0] < 3 * 2**-24


def test_errors_of_positive_sums_come_from_roundings_of_promoted_sums():
    """The docs' table at k = 1024, in units of 2^-24: truncation has one sign and does not grow."""
    rng = np.random.default_rng(0)
    a, b = (rng.random(s, np.float32) for s in ((32, 1024), (1024, 32)))
    none = np.zeros(1, int)
    parts = [plainly.parts_of(x, SCHEMES["fp16x3"], none) for x in (a, b)]
    rounded, exact = (
        plainly.product_of_parts(*parts, SCHEMES["fp16x3"], sums=kind)
        for kind in (np.float32, np.float64)
    )
    right, size = a.astype(float) @ b, a.astype(float) @ b
    truncated = (exact - right) / size * 2**24
    assert -2 < truncated.mean() < -0.7
    assert np.all(truncated < 0)
    assert 1.3 * np.abs(truncated).max() < np.abs(rounded - right).max() / size.max() * 2**24
    assert np.std((rounded - exact) / size) > 5 * np.std(truncated) * 2**-24


@pytest.mark.every(3)
@pytest.mark.parametrize("data", DRAWN)
@pytest.mark.parametrize("k", [515, 131])
def test_every_kind_of_data_keeps_the_promise(data, k):
    """Beside a plain sum, where the guard sends it to the model of the tensor core."""
    seed = k + list(DRAWN).index(data)
    pair = DRAWN[data](np.random.default_rng(seed), 32, 33, k)
    a, b = (np.ascontiguousarray(x, np.float32) for x in pair)
    told = tw.Decision()
    with serve_unproved(), np.errstate(invalid="ignore"):
        c = tw.gemm(a, b, accuracy="fp32", report=told, device=DEVICE)
    if data == NOT_FINITE:
        assert told.variant == "ieee"
    if told.variant == "ieee":
        np.testing.assert_array_equal(c, tw.gemm(a, b, device=DEVICE))
        return
    eta = errors(c, a, b)[0]
    assert eta <= max(FLOOR, errors(sequential(a, b), a, b)[0])
    if "underflow" not in data:
        assert eta <= error_bound(SCHEMES[told.variant], 32, 33, k, device(DEVICE).spec)
