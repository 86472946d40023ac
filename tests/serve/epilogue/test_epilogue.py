"""Scales, biases and activations behind a product, by every library's arrays."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tilewright as tw
from tilewright.backend import LiveDevice

ROUNDED = {"float64": 1e-12, "float32": 2e-5, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def dtype(name: str) -> Any:
    return ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)


def reference(
    a: NDArray[Any], b: NDArray[Any], c: Any, alpha: float, beta: float, then: tw.Epilogue
) -> NDArray[Any]:
    """Return the formula in float64."""
    v = alpha * (a.astype("f8") @ b.astype("f8"))
    if then.scale_a is not None:
        v = v * np.asarray(then.scale_a, "f8").reshape(-1, 1)
    if then.scale_b is not None:
        v = v * np.asarray(then.scale_b, "f8").reshape(1, -1)
    v = v + (beta * c.astype("f8") if beta else 0)
    v = v + (0 if then.bias is None else np.asarray(then.bias, "f8"))
    if then.activation == "relu":
        return np.maximum(v, 0)
    if then.activation == "gelu":
        return v / 2 * (1 + np.vectorize(math.erf)(v / math.sqrt(2)))
    if then.activation == "gelu_tanh":
        return v / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))
    return v


def is_close(got: Any, right: NDArray[Any], name: str) -> bool:
    allowed = ROUNDED[name] * (np.abs(right) + 0.01)
    return bool(np.all(np.abs(np.asarray(got).astype("f8") - right) <= allowed))


@settings(max_examples=25)
@given(
    name=st.sampled_from(["float32", "float64", "float16", "bfloat16"]),
    sizes=st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(0, 30)),
    beta=st.sampled_from([0, -0.5]),
    activation=st.sampled_from([None, "relu", "gelu", "gelu_tanh"]),
    wanted=st.sets(st.sampled_from(["columns", "rows", "scale_a", "scale_b"])),
    order=st.sampled_from("CF"),
)
def test_the_formula_holds(
    name: str, sizes: tuple[int, int, int], beta: float, activation: Any, wanted: set[str],
    order: Any,
) -> None:  # fmt: skip
    m, n, k = sizes
    rng = np.random.default_rng(m + 100 * n)

    def drawn(*shape: int) -> Any:
        return rng.uniform(-1, 1, shape).astype(dtype(name), order=order)

    factors = "float32" if name in ("float16", "bfloat16") else name
    bias = drawn(n) if "columns" in wanted else drawn(m, 1) if "rows" in wanted else None
    scale_a = drawn(m).astype(factors) if "scale_a" in wanted else None
    scale_b = drawn(n).astype(factors) if "scale_b" in wanted else None
    then = tw.Epilogue(bias, activation, scale_a, scale_b)
    a, b = drawn(m, k), drawn(k, n)
    c = drawn(m, n) if beta else np.full((m, n), np.nan, dtype(name), order=order)
    right = reference(a, b, c, 0.75, beta, then)
    got = tw.gemm(a, b, c, alpha=0.75, beta=beta, epilogue=then)
    assert got is c
    assert is_close(c, right, name)
    if not beta:
        assert is_close(tw.gemm(a, b, alpha=0.75, epilogue=then), right, name)


@pytest.mark.parametrize(
    ("first", "second"), [((2, 3, 4, 5), (5, 6)), ((3, 4, 5), (3, 5, 6)), ((4, 5), (2, 5, 6))]
)
@pytest.mark.parametrize("name", ["float32", "float16"])
@pytest.mark.parametrize("of_rows", [False, True])
def test_batches_are_followed_product_by_product(
    first: tuple[int, ...], second: tuple[int, ...], name: str, of_rows: bool
) -> None:
    """Also into results whose rows are apart."""
    rng = np.random.default_rng(3)
    a, b = (rng.uniform(-1, 1, shape).astype(name) for shape in (first, second))
    bias = rng.uniform(-1, 1, (4, 1) if of_rows else (6,)).astype(name)
    then = tw.Epilogue(bias, "gelu", scale_b=rng.uniform(1, 2, 6).astype("f4"))
    right = reference(a, b, None, 1, 0, then)
    assert is_close(tw.gemm(a, b, epilogue=then), right, name)
    for pad in (0, 2):
        whole = rng.uniform(-1, 1, (*right.shape[:-1], 6 + pad)).astype(name)
        c, kept = whole[..., :6], whole.copy()
        right = reference(a, b, kept[..., :6], 1, 2, then)
        assert tw.gemm(a, b, c, beta=2, epilogue=then) is c
        assert is_close(c, right, name)
        assert np.array_equal(whole[..., 6:], kept[..., 6:])


def test_integers_become_floats() -> None:
    """Sums are exact, and what follows is in single precision."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 128, (30, 500), "i1"), rng.integers(-128, 128, (500, 20), "i1")
    scales = rng.uniform(0, 0.01, 30).astype("f4"), rng.uniform(0, 0.01, 20).astype("f4")
    then = tw.Epilogue(scale_a=scales[0], scale_b=scales[1])
    got = tw.gemm(a, b, epilogue=then)
    assert got.dtype == np.float32
    assert is_close(got, reference(a, b, None, 1, 0, then), "float32")


