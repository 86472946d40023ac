"""Products of copied operands on a GPU: right on every stream, again and again, and in graphs."""

import pytest

import tilewright as tw
from tests.serve.arrays.test_device import imported
from tilewright.serve import warm
from tilewright.serve.calls import forget_plans
from tilewright.serve.routes import realigned
from tilewright.serve.routes.realigned import ways

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:::cupy")]


@pytest.fixture
def cupy(cuda):
    return imported("cupy")


def copy_all(monkeypatch):
    """Let every operand be copied that can be, of calls whose like has not been made."""
    monkeypatch.setattr(realigned, "best_way", lambda _, *what: ways(*what)[-1])
    warm.forget()
    forget_plans()


@pytest.fixture
def copying(monkeypatch, cuda):
    copy_all(monkeypatch)
    yield
    warm.forget()
    forget_plans()


def drawn(cupy, shape, letter="s", ld=0):
    """Return a matrix in rows that are so much longer than they have to be."""
    rows, columns = shape
    found = cupy.random.standard_normal((rows, columns + ld))
    if letter in "cz":
        found = found + 1j * cupy.random.standard_normal((rows, columns + ld))
    return found.astype({"s": "f4", "d": "f8", "c": "c8", "z": "c16"}[letter])[:, :columns]


def operation(x, trans):
    return {"N": x, "T": x.T, "C": x.conj().T}[trans]


def wrong(found, a, b, trans):
    """Return how far a product is off, of |A| |B|."""
    wide = "c16" if a.dtype.kind == "c" else "f8"
    x, y = (operation(v.astype(wide), t) for v, t in zip((a, b), trans, strict=True))
    return float((abs(found - x @ y) / (abs(x) @ abs(y))).max())


@pytest.mark.parametrize("letter", ["s", "d", "c", "z"])
@pytest.mark.parametrize("trans", ["NN", "NT", "TN", "TT", "CN", "NC", "CT"])
@pytest.mark.parametrize("ld", [0, 1, 4])
def test_a_product_of_copies_is_right(copying, cupy, letter, trans, ld):
    """Sizes that are no multiples, columns of C among them, whose results are staged."""
    for m, n, k in ((1030, 1025, 515), (2049, 771, 130), (512, 256, 1024)):
        a = drawn(cupy, (k, m) if trans[0] != "N" else (m, k), letter, ld)
        b = drawn(cupy, (n, k) if trans[1] != "N" else (k, n), letter, ld)
        found = tw.gemm(a, b, trans_a=trans[0], trans_b=trans[1])
        assert wrong(found, a, b, trans) < (1e-5 if letter in "sc" else 1e-13)


def test_streams_do_not_share_copies(copying, cupy):
    a, b = drawn(cupy, (1500, 900)), drawn(cupy, (900, 1100))
    pairs = [(a, b), (b.T.copy(), a.T.copy()), (a + 1, b), (a, b - 1)]
    right = [tw.gemm(x, y) for x, y in pairs]
    cupy.cuda.Device().synchronize()
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in pairs]
    for _ in range(20):
        found = []
        for (x, y), stream in zip(pairs, streams, strict=True):
            with stream:
                found.append(tw.gemm(x, y))
        for stream in streams:
            stream.synchronize()
        for one, same in zip(found, right, strict=True):
            assert (one == same).all()


def test_a_graph_has_copies_of_its_own_and_runs_whenever_it_likes(copying, cupy):
    """Its memory is the graph's: other calls of the stream, or of another, do not disturb it."""
    a, b = drawn(cupy, (700, 900)), drawn(cupy, (900, 500))
    c = cupy.zeros((700, 500), "f4")
    tw.gemm(a, b, c)
    right = c.copy()
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        tw.gemm(a, b, c)
        graph = stream.end_capture()
    c[...] = 0
    cupy.cuda.Device().synchronize()
    for _ in range(3):
        graph.launch(stream)
        other = tw.gemm(a + 1, b)
        with stream:
            same = tw.gemm(a, b)
        stream.synchronize()
        assert (c == right).all()
        assert (same == right).all()
        assert wrong(other, a + 1, b, "NN") < 1e-5
        c[...] = 0
        cupy.cuda.Device().synchronize()
