"""PyTorch's matrix products by `tilewright.gemm`: an operator, and a context that uses it.

::

    torch.mm, addmm, bmm, baddbmm, matmul, @, linear  --matmul()-->  tilewright::matmul  -->  gemm
                                                                          |  backward
                                                                          +-->  tilewright::matmul

`matmul` is a mode of PyTorch's functions, so that ``torch.compile`` and ``torch.export`` trace
through it; the operator has a fake kernel, a rule for vmap and a backward of itself, so that
gradients are computed by the same kernels wherever ``backward`` is called.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

from tilewright.serve.accuracy import INVARIANT, by_precision
from tilewright.serve.gemm import gemm

__all__ = ["matmul"]

_LETTERS = {
    torch.float32: "s",
    torch.float64: "d",
    torch.complex64: "c",
    torch.complex128: "z",
}
# cuBLAS serves these as fast: they are served for their order of sums alone.
_SHORT = (torch.float16, torch.bfloat16)

# What autocast rounds.
_ROUNDED = (torch.float32, *_SHORT)

# Multiply-adds; an H100 has done fewer in single precision before the host, which takes 5 to 15 us
# more than for PyTorch's, has begun the next product.
_LEAST = 2**25

# PyTorch's own tensors, and what stands for them where they are traced; who makes classes of other
# tensors says what their products are.
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_SEEN = (*_PLAIN, FakeTensor, FunctionalTensor)

# Where calls are served; others are PyTorch's.
_DEVICE = "cuda"


class matmul(TorchFunctionMode):  # type: ignore[misc]  # it has no stubs
    """Serve products of matrices on a CUDA device within a ``with`` block, and their gradients.

    ``torch.mm``, ``addmm``, ``bmm``, ``baddbmm``, ``matmul``, ``@`` and ``linear`` of dense tensors
    of two dimensions or more and of one dtype, float32 or wider.  Tensors elsewhere, what autocast
    rounds to fewer bits, other types, results that are given (``out=``) and, where nothing compiles
    them, products of fewer than 2^25 multiply-adds are left to PyTorch.

    Parameters
    ----------
    accuracy : str
        As of `tilewright.gemm`, for the dtypes that know it; "ieee" for others.
    batch_invariant : bool
        Whether an element's bits are to depend on its row, its column and k alone, not on how many
        rows are multiplied at once: IEEE arithmetic, and of float16 and bfloat16 tensor cores'.

    Raises
    ------
    ValueError
        If no dtype knows the accuracy, or it is another than IEEE's and `batch_invariant` is asked
        for.
    """

    def __init__(self, accuracy: str | None = None, *, batch_invariant: bool = False) -> None:
        super().__init__()
        if batch_invariant and accuracy not in (None, "ieee"):
            raise ValueError(
                f'accuracy={accuracy!r} is not batch-invariant; leave it out, or give "ieee"'
            )
        if batch_invariant:
            self._accuracies = dict.fromkeys((*_LETTERS, *_SHORT), INVARIANT)
            return
        of = by_precision(accuracy or "fp32")
        self._accuracies = {dtype: of[letter] for dtype, letter in _LETTERS.items()}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Serve a call, or let PyTorch do so."""
        serve = _SERVED.get(func)
        if serve is not None and (not kwargs or "out" not in kwargs):
            made = serve(self._accuracies, *args, **(kwargs or {}))
            if made is not None:
                return made
        if func is torch.Tensor.unflatten:  # which torch.compile does not trace from here
            func = torch.unflatten
        return func(*args, **(kwargs or {}))


# -- PyTorch's functions: what is served of them; None of the others -------------------------------


def _taken(accuracies: dict[Any, str], *given: Any) -> tuple[str, tuple[Any, ...]] | None:
    """Return the accuracy and the tensors, rounded where autocast does so; None: not served."""
    if not all(type(x) in _SEEN for x in given):
        return None
    dtype = given[0].dtype
    if torch.is_autocast_enabled(_DEVICE) and dtype in _ROUNDED:
        dtype = torch.get_autocast_dtype(_DEVICE)
        if dtype in accuracies:
            given = tuple(x.to(dtype) if x.dtype in _ROUNDED else x for x in given)
    accuracy = accuracies.get(dtype)
    if accuracy is None:
        return None
    for x in given:
        if x.dtype != dtype or x.device.type != _DEVICE or x.layout != torch.strided:
            return None
    return accuracy, given