@pytest.mark.parametrize(
    "two", [2, 2 + 0j, np.complex64(2), np.float64(2), np.array(2), Fraction(2)]
)
def test_scalars_of_any_kind_scale_real_arrays(two: Any) -> None:
    a, then = np.float32([[1, -np.inf], [1, 3]]), tw.Epilogue(activation="gelu_tanh")
    plain = tw.gemm(a, a, a.copy(), alpha=2, beta=2, epilogue=then)
    assert np.array_equal(tw.gemm(a, a, a.copy(), alpha=two, beta=two, epilogue=then), plain, True)


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_real_factors_leave_infinity_to_its_own_part(name: str) -> None:
    a, b = np.array([[np.inf], [1]], name), np.array([[1 - 1j, 2 + 3j]], name)
    two = np.full(2, 2, a.real.dtype)
    then = tw.Epilogue(scale_a=two, scale_b=two)
    for alpha in (2, 2 + 0j):
        got = tw.gemm(a, b, np.ones((2, 2), name), alpha=alpha, beta=1, epilogue=then)
        assert np.array_equal(got.real, [[np.inf, np.inf], [9, 17]])
        assert np.array_equal(got.imag, [[-np.inf, np.inf], [-8, 24]])


def test_arithmetic_raises_nothing_where_numpy_would() -> None:
    a, b = np.float16([[np.inf, 0]]), np.float16([[-1], [0]])
    then = tw.Epilogue(np.float32([np.inf]), "gelu")
    with np.errstate(all="raise"):
        assert np.isnan(tw.gemm(a, b, epilogue=then)).all()
        assert tw.gemm(a[:, 1:], b[:1], beta=2.0**-20, c=np.float16([[2.0**-24]])) == 0
        assert tw.gemm(b[:1], b[:1], epilogue=tw.Epilogue(scale_a=np.float32([1e-9]))) == 0


def test_operands_of_nothing_are_not_read() -> None:
    a, b, bias = np.full((3, 4), np.nan, "f4"), np.full((4, 2), np.nan, "f4"), np.ones(2, "f4")
    assert np.array_equal(tw.gemm(a, b, alpha=0, epilogue=tw.Epilogue(bias)), np.ones((3, 2)))
    assert tw.gemm(a[:0], b, epilogue=tw.Epilogue(bias)).shape == (0, 2)
    sums_of_none = tw.gemm(a[None, :, :0], b[:0], epilogue=tw.Epilogue(bias))
    assert np.array_equal(sums_of_none, np.ones((1, 3, 2)))


