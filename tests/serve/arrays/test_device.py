"""gemm() on CuPy, PyTorch and DLPack arrays: in place, on the caller's stream, no copies."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import tilewright as tw
from tilewright.serve import calls, warm
from tilewright.serve.calls import forget_plans

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:::(cupy|torch)")]

LETTERS = "NTC"
DTYPES = ["f4", "f8", "c8", "c16"]


def imported(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, exc_type=ImportError)


@pytest.fixture
def cupy(cuda):
    return imported("cupy")


@pytest.fixture
def torch(cuda):
    found = imported("torch")
    if not found.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    return found


def integers(rng, shape, dtype):
    """Return small integers: products and sums are exact, whatever their order."""
    x = rng.integers(-8, 9, shape).astype(dtype)
    return x + (1j * rng.integers(-8, 9, shape)).astype(dtype) if x.dtype.kind == "c" else x


def op(letter, x):
    return {"N": x, "T": x.T, "C": x.conj().T}[letter]


def shaped(letter, rows, columns):
    return (rows, columns) if letter == "N" else (columns, rows)


@pytest.fixture
def laid_out(monkeypatch):
    """The calls that are laid out from here on; none was before."""
    warm.forget()
    forget_plans()
    return counted(monkeypatch)


def counted(monkeypatch):
    """Return the list that calls go to as they are laid out."""
    found, lay_out = [], calls.lay_out

    def counting(*arguments, **options):
        found.append(arguments[1])
        return lay_out(*arguments, **options)

    monkeypatch.setattr(calls, "lay_out", counting)
    return found


class OnlyDLPack:
    """An array of some library that offers nothing but DLPack."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


# -- CuPy --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("orders", ["CCC", "FFF", "CFC", "FCF", "CCF"])
def test_cupy_results_are_right_cold_and_warm(cupy, dtype, orders):
    rng = np.random.default_rng(0)
    m, n, k = 150, 70, 90
    for trans_a in LETTERS:
        for trans_b in LETTERS:
            x = integers(rng, shaped(trans_a, m, k), dtype)
            y = integers(rng, shaped(trans_b, k, n), dtype)
            a, b = cupy.asarray(x, order=orders[0]), cupy.asarray(y, order=orders[1])
            product = op(trans_a, x) @ op(trans_b, y)
            trans = {"trans_a": trans_a, "trans_b": trans_b}
            for alpha, beta in ((1, 0), (2, -3), (2, -3), (0, 2), (-1, 1), (1, 0)):
                old = integers(rng, (m, n), dtype)
                if beta == 0:
                    old[...] = np.nan
                c = cupy.array(old, order=orders[2])
                assert tw.gemm(a, b, c, alpha=alpha, beta=beta, **trans) is c
                right = alpha * product + (beta * old if beta else 0)
                assert np.array_equal(c.get(), right), (trans, alpha, beta)
            for _ in range(2):
                made = tw.gemm(a, b, **trans)
                assert isinstance(made, cupy.ndarray)
                assert made.flags.c_contiguous
                assert np.array_equal(made.get(), product)


@pytest.mark.parametrize("accuracy", ["ieee", "fp32"])
@pytest.mark.parametrize("side", [64, 1024])
def test_a_warm_call_is_not_laid_out_again_and_allocates_nothing(cupy, laid_out, accuracy, side):
    a = cupy.ones((side, side), "f4")
    c = cupy.zeros((side, side), "f4")
    tw.gemm(a, a, c, accuracy=accuracy)
    used = cupy.get_default_memory_pool().used_bytes()
    for number in range(5):
        tw.gemm(a, a, c, alpha=number + 1.5, accuracy=accuracy)
        assert np.all(c.get() == side * (number + 1.5))
    assert len(laid_out) == 1
    assert cupy.get_default_memory_pool().used_bytes() == used


def test_a_warm_call_has_no_look_in_python(cupy, laid_out, monkeypatch):
    """Other addresses and scalars of the same layout, and a new C."""
    a, b = cupy.ones((64, 64), "f4"), cupy.full((64, 64), 2, "f4")
    tw.gemm(a, b)
    monkeypatch.setattr(calls, "planned", None)
    made = tw.gemm(b, a, alpha=3)
    assert np.all(made.get() == 64 * 6)


