"""tw.DoubleDouble: from and to everything, slices, arithmetic, text, files."""

from __future__ import annotations

import copy
from decimal import Decimal
from fractions import Fraction

import flint
import mpmath
import numpy as np
import pytest
from hypothesis import example, given

import tilewright as tw
from tests.double_double.exactly import rationals
from tests.double_double.test_arithmetic import pairs

THIRD = "0.33333333333333333333333333333333333333333333"


def near(x: tw.DoubleDouble, right: Fraction, ulps: float = 0.5) -> bool:
    return abs(rationals(x)[0] - right) <= ulps * Fraction(2) ** -106 * abs(right)


@pytest.mark.parametrize(
    "value",
    [
        THIRD,
        THIRD.encode(),
        Decimal(THIRD),
        Fraction(THIRD),
        mpmath.mpf("0.25"),
        flint.fmpq(1, 3),
        2**100 + 1,
        flint.fmpz(2) ** 90 + 1,
        np.longdouble(1) / 3,
        np.int64(2**62 + 1),
        np.float32(0.1),
        0.1,
    ],
    ids=lambda v: type(v).__name__,
)
def test_numbers_become_the_nearest_pair(value):
    x = tw.DoubleDouble([value])
    assert x.shape == (1,)
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, mpmath.mpf | flint.fmpz | flint.fmpq):
        right = Fraction(str(value).replace("^", "**"))
    elif isinstance(value, np.floating):
        right = Fraction(*value.as_integer_ratio())
    else:
        right = Fraction(value) if not isinstance(value, np.integer) else Fraction(int(value))
    assert near(x, right)
    assert float(x.hi[0]) == float(right)


def test_mpmath_with_more_bits_and_back():
    with mpmath.workprec(200):
        values = mpmath.matrix([[mpmath.pi, mpmath.e], [mpmath.mpf(1) / 3, mpmath.mpf("-1e-250")]])
        x = tw.DoubleDouble.from_mpmath(values)
        back = x.to_mpmath()
        for i, j in np.ndindex(2, 2):
            assert abs(back[i, j] - values[i, j]) <= abs(values[i, j]) * mpmath.mpf(2) ** -106
        z = tw.DoubleDouble(mpmath.mpc(mpmath.pi, -mpmath.e))
        assert z.is_complex
        assert abs(z.to_mpmath()[()] - mpmath.mpc(mpmath.pi, -mpmath.e)) < mpmath.mpf(2) ** -104


def test_flint_matrices_and_back():
    exact = flint.fmpq_mat([[flint.fmpq(1, 8), flint.fmpq(2**80 + 1, 2**20)], [3, -4]])
    x = tw.DoubleDouble.from_flint(exact)
    assert x.to_flint() == exact
    assert (tw.DoubleDouble.from_flint(flint.arb_mat([[1, 2]])) == [[1, 2]]).all()
    with pytest.raises(ValueError, match="takes a real matrix"):
        tw.DoubleDouble([1.0, 2.0]).to_flint()


@given(pairs())
@example((0.5, -(2.0**-55)))  # its text is just below a tie, its low word rounds to the tie
def test_text_comes_back(pair):
    x = tw.DoubleDouble(*pair)
    right = rationals(x)[0]
    back = rationals(tw.DoubleDouble.from_strings(x.to_strings(36)))[0]
    assert abs(back - right) <= abs(right) * Fraction(10) ** -31


def test_repr_shows_32_digits():
    x = tw.DoubleDouble(["3.14159265358979323846264338327950288", "-1e-20"])
    assert repr(x) == (
        "DoubleDouble([3.1415926535897932384626433832795, -1.0000000000000000000000000000000e-20])"
    )
    assert "2+3j" in repr(tw.DoubleDouble(2 + 3j))
    assert "..." in repr(tw.DoubleDouble(np.zeros(10_000)))


@pytest.mark.parametrize(
    "value", ["inf", "-inf", "nan", "2e308", "-2e308", "1e999", "-1e999999999", "1e-999999999"]
)
def test_what_is_not_finite_stays_so(value):
    x = tw.DoubleDouble([value])
    np.testing.assert_equal(float(x.hi[0]), float(value))
    assert float(x.lo[0]) == 0


