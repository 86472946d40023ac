"""Groups of products of different sizes, beside NumPy's."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.serve.arrays.device import View
from tilewright.serve.grouped import members, serve
from tilewright.serve.grouped.overlaps import may_overlap
from tilewright.serve.overlap import address_of

sides = st.integers(0, 40)


def integers(rng, shape, dtype):
    found = rng.integers(-3, 4, shape).astype(dtype)
    return found + 1j * rng.integers(-3, 4, shape) if found.dtype.kind == "c" else found


def operated(x, letter):
    return {"N": x, "T": x.T, "C": x.conj().T}[letter]


@settings(max_examples=20)
@given(st.data())
@pytest.mark.parametrize("device", [None, "opencl"])
def test_a_group_is_its_products(device, data):
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dtype = draw(st.sampled_from(["f4", "f8", "c8", "c16"]))
    ops = draw(st.text("NTC", min_size=2, max_size=2))
    alpha, beta = draw(st.sampled_from([1, 0, -2])), draw(st.sampled_from([0, 1, 2]))
    a, b, c, rights = [], [], [], []
    for m, n, k in draw(st.lists(st.tuples(sides, sides, sides), min_size=1, max_size=5)):
        a.append(integers(rng, (m, k) if ops[0] == "N" else (k, m), dtype))
        b.append(integers(rng, (k, n) if ops[1] == "N" else (n, k), dtype))
        old = integers(rng, (m, n), dtype)
        rights.append(alpha * (operated(a[-1], ops[0]) @ operated(b[-1], ops[1])) + beta * old)
        c.append(old if beta else old * np.nan)
    options = {"alpha": alpha, "trans_a": ops[0], "trans_b": ops[1], "device": device}
    found = tw.grouped_gemm(a, b, c, beta=beta, **options)
    assert all(x is y for x, y in zip(found, c, strict=True))
    for x, right in zip(found, rights, strict=True):
        np.testing.assert_array_equal(x, right)
    if not beta:
        for x, right in zip(tw.grouped_gemm(a, b, **options), rights, strict=True):
            np.testing.assert_array_equal(x, right)


def test_classes_made_of_arrays_are_arrays(tmp_path):
    a = np.memmap(tmp_path / "a", "f8", "w+", shape=(3, 4))
    a[:] = np.arange(12).reshape(3, 4)
    b = np.ones((4, 2))
    for x, y in ((a, b), (b.T, a.T)):
        assert np.array_equal(tw.grouped_gemm([x], [y])[0], x @ y)
    c = [np.zeros((3, 2)) for _ in range(2)]
    with pytest.raises(TypeError, match="masked"):
        tw.grouped_gemm([a, np.ma.masked_array(a)], [b, b], c)
    assert not np.any(c)


def test_nothing_is_computed_of_a_group_that_is_no_product():
    x, c = np.ones((3, 3)), [np.zeros((3, 3)) for _ in range(2)]
    for a, b, error, said in (
        ([x, x], [x, np.ones((4, 3))], ValueError, r"product 1: b\.shape"),
        ([x, x], [x], ValueError, r"len\(b\)=1 but len\(a\)=2"),
        ([x, x.astype("f4")], [x, x.astype("f4")], ValueError, r"a\[1\]\.dtype"),
        ([x, None], [x, x], TypeError, r"a\[1\] is None"),
        ([x, [[1.0]]], [x, x], TypeError, r"a\[1\] is a list"),
        ([x, x[0]], [x, x], ValueError, r"a\[1\]\.shape=\(3,\) is not a matrix"),
        (x, [x, x], TypeError, "a is a ndarray; give a list"),
    ):
        with pytest.raises(error, match=said):
            tw.grouped_gemm(a, b, c)
    assert not np.any(c)
    assert tw.grouped_gemm([], []) == []


def test_results_that_share_memory_are_refused():
    x, whole = np.ones((4, 4)), np.zeros((8, 8))
    tw.grouped_gemm([x, x], [x, x], [whole[:4, :4], whole[:4, 4:]])  # between each other
    assert (whole[:4] == 4).all()
    with pytest.raises(ValueError, match=r"c\[0\] overlaps c\[1\]"):
        tw.grouped_gemm([x, x], [x, x], [whole[:4, :4], whole[3:7, 3:7]])
    with pytest.raises(ValueError, match=r"c\[1\] overlaps b\[0\]"):
        tw.grouped_gemm([x + 1, x + 1], [x, x + 1], [whole[:4, :4], x])


@given(st.lists(st.tuples(*[st.tuples(st.integers(1, 60), st.integers(0, 9))] * 3), min_size=1))
def test_spans_that_meet_are_found(rows):
    first = np.array([[at for at, _ in row] for row in rows], np.uint64)
    end = np.array([[at + size for at, size in row] for row in rows], np.uint64)
    spans = [(low, high, which) for row in zip(first.tolist(), end.tolist(), strict=True)
             for low, high, which in zip(*row, "abc", strict=True)]  # fmt: skip
    meets = any(
        x < q and p < y and x < y and p < q and i != j and "c" in (s, t)
        for i, (x, y, s) in enumerate(spans)
        for j, (p, q, t) in enumerate(spans)
    )
    assert may_overlap(first, end) == meets


@pytest.mark.parametrize("pairs", [False, True])
def test_all_results_are_looked_at_before_the_first_is_written(pairs):
    make = tw.DoubleDouble if pairs else np.asarray
    x, first, frozen = make(np.ones((3, 3))), make(np.zeros((3, 3))), make(np.zeros((3, 3)))
    (frozen.words if pairs else frozen).flags.writeable = False
    stepless = np.lib.stride_tricks.as_strided(np.zeros(6), (3, 3, 2), (0, 16, 8))
    alike = tw.DoubleDouble.of_words(stepless) if pairs else stepless[..., 0]
    for wrong, error, said in (
        (frozen, ValueError, r"c\[1\] is read-only"),
        (None, TypeError, r"c\[1\] is None"),
        (alike, ValueError, r"c\[1\]\.strides=\(0, 16\) overlap themselves"),
        (make(np.zeros((3, 3), "c16")), ValueError, r"c\[1\]\.dtype"),
    ):
        with pytest.raises(error, match=said):
            tw.grouped_gemm([x, x], [x, x], [first, wrong])
    assert not np.any(first.words if pairs else first)


def test_sparse_tensors_are_refused():
    torch = pytest.importorskip("torch")
    x = torch.ones((3, 3))
    with pytest.raises(ValueError, match=r"b\[1\]\.layout=torch.sparse_coo is not dense"):
        tw.grouped_gemm([x, x], [x, x.to_sparse()])


def test_layouts_of_other_libraries_are_theirs():
    class Array:
        """What another library's tensors may have in common with PyTorch's."""

        words, dtype, shape = np.ones((3, 3), "f4"), np.dtype("f4"), (3, 3)
        layout, device, stride = "NCHW", "cpu", lambda _: (3, 1)
        data_ptr, element_size = lambda x: x.words.ctypes.data, lambda _: 4
        __array_namespace__ = staticmethod(lambda: np)
        __dlpack__ = words.__dlpack__
        __dlpack_device__ = words.__dlpack_device__

    for made in tw.grouped_gemm([Array(), Array()], [Array(), Array()]):
        assert np.all(made == 3)


def test_tensors_that_their_adapter_refuses_are_found_before_any_product(monkeypatch):
    """As one that requires grad is, which only PyTorch's adapter knows."""

    refused = set()
    x, apart, away, host = np.ones((4, 4)), np.ones((8, 8))[::2, ::2], np.ones((4, 4)), np.ones(4)

    def view(name, x):
        if name in refused:
            raise ValueError(f"{name} requires grad")
        return View(x, address_of(x), x.shape, x.strides, x.dtype, int(x is away))

    def adapter_of(*given):
        if any(getattr(one, "base", None) is host for one in given):
            raise ValueError("arrays on one CUDA device only")

    monkeypatch.setattr(serve, "adapter_on_cuda", lambda *_: SimpleNamespace(view=view))
    monkeypatch.setattr(serve, "adapter_of", adapter_of)
    for wrong, b, said in (
        ({"a[1]"}, x, r"^a\[1\] requires grad"), ({"c[1]"}, x, r"^c\[1\] requires grad"),
        (set(), apart, r"^b\[1\]\.strides"), (set(), away, r"^b\[1\] is on cuda:1 but a\[1\]"),
        (set(), np.broadcast_to(host, (4, 4)), "arrays on one CUDA device only"),
    ):  # fmt: skip
        refused = wrong
        outs = [np.full((4, 4), np.nan) for _ in "ab"]
        with pytest.raises(ValueError, match=said):
            tw.grouped_gemm([x, x], [x, b], outs)
        assert np.isnan(outs).all()
    refused = set()
    empty = np.ones((8, 0))[::2]
    assert [c.shape for c in tw.grouped_gemm([x, empty], [x, empty.T])] == [(4, 4), (4, 4)]