def _matmul(accuracies: dict[Any, str], input: Any, other: Any) -> Any:
    taken = _taken(accuracies, input, other)
    if taken is None or input.ndim < 2 or other.ndim < 2:
        return None
    accuracy, (a, b) = taken
    return _product(a, b, accuracy)


def _product(a: Any, b: Any, accuracy: str) -> Any:
    """Return a @ b; None where it would cost the host more than the device."""
    may_pass = accuracy != INVARIANT and not torch.compiler.is_compiling()
    if may_pass and a.numel() * b.shape[-1] < _LEAST:
        return None
    return _broadcast(a, b, accuracy)


def _of_matrices(dimensions: int) -> Callable[..., Any]:
    """Return ``torch.mm`` or ``torch.bmm``."""

    def serve(accuracies: dict[Any, str], input: Any, mat2: Any) -> Any:
        taken = _taken(accuracies, input, mat2)
        if taken is None or not input.ndim == mat2.ndim == dimensions:
            return None
        accuracy, (a, b) = taken
        return _product(a, b, accuracy)

    return serve


def _added(dimensions: int) -> Callable[..., Any]:
    """Return ``torch.addmm`` or ``torch.baddbmm``."""

    def serve(
        accuracies: dict[Any, str], input: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1
    ) -> Any:
        taken = _taken(accuracies, a, b, input)
        if taken is None or not a.ndim == b.ndim == dimensions:
            return None
        accuracy, (a, b, input) = taken
        made = _product(a, b, accuracy)
        if made is None:
            return None
        if alpha != 1:
            made = made * alpha
        return made if beta == 0 else torch.add(made, input.expand(made.shape), alpha=beta)

    return serve


def _linear(accuracies: dict[Any, str], input: Any, weight: Any, bias: Any = None) -> Any:
    taken = _taken(accuracies, input, weight, *(() if bias is None else (bias,)))
    if taken is None or input.ndim < 2 or weight.ndim != 2:
        return None
    accuracy, (input, weight, *rest) = taken
    made = _product(input, weight.mT, accuracy)
    return made if made is None or not rest else made + rest[0]


_SERVED: dict[Any, Callable[..., Any]] = {
    torch.mm: _of_matrices(2),
    torch.Tensor.mm: _of_matrices(2),
    torch.bmm: _of_matrices(3),
    torch.Tensor.bmm: _of_matrices(3),
    torch.addmm: _added(2),
    torch.Tensor.addmm: _added(2),
    torch.baddbmm: _added(3),
    torch.Tensor.baddbmm: _added(3),
    torch.matmul: _matmul,
    torch.Tensor.matmul: _matmul,
    torch.Tensor.__matmul__: _matmul,
    torch.linalg.matmul: _matmul,
    torch.nn.functional.linear: _linear,
}


# -- Products --------------------------------------------------------------------------------------


def _broadcast(a: Any, b: Any, accuracy: str, by: Callable[..., Any] | None = None) -> Any:
    """Return the products of matrices of a batch, whose dimensions broadcast."""
    multiply = by or _multiply
    if accuracy == INVARIANT:
        a = a.contiguous()  # one row of a transposed matrix looks like one of any other
    if b.ndim == 2:
        if a.ndim == 2:
            return multiply(a, b, accuracy)
        return multiply(a.flatten(0, -2), b, accuracy).view(*a.shape[:-1], b.shape[-1])
    if a.ndim == b.ndim == 3 and a.shape[0] == b.shape[0]:
        return multiply(a, b, accuracy)
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x, y = (each.expand(*batch, *each.shape[-2:]).flatten(0, -3) for each in (a, b))
    return multiply(x, y, accuracy).view(*batch, a.shape[-2], b.shape[-1])


