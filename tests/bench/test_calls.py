"""Benchmarks of whole calls: what they multiply, and how, on NumPy in the place of CuPy."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from tilewright.bench import call_cases
from tilewright.bench.benchmarks import calls, fp32_promise, host_cost, syrk
from tilewright.bench.benchmarks.host_cost import drawn_kinds, percentile_lines
from tilewright.bench.call_arrays import Arrays, arrays_of, operands, public_call
from tilewright.bench.call_cases import cases_of, kind_of
from tilewright.bench.peers.cublas import Handle, prepared
from tilewright.bench.registry import Asked
from tilewright.bench.summary import flatness, losses
from tilewright.cli.app import run
from tilewright.problem import Trans

N, T, C = Trans.N, Trans.T, Trans.C
UNITS = {"s": 2.0**-24, "d": 2.0**-53, "c": 2.0**-24, "z": 2.0**-53, "fp32": 2.0**-24}


@pytest.fixture
def on_numpy(monkeypatch):
    """Let NumPy's functions be CuPy's; its arrays are its own."""
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(**{**vars(np), "ndarray": Arrays}))


def op(x, trans):
    x = x.T if trans.transposed else x
    return x.conj() if trans.conjugated else x


@pytest.mark.every(4)
@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("order", "FC")
@pytest.mark.parametrize(("ops", "pads"), [((N, T), (0, 0)), ((T, N), (1, 8)), ((C, C), (3, 0))])
def test_operands_are_stored_as_asked_and_multiplied(on_numpy, name, order, ops, pads):
    arrays, case = arrays_of(name), ((5, 7, 9), ops, order)
    a, b = operands(arrays, np.random.default_rng(3), case, pads)
    c = arrays.empty((5, 7), order, 2)
    for x, pad in ((a, pads[0]), (b, pads[1]), (c, 2)):
        unit, line = (1, 0) if order == "C" else (0, 1)
        assert x.strides[unit] == x.itemsize
        assert x.strides[line] == x.itemsize * (x.shape[unit] + pad)
    public_call(arrays, case, a, b, c)()
    x, y = arrays.contiguous(a, ops[0]), arrays.contiguous(b, ops[1])
    assert (x.shape, y.shape) == ((5, 9), (9, 7))
    assert x.flags.c_contiguous
    assert y.flags.c_contiguous
    theirs = arrays.empty((5, 7), "C")
    arrays.peer(x, y, theirs)()
    assert np.array_equal(x, op(a, ops[0]))
    assert arrays.difference(c, theirs) <= 40 * UNITS[name]


@pytest.mark.parametrize("name", "ef")
@pytest.mark.parametrize("order", "FC")
def test_pairs_are_normalised_and_multiplied(on_numpy, name, order):
    arrays, case = arrays_of(name), ((4, 6, 3), (N, T), order)
    a, b = operands(arrays, np.random.default_rng(5), case)
    c = arrays.empty((4, 6), order)
    public_call(arrays, case, a, b, c)()
    for x in (a, b):
        high, low = x.words[..., 0], x.words[..., 1]
        assert np.array_equal(high + low, high)
        assert np.count_nonzero(low)
    x, y = (v.words.astype(np.longdouble).sum(-1) for v in (a, b))
    assert np.allclose(c.words.astype(np.longdouble).sum(-1), x @ y.T, rtol=0, atol=1e-17)


class FakeBlas:
    """Functions of cuBLAS that multiply on the host, by what they are told."""

    def __getattr__(self, name):
        dtype = {"S": "f4", "D": "f8", "C": "c8", "Z": "c16"}[name.removeprefix("cublas")[0]]

        def matrix(at, rows, columns, ld):
            count = (ld.value * (columns - 1) + rows) * np.dtype(dtype).itemsize
            memory = (ctypes.c_char * count).from_address(at.value)
            line = np.frombuffer(memory, dtype)
            return np.lib.stride_tricks.as_strided(
                line, (rows, columns), (line.itemsize, line.itemsize * ld.value)
            )

        def number(at):
            size = np.dtype(dtype).itemsize
            return np.frombuffer((ctypes.c_char * size).from_address(at.value), dtype)[0]

        def gemm(_, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
            m, n, k = m.value, n.value, k.value
            letters = [next(t for t, v in ((N, 0), (T, 1), (C, 2)) if v == x) for x in (ta, tb)]
            shapes = [(m, k), (k, n)]
            x, y = (
                op(matrix(at, *(s[::-1] if t.transposed else s), ld), t)
                for at, s, t, ld in zip((a, b), shapes, letters, (lda, ldb), strict=True)
            )
            assert [number(at) for at in (alpha, beta)] == [1, 0]
            matrix(c, m, n, ldc)[:] = x @ y
            return 0

        def update(_, uplo, trans, n, k, alpha, a, lda, beta, c, ldc):
            t = next(t for t, v in ((N, 0), (T, 1), (C, 2)) if v == trans)
            n, k = n.value, k.value
            x = op(matrix(a, *((k, n) if t.transposed else (n, k)), lda), t)
            right = x @ (x.conj() if "herk" in name else x).T
            lower = np.tri(n, dtype=bool)
            assert uplo == 0
            matrix(c, n, n, ldc)[lower] = right[lower]
            return 0

        return gemm if "gemm" in name else update


@pytest.mark.parametrize("name", "sdcz")
@pytest.mark.parametrize("order", "FC")
@pytest.mark.parametrize("ops", [(N, N), (N, T), (T, N), (C, T), (T, C)])
@pytest.mark.parametrize("sides", [(5, 7, 9), (1, 6, 4), (8, 1, 3), (3, 4, 1)])
def test_cublas_is_told_the_same_product(on_numpy, monkeypatch, name, order, ops, sides):
    arrays = arrays_of(name)
    monkeypatch.setattr(arrays, "address", lambda x: x.ctypes.data)
    a, b = operands(arrays, np.random.default_rng(7), (sides, ops, order))
    c = arrays.empty(sides[:2], order)
    handle = Handle(FakeBlas(), ctypes.c_void_p(1), None)
    call = prepared(handle, name, sides, ops, order, [arrays.address(x) for x in (a, b, c)])
    assert call() == 0
    assert arrays.difference(c, op(a, ops[0]) @ op(b, ops[1])) < 40 * UNITS[name]


@pytest.mark.parametrize(
    ("name", "operand", "result", "sums", "scalar"),
    [("bf16", 14, 14, 68, "f4"), ("fp16", 2, 2, 68, "f4"), ("tf32", 0, 0, 77, "f4"),
     ("int8", 3, 10, 72, "i4"), ("bf16 to float32", 14, 0, 68, "f4")],
)  # fmt: skip
def test_short_types_are_told(name, operand, result, sums, scalar):
    told = []
    api = SimpleNamespace(cublasGemmEx_64=lambda *given: told.append(given) or 0)
    call = prepared(Handle(api, 1, None), name, (5, 7, 9), (N, T), "C", [16, 32, 48])
    assert call() == 0
    [given] = [[getattr(x, "value", x) for x in one] for one in told]
    # C^T = op(B)^T op(A)^T: 7 x 5, of B as it lies (9 columns of 7 -> T) and of A (5 of 9 -> N).
    assert given[1:6] == [1, 0, 7, 5, 9]
    assert given[7:13] == [32, operand, 9, 16, operand, 9]
    assert given[14:] == [48, result, 7, sums, -1]
    assert call.scalars.dtype == scalar


def test_a_product_that_cublas_refuses_is_timed_alone(stand_in, monkeypatch):
    handle = Handle(SimpleNamespace(cublasSgemm_v2_64=lambda *given: 15), None, None)
    for module in (calls, syrk):
        monkeypatch.setattr(module, "blas_handle", lambda workspace: handle)
    (row,) = calls.BENCHMARK.rows(Asked(None, precision="s", size="random", count=1))
    assert row["us"] > 0
    assert row["missing"] == {"cublas": f"refuses s {tuple(row['size'])}"}
    assert "TFLOP/s" in calls.BENCHMARK.line(row)
    assert calls.BENCHMARK.table([row])[1] == []


# -- which products ------------------------------------------------------------------------


def test_random_kinds_are_the_same_for_a_seed():
    for kind in ("random", "skinny", "long"):
        drawn = cases_of(kind, "c", seed=5, count=40)
        assert (
            drawn == cases_of(kind, "c", seed=5, count=40) != cases_of(kind, "c", seed=6, count=40)
        )
        assert {order for *_, order in drawn} == set("FC")
        assert {x for _, ops, _ in drawn for x in ops} == {N, T, C}
    assert C not in {x for _, ops, _ in cases_of("random", "s", count=40) for x in ops}
    sides = [side for side, *_ in cases_of("long", "s", count=40)]
    assert all(16 <= m <= 4096 and 16 <= n <= 4096 and 1024 <= k <= 2**18 for m, n, k in sides)


def test_squares_cliffs_and_flat_sides():
    squares = cases_of("squares", "s")
    assert len({ops for _, ops, _ in squares}) == 4
    assert {min(side) for side, *_ in squares} == {512, 1024, 2048, 4096, 8192, 16384}
    cliffs = cases_of("cliffs", "d", "NT")
    assert [side[0] for side, *_ in cliffs[:4]] == [512, 513, 1024, 1025]
    assert [side[0] for side, *_ in cases_of("flat", "d")] == [*range(2048, 16385, 1024)]
    flat = cases_of("flat:128", "d", "NN,TT")
    assert len(flat) == 2 * 113


def test_sizes_are_told():
    assert cases_of("22x39x355,64", "d", "TN") == [
        ((22, 39, 355), (T, N), "F"), ((64, 64, 64), (T, N), "F"),
    ]  # fmt: skip
    assert kind_of("22x39x355,64") == kind_of("64:256") == "sizes"
    assert kind_of("flat:128") == "flat"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--size", "round"], "size='round' is unknown here"),
        (["--size", "8x8"], "size='8x8': give one side, or three"),
        (["--size", "squares:64"], "size='squares:64' is unknown here"),
        (["--size", "flat:0"], "'0' is not a size"),
        (["--size", "cliffs", "--trans", "NX"], "trans='NX' is not a pair"),
        (["--trans", "NN"], "trans='NN' has no say in random shapes"),
    ],
)
def test_what_calls_does_not_know_is_refused(options, message, capsys):
    assert run(["bench", "calls", "--device", "opencl:0", *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", ["calls", "host-cost"])
def test_calls_need_cuda(name, capsys):
    assert run(["bench", name, "--device", "opencl:0"]) == 1
    assert "CuPy's arrays are not on opencl:0" in capsys.readouterr().err


def test_kinds_of_calls_are_of_every_type_and_small():
    drawn = drawn_kinds(3, 120, ["s", "z", "bf16"])
    assert (
        drawn == drawn_kinds(3, 120, ["s", "z", "bf16"]) != drawn_kinds(4, 120, ["s", "z", "bf16"])
    )
    assert [name for name, *_ in drawn].count("bf16") >= 30
    assert all(np.prod(sides, dtype=float) <= 2**31 for _, (sides, *_), _ in drawn)
    assert {pad for *_, pads in drawn for pad in pads} == {0, 1, 8}
    assert drawn_kinds(3, 5, []) == []


# -- rows ----------------------------------------------------------------------------------


@pytest.fixture
def stand_in(on_numpy, monkeypatch):
    """Let NumPy's arrays be on a device that waits for nothing, and a cuBLAS be there."""
    library = SimpleNamespace(
        **{
            name: getattr(np, name)
            for name in ("empty", "random", "matmul", "ascontiguousarray", "tril")
        },
        cuda=SimpleNamespace(Device=lambda: SimpleNamespace(synchronize=lambda: None)),
        get_default_memory_pool=lambda: SimpleNamespace(free_all_blocks=lambda: None),
        ndarray=type(None),
    )
    monkeypatch.setitem(sys.modules, "cupy", library)
    monkeypatch.setattr(Arrays, "address", lambda self, x: x.ctypes.data)
    for module in (calls, host_cost, syrk):
        monkeypatch.setattr(module, "cupy_on", lambda live: library)
    handle = Handle(FakeBlas(), ctypes.c_void_p(1), None)
    for module in (calls, syrk):
        monkeypatch.setattr(module, "blas_handle", lambda workspace: handle)
    monkeypatch.setattr(calls, "BATCH_NS", 1e4)
    monkeypatch.setattr(call_cases, "GPU_MOST", (40, 2**16))
    monkeypatch.setattr(call_cases, "_CLIFFS", (16, 24))
    monkeypatch.setattr(call_cases, "_FLAT", (16, 48))


