"""Groups of products on a GPU: one launch for most, and the same contract."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.serve.arrays.test_device import imported
from tilewright import timeline

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:::cupy")]


@pytest.fixture
def cupy(cuda):
    return imported("cupy")


def integers(cupy, rng, shape, dtype):
    """Return small integers, whose sums of products are exact."""
    found = rng.integers(-3, 4, shape).astype(dtype)
    if found.dtype.kind == "c":
        found = found + 1j * rng.integers(-3, 4, shape)
    return cupy.asarray(found.astype(dtype))


def operated(x, letter):
    return {"N": x, "T": x.T, "C": x.conj().T}[letter]


def laid(cupy, x, order, pad):
    """Return an array equal to x in an order, of a longer leading dimension, guarded by NaN."""
    whole = cupy.full([side + pad for side in x.shape], np.nan, x.dtype)
    whole = cupy.asarray(whole, order=order)
    part = whole[pad:, pad:]
    part[...] = x
    return part, whole


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("ops", ["NN", "TN", "NT", "CC"])
def test_a_group_has_the_bits_of_its_products(cupy, dtype, ops):
    rng = np.random.default_rng(len(dtype) + ord(ops[0]))
    for count, largest, beta in ((1, 40, 0), (5, 700, 2), (90, 130, -1), (70, 20, 0)):
        alpha = (1, -2, 0, 0.5)[count % 4]
        sizes = rng.integers(0 if count > 5 else 1, largest, (count, 3))
        groups = [], [], []
        wholes, rights = [], []
        for m, n, k in sizes.tolist():
            a = integers(cupy, rng, (m, k) if ops[0] == "N" else (k, m), dtype)
            b = integers(cupy, rng, (k, n) if ops[1] == "N" else (n, k), dtype)
            old = integers(cupy, rng, (m, n), dtype)
            rights.append(alpha * (operated(a, ops[0]) @ operated(b, ops[1])) + beta * old)
            pads, orders = rng.integers(0, 2, 3) * 3, rng.choice(["C", "F"], 3)
            a, _ = laid(cupy, a, orders[0], pads[0])
            b, _ = laid(cupy, b, orders[1], pads[1])
            c, whole = laid(cupy, old if beta else old * np.nan, orders[2], pads[2])
            wholes.append((whole, whole.size - c.size))
            if alpha == 0:
                a[...] = b[...] = np.nan
            for some, x in zip(groups, (a, b, c), strict=True):
                some.append(x)
        options = {"alpha": alpha, "trans_a": ops[0], "trans_b": ops[1]}
        found = tw.grouped_gemm(*groups, beta=beta, **options)
        for x, c, right, (whole, outside) in zip(found, groups[2], rights, wholes, strict=True):
            assert x is c
            assert (c == right).all()
            assert int(cupy.isnan(whole).sum()) == outside
        if not beta:
            for x, right in zip(tw.grouped_gemm(*groups[:2], **options), rights, strict=True):
                assert (x == right).all()


def test_calls_again_are_right_and_have_equal_bits(cupy):
    rng = np.random.default_rng(7)
    sizes = [(int(m), int(n), int(k)) for m, n, k in rng.integers(1, 300, (20, 3))]
    first = None
    for _ in range(3):
        a = [cupy.asarray(rng.standard_normal((m, k))) for m, _, k in sizes]
        b = [cupy.asarray(rng.standard_normal((k, n))) for _, n, k in sizes]
        found = tw.grouped_gemm(a, b)
        for c, x, y in zip(found, a, b, strict=True):
            assert abs(c - x @ y).max() <= 1e-12 * len(y)
        first = tw.grouped_gemm(a, b)
        assert all((x == y).all() for x, y in zip(found, first, strict=True))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "int8"])
def test_tensors_of_short_types(cuda, name):
    torch = imported("torch")
    rng = np.random.default_rng(3)
    dtype = getattr(torch, name)
    for ops, step in (("NT", 16), ("NN", 8), ("TT", 1)):
        a, b, rights = [], [], []
        for _ in range(37):
            m, n, k = (int(x) * step for x in rng.integers(1, 300 // step + 2, 3))
            x = torch.randint(-2, 3, (m, k), device="cuda").float()
            y = torch.randint(-2, 3, (k, n), device="cuda").float()
            rights.append(x @ y)
            a.append((x if ops[0] == "N" else x.T.contiguous()).to(dtype))
            b.append((y if ops[1] == "N" else y.T.contiguous()).to(dtype))
        found = tw.grouped_gemm(a, b, trans_a=ops[0], trans_b=ops[1])
        for c, right in zip(found, rights, strict=True):
            assert torch.equal(c, right.to(c.dtype))
    weights = torch.randn(128, 256, device="cuda").to(torch.bfloat16)
    tokens = [torch.randn(m, 128, device="cuda").to(torch.bfloat16) for m in (5, 0, 700, 64)]
    outs = [torch.full((len(x), 256), torch.nan, device="cuda", dtype=x.dtype) for x in tokens]
    assert tw.grouped_gemm(tokens, [weights] * 4, outs)[2] is outs[2]
    layer = torch.nn.Parameter(weights, requires_grad=False)  # another class
    assert torch.allclose(tw.grouped_gemm(tokens, [layer] * 4)[2], outs[2], rtol=2e-2, atol=0.2)
    for x, c in zip(tokens, outs, strict=True):
        assert torch.allclose(c.float(), x.float() @ weights.float(), rtol=2e-2, atol=0.2)


def test_new_results_that_were_allocated_at_once_are_apart(cuda, cupy):
    """By autograd, too: what changes one in place leaves what is saved of others as it is."""
    torch = imported("torch")
    tokens = [torch.ones((m, 16), device="cuda") for m in (5, 0, 7, 1)]
    for width in (24, 3):
        found = tw.grouped_gemm(tokens, [torch.ones((16, width), device="cuda")] * 4)
        assert [x.shape for x in found] == [(m, width) for m in (5, 0, 7, 1)]
        kept = torch.ones(1, device="cuda", requires_grad=True) * found[0]  # which is saved
        found[2] += 1
        kept.sum().backward()
        assert bool((found[0] == 16).all() and (found[2] == 17).all() and (found[3] == 16).all())
    a = [cupy.ones((m, 16), "f4") for m in (5, 0, 7, 1)]
    found = tw.grouped_gemm(a, [cupy.ones((16, 3), "f4")] * 4)
    found[0][...] = 0
    assert [float(x.sum()) for x in found] == [0, 0, 7 * 48, 48]


def test_tensors_that_are_no_operands_are_refused(cuda):
    """Though calls like it, but for one tensor, were made before."""
    torch = imported("torch")
    x, z = (torch.ones((16, 16), device="cuda", dtype=t) for t in (torch.float32, torch.complex64))
    for _ in range(2):
        assert bool((tw.grouped_gemm([x, x], [x, x])[1] == 16).all())
    for wrong, said in (
        (x.clone().requires_grad_(), "requires grad"),
        (z.conj().imag, "is a negated view"),
        (x.to_sparse(), r"b\[1\]\.layout"),
        (x[::2, ::2], "product 1"),
        (torch.ones((32, 32), device="cuda")[::2, ::2], r"b\[1\]\.strides"),
        (x.double(), r"b\[1\]\.dtype"),
        (x.cpu(), "arrays on one CUDA device only"),
    ):
        outs = [torch.full_like(x, torch.nan) for _ in "ab"]
        with pytest.raises((ValueError, TypeError), match=said):
            tw.grouped_gemm([x, x], [x, wrong], outs)
        assert bool(outs[0].isnan().all())
    with torch.no_grad():
        found = tw.grouped_gemm([x, x], [x, x.clone().requires_grad_()])
    assert bool((found[1] == 16).all())
    right = z.conj() @ z  # which meets no plan of unconjugated operands
    for a in (z, z.conj()):
        assert torch.equal(tw.grouped_gemm([z, a], [z, z])[1], right)


def test_types_of_all_matrices_are_kept(cupy):
    """Groups are known by where they are: another type would be taken for one that is gone."""
    own = np.dtype("f4", metadata={"of": "one matrix"})
    held = sys.getrefcount(own)
    a = [cupy.ones((16, 16), "f4"), cupy.ndarray((16, 16), own)]
    tw.grouped_gemm(a, a)
    del a
    assert sys.getrefcount(own) > held


def test_a_timeline_that_starts_meanwhile(cupy, monkeypatch):
    from tilewright.serve.arrays import cupy as adapter

    a, new = [cupy.ones((16, 16), "f4")] * 3, adapter.new_arrays
    tw.grouped_gemm(a, a)
    monkeypatch.setattr(adapter, "new_arrays", lambda *like: (timeline.start(), new(*like))[1])
    try:
        made = tw.grouped_gemm(a, a)
    finally:
        timeline.stop()
    assert all(bool((x == 16).all()) for x in made)


def test_a_group_in_a_graph(cupy):
    a = [cupy.random.rand(n, 30) for n in (3, 200, 64)]
    c = [cupy.zeros((len(x), len(x))) for x in a]
    tw.grouped_gemm(a, a, c, trans_b="T")
    right = [x.copy() for x in c]
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        tw.grouped_gemm(a, a, c, trans_b="T")
        graph = stream.end_capture()
        for x in c:
            x[...] = 0
        graph.launch(stream)
        assert all((x == y).all() for x, y in zip(c, right, strict=True))


def test_results_that_share_memory_are_refused(cupy):
    whole, x = cupy.zeros((40, 40)), cupy.ones((20, 20))
    for _ in range(2):  # columns of one matrix are apart, though between each other
        tw.grouped_gemm([x, x], [x, x], [whole[:20, :20], whole[:20, 20:]])
        assert (whole[:20] == 20).all()
    with pytest.raises(ValueError, match=r"c\[0\] overlaps c\[1\]"):
        tw.grouped_gemm([x, x], [x, x], [whole[:20, :20], whole[10:30, 10:30]])
    with pytest.raises(ValueError, match=r"c\[1\] overlaps a\[0\]"):
        tw.grouped_gemm([x, x + 1], [x, x], [whole[:20, :20], x])


@pytest.mark.parametrize("name", ["int8", "float8_e4m3fn", "float8_e5m2", "tf32"])
@pytest.mark.parametrize("ops", ["NN", "NT", "TN", "TT"])
def test_batches_of_what_is_read_along_k(cuda, name, ops):
    """Operands behind each other are copied at once, others one by one."""
    torch = imported("torch")
    dtype = torch.float32 if name == "tf32" else getattr(torch, name)
    options = {"accuracy": "tf32"} if name == "tf32" else {}
    for at, (m, n, k) in enumerate([(64, 48, 32), (200, 64, 128), (65, 30, 48), (40, 40, 24)]):
        x = torch.randint(-2, 3, (9, m, k), device="cuda").float()
        y = torch.randint(-2, 3, (1 if at == 1 else 9, k, n), device="cuda").float()
        a = (x if ops[0] == "N" else x.mT.contiguous()).to(dtype)
        b = (y if ops[1] == "N" else y.mT.contiguous()).to(dtype)
        if at == 2:  # every other one, and in memory where products alternate
            a, b = a.repeat_interleave(2, 0)[::2], b.transpose(0, 1).contiguous().transpose(0, 1)
        found = tw.gemm(a, b, trans_a=ops[0], trans_b=ops[1], **options)
        assert torch.equal(found, (x @ y).to(found.dtype))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("ops", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize(
    ("count", "m", "n", "k"),
    [(300, 17, 33, 9), (40, 77, 64, 77), (40, 77, 77, 64), (5, 130, 129, 200), (9, 1023, 511, 257)],
)
def test_batches_of_any_alignment(cuda, name, ops, count, m, n, k):
    """As they lie side by side, apart, from an odd element on, or one for all products."""
    torch = imported("torch")
    dtype = getattr(torch, name)

    def drawn(of: int, rows: int, columns: int, op: str, *, apart: bool) -> Any:
        sides = (rows, columns) if op == "N" else (columns, rows)
        room = torch.full((of * (2 if apart else 1), *sides), torch.nan, dtype=dtype, device="cuda")
        flat = torch.cat((room.new_full((3,), torch.nan), room.flatten()))[3:]
        x = flat.view(room.shape)[:: 2 if apart else 1]
        x.copy_(torch.randint(-2, 3, x.shape, device="cuda"))
        return x

    for kind in ("side by side", "apart", "one"):
        a = drawn(count, m, k, ops[0], apart=kind == "apart")
        b = drawn(1 if kind == "one" else count, k, n, ops[1], apart=False)
        x, y = (z.float() if op == "N" else z.float().mT for z, op in zip((a, b), ops, strict=True))
        right = x @ y
        assert torch.equal(tw.gemm(a, b, trans_a=ops[0], trans_b=ops[1]), right.to(dtype))
        whole = torch.full((count, m + 1, n + 3), 7, dtype=torch.float32, device="cuda")
        c = whole[:, :m, 1 : n + 1]
        tw.gemm(a, b, c, alpha=2, beta=-1, trans_a=ops[0], trans_b=ops[1])
        assert torch.equal(c, 2 * right - 7)
        c.fill_(7)
        assert bool((whole == 7).all())


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("ops", ["NN", "NT", "TN", "TT"])
def test_groups_of_any_alignment(cuda, name, ops):
    torch, rng = imported("torch"), np.random.default_rng(2)
    dtype = getattr(torch, name)
    for least, most, count in ((1, 40, 200), (60, 400, 30)):
        sizes = rng.integers(least, most, (count, 3)).tolist()
        a, b, right = [], [], []
        for at, (m, n, k) in enumerate(sizes):
            x, y = (
                torch.randint(-2, 3, sides, device="cuda", dtype=torch.float32)
                for sides in ((m, k), (k, n))
            )
            for op, one, kept in ((ops[0], x, a), (ops[1], y, b)):
                lying = (one if op == "N" else one.mT).to(dtype)
                begin = at % 3  # elements
                room = torch.cat((lying.new_full((begin,), torch.nan), lying.flatten()))
                kept.append(room[begin:].view(lying.shape))
            right.append((x @ y).to(dtype))
        for _ in range(2):  # laid out, and by what was remembered
            found = tw.grouped_gemm(a, b, trans_a=ops[0], trans_b=ops[1])
            assert all(torch.equal(x, y) for x, y in zip(found, right, strict=True))


@pytest.mark.parametrize("name", ["float32", "tf32", "float64", "complex64", "bfloat16", "int8"])
@pytest.mark.parametrize(("b", "h", "s", "d"), [(3, 5, 77, 64), (8, 16, 200, 24), (40, 2, 33, 7)])
def test_heads_that_lie_beside_each_other_are_one_batch(cuda, name, b, h, s, d):
    torch = imported("torch")
    dtype = torch.float32 if name == "tf32" else getattr(torch, name)
    options = {"accuracy": "tf32"} if name == "tf32" else {}
    q, k, v = (
        torch.randint(-2, 3, (b, s, h, d), device="cuda").to(dtype).permute(0, 2, 1, 3)
        for _ in range(3)
    )
    p = torch.randint(-2, 3, (b, h, s, s), device="cuda").to(dtype)
    for x, y in ((q, k.mT), (p, v), (p.mT, v), (q.mT, k)):
        found = tw.gemm(x, y, **options)
        wide = torch.complex128 if dtype.is_complex else torch.float64
        assert torch.equal(found, (x.to(wide) @ y.to(wide)).to(found.dtype))
    out = torch.full((b, s, h, d), 9, device="cuda").to(found.dtype)  # heads beside each other, too
    tw.gemm(p, v, out.permute(0, 2, 1, 3), alpha=2, **options)
    right = 2 * (p.to(wide) @ v.to(wide)).to(found.dtype)
    assert torch.equal(out.permute(0, 2, 1, 3), right)


@pytest.mark.parametrize("letter", ["s", "d", "c", "z", "tf32", "int8", "float8_e4m3fn"])
@pytest.mark.parametrize("ops", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize(("count", "m", "n", "k"), [(70, 17, 33, 9), (12, 513, 300, 257)])
def test_batches_of_odd_sides(cuda, letter, ops, count, m, n, k):
    torch = imported("torch")
    named = {"s": "float32", "tf32": "float32", "d": "float64", "c": "complex64", "z": "complex128"}
    dtype = getattr(torch, named.get(letter, letter))
    options = {"accuracy": "tf32"} if letter == "tf32" else {}
    x, y = (
        torch.randint(-2, 3, sides, device="cuda").double()
        for sides in ((count, m, k), (count, k, n))
    )
    a = (x if ops[0] == "N" else x.mT.contiguous()).to(dtype)
    b = (y if ops[1] == "N" else y.mT.contiguous()).to(dtype)
    found = tw.gemm(a, b, trans_a=ops[0], trans_b=ops[1], **options)
    assert torch.equal(found, (x @ y).to(found.dtype))
    if dtype.is_complex:
        found = tw.gemm(1j * a, b, trans_a=ops[0].replace("T", "C"), trans_b=ops[1])
        sign = -1j if ops[0] == "T" else 1j
        assert torch.equal(found, sign * (x @ y).to(found.dtype))


@pytest.mark.parametrize("name", ["float16", "float32", "complex128", "int32"])
def test_new_matrices_are_parts_of_one_allocation_and_apart_to_autograd(cuda, name):
    torch = imported("torch")
    from tilewright.serve.arrays.torch import new_arrays

    like = torch.empty(1, device="cuda")
    sizes = [
        (3, 8),
        (0, 8),
        (5, 7),
        (1, 1),
        (4, 0),
        (2, 16),
        (9, 8),
        (5, 7),
        (6, 1),
        (64, 24),
        (0, 0),
    ]
    made = new_arrays(like, sizes, getattr(torch, name))
    assert [tuple(x.shape) for x in made] == sizes
    assert all(x.is_contiguous() and x.dtype == getattr(torch, name) for x in made)
    assert len({x.untyped_storage().data_ptr() for x in made}) == 1
    for number, x in enumerate(made):
        assert x.numel() == 0 or x.data_ptr() % 16 == 0
        x.fill_(number + 1)
    assert all(bool((x == number + 1).all()) for number, x in enumerate(made))
    before = [x._version for x in made]
    made[0].add_(1)
    assert [x._version for x in made] == [before[0] + 1, *before[1:]]