def test_numbers_just_beyond_the_largest_double_are_infinite():
    assert tw.DoubleDouble([2**1024, -(2**1024), Fraction(2**1025, 3)]).hi.tolist() == [
        np.inf,
        -np.inf,
        float(Fraction(2**1025, 3)),
    ]


def test_entry_normalises():
    x = tw.DoubleDouble(np.array([1.0, 2.0]), np.array([1.0, 1e-40]))
    assert x.hi.tolist() == [2.0, 2.0]
    assert x.lo.tolist() == [0.0, 1e-40]
    z = tw.DoubleDouble(np.array([1 + 2j]), np.array([1e-20j]))
    assert z.is_complex
    assert z.lo[0] == 1e-20j


@pytest.mark.parametrize(
    ("value", "lo", "message"),
    [
        ("ham", None, "'ham' is not a real number"),
        ([None], None, "None is not a real number"),
        (np.zeros(2), np.zeros(3), "does not fit"),
        (np.zeros(2, np.longdouble), np.zeros(2), "value has dtype"),
        (np.zeros(2), np.zeros(2, np.int64), "lo has dtype int64"),
    ],
)
def test_bad_input_is_refused(value, lo, message):
    with pytest.raises(ValueError, match=message):
        tw.DoubleDouble(value, lo)


class Foreign:
    """Another library's array in the host's memory, with types of its own."""

    dtype = "torch.float64"

    def __init__(self, x):
        self._x = x

    def __dlpack__(self, **how):
        return self._x.__dlpack__(**how)

    def __dlpack_device__(self):
        return self._x.__dlpack_device__()


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "c16"])
def test_other_libraries_arrays_in_the_hosts_memory_are_read(dtype):
    x = np.arange(6).reshape(2, 3).astype(dtype)
    assert (tw.DoubleDouble(Foreign(x)) == tw.DoubleDouble(x)).all()


def test_words_are_used_as_they_are():
    words = np.zeros((3, 4, 2))
    x = tw.DoubleDouble.of_words(words)
    x[1, 2] = "0.1"
    assert words[1, 2].tolist() == [0.1, float(Fraction(1, 10) - Fraction(0.1))]
    with pytest.raises(ValueError, match="is not float64 ending in"):
        tw.DoubleDouble.of_words(np.zeros((3, 3)))


def test_slices_shapes_and_transposes_are_views():
    x = tw.DoubleDouble(np.arange(24.0).reshape(4, 6), np.full((4, 6), 1e-30))
    assert (x.shape, x.ndim, x.size, len(x)) == ((4, 6), 2, 24, 4)
    assert np.array_equal(x[1:, ::2].hi, x.hi[1:, ::2])
    assert np.array_equal(x.T.lo, x.lo.T)
    assert x[..., 0].shape == (4,)
    assert x[2, 3] == tw.DoubleDouble(15.0, 1e-30)
    x.T[0, 0] = 7
    assert x[0, 0] == 7
    x[[0, 1]] = x[[1, 0]]
    assert x[1, 0] == 7
    assert x.reshape(24)[6] == 7
    assert x.copy()[0, 0] == x[0, 0]
    z = tw.DoubleDouble(np.arange(6).reshape(2, 3) * (1 + 1j))
    assert z.T.shape == (3, 2)
    assert (z.conj().imag == -z.imag).all()
    assert (z.real == [[0, 1, 2], [3, 4, 5]]).all()
    with pytest.raises(ValueError, match="complex but the array is real"):
        x[0, 0] = 1j


def test_operands_may_be_any_numbers():
    x = tw.DoubleDouble([1, 2])
    assert (1 - x == [0, -1]).all()
    assert (np.array([2.0, 4.0]) / x == 2).all()
    assert ((x + Decimal("0.5")) * 2 == [3, 5]).all()
    assert (x[:, None] + x[None, :]).shape == (2, 2)
    assert (x < 2).tolist() == [True, False]
    assert (x >= 2).tolist() == [False, True]
    assert (x == "ham") is False
    tiny = tw.DoubleDouble(1.0, 1e-25)
    assert tiny > 1
    assert not tiny <= 1
    assert tiny != 1
    with pytest.raises(TypeError, match="no order"):
        _ = tw.DoubleDouble(1j) < 2