def _multiply(a: Any, b: Any, accuracy: str) -> Any:
    """Return a @ b by the operator, or by what takes less time where nobody traces it."""
    plain = type(a) in _PLAIN and type(b) in _PLAIN
    if not plain or torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return _op(a, b, accuracy)
    if _is_transformed():
        return _Transformed.apply(a, b, accuracy)
    if torch.is_grad_enabled() and (a.requires_grad or b.requires_grad):
        return _Product.apply(a, b, accuracy)
    return _computed(a, b, accuracy)


def _is_transformed() -> bool:
    """Whether tensors may hold batches or tangents: within ``torch.func`` or ``forward_ad``."""
    within = torch._C._functorch.peek_interpreter_stack()
    return within is not None or forward_ad._current_level >= 0


def _computed(a: Any, b: Any, accuracy: str) -> Any:
    return gemm(_dense(a), _dense(b), accuracy=accuracy) if a.device.type == "cuda" else a @ b


def _dense(x: Any) -> Any:
    """Return a tensor that BLAS takes, itself where it can be, of PyTorch's own class."""
    if type(x) is not torch.Tensor or x.requires_grad:
        x = x.detach()
    if x.is_neg():
        x = x.resolve_neg()
    (down, right), (rows, columns) = x.stride()[-2:], x.shape[-2:]
    if (right == 1 and down >= columns) or (down == 1 and right >= rows):
        return x
    return x.contiguous()


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    a, b, ctx.accuracy = inputs
    for_a, for_b = ctx.needs_input_grad[:2]
    ctx.save_for_backward(a if for_b else None, b if for_a else None)
    ctx.save_for_forward(a, b)


def _backward(ctx: Any, grad: Any) -> tuple[Any, Any, None]:
    a, b = ctx.saved_tensors
    return (
        None if b is None else _multiply(grad, b.mH, ctx.accuracy),
        None if a is None else _multiply(a.mH, grad, ctx.accuracy),
        None,
    )


def _vmap(
    info: Any, in_dims: Any, a: Any, b: Any, accuracy: str, by: Callable[..., Any] | None = None
) -> tuple[Any, int]:
    a, b = (
        each if dim is None else each.movedim(dim, 0)
        for each, dim in zip((a, b), in_dims, strict=False)
    )
    return _broadcast(a, b, accuracy, by), 0


class _Product(torch.autograd.Function):  # type: ignore[misc]
    """The operator's autograd, at a fifth of the host's time."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, accuracy: str) -> Any:
        _setup(ctx, (a, b, accuracy), None)
        return _computed(a, b, accuracy)

    backward = staticmethod(_backward)


class _Transformed(torch.autograd.Function):  # type: ignore[misc]
    """The same for ``torch.func`` and forward mode, whose form of a function takes longer."""

    @staticmethod
    def forward(a: Any, b: Any, accuracy: str) -> Any:
        return _computed(a, b, accuracy)

    @staticmethod
    def jvp(ctx: Any, of_a: Any, of_b: Any, _: Any) -> Any:
        a, b = ctx.saved_tensors
        parts = [(x, y) for x, y in ((of_a, b), (a, of_b)) if x is not None and y is not None]
        return sum(_multiply(x, y, ctx.accuracy) for x, y in parts)

    setup_context = staticmethod(_setup)
    backward = staticmethod(_backward)
    vmap = staticmethod(_vmap)


# -- The operator ----------------------------------------------------------------------------------

_library = torch.library.Library("tilewright", "DEF")
_library.define("matmul(Tensor a, Tensor b, str accuracy) -> Tensor")
_op = torch.ops.tilewright.matmul.default


_library.impl("matmul", _computed, "CUDA")
_library.impl("matmul", _computed, "CPU")


def _fake(a: Any, b: Any, accuracy: str) -> Any:
    torch._check(a.ndim == b.ndim and a.ndim in (2, 3), lambda: "a and b are no matrices")
    torch._check(a.shape[-1] == b.shape[-2], lambda: "a and b do not fit")
    return a.new_empty((*a.shape[:-1], b.shape[-1]))


torch.library.register_fake("tilewright::matmul", _fake, lib=_library)
torch.library.register_autograd("tilewright::matmul", _backward, setup_context=_setup, lib=_library)
torch.library.register_vmap("tilewright::matmul", partial(_vmap, by=_op), lib=_library)
