"""PyTorch's products: which are served, right ones, gradients, compiled and captured ones."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", exc_type=ImportError)

import tilewright.torch as served
from tilewright.serve.accuracy import INVARIANT

pytestmark = pytest.mark.filterwarnings("ignore:::torch")

product = torch.ops.tilewright.matmul.default
F = torch.nn.functional


def drawn(*shape, dtype=torch.float64, grad=False, device="cpu"):
    generator = torch.Generator(device).manual_seed(hash(shape) % 2**31)
    x = torch.randn(shape, dtype=dtype, generator=generator, device=device)
    return x.requires_grad_(grad)


@pytest.fixture(autouse=True)
def _small_ones(monkeypatch):
    monkeypatch.setattr(served, "_LEAST", 0)


@pytest.fixture
def calls(monkeypatch):
    """Let calls on the CPU be served; return the accuracies of those that were."""
    made, computed = [], served._computed

    def counting(a, b, accuracy):
        made.append(accuracy)
        return computed(a, b, accuracy)

    monkeypatch.setattr(served, "_DEVICE", "cpu")
    monkeypatch.setattr(served, "_computed", counting)
    return made


# -- the operator ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_the_operator_is_what_pytorch_asks_of_one(dtype, batch):
    a = drawn(*batch, 4, 5, dtype=dtype, grad=True)
    b = drawn(*batch, 5, 6, dtype=dtype, grad=True)
    torch.library.opcheck(product, (a, b, "ieee"))

    def multiplied(a, b):
        return product(a, b, "ieee")

    assert torch.autograd.gradcheck(multiplied, (a, b))
    assert torch.autograd.gradgradcheck(multiplied, (a, b))


def test_the_operator_is_mapped_over_either_operand_or_both():
    a, b = drawn(3, 4, 5), drawn(3, 5, 6)
    for dims in ((0, 0), (0, None), (None, 0)):
        x, y = (each if dim == 0 else each[1] for each, dim in zip((a, b), dims, strict=True))
        found = torch.func.vmap(lambda x, y: product(x, y, "ieee"), in_dims=dims)(x, y)
        assert torch.allclose(found, x @ y)


def transformed(x, w):
    """Yield what ``torch.func`` and forward mode make of a product."""

    def loss(w):
        return (x @ w).pow(3).sum()

    yield torch.func.grad(loss)(w)
    yield torch.func.jacfwd(lambda w: x @ w)(w)
    yield torch.func.hessian(loss)(w)
    yield torch.func.vmap(torch.func.grad(lambda row: (row[None] @ w).sum()))(x)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(w, w.cos())
        yield torch.autograd.forward_ad.unpack_dual(x @ dual).tangent


def test_functions_are_transformed_as_pytorchs_are(calls):
    x, w = drawn(4, 5), drawn(5, 2)
    wanted = list(transformed(x, w))
    with served.matmul():
        found = list(transformed(x, w))
    assert len(calls) >= len(wanted)
    assert all(map(torch.allclose, found, wanted))


# -- PyTorch's functions ---------------------------------------------------------------------------


CASES = {
    "mm": lambda a, b, c: torch.mm(a[0], b[0]),
    "Tensor.mm": lambda a, b, c: a[0].mm(b[0]),
    "addmm": lambda a, b, c: torch.addmm(c, a[0], b[0], beta=0.5, alpha=2),
    "addmm of a row": lambda a, b, c: torch.addmm(c[0], a[0], b[0]),
    "bmm": lambda a, b, c: torch.bmm(a, b),
    "baddbmm": lambda a, b, c: torch.baddbmm(c.expand(3, -1, -1), a, b, beta=2),
    "matmul": lambda a, b, c: torch.matmul(a, b[0]),
    "@": lambda a, b, c: a[0] @ b,
    "four dimensions": lambda a, b, c: a[:, None] @ b[None, :2],
    "linear": lambda a, b, c: F.linear(a, b[0].mT, c[0]),
    "linear without a bias": lambda a, b, c: F.linear(a[0], b[0].mT),
    "a module": lambda a, b, c: torch.func.functional_call(
        torch.nn.Linear(5, 6, dtype=a.dtype), {"weight": b[0].mT, "bias": c[0]}, a
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_products_are_served_and_their_gradients(calls, name):
    inputs = [drawn(3, 4, 5, grad=True), drawn(3, 5, 6, grad=True), drawn(4, 6, grad=True)]
    wanted = CASES[name](*inputs)
    with served.matmul():
        found = CASES[name](*inputs)
    assert calls == ["ieee"]
    assert torch.allclose(found, wanted)
    weights = drawn(*wanted.shape)
    kinds = {"allow_unused": True}
    gradients = (torch.autograd.grad((x * weights).sum(), inputs, **kinds) for x in (wanted, found))
    for x, y in zip(*gradients, strict=True):
        assert (x is y is None) or torch.allclose(x, y)
    assert len(calls) == 3  # outside of the block, too


class Subclass(torch.Tensor):
    """Of tensors that know products of their own."""


def test_what_is_not_served_is_pytorchs(calls):
    a = drawn(4, 4, dtype=torch.float32)
    out = torch.empty_like(a)
    with served.matmul():
        torch.mm(a, a, out=out)
        a @ a[0]
        a[0] @ a
        a.half() @ a.half()
        (a > 0).int() @ (a > 0).int()
        a.as_subclass(Subclass) @ a
        with torch.autocast("cpu", torch.bfloat16):
            assert (a @ a).dtype == torch.bfloat16
        with pytest.raises(RuntimeError):
            a @ a.double()
    assert torch.equal(out, a @ a)
    assert calls == []


def test_small_products_are_pytorchs_where_nothing_compiles_them(calls, monkeypatch):
    monkeypatch.setattr(served, "_LEAST", 64)
    row = drawn(4)
    for columns in (2, 4):
        b = drawn(4, columns)
        with served.matmul():
            torch.mm(drawn(4, 4), b)
            F.linear(drawn(4, 4), b.mT, row[:columns])
            torch.addmm(row[:columns], drawn(4, 4), b)
    assert len(calls) == 3
    with served.matmul(batch_invariant=True):
        torch.mm(drawn(1, 4), drawn(4, 1))
    assert len(calls) == 4


def test_each_type_is_asked_for_the_accuracy_that_it_knows(calls):
    with served.matmul("fp32"):
        for dtype in (torch.float32, torch.float64, torch.complex64):
            torch.mm(*2 * [drawn(4, 4, dtype=dtype)])
    assert calls == ["fp32", "ieee", "fp32"]
    calls.clear()
    with served.matmul(batch_invariant=True):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            torch.mm(*2 * [drawn(4, 4, dtype=dtype)])
        with torch.autocast("cpu", torch.bfloat16):
            made = torch.nn.Linear(4, 4)(drawn(4, 4, dtype=torch.float32))
    assert made.dtype == torch.bfloat16
    assert calls == 4 * [INVARIANT]


def test_wrong_accuracies_are_refused():
    with pytest.raises(ValueError, match="accuracy='exact' is unknown"):
        served.matmul("exact")
    with pytest.raises(ValueError, match="not batch-invariant"):
        served.matmul("fp32", batch_invariant=True)


def test_compiled_and_exported_functions_hold_the_operator(calls):
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    found_in = []

    def recorded(module, inputs):
        found_in.append([node.target for node in module.graph.nodes].count(product))
        return make_boxed_func(module.forward)

    layers = (torch.nn.Linear(5, 7), torch.nn.Unflatten(-1, (1, 7)), torch.nn.Linear(7, 2))
    net = torch.nn.Sequential(*layers)
    x = drawn(3, 4, 5, dtype=torch.float32, grad=True)
    wanted = net(x)

    def within(x):
        with served.matmul():
            return net(x)

    for function in (within, net):
        with served.matmul():
            backend = aot_autograd(fw_compiler=recorded)
            compiled = torch.compile(function, backend=backend, fullgraph=True)
            found = compiled(x)
        assert torch.allclose(found, wanted)
        found.sum().backward()
        assert found_in == [2, 4]
        found_in.clear()
    with served.matmul():
        graph = torch.export.export(net, (x,)).graph
    assert [node.target for node in graph.nodes].count(product) == 2


def test_the_page_about_it_is_true(calls):
    page = Path(__file__).parents[1] / "docs" / "how-to" / "pytorch.md"
    code = re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
    exec("\n".join(code), {})  # as a reader would
    assert "fp32" in calls
    assert INVARIANT in calls


# -- on a GPU --------------------------------------------------------------------------------------


@pytest.fixture
def gpu(cuda):
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    return torch.device("cuda", 0)


DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 7, 5), (33, 65, 129), (300, 257, 1030)])
def test_products_and_gradients_on_a_gpu_are_right(gpu, dtype, shape):
    m, n, k = shape
    a, b = (drawn(*x, dtype=dtype, device=gpu) for x in ((k, m), (k, 2 * n)))
    a, b = a.mT.requires_grad_(), b[:, ::2].requires_grad_()  # of no unit stride
    with served.matmul():
        c = a @ b
    grad_a, grad_b = torch.autograd.grad(c.real.sum(), (a, b))  # of stride 0
    wide = torch.complex128 if dtype.is_complex else torch.float64
    x, y, ones = a.detach().to(wide), b.detach().to(wide), torch.ones(m, n, dtype=wide, device=gpu)
    for found, left, right in ((c, x, y), (grad_a, ones, y.mH), (grad_b, x.mH, ones)):
        size = left.abs() @ right.abs()
        assert found.dtype == dtype
        error = (found.detach() - left @ right).abs()
        assert (error <= 4 * left.shape[1] * torch.finfo(dtype).eps * size).all()


def step(net, x):
    loss = net(x).square().mean()
    loss.backward()
    return loss


def network(gpu):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(1024, 1024) for _ in range(2)]
    return torch.nn.Sequential(layers[0], torch.nn.GELU(), layers[1]).to(gpu)


@pytest.mark.gpu
def test_a_captured_training_step_has_the_eager_ones_bits(gpu):
    net, x = network(gpu), drawn(1024, 1024, dtype=torch.float32, device=gpu)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), served.matmul("fp32"):
        wanted = step(net, x)
        gradients = [p.grad.clone() for p in net.parameters()]
    torch.cuda.current_stream().wait_stream(side)
    net.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), served.matmul("fp32"):
        loss = step(net, x)
    for _ in range(2):
        for p in net.parameters():
            p.grad.fill_(np.nan)
            p.grad.zero_()
        loss.fill_(np.nan)
        graph.replay()
        assert torch.equal(loss, wanted)
        assert all(map(torch.equal, gradients, (p.grad for p in net.parameters())))


@pytest.mark.gpu
def test_a_compiled_training_step_without_overhead_is_right(gpu):
    net, x = network(gpu), drawn(1024, 1024, dtype=torch.float32, device=gpu)
    wanted = step(net, x)
    gradients = [p.grad.clone() for p in net.parameters()]
    with served.matmul("fp32"):
        compiled = torch.compile(net, mode="reduce-overhead", fullgraph=True)
        for _ in range(4):  # from the third on a graph is replayed
            net.zero_grad(set_to_none=True)
            found = step(compiled, x)
    assert torch.allclose(found, wanted, rtol=1e-5)
    for p, gradient in zip(net.parameters(), gradients, strict=True):
        assert (p.grad - gradient).norm() <= 1e-5 * gradient.norm()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("k", [1000, 1001])  # rows aligned to 16 bytes, or not
def test_rows_bits_do_not_depend_on_the_batch(gpu, dtype, k):
    n = 200
    a, b = (drawn(*x, dtype=dtype, device=gpu) for x in ((600, k), (n, k)))
    with served.matmul(batch_invariant=True):
        whole = F.linear(a, b)
        for m in (1, 2, 7, 33, 129, 512, 600):
            assert torch.equal(F.linear(a[:m], b), whole[:m])
            assert torch.equal(F.linear(a[600 - m :], b), whole[600 - m :])
        assert torch.equal(F.linear(a.view(20, 30, k), b).view(600, n), whole)
        turned = a.mT.contiguous().mT
        assert all(torch.equal(turned[:m] @ b.mT, whole[:m]) for m in (1, 2, 600))