def test_complex_arithmetic():
    x, y = tw.DoubleDouble([1 + 2j, 3 - 1j]), tw.DoubleDouble(["3", "0.5"])
    assert (x * y == [3 + 6j, 1.5 - 0.5j]).all()
    assert (x * x / x - x).norm() < 1e-30
    assert abs(tw.DoubleDouble(3 + 4j)) == 5
    assert abs(tw.DoubleDouble(3e300 + 4e300j)) == 5e300
    assert (x - x == 0).all()
    assert complex(x[0]) == 1 + 2j


def test_complex_numbers_may_be_as_large_or_small_as_doubles_get():
    for size in (2.0**1022, 1.0, 2.0**-900):
        x = tw.DoubleDouble([complex(3 * size, -size), complex(size, size)])
        assert (x / x - 1).norm() < 1e-30
        assert (x / tw.DoubleDouble([2 * size]) == [1.5 - 0.5j, 0.5 + 0.5j]).all()
        assert (tw.DoubleDouble([complex(0.75 * size, size)]).__abs__() == 1.25 * size).all()


def test_real_numbers_have_no_imaginary_part_however_large():
    x = tw.DoubleDouble(np.array([np.inf, np.nan, 1]))
    assert np.array_equal(x.imag.words, np.zeros((3, 2)))
    assert np.array_equal((x + 1j).imag.words, [[1, 0]] * 3)
    assert np.array_equal((x + 1j).real.words[:, 0], [np.inf, np.nan, 1], equal_nan=True)
    with np.errstate(all="raise"):
        assert np.isnan(tw.scaled_residual(np.diag(x.hi), np.ones(3), np.ones(3)))


def test_infinite_sizes_warn_of_nothing():
    """Warnings are errors in these tests."""
    assert np.isinf(float(tw.DoubleDouble([np.inf, 1]).norm()))
    assert np.isnan(float(tw.DoubleDouble([np.nan, 1]).norm()))
    assert np.isinf(abs(tw.DoubleDouble([complex(np.inf, np.nan)])).hi).all()
    assert np.isinf(abs(tw.DoubleDouble([complex(1.7e308, 1e308)])).hi).all()
    largest = np.finfo(np.longdouble).max
    assert np.isinf(tw.DoubleDouble([largest, -largest]).hi).all() or largest < 2.0**1023 * 2


def test_nothing_has_a_text_too():
    assert repr(tw.DoubleDouble([])) == "DoubleDouble([])"
    assert repr(tw.DoubleDouble(np.zeros((0, 2)) * 1j)).startswith("complex DoubleDouble(")


def test_norms_are_exact_where_doubles_are_not():
    x = tw.DoubleDouble([[1, 2**40], [2**-40, -1]])
    exact = 2 + Fraction(2) ** 80 + Fraction(2) ** -80
    assert abs(rationals(x.norm())[0] ** 2 - exact) < exact * Fraction(2) ** -102
    assert x.norm(1) == 2**40 + 1
    assert x.norm(np.inf) == 2**40 + 1
    assert x.norm("max") == 2**40
    assert tw.DoubleDouble(["3e200", "4e200"]).norm() / "5e200" - 1 < 1e-31
    for size in (2.0**1023 * 1.75, 2.0**-1060):  # neither overflows nor warns
        assert tw.DoubleDouble([size]).norm() == size
    assert np.isinf(float(tw.DoubleDouble([1.7e308, 1.7e308]).norm()))
    assert np.isnan(float(tw.DoubleDouble([np.nan, 1]).norm("max")))
    assert tw.DoubleDouble(np.zeros(0)).norm() == 0
    with pytest.raises(ValueError, match="order='nuclear' is no norm"):
        x.norm("nuclear")