def test_memory_that_calls_keep_is_given_back(cupy, laid_out):
    a = cupy.ones((1024, 1024), "f4")
    for _ in range(2):
        right = tw.gemm(a, a, accuracy="fp32")
        assert np.all(right.get() == 1024)
        tw.release()


def test_cupy_views_with_offsets_and_padding_are_taken_as_they_are(cupy):
    rng = np.random.default_rng(1)
    host = integers(rng, (60, 70), "c16")
    whole = cupy.asarray(host)
    for _ in range(2):
        c = cupy.ones((20, 25), "c16")
        tw.gemm(whole[5:35, 3:23], whole[20:45, 30:60], c, beta=2, trans_a="C", trans_b="C")
        right = host[5:35, 3:23].conj().T @ host[20:45, 30:60].conj().T + 2
        assert np.array_equal(c.get(), right)


def test_blocks_of_one_matrix_may_meet_but_not_overlap(cupy):
    host = integers(np.random.default_rng(2), (90, 80), "f8")
    for _ in range(3):
        whole = cupy.asarray(host)
        right = host.copy()
        right[40:, 30:] -= right[40:, :30] @ right[10:40, 30:]
        tw.gemm(whole[40:, :30], whole[10:40, 30:], whole[40:, 30:], alpha=-1, beta=1)
        assert np.array_equal(whole.get(), right)
    with pytest.raises(ValueError, match="c overlaps a"):
        tw.gemm(whole[:40, :40], whole[:40, :40].copy(), whole[30:70, 30:70])


def test_work_goes_on_the_current_stream_of_cupy(cupy):
    """A stream that waits for nobody: only work on it itself is ordered after the sums."""
    stream = cupy.cuda.Stream(non_blocking=True)
    ones = cupy.ones((2000, 2000))
    cupy.cuda.Device().synchronize()
    with stream:
        for _ in range(3):
            a = ones
            for _ in range(20):
                a = a + 1
            c = tw.gemm(a, ones)
    assert np.all(c.get(stream=stream) == 21 * 2000)


@pytest.mark.parametrize("accuracy", ["ieee", "fp32"])
@pytest.mark.parametrize("side", [96, 1024])
def test_a_warm_call_can_be_captured_in_a_graph(cupy, accuracy, side):
    """So it is on the stream and waits for nothing; memory that it needs is the graph's."""
    a, c = cupy.full((side, side), 2, "f4"), cupy.zeros((side, side), "f4")
    tw.gemm(a, a, c, accuracy=accuracy)
    c[...] = 0
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        tw.gemm(a, a, c, accuracy=accuracy)
        graph = stream.end_capture()
    assert np.all(c.get() == 0)
    for _ in range(2):
        graph.launch(stream)
        stream.synchronize()
        assert np.all(c.get() == 4 * side)
        c[...] = 0
        cupy.cuda.Device().synchronize()


def test_what_cannot_be_taken_in_place_is_refused(cupy):
    a = cupy.ones((8, 8))
    with pytest.raises(ValueError, match=r"a\.strides"):
        tw.gemm(a[::2, ::2], a[:4, :4])
    with pytest.raises(ValueError, match="c overlaps b"):
        tw.gemm(a[:2, :4], a[2:6], a[4:6])
    with pytest.raises(ValueError, match="device"):
        tw.gemm(a, a, device="cuda:0")
    with pytest.raises(TypeError, match=r"a is cupy\.ndarray, b is numpy\.ndarray; give"):
        tw.gemm(a, np.ones((8, 8)))
    with pytest.raises(ValueError, match=r"b\.dtype=float32 but a\.dtype=float64"):
        tw.gemm(a, a.astype("f4"))
    with pytest.raises(ValueError, match=r"a\.dtype=int16"):
        tw.gemm(a.astype("i2"), a.astype("i2"))


def test_empty_products(cupy):
    a, b = cupy.empty((5, 0), "f4"), cupy.empty((0, 7), "f4")
    for _ in range(2):
        c = cupy.full((5, 7), 2, "f4")
        tw.gemm(a, b, c, beta=0.5)
        assert np.all(c.get() == 1)
        assert np.all(tw.gemm(a, b).get() == 0)
    assert tw.gemm(b, cupy.empty((7, 0), "f4")).shape == (0, 0)