ONE = np.ones((4, 4), "f4")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epilogue": "relu"}, "tilewright.Epilogue"),
        ({"epilogue": tw.Epilogue(np.ones(3, "f4"))}, "bias.shape"),
        ({"epilogue": tw.Epilogue(np.ones(4, "f8"))}, "bias.dtype"),
        ({"epilogue": tw.Epilogue(scale_a=[1, 2, 3, 4])}, "scale_a is a list"),
        ({"epilogue": tw.Epilogue([1, 2, 3, 4])}, "bias is a list"),
        ({"epilogue": tw.Epilogue(1.0)}, "bias is a float"),
        ({"epilogue": tw.Epilogue(), "out_dtype": "float7"}, "out_dtype='float7' does not go"),
        ({"epilogue": tw.Epilogue(), "c": ONE, "a": ONE}, "c overlaps a"),
        ({"epilogue": tw.Epilogue(ONE[0]), "c": ONE}, "c overlaps bias"),
        ({"epilogue": tw.Epilogue(scale_b=ONE[:1]), "c": ONE}, "c overlaps scale_b"),
        ({"epilogue": tw.Epilogue(activation="relu"), "a": ONE + 0j, "b": ONE + 0j}, "real"),
        ({"epilogue": tw.Epilogue(), "a": tw.DoubleDouble(ONE), "b": tw.DoubleDouble(ONE)},
         "DoubleDouble"),
        ({"epilogue": tw.Epilogue(), "beta": 1}, "beta"),
        ({"epilogue": tw.Epilogue(), "a": ONE.astype("i8")}, "a.dtype=int64"),
        ({"epilogue": tw.Epilogue(), "b": ONE.astype("f2"), "alpha": 0}, "b.dtype=float16 but"),
        ({"epilogue": tw.Epilogue(bias=np.ma.masked_array(np.ones(4), True))}, "bias is masked"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        tw.gemm(**{"a": ONE * 1, "b": ONE * 2, **changes})


def test_an_empty_sum_is_zero_whatever_alpha_is() -> None:
    a, b, bias = np.zeros((2, 0)), np.zeros((0, 3)), np.arange(3.0)
    for alpha in (np.inf, np.nan):
        c = tw.gemm(a, b, alpha=alpha, epilogue=tw.Epilogue(bias=bias))
        np.testing.assert_array_equal(c, [bias, bias])


@pytest.mark.parametrize("size", [0, 2])
def test_what_has_nothing_to_multiply_is_checked_and_reported(size: int) -> None:
    a, report = np.ones((size, 2)), tw.Decision()
    options: dict[str, Any] = {"alpha": 0 if size else 1, "epilogue": tw.Epilogue()}
    with pytest.raises(ValueError, match="device='none such'"):
        tw.gemm(a, a.T, device="none such", **options)
    with pytest.raises(ValueError, match="accuracy='exact'"):
        tw.gemm(a, a.T, accuracy="exact", **options)
    tw.gemm(np.eye(2), np.eye(2), accuracy="fp64", report=report)
    tw.gemm(a, a.T, report=report, **options)
    assert "'ieee'" in str(report)


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_vectors_of_a_matrix_are_multiplied_by_elements() -> None:
    a, v = np.arange(6.0).reshape(3, 2), np.arange(1.0, 4)[:, None]
    for name in ("bias", "scale_a"):
        right = tw.gemm(a, a.T, epilogue=tw.Epilogue(**{name: v}))
        found = tw.gemm(a, a.T, epilogue=tw.Epilogue(**{name: np.matrix(v)}))
        np.testing.assert_array_equal(found, right)
        c = np.matrix(np.ones((3, 3)))
        tw.gemm(a, a.T, c, epilogue=tw.Epilogue(**{name: v}))
        np.testing.assert_array_equal(c, right)


@pytest.mark.parametrize("wrong", ["f4,zz,,", ("f4", (-2,))])
def test_types_that_are_none_are_refused_by_name(wrong: Any) -> None:
    a = np.ones((2, 2), "f2")
    with pytest.raises(ValueError, match="out_dtype="):
        tw.gemm(a, a, out_dtype=wrong)


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(ValueError, match="'tanh' is unknown"):
        tw.Epilogue(activation="tanh")


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["cupy", "torch"])
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "int8", "float32"])
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_tanh"])
def test_arrays_on_a_device(cuda: LiveDevice, kind: str, name: str, activation: Any) -> None:
    """Row- and column-major results, aligned or not; a second call starts the plan of the first."""
    library = pytest.importorskip(kind)
    if kind == "cupy" and name in ("bfloat16", "float8_e4m3fn"):
        pytest.skip("CuPy's types of ml_dtypes are experimental")
    rng = np.random.default_rng(1)
    out = {"int8": "float32", "float8_e4m3fn": "bfloat16"}.get(name, name)

    def there(x: NDArray[Any], of: str, *, flipped: bool = False) -> Any:
        if kind == "cupy":
            return library.asarray(x.astype(of), order="F" if flipped else "C")
        made = library.asarray(x.T.copy() if flipped else x, dtype=getattr(library, of)).cuda()
        return made.T if flipped else made

    def here(x: Any) -> NDArray[Any]:
        made: NDArray[Any] = x.get() if kind == "cupy" else x.double().cpu().numpy()
        return made.astype("f8")

    for m, n, k in ((200, 136, 64), (131, 67, 90), (1, 300, 33)):
        x, y = rng.integers(-3, 4, (m, k)).astype("f8"), rng.integers(-3, 4, (k, n)).astype("f8")
        scales = rng.choice([0.25, 0.5], m), rng.choice([0.125, 0.25], n)
        bias, old = rng.choice([-1.0, 0.5], n), rng.integers(-2, 3, (m, n)).astype("f8")
        for flipped in (False, True):
            for of_rows in (False, True):
                mine = rng.choice([-1.0, 0.5], (m, 1)) if of_rows else bias
                c = there(old, out, flipped=flipped)
                then = tw.Epilogue(
                    there(mine, out), activation, there(scales[0], "float32"),
                    there(scales[1], "float32"),
                )  # fmt: skip
                plain = tw.Epilogue(mine, activation, *scales)
                right = reference(x, y, old, 0.5, -1, plain)
                tw.gemm(there(x, name), there(y, name), c, alpha=0.5, beta=-1, epilogue=then)
                assert is_close(here(c), right, out)
        got = tw.gemm(there(x, name), there(y, name), epilogue=tw.Epilogue(there(bias, out)))
        assert is_close(here(got), reference(x, y, None, 1, 0, tw.Epilogue(bias)), out)
        batch = there(x, name).reshape(1, 1, m, k) if k % 2 == 0 else there(x[None], name)
        got = tw.gemm(batch, there(y, name), epilogue=tw.Epilogue(there(bias, out), activation))
        right = reference(x, y, None, 1, 0, tw.Epilogue(bias, activation))
        assert is_close(here(got[0, 0] if k % 2 == 0 else got[0]), right, out)


