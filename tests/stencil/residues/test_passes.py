"""The passes of products in residues, beside exact integers, whichever way operands lie."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest

from tests.stencil.residues.product import Product
from tilewright.backend import LiveDevice, devices
from tilewright.stencil.residues.moduli import COMPLEX, COMPLEX_PAIR, PAIR, REAL, nearest
from tilewright.stencil.residues.sources import DECISION_WORDS

# One CPU is enough for sources that are whole numbers and exact steps.
_CPU = next(d.id for d in devices() if d.spec.kind == "cpu")
_GPUS = [pytest.param(d.id, marks=pytest.mark.gpu) for d in devices() if d.backend == "cuda"]


@pytest.fixture(scope="module", params=[_CPU, *_GPUS])
def live(request: pytest.FixtureRequest) -> LiveDevice:
    return next(d for d in devices() if d.id == request.param)


def drawn(seed, m, n, k, is_complex, phi=0.0):
    rng = np.random.default_rng(seed)

    def matrix(*shape):
        x = (rng.random(shape) - 0.5) * np.exp(phi * rng.standard_normal(shape))
        return x + 1j * (rng.random(shape) - 0.5) if is_complex else x

    return matrix(m, k), matrix(k, n)


@pytest.mark.parametrize(
    "of", [REAL, COMPLEX, PAIR, COMPLEX_PAIR], ids=["real", "complex", "pair", "complex pair"]
)
def test_moduli_are_coprime_and_their_weights_right(of):
    assert all(math.gcd(p, q) == 1 for i, p in enumerate(of.numbers) for q in of.numbers[:i])
    for count in of.counts:
        *parts, inverse, unit = of.product_parts(count)
        units = [int(unit) ** power for power in reversed(range(of.parts(count)))]
        product = sum(map(operator.mul, map(int, parts), units))
        assert product == math.prod(of.numbers[:count])
        assert math.isclose(inverse, units[0] / product)
        found = [sum(map(operator.mul, map(int, one), units)) for one in of.weights(count)]
        each, largest = (2, 241) if of is COMPLEX else (1, 128 * of.planes)
        # Sums of products with residues, and multiples of P beside them, are exact in doubles.
        for plane in range(each):
            quotient = sum(map(abs, found[plane::each])) * largest // product + 1
            for part in range(of.parts(count)):
                sums = sum(abs(one[part]) for one in of.weights(count)[plane::each])
                assert sums * largest + quotient * abs(parts[part]) < 2**53
        for z, p in enumerate(of.numbers[:count]):
            divisors = (2, 2 * of.root(p)) if of is COMPLEX else (1,)
            for weight, divisor in zip(found[each * z :], divisors, strict=False):
                assert weight * divisor % p == 1
                assert all(weight % q == 0 for q in of.numbers[:count] if q != p)


@pytest.mark.every(2)
@pytest.mark.parametrize("is_complex", [False, True], ids=["real", "complex"])
@pytest.mark.parametrize("k_fast", [(False, False), (True, True)])
def test_products_are_those_of_the_rounded_integers(live, is_complex, k_fast):
    """Residues bit for bit, results rounded once; and integers as large as the moduli allow."""
    m, n, k = 45, 37, 300
    a, b = drawn(1, m, n, k, is_complex, 0.5)
    a[3], b[:, 5], a[:, 7] = 0, 0, 0
    conjugated = (is_complex, False)
    product = Product(live, a, b, k_fast, conjugated)
    product.judged()
    of = product.of.moduli
    assert product.moduli == of.first
    assert product.words[0] == of.first * of.planes
    got = product.multiplied()
    for which, x in ((0, a), (1, b.T)):
        exponents, (re, im), residues = product.sides(which)
        norms = np.sqrt((abs(x) ** 2).sum(1)) * 2.0**exponents
        most = of.most(product.moduli)
        assert np.all(norms <= most * (1 + 1e-12))
        assert np.all((norms > most / 2 * (1 - 1e-12)) | (norms == 0))
        for z, p in enumerate(of.numbers[: product.moduli]):
            roots = (of.root(p), -of.root(p)) if is_complex else (0,)
            for plane, root in zip(residues[of.planes * z :], roots, strict=False):
                right = (re + root * im) % p
                assert np.all((plane - right) % p == 0)
                assert np.all(abs(2 * plane) <= p)
    np.testing.assert_array_equal(got, product.exact())


def test_alpha_and_beta_are_applied_to_what_c_held(live):
    m, n, k = 9, 21, 130
    for is_complex in (False, True):
        a, b = drawn(2, m, n, k, is_complex)
        c = drawn(3, m, n, n, is_complex)[0][:, :n]
        alpha, beta = 2 - 0.5j * is_complex, 3 + 1j * is_complex
        product = Product(live, a, b, (True, True))
        product.judged()
        got = product.multiplied(alpha, beta, c)
        np.testing.assert_allclose(got, alpha * product.exact() + beta * c, rtol=1e-14)


def test_integers_are_multiplied_exactly(live):
    rng = np.random.default_rng(4)
    a = rng.integers(-(2**20), 2**20, (20, 150)).astype(float)
    b = rng.integers(-(2**20), 2**20, (150, 30)) * 2.0 ** rng.integers(-3, 3, 30)
    product = Product(live, a, b, (True, True))
    product.judged()
    assert product.moduli == REAL.first
    assert not product.read(product.steps, np.float32, product.of.sides).any()
    np.testing.assert_array_equal(product.multiplied(), a @ b)


def test_bound_of_magnitudes_is_below_them_by_little(live):
    for is_complex in (False, True):
        a, b = drawn(5, 40, 50, 500, is_complex, 1.0)
        product = Product(live, a, b, (True, True))
        product.judged()
        bits = product.read(product.low, np.uint16, 50, 40).T.astype(np.uint32) << 16
        units = product.read(product.units, np.int32, product.of.sides)
        scale = units[:40, None] + units[product.of.first_b :][None, :50].astype(float)
        low, right = bits.view(np.float32) * 2.0**-scale, abs(a) @ abs(b)
        assert np.all(low <= right)
        assert np.all(low >= right * 0.7)


@pytest.mark.parametrize(
    ("phi", "moduli"), [(0, 14), (0.5, 14), (2, 16), (6, 0)], ids=["even", "usual", "wide", "wild"]
)
def test_the_wider_elements_spread_the_more_moduli(live, phi, moduli):
    """The bound that the decision is made by holds, and the native kernel serves the rest."""
    a, b = drawn(6, 40, 40, 600, False, phi)
    product = Product(live, a, b, (True, True))
    product.judged()
    assert product.moduli == moduli
    assert product.words[0] == moduli
    c = np.zeros((40, 40))
    got = product.multiplied(c=c)
    if not moduli:
        np.testing.assert_array_equal(got, c)  # nothing is written
        return
    ratio = float(product.read(product.report, np.float32, 8)[3])
    gain = REAL.gains[moduli - REAL.first]
    bound = (2 * math.sqrt(600) - 2) * 2.0**-53 * ratio / product.of.limit * 2.0**-gain + 2.0**-53
    assert bound <= (2 * math.sqrt(600) - 1) * 2.0**-53
    exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
    assert np.max(abs(got - exact) / (abs(a) @ abs(b))) <= bound


@pytest.mark.every(2)
@pytest.mark.parametrize("is_complex", [False, True], ids=["real", "complex"])
def test_the_most_moduli_are_judged_by_their_own_scales(live, is_complex):
    """Sides gain at least what is known of all, and less than twice as much."""
    a, b = drawn(9, 40, 40, 300, is_complex, 1.0)
    product = Product(live, a, b, (True, False))
    product.judged()
    ratio, top = product.read(product.report, np.float32, 8)[3:5]
    gain = product.of.moduli.gains[-1]
    assert ratio / 2 * 0.999 <= top * 2.0**gain <= ratio * 1.001


@pytest.mark.parametrize("factor", [1e-2, 1e-30])
def test_samples_that_mislead_cost_moduli_not_digits(live, factor):
    """Every fifth element is looked at, of 600: the others are far larger."""
    a, b = drawn(8, 40, 40, 600, False)
    a[:, ::5] *= factor
    product = Product(live, a, b, (True, True))
    product.judged()
    assert product.moduli == (14 if factor == 1e-2 else 0)


@pytest.mark.parametrize("value", [np.inf, np.nan, 1e200, 1e-200])
def test_what_has_no_norm_goes_native(live, value):
    a, b = drawn(7, 20, 20, 100, False)
    a[3] = 1e-300 if value == 1e-200 else a[3]
    a[3, 50] = value
    product = Product(live, a, b, (True, True))
    product.judged()
    assert (product.moduli, product.words[0], product.words[2]) == (0, 0, 1)


def test_nearest_is_between_halves():
    for p in (8, 7):
        assert [nearest(x, p) for x in range(p)] == sorted(
            (nearest(x, p) for x in range(p)), key=lambda x: x % p
        )
        assert all(-p <= 2 * nearest(x, p) < p for x in range(-20, 20))


@pytest.mark.parametrize("triangle", [1, -1])
def test_elements_that_are_not_computed_have_no_say(live, triangle):
    """Where they would be, the bound's product has whatever was in memory."""
    a, _ = drawn(7, 150, 1, 300, False)
    product = Product(live, a, a.T, (True, False))
    product.judged()
    moduli, low = product.moduli, product.read(product.low, np.uint16, 150, 152)
    computed = np.tri(150, dtype=bool).T if triangle > 0 else np.tri(150, dtype=bool)
    low[:, :150][~computed] = 0  # a column of C is a row here; so small a bound wants more moduli
    for part in (triangle, 0):  # one triangle, and all of C
        product.decision = live.upload(np.zeros(DECISION_WORDS, np.int32))
        product.judge(live.upload(low), part)
        assert (product.moduli == moduli) == bool(part)