def test_threads_do_not_disturb_each_other(cupy):
    import threading

    rng = np.random.default_rng(3)
    host = integers(rng, (128, 128), "f8")
    a = cupy.asarray(host)
    wrong = []

    def work(number):
        with cupy.cuda.Stream(non_blocking=True) as stream:
            b = cupy.full((128, 128), float(number))
            for _ in range(200):
                c = tw.gemm(a, b, alpha=float(number + 1))
            if not np.array_equal(
                c.get(stream=stream), (number + 1) * number * host.sum(1)[:, None] * np.ones(128)
            ):
                wrong.append(number)

    cupy.cuda.Device().synchronize()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# -- PyTorch -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_results_are_right_cold_and_warm(torch, dtype):
    rng = np.random.default_rng(4)
    m, n, k = 110, 60, 75
    for trans_a in LETTERS:
        for trans_b in LETTERS:
            x = integers(rng, shaped(trans_a, m, k), dtype)
            y = integers(rng, shaped(trans_b, k, n), dtype)
            a, b = torch.from_numpy(x).cuda(), torch.from_numpy(y).cuda()
            product = op(trans_a, x) @ op(trans_b, y)
            trans = {"trans_a": trans_a, "trans_b": trans_b}
            for alpha, beta in ((1, 0), (2, -3), (2, -3), (0, 2)):
                old = integers(rng, (m, n), dtype)
                c = torch.from_numpy(old.copy()).cuda()
                assert tw.gemm(a, b, c, alpha=alpha, beta=beta, **trans) is c
                assert np.array_equal(c.cpu().numpy(), alpha * product + beta * old)
            for _ in range(2):
                made = tw.gemm(a, b, **trans)
                assert made.device == a.device
                assert made.dtype == a.dtype
                assert np.array_equal(made.cpu().numpy(), product)


def test_torch_views_are_read_as_what_they_mean(torch):
    """Transposed, padded and lazily conjugated views share memory but differ in meaning."""
    host = integers(np.random.default_rng(5), (40, 50), "c8")
    x = torch.from_numpy(host).cuda()
    for _ in range(2):
        assert np.array_equal(tw.gemm(x, x.T).cpu().numpy(), host @ host.T)
        assert np.array_equal(tw.gemm(x, x.mH).cpu().numpy(), host @ host.conj().T)
        assert np.array_equal(tw.gemm(x.conj(), x.T).cpu().numpy(), host.conj() @ host.T)
        assert np.array_equal(
            tw.gemm(x.conj(), x, trans_b="C").cpu().numpy(), host.conj() @ host.conj().T
        )
        assert np.array_equal(tw.gemm(x.conj(), x, trans_a="C").cpu().numpy(), host.T @ host)
        part = x[3:20, 5:25]
        assert np.array_equal(
            tw.gemm(part, part.T).cpu().numpy(), host[3:20, 5:25] @ host[3:20, 5:25].T
        )
    with pytest.raises(ValueError, match="c is a conjugated view"):
        tw.gemm(x, x.T, torch.zeros((40, 40), dtype=x.dtype, device="cuda").conj())


def test_work_goes_on_the_current_stream_of_torch(torch):
    ones = torch.ones((2000, 2000), dtype=torch.float64, device="cuda")
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(3):
            a = ones
            for _ in range(20):
                a = a + 1
            c = tw.gemm(a, ones)
        stream.synchronize()
    assert bool((c == 21 * 2000).all())


def test_what_torch_has_and_gemm_has_not_is_refused(torch):
    a = torch.ones((8, 8), device="cuda")
    tw.gemm(a, a)
    freed = a.clone()
    freed.untyped_storage().resize_(0)
    for wrong, message in (
        (freed, "has no memory"),
        (a.half(), "a.dtype=torch.float16"),
        (a.clone().requires_grad_(), "a requires grad"),
        (a.to_sparse(), "a.layout"),
        (torch.ones((16, 16), device="cuda")[::2, ::2], "a.strides"),
    ):
        with pytest.raises(ValueError, match=message):
            tw.gemm(wrong, a)
    with torch.no_grad():
        assert bool((tw.gemm(a.clone().requires_grad_(), a) == 8).all())
    with pytest.raises(TypeError, match="one CUDA device"):
        tw.gemm(a.cpu(), a)


