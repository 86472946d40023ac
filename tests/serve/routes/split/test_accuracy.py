"""No worse than single precision: every scheme on the model of the tensor core, and the guard.

"Single precision" is a plain sum by fused multiply-adds, as a GPU's SGEMM adds.  The model is
what an H100's tensor cores do by the literature; that they do it was not checked on one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tests.stencil.split import plainly
from tests.stencil.split.plainly import errors, sequential
from tilewright.serve.unproved import serve_unproved
from tilewright.stencil.split import SCHEMES

DEVICE = "opencl"
SIDE = 48


def normal(rng, rows, columns):
    return rng.standard_normal((rows, columns)).astype(np.float32)


def phi_data(rng, rows, columns, phi):
    """Return (U - 0.5) exp(phi N): the literature's matrices of growing range."""
    x = (rng.random((rows, columns)) - 0.5) * np.exp(phi * rng.standard_normal((rows, columns)))
    return x.astype(np.float32)


def guarded(a, b):
    told = tw.Decision()
    with serve_unproved():
        c = tw.gemm(a, b, accuracy="fp32", report=told, device=DEVICE)
    return c, told


def assert_no_worse(c, a, b, *, than=None):
    eta, median = errors(c, a, b)
    eta_single, median_single = errors(sequential(a, b) if than is None else than, a, b)
    assert eta <= eta_single
    assert median <= median_single


# The route that each kind of data takes is part of what is promised: not all may be IEEE.
@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("phi", "k", "route"),
    [
        (0, 1000, "fp16x3"),
        (0.5, 1000, "fp16x3"),
        (1, 1000, "fp16x3"),
        (2, 1000, "ieee"),
        (4, 1000, "ieee"),
        (0, 100, "bf16x6"),
        (0, 37, "ieee"),
    ],
)
def test_matrices_of_every_range(phi, k, route):
    rng = np.random.default_rng(int(10 * phi) + k)
    a, b = phi_data(rng, SIDE, k, phi), phi_data(rng, k, SIDE, phi)
    c, told = guarded(a, b)
    assert told.variant == route, told.explain()
    if route == "ieee":
        np.testing.assert_array_equal(c, tw.gemm(a, b, device=DEVICE))
    else:
        assert_no_worse(c, a, b)
        assert_no_worse(c, a, b, than=a @ b)  # a CPU's BLAS sums in blocks: harder to meet


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ["fp16x3", "tf32x3", "bf16x6", "bf16x9"])
def test_every_scheme_on_normal_data(name):
    rng = np.random.default_rng(3)
    a, b = normal(rng, SIDE, 515), normal(rng, 515, SIDE)
    assert_no_worse(tw.gemm(a, b, accuracy=name, device=DEVICE), a, b)


@pytest.mark.parametrize("name", ["fp16x3", "bf16x6"])
def test_sums_of_positive_numbers(name):
    """Cut sums err to one side: small products first, and a rounded sum every 32 steps."""
    rng = np.random.default_rng(4)
    a, b = (rng.random(s, np.float32) for s in ((SIDE, 1024), (1024, SIDE)))
    assert_no_worse(tw.gemm(a, b, accuracy=name, device=DEVICE), a, b)


@pytest.mark.every(2)
@pytest.mark.parametrize("sign", ["positive", "normal"])
def test_long_sums(sign):
    """k = 2^18 and 37: pieces of 8192 are added in C, so errors do not grow with k."""
    rng = np.random.default_rng(5)
    k = (2**18 if sign == "normal" else 2**16) + 37
    a, b = (normal(rng, *s) for s in ((32, k), (k, 32)))
    if sign == "positive":
        a, b = abs(a), abs(b)
    c, told = guarded(a, b)
    assert told.variant == "fp16x3"
    assert_no_worse(c, a, b)
    assert errors(c, a, b)[0] < 2**-21


