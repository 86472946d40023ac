"""The passes of double-double products in residues, beside exact integers and fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stencil.residues.product import Product, components, exact_of
from tilewright.backend import LiveDevice, devices
from tilewright.precision import DOUBLE_DOUBLE
from tilewright.stencil.residues.moduli import PAIR

PAIRS, COMPLEX_PAIRS = DOUBLE_DOUBLE["e"].dtype, DOUBLE_DOUBLE["w"].dtype
_CPU = next(d.id for d in devices() if d.spec.kind == "cpu")
_GPUS = [pytest.param(d.id, marks=pytest.mark.gpu) for d in devices() if d.backend == "cuda"]


@pytest.fixture(scope="module", params=[_CPU, *_GPUS])
def live(request: pytest.FixtureRequest) -> LiveDevice:
    return next(d for d in devices() if d.id == request.param)


def pairs(high, low):
    """Return high + low as normalised pairs."""
    made = np.empty(np.shape(high), PAIRS)
    made["hi"] = high + low
    made["lo"] = (high - made["hi"]) + low
    return made


def drawn(rng, rows, columns, phi=0.0):
    high = (rng.random((rows, columns)) - 0.5) * np.exp(phi * rng.standard_normal((rows, columns)))
    return pairs(high, high * 2.0**-53 * 1.9 * (rng.random((rows, columns)) - 0.5))


def drawn_complex(rng, rows, columns, phi=0.0):
    made = np.empty((rows, columns), COMPLEX_PAIRS)
    made["re"], made["im"] = (drawn(rng, rows, columns, phi) for _ in "ri")
    return made


def judged(live, a, b, k_fast=(True, True), conjugated=(False, False)):
    product = Product(live, a, b, k_fast, conjugated)
    product.judged()
    return product


def relative(got, right):
    """Return the largest relative error."""
    wrong = abs(exact_of(got) - right)
    pairs = zip(wrong.flat, right.flat, strict=True)
    return max(float(x / abs(y)) if y else float(x != 0) for x, y in pairs)


def check(product, got):
    """Residues bit for bit, and the product of the integers rounded to pairs."""
    of, moduli = product.of.moduli, product.moduli
    for which in (0, 1):
        _, (real, imaginary), residues = product.sides(which)
        for z, p in enumerate(of.numbers[:moduli]):
            planes = residues[of.planes * z :][: of.planes]
            for plane, right in zip(planes, (real, imaginary, real + imaginary), strict=False):
                assert np.all((plane - right) % p == 0)
                assert np.all(abs(2 * plane) <= p)
    for part, right in zip(components(got), product.exact(), strict=True):
        assert relative(part, right) <= 3 * 2.0**-106
        np.testing.assert_array_equal(part["hi"] + part["lo"], part["hi"])


def check_bound(product, got, a, b):
    ratio = float(product.read(product.report, np.float32, 8)[3])
    gain = product.of.moduli.gains[product.moduli - PAIR.first]
    bound = product.of.allowed * ratio / product.of.limit * 2.0**-gain + product.of.rounding
    assert bound <= product.of.allowed + product.of.rounding
    x, y = exact_of(a), exact_of(b)
    wrong, size = abs(exact_of(got) - x.dot(y)), abs(x).dot(abs(y))
    assert all(w <= Fraction(bound) * s for w, s in zip(wrong.flat, size.flat, strict=True))


def test_there_are_41_numbers_and_words_hold_integers():
    assert len(PAIR.numbers) == 41
    assert min(PAIR.numbers) >= 65
    assert {PAIR.parts(count) for count in PAIR.counts} == {6, 7, 8}
    assert PAIR.most(PAIR.narrow) < 2.0**122 <= PAIR.most(PAIR.narrow + 1)
    assert PAIR.most(41) < 2.0**182


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("phi", "k_fast"),
    [
        (0.5, (True, True)),
        (0.5, (False, False)),
        (2, (True, False)),
        (4, (False, True)),
        (6, (True, True)),
    ],
)
def test_products_are_those_of_the_rounded_integers(live, phi, k_fast):
    rng = np.random.default_rng(int(10 * phi))
    a, b = drawn(rng, 21, 90, phi), drawn(rng, 90, 14, phi)
    a[3], b[:, 5], a[:, 7] = 0, 0, 0
    product = judged(live, a, b, k_fast)
    assert product.moduli in PAIR.counts
    assert (product.moduli > PAIR.narrow) == (phi >= 4)
    got = product.multiplied()
    check(product, got)
    check_bound(product, got, a, b)


@pytest.mark.every(2)
@pytest.mark.parametrize("phi", [0.5, 4])
def test_complex_products_come_from_three_real_ones(live, phi):
    rng = np.random.default_rng(8)
    a, b, c = (drawn_complex(rng, *shape, phi) for shape in ((11, 70), (70, 9), (11, 9)))
    product = judged(live, a, b, (False, True), (True, False))
    assert product.words[0] == 3 * product.moduli > 0
    check(product, product.multiplied())
    got = product.multiplied(2 - 1j, 0.5j, c)
    (re, im), (old_re, old_im) = product.exact(), map(exact_of, components(c))
    right = 2 * re + im - old_im / 2, 2 * im - re + old_re / 2
    size = sum(map(abs, (re, im, old_re, old_im)))
    for part, one in zip(components(got), right, strict=True):
        assert np.all(abs(exact_of(part) - one) <= Fraction(2.0**-102) * size)


@settings(max_examples=8)
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 150),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_ragged_shapes(m, n, k, along_a, along_b, data):
    live = next(d for d in devices() if d.id == _CPU)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    a, b = drawn(rng, m, k), drawn(rng, k, n)
    product = judged(live, a, b, (along_a, along_b))
    if product.moduli:  # a single product may need more than there are
        check(product, product.multiplied())


def test_alpha_and_beta_are_pairs(live):
    rng = np.random.default_rng(3)
    a, b, c = drawn(rng, 9, 70), drawn(rng, 70, 11), drawn(rng, 9, 11)
    alpha, beta = pairs(np.array([1 / 3, -0.7]), np.array([2.0**-56, 2.0**-58]))
    product = judged(live, a, b)
    got = product.multiplied(Scalar(alpha), Scalar(beta), c)
    first, second = exact_of(alpha) * product.exact()[0], exact_of(beta) * exact_of(c)
    wrong = abs(exact_of(got) - first - second)
    assert np.all(wrong <= Fraction(2.0**-102) * (abs(first) + abs(second)))


class Scalar:
    def __init__(self, pair):
        self.hi, self.lo = float(pair["hi"]), float(pair["lo"])


def test_integers_are_multiplied_exactly(live):
    rng = np.random.default_rng(4)
    a = pairs(rng.integers(-(2**45), 2**45, (8, 50)).astype(float), 0.0)
    b = pairs(rng.integers(-(2**50), 2**50, (50, 9)) * 2.0 ** rng.integers(-300, 300, 9), 0.0)
    product = judged(live, a, b)
    assert product.moduli == PAIR.first
    got = product.multiplied()
    assert np.all(exact_of(got) == exact_of(a).dot(exact_of(b)))


def test_sums_that_cancel_keep_their_bound(live):
    rng = np.random.default_rng(5)
    x, y = drawn(rng, 10, 60), drawn(rng, 60, 12)
    z = pairs(-y["hi"], -y["lo"] * 0.5)
    a, b = np.concatenate([x, x], 1), np.concatenate([y, z], 0)
    product = judged(live, a, b)
    got = product.multiplied()
    check(product, got)
    check_bound(product, got, a, b)


@pytest.mark.parametrize(
    "words",
    [(np.inf, 0.0), (np.nan, 0.0), (1.0, np.nan), (1.0, 2.0**-51), (0.0, 1.0), (1e200, 0.0)],
)
def test_what_is_no_pair_or_has_no_norm_goes_native(live, words):
    rng = np.random.default_rng(6)
    a, b = drawn(rng, 5, 40), drawn(rng, 40, 6)
    a[3, 20] = words
    product = judged(live, a, b)
    assert (product.moduli, product.words[0], product.words[2]) == (0, 0, 1)


def test_what_41_moduli_do_not_hold_goes_native(live):
    rng = np.random.default_rng(7)
    a, b = drawn(rng, 5, 400, 12), drawn(rng, 400, 6, 12)
    product = judged(live, a, b)
    assert (product.moduli, product.words[2]) == (0, 0)
    c = drawn(rng, 5, 6)
    np.testing.assert_array_equal(product.multiplied(c=c), c)