def test_sums_go_along_an_axis():
    x = tw.DoubleDouble(np.arange(15.0).reshape(3, 5))
    assert x.sum() == 105
    assert (x.sum(axis=0) == x.hi.sum(axis=0)).all()
    assert (x.sum(axis=1) == x.hi.sum(axis=1)).all()
    assert tw.DoubleDouble(np.zeros((0, 3))).sum(axis=0).shape == (3,)
    assert tw.DoubleDouble(np.zeros(0, complex)).sum().is_complex
    solid = np.arange(24.0).reshape(2, 3, 4)
    for axes in ((0, 2), (-1, 1), (0, 1, 2), (1,), ()):
        assert (tw.DoubleDouble(solid).sum(axes) == solid.sum(axes)).all()
    for axes in (None, 0, (0, 1), ()):  # nothing to add
        one = tw.DoubleDouble([[1.0]])
        one.sum(axes)[...] = 2
        assert one[0, 0] == 1
    for axes, why in (((0, 0), "twice"), ((0, -2), "twice"), ((0, 7), "none of 2"), ("x", "'x'")):
        with pytest.raises(ValueError, match=why):
            x.sum(axes)


@pytest.mark.parametrize("value", [[1.5, "0.1"], [1 + 2j, 3j]])
def test_files_hold_both_words(tmp_path, value):
    x = tw.DoubleDouble(value)
    x.save(tmp_path / "x.npz")
    back = tw.DoubleDouble.load(tmp_path / "x.npz")
    assert (back == x).all()
    np.savez(tmp_path / "y.npz", hi=np.zeros(3))
    np.savez(tmp_path / "z.npz", hi=np.array([object()]), lo=np.zeros(1))
    (tmp_path / "t.npz").write_text("no archive")
    with open(tmp_path / "a.npz", "wb") as file:
        np.save(file, np.zeros(3))
    for name, why in (("y", "it has no lo"), ("z", ""), ("t", ""), ("a", "it holds one array")):
        with pytest.raises(ValueError, match=rf"is not a double-double \.npz file: {why}"):
            tw.DoubleDouble.load(tmp_path / f"{name}.npz")


@pytest.mark.parametrize(
    ("at", "value"), [(4, 200), (6, 1), (8, 99)], ids=["version", "flag", "way"]
)
def test_a_damaged_archive_is_no_file_of_ours(tmp_path, at, value):
    """Of the first entry of the directory at its end: zipfile refuses each in its own way."""
    path = tmp_path / "x.npz"
    tw.DoubleDouble([1.5]).save(path)
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\x01\x02")
    data[entry + at + 2] = value
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"is not a double-double \.npz file"):
        tw.DoubleDouble.load(path)


def test_longdouble_and_back():
    x = np.array([1, 2, 3], np.longdouble) / 7
    assert (tw.DoubleDouble.from_longdouble(x).to_longdouble() == x).all()
    z = x + 1j * x
    assert (tw.DoubleDouble.from_longdouble(z).to_longdouble() == z).all()
    assert tw.DoubleDouble.from_float64([0.1]).to_float64().tolist() == [0.1]


def test_indices_are_of_elements_never_of_their_words():
    x = tw.DoubleDouble(np.arange(6.0).reshape(2, 3), np.full((2, 3), 1e-20))
    z = x * (1 + 2j)
    for array in (x, z):
        for key in ((slice(None), slice(None), 0), (0, 0, 0), (0, 0, slice(None)), (..., 0, 0, 0)):
            with pytest.raises(IndexError):
                array[key]
        assert array[1, ..., 2] == array[1, 2]
        assert [len(row) for row in array] == [3, 3]
    with pytest.raises(IndexError):
        x[0, 0][0]
    with pytest.raises(TypeError, match="no length"):
        list(x[0, 0])
    for axis in (2, -3, 5):
        with pytest.raises(ValueError, match=f"axis={axis}"):
            x.sum(axis)
    assert (x.sum(-1) == x.sum(1)).all()