# -- DLPack ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_dlpack_arrays_are_read_and_written_in_place(cupy, dtype):
    rng = np.random.default_rng(6)
    x, y = integers(rng, (33, 45), dtype), integers(rng, (45, 27), dtype)
    a, b = cupy.asarray(x), cupy.asarray(y, order="F")
    c = cupy.zeros((33, 27), dtype)
    given = OnlyDLPack(c)
    assert tw.gemm(OnlyDLPack(a), OnlyDLPack(b), given, alpha=2) is given
    cupy.cuda.Device().synchronize()
    assert np.array_equal(c.get(), 2 * x @ y)
    made = tw.gemm(OnlyDLPack(a), OnlyDLPack(b))
    assert isinstance(made, cupy.ndarray)
    assert np.array_equal(made.get(), x @ y)


def test_arrays_of_two_libraries_meet_through_dlpack(cupy, torch):
    x = integers(np.random.default_rng(7), (30, 30), "f4")
    a, b = cupy.asarray(x), torch.from_numpy(x).cuda()
    c = torch.zeros((30, 30), device="cuda")
    assert tw.gemm(a, b, c) is c
    torch.cuda.synchronize()
    assert np.array_equal(c.cpu().numpy(), x @ x)


def test_dlpack_arrays_that_cannot_be_taken_are_refused(cupy):
    a = cupy.ones((8, 8))
    with pytest.raises(ValueError, match="c overlaps a"):
        tw.gemm(OnlyDLPack(a), OnlyDLPack(a.copy()), OnlyDLPack(a))
    with pytest.raises(ValueError, match=r"a\.dtype"):
        tw.gemm(OnlyDLPack(a.astype("i4")), OnlyDLPack(a))
    with pytest.raises(TypeError, match="numpy"):
        tw.gemm(OnlyDLPack(a), np.ones((8, 8)))


# -- batches -----------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["cupy", "torch"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_batches_are_products_of_their_matrices(request, library, dtype):
    """Again, too: the second call is started in C."""
    module = request.getfixturevalue(library)
    put = module.asarray if library == "cupy" else lambda x: module.from_numpy(x).cuda()
    rng = np.random.default_rng(5)
    for shape_a, shape_b in (((3, 2, 17, 33), (2, 33, 20)), ((40, 16, 16), (40, 16, 16))):
        for _ in range(2):
            a, b = integers(rng, shape_a, dtype), integers(rng, shape_b, dtype)
            got = tw.gemm(put(a), put(b))
            got = got.get() if library == "cupy" else got.cpu().numpy()
            assert np.array_equal(got, a @ b)


def test_batches_are_looked_up_by_their_layouts(cupy, laid_out):
    rng = np.random.default_rng(6)
    a, b = (cupy.asarray(integers(rng, (5, 24, 24), "f4")) for _ in "ab")
    for x in (a, a, a[::-1], a[:, ::2].copy()):
        assert cupy.array_equal(tw.gemm(x, b), x @ b)
    for many in (70_000, 3):  # of more than a grid has blocks in z
        x = cupy.asarray(integers(rng, (many, 4, 4), "f4"))
        assert cupy.array_equal(tw.gemm(x, x), x @ x)


def test_short_types_take_batches(torch):
    a = torch.randint(-4, 5, (3, 5, 64, 48), device="cuda").bfloat16()
    b = torch.randint(-4, 5, (5, 48, 72), device="cuda").bfloat16()
    for _ in range(2):
        assert torch.equal(tw.gemm(a, b), (a.float() @ b.float()).bfloat16())


def test_a_c_that_meets_itself_is_refused(cupy):
    whole = cupy.zeros((4, 4), "f4")
    same = cupy.broadcast_to(whole, (3, 4, 4))
    with pytest.raises(ValueError, match=r"c\.strides"):
        tw.gemm(cupy.ones((3, 4, 4), "f4"), cupy.ones((4, 4), "f4"), same)
