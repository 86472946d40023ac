"""Rank-k updates on a GPU: whose products run at once, and come out the same however they do."""

import threading

import pytest

import tilewright as tw
from tests.serve.arrays.test_device import imported

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:::cupy")]

DTYPES = ("f2", "f4", "f8", "c8", "c16")


@pytest.fixture
def cupy(cuda):
    return imported("cupy")


def integers(cupy, shape, dtype):
    """Return small integers, whose sums of products are exact."""
    found = cupy.random.randint(-3, 4, shape).astype(dtype)
    if found.dtype.kind == "c":
        found = found + 1j * cupy.random.randint(-3, 4, shape).astype(found.real.dtype)
    return found


def normal(cupy, shape, dtype):
    return cupy.random.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_a_triangle_is_updated_and_nothing_else(cupy, dtype, order, uplo):
    for at, (n, k, offset) in enumerate(
        [(2100, 300, 0), (1027, 65, 3), (300, 1500, 1), (64, 0, 0)]
    ):
        update, turned = (tw.herk, "C") if at % 2 else (tw.syrk, "T")
        trans, beta = ("N", turned)[at // 2 % 2], (0, 2, 1, -1)[at]
        a = integers(cupy, (n, k) if trans == "N" else (k, n), dtype)
        whole = cupy.full((n + offset, n + offset), cupy.nan, dtype)
        whole = cupy.asarray(whole, order=order)
        c = whole[offset:, offset:]
        mask = cupy.tri(n, dtype=bool)
        mask = mask if uplo == "L" else mask.T
        old = integers(cupy, (n, n), dtype)
        if beta:
            c[mask] = old[mask]
        wide = a.astype("f4") if dtype == "f2" else a
        op = wide if trans == "N" else wide.conj().T if turned == "C" else wide.T
        right = op @ (op.conj().T if turned == "C" else op.T) + beta * old
        if turned == "C" and a.dtype.kind == "c":
            right[cupy.arange(n), cupy.arange(n)] = right.diagonal().real
        assert update(a, c, beta=beta, trans=trans, uplo=uplo) is c
        assert (c[mask] == right.astype(dtype)[mask]).all()
        assert cupy.isnan(c[~mask]).all()
        assert cupy.isnan(whole).sum() == (n + offset) ** 2 - n * (n + 1) // 2
        made = update(a, trans=trans, uplo=uplo)
        assert (made == right.astype(dtype)).all() or beta != 0
        assert (made == (made.conj().T if turned == "C" else made.T)).all()


@pytest.mark.parametrize(
    ("accuracy", "dtype", "n"),
    [("fp32", "f4", 3001), ("tf32", "f4", 3001), ("fp64", "f8", 8200), ("fp64", "c16", 3001)],
)
def test_operands_are_split_once_for_all_blocks(cupy, accuracy, dtype, n):
    a = integers(cupy, (n, 520), dtype)
    c = cupy.full((n, n), cupy.nan, dtype)
    tw.syrk(a, c, accuracy=accuracy)
    mask = cupy.tri(n, dtype=bool)
    assert (c[mask] == (a @ a.T)[mask]).all()
    assert cupy.isnan(c[~mask]).all()


def test_double_double_updates_are_the_products(cuda, cupy):
    words = normal(cupy, (700, 120, 2), "f8")
    words[..., 1] *= 2.0**-54
    a = tw.DoubleDouble.of_words(words, False)
    found, right = tw.syrk(a).words, tw.gemm(a, a, trans_b="T").words
    assert (abs((found - right).sum(axis=-1)) < 1e-26).all()


def test_calls_in_a_row_in_graphs_and_of_threads_have_equal_bits(cupy):
    a, c = normal(cupy, (2600, 700), "f4"), cupy.zeros((2600, 2600), "f4")
    right = tw.syrk(a, c).copy()
    cupy.cuda.Device().synchronize()
    wrong = []

    def work():
        with cupy.cuda.Stream(non_blocking=True) as stream:
            own = cupy.zeros_like(c)
            for _ in range(4):
                own[...] = 0
                tw.syrk(a, own)
                wrong.append(int((own != right).sum()))
            stream.synchronize()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert wrong == [0] * 16
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        tw.syrk(a, c)
        graph = stream.end_capture()
        c[...] = 0
        graph.launch(stream)
        assert (c == right).all()
        tw.syrk(a, c)  # whose lanes were left alone by the capture
        assert (c == right).all()


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "int8"])
def test_short_tensors_are_updated(cuda, name):
    torch = imported("torch")
    dtype = getattr(torch, name)
    out = {"int8": torch.int32, "float8_e4m3fn": torch.bfloat16}.get(name, dtype)
    untouched = -77  # an integer has no NaN
    for n, k, trans in ((4096, 640, "N"), (2049, 640, "N"), (1024, 512, "T"), (300, 70, "T")):
        a = torch.randint(-2, 3, (n, k) if trans == "N" else (k, n), device="cuda")
        a = a.float().to(dtype)
        op = (a if trans == "N" else a.T).double()
        right = (op @ op.T).to(out)
        c = torch.full((n, n), untouched, device="cuda", dtype=out)
        tw.syrk(a, c, trans=trans)
        mask = torch.ones_like(c, dtype=torch.bool).tril()
        assert (c[mask] == right[mask]).all()
        assert (c[~mask] == untouched).all()
        assert (tw.syrk(a, trans=trans, uplo="U") == right).all()


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "float32"])
def test_new_results_of_rounded_sums_are_symmetric(cuda, name):
    """Mirrored triangles, and whole products, of which nothing is mirrored."""
    torch = imported("torch")
    accuracy = "tf32" if name == "float32" else "ieee"
    for n, k in ((4096, 512), (2048, 2048), (1000, 777), (72, 30000)):
        a = torch.randn((n, k), device="cuda").to(getattr(torch, name))
        made = tw.syrk(a, accuracy=accuracy)
        assert (made == made.T).all()
        if n * k <= 2**20:
            right = a.double() @ a.double().T
            assert (made.double() - right).abs().max() <= 0.02 * right.abs().max()