def test_calls_have_times_of_both_and_their_difference(stand_in):
    asked = Asked(None, precision="s,z", size="random", seed=1, count=4)
    rows = list(calls.BENCHMARK.rows(asked))
    assert [row["precision"] for row in rows] == ["s"] * 4 + ["z"] * 4
    assert [row["size"] for row in rows[:4]] == [row["size"] for row in rows[4:]]
    for one in rows:
        assert one["shapes"] == "random"
        assert one["ratio"] == pytest.approx(one["cublas_us"] / one["us"])
        assert one["cublas_us"] <= one["cublas_own_us"]
        assert one["difference"] < 1e-5
        for eta in (one["eta"], one["cublas_eta"]):
            assert 0 <= eta <= (one["size"][2] + 4) * UNITS[one["precision"]]
        assert "of cuBLAS" in calls.BENCHMARK.line(one)
    assert [line[:2] for line in calls.BENCHMARK.table(rows)[1]] == [["s", 4], ["z", 4]]


def test_promised_errors_are_compared_with_cublas(stand_in, monkeypatch):
    monkeypatch.setattr(sys.modules["cupy"], "where", np.where, raising=False)
    monkeypatch.setattr(fp32_promise, "cupy_on", lambda live: None)
    monkeypatch.setattr(fp32_promise, "blas_handle", calls.blas_handle)
    judge = fp32_promise._Judge.on(SimpleNamespace(backend="cuda"))
    a, b = (np.ones(shape, np.float32) / 3 for shape in ((5, 7), (7, 6)))
    a[2] = 0
    c = judge.sgemm(a, b)
    assert np.array_equal(c, a @ b)
    ours, theirs = judge.etas(a, b, (c + np.float32(2**-10), c))
    assert 0 <= theirs < 8 * UNITS["s"] < ours


