"""Numbers of 8 and 16 bits: summed in float32 (or exactly), rounded once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw

ml_dtypes = pytest.importorskip("ml_dtypes")

DEVICE = "opencl"
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
sizes = st.integers(0, 60)
letters = st.sampled_from("NTC")


def shaped(letter, rows, columns):
    return (rows, columns) if letter == "N" else (columns, rows)


def op(letter, x):
    return x if letter == "N" else x.T


@settings(max_examples=40)
@given(
    dtype=st.sampled_from([np.dtype("float16"), BFLOAT16, E4M3, E5M2]),
    out=st.sampled_from([None, "float32", "same"]),
    trans=st.tuples(letters, letters),
    shape=st.tuples(sizes, sizes, sizes),
    beta=st.sampled_from([0, 1, -2]),
    seed=st.integers(0, 2**32 - 1),
)
def test_sums_are_rounded_once(dtype, out, trans, shape, beta, seed):
    m, n, k = shape
    rng = np.random.default_rng(seed)
    a = rng.standard_normal(shaped(trans[0], m, k)).astype(dtype)
    b = rng.standard_normal(shaped(trans[1], k, n)).astype(dtype)
    own = BFLOAT16 if dtype.itemsize == 1 else dtype
    wanted = own if out in (None, "same") else np.dtype(out)
    scalars = {"trans_a": trans[0], "trans_b": trans[1], "alpha": 0.5, "device": DEVICE}
    if out == "same":
        c = rng.standard_normal((m, n)).astype(own)
        old = c.astype(np.float32)
        if beta == 0:
            c[...] = np.nan
        assert tw.gemm(a, b, c, beta=beta, **scalars) is c
    else:
        beta, old = 0, np.zeros((m, n), np.float32)
        c = tw.gemm(a, b, out_dtype=out and wanted, **scalars)
    assert c.dtype == wanted
    x, y = op(trans[0], a).astype(np.float32), op(trans[1], b).astype(np.float32)
    right = tw.gemm(x, y, old.copy(), alpha=0.5, beta=beta, device=DEVICE)
    np.testing.assert_array_equal(c, right.astype(wanted))


def test_overflow_is_infinity():
    a = np.full((2, 2), 300, np.float16)
    assert np.isinf(tw.gemm(a, a, device=DEVICE)).all()
    for single in ("float32", "f4", np.float32):
        np.testing.assert_array_equal(tw.gemm(a, a, out_dtype=single, device=DEVICE), 180000)


@settings(max_examples=20)
@given(
    shape=st.tuples(sizes, sizes, st.sampled_from([0, 1, 500, 1024, 1025, 3000])),
    trans=st.tuples(letters, letters),
    alpha=st.integers(-3, 3),
    beta=st.integers(-3, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_integers_are_exact(shape, trans, alpha, beta, seed):
    m, n, k = shape
    rng = np.random.default_rng(seed)
    # Extremes often: their sums are the largest.
    a = rng.choice(np.array([-128, -128, 127, 3, 0], np.int8), shaped(trans[0], m, k))
    b = rng.choice(np.array([-128, -128, -127, 1], np.int8), shaped(trans[1], k, n))
    c = rng.integers(-(2**31), 2**31, (m, n), np.int64).astype(np.int32)
    right = alpha * (op(trans[0], a).astype(np.int64) @ op(trans[1], b).astype(np.int64))
    right = right + beta * c.astype(np.int64)
    got = tw.gemm(
        a, b, c, alpha=alpha, beta=beta, trans_a=trans[0], trans_b=trans[1], device=DEVICE
    )
    assert got is c
    np.testing.assert_array_equal(c, right.astype(np.int32))  # modulo 2^32
    if beta == 0:
        fresh = tw.gemm(a, b, trans_a=trans[0], trans_b=trans[1], alpha=alpha, device=DEVICE)
        assert fresh.dtype == np.int32
        np.testing.assert_array_equal(fresh, c)


HALF = np.ones((4, 4), np.float16)
BYTES = np.ones((4, 4), np.int8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((HALF, HALF.astype("f4")), r"b\.dtype=float32 but a\.dtype=float16"),
        (
            (HALF.astype(E4M3), HALF.astype(E5M2)),
            r"b\.dtype=float8_e5m2 but a\.dtype=float8_e4m3fn",
        ),
        ((HALF, HALF, HALF.astype("f8")), r"c\.dtype=float64 does not hold"),
        ((BYTES, BYTES, BYTES.copy()), r"c\.dtype=int8 does not hold the result; give int32"),
        ((HALF, HALF[:3]), r"b\.shape=\(3, 4\) does not fit"),
        ((BYTES, BYTES[0]), r"b\.shape=\(4,\) is not a matrix"),
        ((BYTES, BYTES, np.zeros((4, 5), "i4")), r"c\.shape=\(4, 5\) should be \(4, 4\)"),
        ((BYTES, BYTES, np.zeros((2, 4, 4), "i4")), r"c\.shape=\(2, 4, 4\) should be \(4, 4\)"),
        ((HALF, HALF, HALF), "c overlaps a"),
    ],
)
def test_wrong_arrays_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        tw.gemm(*arguments, device=DEVICE)


@pytest.mark.parametrize(
    ("a", "options", "message"),
    [
        (HALF, {"out_dtype": "float64"}, "out_dtype='float64' is not for float16; use float16 or"),
        (BYTES, {"out_dtype": "float32"}, "is not for int8; use int32"),
        (BYTES, {"alpha": 0.5}, "alpha=0.5 is not for integers"),
        (BYTES, {"beta": 1}, "beta=1 needs c"),
        (HALF, {"accuracy": "fp32"}, "accuracy='fp32' is not for numbers of 8 and 16 bits"),
        (HALF, {"report": tw.Decision()}, "report is for float32 and wider arrays"),
        (HALF, {"trans_a": "X"}, "trans_a='X'"),
        (
            HALF.astype("f4"),
            {"out_dtype": "f4"},
            "is for arrays of 8- and 16-bit .* are of float32",
        ),
    ],
)
def test_wrong_options_are_named(a, options, message):
    with pytest.raises(ValueError, match=message):
        tw.gemm(a, a, device=DEVICE, **options)


def test_kinds_are_not_mixed():
    with pytest.raises(TypeError, match=r"a is numpy\.ndarray, b is builtins\.list"):
        tw.gemm(HALF, [[1.0]], device=DEVICE)
    masked = np.ma.masked_array(HALF, HALF > 0)
    with pytest.raises(TypeError, match="masked arrays"):
        tw.gemm(masked, HALF, device=DEVICE)
    frozen = np.zeros((4, 4), np.float16)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="c is read-only"):
        tw.gemm(HALF, HALF, frozen, device=DEVICE)


@pytest.mark.parametrize(
    "value", ["x", None, [1], float("nan"), float("inf"), 0.5, 1j, np.complex64(1), 2**31]
)
@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_scalars_of_integers_are_integers(name, value):
    x, c = np.ones((2, 2), np.int8), np.ones((2, 2), np.int32)
    with pytest.raises(ValueError, match=f"{name}=.* is not for integers; give an int of 32 bits"):
        tw.gemm(x, x, c, **{name: value})
    np.testing.assert_array_equal(c, 1)


def test_integers_that_do_not_fit_are_told_their_own_sizes():
    a, b = np.ones((2, 1024), np.int8), np.ones((1030, 2), np.int8)
    with pytest.raises(ValueError, match="op\\(a\\) is 2 x 1024, op\\(b\\) is 1030 x 2"):
        tw.gemm(a, b, device=DEVICE)


@pytest.mark.parametrize("dtype", ["float16", "int8", "float32"])
@pytest.mark.parametrize("steps", [(0, 1), (1, 1), (2, 1)])
def test_c_whose_elements_are_one_place_is_refused(dtype, steps):
    x = np.ones((4, 4), dtype)
    out = np.zeros(16, "int32" if dtype == "int8" else dtype)
    strides = tuple(step * out.itemsize for step in steps)
    c = np.lib.stride_tricks.as_strided(out, (4, 4), strides)
    with pytest.raises(ValueError, match="give c memory of its own"):
        tw.gemm(x, x, c, device=DEVICE)
    assert not out.any()


@pytest.mark.parametrize("wrong", [3, "nonsense", object, []])
def test_types_that_are_none_name_those_that_are(wrong):
    with pytest.raises(ValueError, match=r"out_dtype=.* use float16 or float32"):
        tw.gemm(HALF, HALF, device=DEVICE, out_dtype=wrong)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:::(cupy|torch)")
@pytest.mark.parametrize("name", ["float16", "bfloat16", "int8"])
def test_pytorch_tensors(cuda, name):
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, name)
    a, b = (torch.randint(-8, 9, (70, 70), device="cuda").to(dtype) for _ in range(2))
    c = tw.gemm(a, b, trans_b="T")
    assert c.dtype == (torch.int32 if name == "int8" else dtype)
    right = a.double() @ b.double().T
    assert torch.equal(c.double(), right.to(c.dtype).double())


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:::(cupy|torch)")
@pytest.mark.parametrize("name", ["float16", "int8"])
def test_cupy_arrays(cuda, name):
    cupy = pytest.importorskip("cupy", exc_type=ImportError)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 9, (70, 70)).astype(name) for _ in range(2))
    c = tw.gemm(cupy.asarray(a), cupy.asarray(b), trans_a="T")
    np.testing.assert_array_equal(c.get(), (a.T.astype(int) @ b.astype(int)).astype(c.dtype))