def adversaries(rng, k):
    """Yield names and operands on which parts or cut sums could lose."""
    n = SIDE
    for spread in (10, 20, 40):
        a = normal(rng, n, k)
        a[np.arange(n), rng.integers(0, k, n)] *= 2.0**spread
        yield f"one entry of every row 2^{spread} above", a, normal(rng, k, n)
    a = normal(rng, n, k)
    a[7, 3] *= 2.0**40
    yield "one entry of one row 2^40 above", a, normal(rng, k, n)
    b = normal(rng, k, n)
    b[3, 7] *= 2.0**40
    yield "one entry of one column 2^40 above", normal(rng, n, k), b
    yield "identity", np.eye(n, k, dtype=np.float32), normal(rng, k, n)
    a = normal(rng, n, k)
    a[:, 3:] = 0
    yield "three terms", a, normal(rng, k, n)
    a, b = normal(rng, n, k), normal(rng, k, n)
    a[:, : k // 2 - 1], b[k // 2 :] = 0, 0
    yield "zeros that leave one term", a, b
    for bits in (5, 8, 11, 12, 13, 16):
        most = 2**bits
        x, y = (rng.integers(1 - most, most, s) for s in ((n, k), (k, n)))
        yield f"integers of {bits} bits", x.astype(np.float32), y.astype(np.float32)
    x, y = (rng.integers(-3, 4, s).astype(np.float32) for s in ((n, k), (k, n)))
    x[:, 5], y[5] = 2049, 2049
    yield "small integers, one with a second part", x, y
    yield "signs", normal(rng, n, k), np.sign(normal(rng, k, n))
    tiny = (normal(rng, n, k) * 2.0**-138).astype(np.float32)
    yield "subnormal", tiny, (normal(rng, k, n) * 2.0**100).astype(np.float32)
    yield (
        "products that underflow",
        *((normal(rng, *s) * 2.0**-66).astype(np.float32) for s in ((n, k), (k, n))),
    )
    large = (normal(rng, n, k) * 2.0**100).astype(np.float32)
    yield "large", large, (normal(rng, k, n) * 2.0**-90).astype(np.float32)


@pytest.mark.parametrize("k", [200, 515])
def test_adversaries(k):
    routes = set()
    for name, a, b in adversaries(np.random.default_rng(k), k):
        c, told = guarded(a, b)
        routes.add(told.variant)
        if told.variant == "ieee":
            np.testing.assert_array_equal(c, tw.gemm(a, b, device=DEVICE), err_msg=name)
            continue
        eta, median = errors(c, a, b)
        eta_single, median_single = errors(sequential(a, b), a, b)
        assert (eta <= eta_single, median <= median_single) == (True, True), (name, told.explain())
    assert routes == {"ieee", "fp16x3", "bf16x6"}


def test_small_terms_are_lost_without_the_guard():
    """What the guard is for: FP16 parts alone fail on these rows."""
    rng = np.random.default_rng(8)
    a, b = normal(rng, SIDE, 256), normal(rng, 256, SIDE)
    a[:, 0] *= 2.0**40
    b[0] = 0  # the large entries do not even count
    c = tw.gemm(a, b, accuracy="fp16x3", device=DEVICE)
    assert errors(c, a, b)[0] > 2**-12
    kept, told = guarded(a, b)
    assert told.variant == "ieee"
    assert_no_worse(kept, a, b)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("side", ["a", "b"])
def test_infinity_and_nan_are_ieee(value, side):
    rng = np.random.default_rng(9)
    a, b = normal(rng, SIDE, 300), normal(rng, 300, SIDE)
    (a if side == "a" else b)[5, 7] = value
    c, told = guarded(a, b)
    assert told.variant == "ieee"
    assert "infinity or NaN" in told.reason
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(np.isnan(c), np.isnan(a @ b))
    np.testing.assert_array_equal(c, tw.gemm(a, b, device=DEVICE))


def test_results_beyond_the_range_overflow_and_vanish_as_they_should():
    rng = np.random.default_rng(10)
    a, b = (abs(normal(rng, *s)) + 1 for s in ((SIDE, 200), (200, SIDE)))
    up, down = np.float32(2.0**70), np.float32(2.0**-80)
    assert np.isinf(guarded(a * up, b * up)[0]).all()
    vanished, told = guarded(a * down, b * down)
    assert told.variant == "fp16x3"
    assert not vanished.any()


columns = st.sampled_from(["normal", "uniform", "integers", "halves", "sparse", "spread", "spikes"])


def column_of(kind, rng, shape, strength):
    x = rng.standard_normal(shape)
    if kind == "uniform":
        x = rng.random(shape)
    elif kind == "integers":
        x = rng.integers(-(2**strength), 2**strength + 1, shape)
    elif kind == "halves":
        x = x.astype(np.float16)
    elif kind == "sparse":
        x[rng.random(shape) < strength / 20] = 0
    elif kind == "spread":
        x = x * np.exp(strength / 8 * rng.standard_normal(shape))
    elif kind == "spikes":
        hit = rng.random(shape) < 0.01
        x[hit] *= 2.0**strength
    return np.asarray(x, np.float32)


@settings(max_examples=40)
@given(
    kinds=st.tuples(columns, columns),
    strengths=st.tuples(st.integers(1, 16), st.integers(1, 16)),
    k=st.integers(64, 300),
    seed=st.integers(0, 2**32 - 1),
)
def test_guard_never_routes_to_something_worse(kinds, strengths, k, seed):
    rng = np.random.default_rng(seed)
    a = column_of(kinds[0], rng, (SIDE, k), strengths[0])
    b = column_of(kinds[1], rng, (k, SIDE), strengths[1])
    c, told = guarded(a, b)
    if told.variant == "ieee":
        np.testing.assert_array_equal(c, tw.gemm(a, b, device=DEVICE))
    else:
        assert_no_worse(c, a, b)


def test_factors_of_few_digits_are_left_to_single_precision():
    """Its sums of such products are all but exact; parts' sums are cut."""
    rng = np.random.default_rng(237)
    a = rng.integers(-2, 3, (SIDE, 133)).astype(np.float32)
    b = rng.standard_normal((133, SIDE)).astype(np.float16).astype(np.float32)
    assert guarded(a, b)[1].variant == "ieee"


def test_small_products_come_first():
    """Added last, each would cut the sum at the large ones' size."""
    rng = np.random.default_rng(13)
    a, b = normal(rng, SIDE, 128), normal(rng, 128, SIDE)
    none = np.zeros(1, int)
    for name in ("fp16x3", "tf32x3", "bf16x6", "bf16x9"):
        scheme = SCHEMES[name]
        sizes = [p + q for p, q in scheme.products]
        assert sizes == sorted(sizes, reverse=True)
        backwards = replace(scheme, products=scheme.products[::-1])
        parts = [plainly.parts_of(x, scheme, none) for x in (a, b)]
        good, bad = (
            errors(plainly.product_of_parts(*parts, one), a, b) for one in (scheme, backwards)
        )
        assert 1.5 * good[0] < bad[0]
        assert 1.5 * good[1] < bad[1]