def test_updates_have_times_of_a_whole_product_and_of_cublas(stand_in):
    asked = Asked(None, precision="s,c", size="12,40", trans="N,T")
    rows = list(syrk.BENCHMARK.rows(asked))
    kinds = [(row["precision"], row["update"], row["trans"]) for row in rows]
    assert kinds[:2] == [("s", "syrk", "N"), ("s", "syrk", "T")]
    assert {("c", "syrk", "T"), ("c", "herk", "C")} <= set(kinds)
    for one in rows:
        assert one["of_gemm"] == pytest.approx(one["gemm_us"] / one["us"])
        assert one["ratio"] == pytest.approx(one["cublas_us"] / one["us"])
        assert one["difference"] < 1e-5
        assert "of cuBLAS" in syrk.BENCHMARK.line(one)
    lines = syrk.BENCHMARK.table(rows)[1]
    assert [line[:3] for line in lines][:2] == [["s", "syrk", 12], ["s", "syrk", 40]]


def test_cliffs_and_flat_sides_have_tables_of_their_own(stand_in):
    cliffs = list(calls.BENCHMARK.rows(Asked(None, precision="s", size="cliffs", trans="NT")))
    assert [one["size"][0] for one in cliffs] == [16, 17, 24, 25]
    assert [line[:2] for line in calls.BENCHMARK.table(cliffs)[1]] == [["s", 17], ["s", 25]]
    flat = list(calls.BENCHMARK.rows(Asked(None, precision="s,f", size="flat:16")))
    assert "ratio" not in flat[-1]  # cuBLAS has no double-double
    assert "TFLOP/s" in calls.BENCHMARK.line(flat[-1])
    lines = calls.BENCHMARK.table(flat)[1]
    assert [line[:3] for line in lines] == [["s", "NN", 3], ["f", "NN", 3]]