def test_products_of_real_and_complex_matrices():
    r, z = tw.DoubleDouble([[1, 2], [3, "0.1"]]), tw.DoubleDouble([[1j, 2], [3, 4 + 1j]])
    both = r @ z
    assert both.is_complex
    assert (both == (r * (1 + 0j)) @ z).all()
    assert (z @ r == z @ (r * (1 + 0j))).all()
    assert (r @ np.array([[1j, 2], [3, 4 + 1j]]) == both).all()
    assert (np.array([[1.0, 2], [3, 4]]) @ z).is_complex
    assert ((r.reshape(1, 2, 2) @ z)[0] == both).all()
    with pytest.raises(ValueError, match="b has no dimensions"):
        r @ 2


def test_its_own_elements_and_texts_are_numbers():
    x = tw.DoubleDouble([THIRD, "0.1"])
    assert (tw.DoubleDouble(list(x)) == x).all()
    assert (tw.DoubleDouble([x[0], 2**53 + 1])[0] == x[0]).all()
    z = tw.DoubleDouble([1 + 2j, complex(3, -1e-5), complex(np.inf, -np.inf)])
    assert (tw.DoubleDouble([*z, 4])[:3] == z).all()
    texts = z.to_strings(120)
    assert (tw.DoubleDouble.from_strings(texts) == z).all()
    assert (tw.DoubleDouble(["1e0-2E+4j", "-2j", "5"]) == [1 - 2e4j, -2j, 5]).all()
    with pytest.raises(ValueError, match="is not a real number"):
        tw.DoubleDouble("1+xj")


def test_a_copy_has_words_of_its_own():
    x = tw.DoubleDouble([1.0, 2.0])
    y = copy.copy(x)
    y[0] = 5
    assert x.hi.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda x: x.to_strings(0), "digits=0 is no number of digits"),
        (lambda x: x.to_strings("a"), "digits='a' is no number of digits"),
        (lambda x: x.reshape(3), r"shape=\(3,\) does not hold 2 elements"),
        (lambda x: tw.DoubleDouble([[1, 2], [3]]), "value is no array"),
        (lambda x: tw.DoubleDouble(x.hi, np.ones(3)), r"lo.shape=\(3,\) does not fit"),
        (lambda x: x.__setitem__(0, [1, 2, 3]), r"value.shape=\(3,\) does not fit"),
    ],
)
def test_what_does_not_fit_is_named(call, told):
    with pytest.raises(ValueError, match=told):
        call(tw.DoubleDouble([1.0, 2.0]))


@pytest.mark.parametrize("value", [[np.ma.masked, 1.0], [np.ma.masked_array([1.0], [True])] * 2])
def test_lists_of_masked_numbers_are_refused(value):
    with pytest.raises(TypeError, match="masked"):
        tw.DoubleDouble(value)


def test_masked_arrays_are_refused():
    x = np.ma.masked_array([1.0, 2.0], [True, False])
    for make in (tw.DoubleDouble, tw.DoubleDouble.from_float64, tw.DoubleDouble.from_longdouble):
        with pytest.raises(TypeError, match="masked arrays"):
            make(x)
    with pytest.raises(TypeError, match="masked arrays"):
        tw.DoubleDouble(np.ones(2), x)


@pytest.mark.parametrize("one", [0.5, -1, 1j, np.float64(2)])
def test_integers_of_lists_keep_their_digits_beside_others(one):
    large = 2**63 + 1
    assert (tw.DoubleDouble([large, one])[0] - large == 0).all()
    zeros = tw.DoubleDouble(np.zeros(2))
    more = [large, one]
    assert (zeros + more)[0] - large == 0
    with pytest.raises(ValueError, match="value has dtype object"):
        tw.DoubleDouble([large, one], 0.0)


def test_words_may_be_mapped(tmp_path):
    a = tw.DoubleDouble(np.arange(9.0).reshape(3, 3))
    np.save(tmp_path / "words.npy", a.words)
    mapped = tw.DoubleDouble.of_words(np.load(tmp_path / "words.npy", mmap_mode="r"))
    for x, y in ((mapped, mapped), (mapped, a), (a, mapped)):
        assert (tw.gemm(x, y) == a @ a).all()


@pytest.mark.parametrize("words", [[1.0, 2.0], np.ma.zeros((3, 2))])
def test_words_that_are_none_are_refused(words):
    with pytest.raises(TypeError, match=r"words is a list|masked"):
        tw.DoubleDouble.of_words(words)
