"""8- and 16-bit arrays on a GPU: every type, order, alignment, scalar and result, bit for bit.

Numbers are small integers, so that every sum is exact and only the result is rounded, once.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilewright as tw
from tests.serve.arrays.test_device import OnlyDLPack, imported, op, shaped
from tilewright.precision import dtype_of
from tilewright.serve import warm
from tilewright.serve.calls import forget_plans
from tilewright.serve.narrow import calls as narrow_calls
from tilewright.serve.narrow import serve as narrow
from tilewright.serve.narrow.types import NARROW, results_of
from tilewright.serve.tensor_cores import has_wgmma

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:::(cupy|torch)")]

TRANS = ["NN", "NT", "TN", "TT", "CC"]
# Type of the operands, and of a result; None is what comes of itself.
KINDS = [
    ("float16", None), ("float16", "float32"), ("bfloat16", None), ("bfloat16", "float32"),
    ("int8", None), ("float8_e4m3fn", None), ("float8_e5m2", "float32"),
]  # fmt: skip
# Where A, B and C begin and how far their columns lie apart, in elements beside the least.
LAYOUTS = {
    "dense": ((0, 0), (0, 0), (0, 0)),
    "aligned": ((32, 48), (16, 16), (16, 32)),
    "odd offsets": ((1, 0), (3, 0), (5, 0)),
    "odd columns": ((0, 1), (0, 3), (0, 5)),
    "one of them": ((1, 7), (0, 0), (0, 0)),
}
SCALARS = [(1, 0), (2, -1), (-3, 1), (0, 2), (1, 1)]


@pytest.fixture
def torch(cuda):
    found = imported("torch")
    if not found.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    return found


@pytest.fixture
def hopper(cuda):
    if not has_wgmma(cuda):
        pytest.skip(f"{cuda} is no Hopper GPU")
    return cuda


def laid(torch, values, dtype, order, layout):
    """Return a tensor on the device, in memory of its own with an offset and a wider step."""
    offset, more = layout
    rows, columns = values.shape if order == "C" else values.shape[::-1]
    ld = columns + more
    memory = torch.full((offset + rows * ld + 64,), 77, device="cuda").to(dtype)
    inside = memory[offset : offset + rows * ld].view(rows, ld)[:, :columns]
    given = torch.from_numpy(np.ascontiguousarray(values if order == "C" else values.T))
    inside.copy_(given.cuda().to(dtype))
    return inside if order == "C" else inside.T


def rounded(torch, values, dtype):
    """Return exact numbers as a type has them; integers modulo 2^32."""
    if dtype == torch.int32:
        return torch.from_numpy(values.astype(np.int64).astype(np.int32))
    return torch.from_numpy(values.astype(np.float64)).to(dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("trans", TRANS)
@pytest.mark.parametrize(("kind", "out"), KINDS)
def test_every_call_is_exact(torch, kind, out, trans, layout):
    rng = np.random.default_rng(0)
    m, n, k = 144, 112, 208  # of whole 16 bytes in every type, unless a layout adds to them
    dtype = getattr(torch, kind)
    result = getattr(torch, out or results_of(kind)[0])
    x, y = (rng.integers(-4, 5, s) for s in (shaped(trans[0], m, k), shaped(trans[1], k, n)))
    exact = op(trans[0], x) @ op(trans[1], y)
    given = {"trans_a": trans[0], "trans_b": trans[1]}
    for orders in ("CCC", "FFF", "CFF"):
        a, b = (
            laid(torch, v, dtype, order, at)
            for v, order, at in zip((x, y), orders[:2], LAYOUTS[layout][:2], strict=True)
        )
        old = rng.integers(-9, 10, (m, n))
        for alpha, beta in SCALARS:
            c = laid(torch, old, result, orders[2], LAYOUTS[layout][2])
            if beta == 0 and result != torch.int32:
                c.fill_(float("nan"))
            for _ in range(2):  # in full, and as a plan
                assert tw.gemm(a, b, c, alpha=alpha, beta=beta, **given) is c
                right = rounded(torch, alpha * exact + beta * old, result)
                assert torch.equal(c.cpu(), right), (orders, alpha, beta)
                c.copy_(torch.from_numpy(old).cuda().to(result))
        for _ in range(2):
            made = tw.gemm(a, b, out_dtype=out and getattr(torch, out), **given)
            assert (made.dtype, made.device) == (result, a.device)
            assert torch.equal(made.cpu(), rounded(torch, exact, result))


@pytest.mark.parametrize(("kind", "out"), KINDS)
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (1, 300, 5), (300, 1, 17), (3, 5, 4000), (515, 389, 331), (2048, 2048, 64)]
)
def test_every_size_is_exact(torch, kind, out, shape):
    m, n, k = shape
    rng = np.random.default_rng(1)
    dtype = getattr(torch, kind)
    x, y = rng.integers(-2, 3, (m, k)), rng.integers(-2, 3, (k, n))
    a, b = (torch.from_numpy(v).cuda().to(dtype) for v in (x, y))
    made = tw.gemm(a, b, out_dtype=out)
    assert torch.equal(made.cpu(), rounded(torch, x @ y, made.dtype))


def test_tensor_cores_serve_where_they_are(torch, hopper, monkeypatch):
    """Nothing is widened, whatever the layout is; what multiplies nothing may be."""
    monkeypatch.setattr(narrow, "_floats", None)
    monkeypatch.setattr(narrow, "_integers", None)
    for kind, layout in itertools.product(NARROW, LAYOUTS.values()):
        a = laid(torch, np.ones((70, 60)), getattr(torch, kind), "C", layout[0])
        assert bool((tw.gemm(a, a, trans_b="T") == 60).all())
        assert bool((tw.gemm(a[::2, ::3], a[::2, ::3], trans_b="T") == 20).all())
        assert bool((tw.gemm(a[:1].expand(50, 60), a, trans_b="T") == 60).all())


def test_integers_are_exact_modulo_2_to_the_32(torch):
    rng = np.random.default_rng(2)
    x = rng.choice(np.array([-128, -128, 127], np.int8), (64, 5000))
    old = rng.integers(-(2**31), 2**31, (64, 64), np.int64)
    a, c = torch.from_numpy(x).cuda(), torch.from_numpy(old.astype(np.int32)).cuda()
    for alpha, beta in ((1, 0), (2**31 - 1, -(2**31)), (-77777, 99999)):
        got = tw.gemm(a, a, c.clone(), alpha=alpha, beta=beta, trans_b="T")
        right = alpha * (x.astype(np.int64) @ x.T.astype(np.int64)) + beta * old
        assert np.array_equal(got.cpu().numpy(), right.astype(np.int32))


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_infinities_and_nan_are_those_of_a_plain_loop(torch, kind):
    a = torch.ones((70, 80), device="cuda").to(getattr(torch, kind))
    a[3, 5], a[7, 9], a[11, 2], a[11, 3] = float("inf"), float("nan"), float("inf"), -float("inf")
    c = tw.gemm(a, torch.ones((80, 64), device="cuda").to(a.dtype)).float().cpu().numpy()
    assert np.isposinf(c[3]).all()
    assert np.isnan(c[[7, 11]]).all()
    assert (np.delete(c, [3, 7, 11], axis=0) == 80).all()
    full = tw.gemm(torch.full_like(a, 300), torch.full((80, 64), 300.0, device="cuda").to(a.dtype))
    assert torch.isinf(full).all() if kind == "float16" else torch.isfinite(full).all()


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("k", [64, 1000, 8192])
def test_errors_of_sums_stay_below_what_is_promised(torch, kind, k):
    """docs/tensor_cores.md: 36 u for every 16 steps of k, u = 2^-24."""
    a, b = (torch.randn(s, device="cuda").to(getattr(torch, kind)) for s in ((200, k), (k, 130)))
    c = tw.gemm(a, b, out_dtype=torch.float32).double()
    x, y = a.double(), b.double()
    eta = ((c - x @ y).abs() / (x.abs() @ y.abs())).max().item()
    assert eta <= 36 * -(-k // 16) * 2**-24


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("k", [32, 1000, 16384])
def test_errors_of_fp8_do_not_grow_with_the_sum(torch, kind, k):
    """docs/tensor_cores.md: 136 2^-13 and u for every promotion, u = 2^-24."""
    a, b = (torch.randn(s, device="cuda").to(getattr(torch, kind)) for s in ((200, k), (130, k)))
    c = tw.gemm(a, b, out_dtype=torch.float32, trans_b="T").double()
    x, y = a.double(), b.double().T
    eta = ((c - x @ y).abs() / (x.abs() @ y.abs())).max().item()
    assert eta <= 136 * 2**-13 + -(-k // 128) * 2**-24


def test_equal_calls_are_laid_out_once_and_follow_their_arrays(torch, hopper, monkeypatch):
    rng = np.random.default_rng(4)
    tensors = [torch.from_numpy(rng.integers(-3, 4, (96, 96))).cuda().half() for _ in range(4)]
    warm.forget()
    forget_plans()
    laid_out, made = [], narrow_calls._made
    monkeypatch.setattr(narrow_calls, "_made", lambda *x, **y: laid_out.append(x) or made(*x, **y))
    tw.gemm(tensors[0], tensors[1])
    monkeypatch.setattr(narrow, "on_arrays_device", None)  # nor looked at in Python
    for a, b in itertools.permutations(tensors, 2):
        for alpha in (1, 2.5):
            right = (alpha * (a.double() @ b.double())).half()
            assert torch.equal(tw.gemm(a, b, alpha=alpha), right)
    assert len(laid_out) == 1


def test_work_goes_on_the_current_stream(torch):
    """With and without copies before the product."""
    stream = torch.cuda.Stream()
    for side in (2048, 2047):
        ones = torch.ones((side, side), device="cuda").half()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            for _ in range(3):
                a = ones
                for _ in range(20):
                    a = a + 1
                c = tw.gemm(a, ones, out_dtype=torch.float32)
            stream.synchronize()
        assert bool((c == 21 * side).all())


def test_what_is_wrong_is_named(torch):
    a = torch.ones((8, 8), device="cuda").half()
    for given, message in (
        (((a, a.float()), {}), "b.dtype=torch.float32 but a.dtype=torch.float16"),
        (((a, a, a), {}), "c overlaps a"),
        (((a, a), {"device": "cuda:0"}), "has no say"),
        (((a, a), {"out_dtype": torch.float64}), "is not for float16"),
        (((a, a), {"beta": 1}), "beta=1 needs c"),
        (((a, a), {"alpha": 1e39}), "beyond float32"),
        (((a.clone().requires_grad_(), a), {}), "a requires grad"),
    ):
        with pytest.raises(ValueError, match=message):
            tw.gemm(*given[0], **given[1])


# -- other libraries' arrays ---------------------------------------------------------------


@pytest.fixture
def cupy(cuda):
    return imported("cupy")


@pytest.mark.parametrize("orders", ["CCC", "FFF", "CFC", "FCF"])
@pytest.mark.parametrize("kind", ["float16", "int8"])
def test_cupy_arrays_cold_and_warm(cupy, kind, orders):
    rng = np.random.default_rng(5)
    for trans in TRANS:
        for m, n, k in ((150, 136, 208), (51, 37, 43)):
            x, y = (
                rng.integers(-4, 5, s) for s in (shaped(trans[0], m, k), shaped(trans[1], k, n))
            )
            a, b = (
                cupy.asarray(v.astype(kind), order=o) for v, o in zip((x, y), orders, strict=False)
            )
            exact = op(trans[0], x) @ op(trans[1], y)
            given = {"trans_a": trans[0], "trans_b": trans[1]}
            result = np.int32 if kind == "int8" else np.float16
            for _ in range(2):
                made = tw.gemm(a, b, **given)
                assert isinstance(made, cupy.ndarray)
                assert made.dtype == result
                assert np.array_equal(made.get(), exact.astype(result))
                c = cupy.full((m, n), 3, result, order=orders[2])
                assert tw.gemm(a, b, c, alpha=2, beta=-1, **given) is c
                assert np.array_equal(c.get(), (2 * exact - 3).astype(result))


@pytest.mark.parametrize("kind", ["float16", "int8"])
@pytest.mark.parametrize("side", [64, 61])
def test_dlpack_arrays(cupy, kind, side):
    rng = np.random.default_rng(6)
    x, y = (rng.integers(-4, 5, (side, side)) for _ in range(2))
    a, b = (cupy.asarray(v.astype(kind)) for v in (x, y))
    result = np.int32 if kind == "int8" else np.float16
    c = cupy.zeros((side, side), result)
    given = OnlyDLPack(c)
    assert tw.gemm(OnlyDLPack(a), OnlyDLPack(b), given, alpha=2) is given
    cupy.cuda.Device().synchronize()
    assert np.array_equal(c.get(), (2 * x @ y).astype(result))
    made = tw.gemm(OnlyDLPack(a), OnlyDLPack(b), trans_a="T")
    assert isinstance(made, cupy.ndarray)
    assert np.array_equal(made.get(), (x.T @ y).astype(result))
    with pytest.raises(ValueError, match=r"c\.dtype=float64"):
        tw.gemm(OnlyDLPack(a), OnlyDLPack(b), OnlyDLPack(cupy.zeros((side, side))))


@pytest.mark.parametrize("trans", TRANS)
@pytest.mark.parametrize(("kind", "out"), KINDS)
def test_numpy_arrays_travel(cuda, kind, out, trans):
    pytest.importorskip("ml_dtypes")
    dtype, result = dtype_of(kind), dtype_of(out or results_of(kind)[0])
    rng = np.random.default_rng(7)
    for m, n, k in ((64, 80, 96), (33, 47, 61)):
        x, y = (rng.integers(-4, 5, s) for s in (shaped(trans[0], m, k), shaped(trans[1], k, n)))
        exact = (op(trans[0], x) @ op(trans[1], y)).astype(float)
        for order in "CF":
            a, b = (np.array(v, dtype, order=order) for v in (x, y))
            given = {"trans_a": trans[0], "trans_b": trans[1], "device": cuda}
            made = tw.gemm(a, b, out_dtype=out, **given)
            np.testing.assert_array_equal(made, exact.astype(result))
            c = np.full((2 * m, n), 3, result)[::2]
            assert tw.gemm(a, b, c, alpha=2, beta=-1, **given) is c
            np.testing.assert_array_equal(c, (2 * exact - 3).astype(result))