def test_types_of_short_results_are_looked_at_before_the_first_is_written():
    x, c = np.ones((3, 3), "f2"), [np.zeros((3, 3), "f4"), np.zeros((3, 3), "f2")]
    with pytest.raises(ValueError, match=r"c\[1\]\.dtype=float16"):
        tw.grouped_gemm([x, x], [x, x], c, out_dtype="f4")
    with pytest.raises(ValueError, match=r"c\[1\]\.dtype=float64"):
        tw.grouped_gemm([x, x], [x, x], [c[0], np.zeros((3, 3))])
    assert not np.any(c)


def test_products_that_no_kernel_takes_together_are_computed_one_by_one(monkeypatch):
    """As on a CUDA device: arrays are looked at, a launch for many is not worth it."""
    library = SimpleNamespace(
        __name__="acted", stream_of=lambda ordinal: 0,
        view=lambda name, x: View(x, address_of(x), x.shape, x.strides, x.dtype, 0),
        new_arrays=lambda like, shapes, dtype: [np.full(shape, np.nan, dtype) for shape in shapes],
    )  # fmt: skip
    monkeypatch.setattr(members, "_library", lambda x: library)
    monkeypatch.setattr(members, "device_at", lambda ordinal: None)
    monkeypatch.setattr(members, "choose_grouped", lambda *_: None)
    monkeypatch.setattr(members, "_chosen", lambda live, chunk: None)
    a, b = [np.ones((2, 3)), np.ones((3, 0)), np.ones((4, 3))], [np.ones((3, 5))] * 3
    b[1] = np.ones((0, 5))
    for c in (None, [np.full((len(x), 5), np.nan) for x in a]):
        made = tw.grouped_gemm(a, b, c, alpha=2)
        assert [x.tolist() for x in made] == [
            (2 * x @ y).tolist() for x, y in zip(a, b, strict=True)
        ]
    with pytest.raises(ValueError, match=r"c\[0\] overlaps c\[2\]"):
        tw.grouped_gemm(a, b, [made[2][:2], made[1], made[2]])


@pytest.mark.parametrize(
    ("has_maps", "count", "sizes"),
    [(True, 160, [54, 54, 52]), (True, 64, [64]), (False, 160, [80, 80]), (False, 128, [128])],
)
def test_a_launch_has_as_many_products_as_its_table(monkeypatch, has_maps, count, sizes):
    """Those of longest sums first, and none without a result."""
    chosen = SimpleNamespace(geometry=SimpleNamespace(tma=has_maps))
    monkeypatch.setattr(members, "choose_grouped", lambda *_: chosen)
    some = [
        SimpleNamespace(problem=SimpleNamespace(m=m, n=5, k=k), aligned=True)
        for k, m in enumerate([0, *[3] * count])
    ]
    found = list(members._chunks(None, some))
    assert [len(one) for one in found] == sizes
    assert [x.problem.k for one in found for x in one] == list(range(count, 0, -1))
    assert list(members._chunks(None, some[:1])) == []