def test_plans_are_kept_of_weights_where_no_gradient_is_wanted() -> None:
    from types import SimpleNamespace

    from tilewright.serve.epilogue.arrays import Torch
    from tilewright.serve.epilogue.serve import _key

    enabled = True
    module: Any = SimpleNamespace(
        strided="strided", Tensor=SimpleNamespace, is_grad_enabled=lambda: enabled
    )
    x = SimpleNamespace(
        is_cuda=True, requires_grad=True, layout="strided", shape=(8, 8), dtype="float16",
        device="cuda:0", is_neg=lambda: False, stride=lambda: (8, 1), data_ptr=lambda: 256,
    )  # fmt: skip
    options = (1, 0, "N", "N", None)
    assert _key(Torch(module), tw.Epilogue(bias=x), x, x, None, options) is None
    enabled = False
    keys = [_key(Torch(module), tw.Epilogue(bias=x), x, x, None, options) for _ in range(2)]
    assert keys[0] == keys[1] is not None


def test_results_are_on_the_device_of_their_operands() -> None:
    from contextlib import contextmanager
    from types import SimpleNamespace

    from tilewright.serve.epilogue.arrays import Library

    current = [0]

    @contextmanager
    def device(number: int) -> Any:
        current.append(number)
        yield
        current.pop()

    module: Any = SimpleNamespace(
        cuda=SimpleNamespace(Device=device),
        empty=lambda *_: current[-1],
    )
    x = SimpleNamespace(data=SimpleNamespace(device_id=1))
    assert Library(module).empty(x, (2, 2), "float32") == 1