def test_every_call_is_timed_as_often(stand_in, monkeypatch):
    monkeypatch.setattr(host_cost, "_LONGEST", 30)
    monkeypatch.setattr(host_cost, "_ROUNDS", 2)
    monkeypatch.setattr(host_cost, "_launches", lambda cupy, arrays, call: 1)
    asked = Asked(None, precision="s,c,fp32", seed=3, count=9)
    rows = list(host_cost.BENCHMARK.rows(asked))
    assert [one["precision"] for one in rows] == ["s", "c", "fp32"] * 3
    assert all(
        0 < one["host_us"] <= one["most_host_us"] and one["peer_host_us"] > 0 for one in rows
    )
    assert host_cost.BENCHMARK.table(rows)[1][0][:2] == ["1", "9"]
    with pytest.raises(ValueError, match="precision='e' has no peer here"):
        next(iter(host_cost.BENCHMARK.rows(Asked(None, precision="e", count=1))))


# -- what comes of them --------------------------------------------------------------------


def row(side, us, cublas_us, name="s", trans="NN"):
    return {"precision": name, "trans": trans, "size": [side] * 3, "flops": 2 * side**3, "us": us,
            "cublas_us": cublas_us, "ratio": cublas_us / us}  # fmt: skip


def test_losses_are_of_rates():
    more = (101 / 100) ** 3
    rows = [row(100, 10, 10), row(101, 10 * more, 20 * more), row(100, 1, 1, trans="NT")]
    [(at, lost)] = losses(rows).items()
    assert at == ("s", 100)
    assert lost == [pytest.approx((0, 0.5))]


def test_flatness_is_the_least_beside_the_most():
    rows = [row(100, 2, 1), row(200, 8, 1), row(300, 60, 1)]
    found = flatness(rows)["s", "NN"]
    assert (found.sides, found.least_at) == (3, 300)
    assert found.most == pytest.approx(2e12)
    assert found.varies == pytest.approx(0.55)


def test_host_costs_are_told_by_launches():
    rows = [
        {"launches": 1 + at % 2, "host_us": float(at), "peer_host_us": 20.0} for at in range(200)
    ]
    one, two = percentile_lines(rows)
    assert one[:3] == ["1", "100", "99.0"]
    assert two[:3] == ["2", "100", "100.0"]
    assert one[3] == "196.0"
