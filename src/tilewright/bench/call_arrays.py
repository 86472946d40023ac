"""Arrays that benchmarks of whole calls multiply: CuPy's, PyTorch's of short types, double pairs.

================  =========================================================
name              what is multiplied
================  =========================================================
s, d, c, z        CuPy's arrays of BLAS's precisions
fp32, tf32        CuPy's float32 arrays with that ``accuracy``
fp32-c            CuPy's complex64 arrays with ``accuracy="fp32"``
fp64, fp64-z      CuPy's float64 and complex128 arrays with ``accuracy="fp64"``
bf16, fp16, int8  PyTorch's tensors; so are e4m3 and e5m2
e, f              `DoubleDouble` arrays in CuPy's memory, accurate and fast
================  =========================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.bench.call_cases import Case
from tilewright.bench.peers import UnavailableError
from tilewright.bench.peers.cublas import KINDS
from tilewright.precision import PRECISIONS, precision
from tilewright.serve.double_double import DoubleDouble
from tilewright.serve.gemm import gemm

__all__ = ["NAMES", "Arrays", "arrays_of", "cupy_on", "operands", "public_call"]

_TENSORS = ("bf16", "fp16", "int8", "e4m3", "e5m2")

# Precisions and accuracies of calls that are named by these.
_ACCURACIES = {
    "fp32": ("s", "fp32"), "fp32-c": ("c", "fp32"), "tf32": ("s", "tf32"), "fp64": ("d", "fp64"),
    "fp64-z": ("z", "fp64"),
}  # fmt: skip

NAMES = (*PRECISIONS, *_ACCURACIES, *_TENSORS, "e", "f")

# What PyTorch's product of scaled FP8 matrices takes: sides that are multiples of so many.
_FP8_SIDE = 16


def cupy_on(live: Any) -> Any:
    """Return CuPy.

    Raises
    ------
    UnavailableError
        If it is not installed, or the device is not its.
    """
    if live.backend != "cuda":
        raise UnavailableError(f"CuPy's arrays are not on {live.id}; use cuda:0")
    try:
        import cupy
    except ImportError:
        raise UnavailableError("cupy is not installed; pip install cupy-cuda13x") from None
    return cupy


class Arrays:
    """CuPy's arrays of one of BLAS's precisions.

    Parameters
    ----------
    name : str
        A letter, or one of an accuracy, such as "fp32".

    Attributes
    ----------
    letter : str
        What `tilewright.bench.peers.cublas.prepared` calls the precision; empty where cuBLAS has
        none.
    flops : int
        What a multiply-add of elements counts.
    options : dict
        What ``gemm`` is told besides.
    """

    def __init__(self, name: str) -> None:
        import cupy

        self.library: Any = cupy
        letter, accuracy = _ACCURACIES.get(name, (name, ""))
        row = precision(letter)
        self.dtype: Any = row.dtype
        self.result: Any = row.dtype
        self.letter, self.flops = "tf32" if name == "tf32" else row.letter, row.flops
        self.options = {"accuracy": accuracy} if accuracy else {}

    def empty(self, shape: tuple[int, int], order: str, pad: int = 0) -> Any:
        """Return an array for results, its leading dimension by `pad` longer than it has to be."""
        return self._part(self._whole(shape, order, pad, self.result), shape, order)

    def random(self, rng: Any, shape: tuple[int, int], order: str, pad: int = 0) -> Any:
        """Return normal numbers, made on the device."""
        whole = self._whole(shape, order, pad, self.dtype)
        self._fill(whole, int(rng.integers(2**31)))
        return self._part(whole, shape, order)

    def _whole(self, shape: tuple[int, int], order: str, pad: int, dtype: Any) -> Any:
        """Return lines of memory: columns, or rows where these come first."""
        rows, columns = shape if order == "C" else shape[::-1]
        return self.library.empty((rows, columns + pad), dtype)

    def _part(self, whole: Any, shape: tuple[int, int], order: str) -> Any:
        """Return lines of memory as the array that they are."""
        if order == "C":
            return whole[:, : shape[1]]
        return whole.T[: shape[0]]

    def _fill(self, whole: Any, seed: int) -> None:
        words = 2 if self.dtype.kind == "c" else 1
        real = np.dtype(f"f{self.dtype.itemsize // words}")
        draw = self.library.random.default_rng(seed)
        drawn = draw.standard_normal(whole.size * words, dtype=real)
        whole.ravel()[:] = drawn.view(self.dtype)

    def release(self) -> None:
        """Give memory that nobody uses back to the device: other libraries may want it."""
        self.library.get_default_memory_pool().free_all_blocks()

    def address(self, x: Any) -> int:
        """Return the address of the first element."""
        return int(x.data.ptr)

    def difference(self, x: Any, y: Any) -> float:
        """Return the largest difference over the largest element."""
        scale = float(abs(y).max()) or 1.0
        return float(abs(x - y).max()) / scale

    def on_stream(self, stream: Any) -> Any:
        """Return a context in which calls go to one of CuPy's streams."""
        return stream

    def contiguous(self, x: Any, trans: Any) -> Any:
        """Return op(x) in rows, without gaps."""
        turned = x.T if trans.transposed else x
        return self.library.ascontiguousarray(turned.conj() if trans.conjugated else turned)

    def peer(self, a: Any, b: Any, c: Any) -> Callable[[], Any]:
        """Return the library's own product in place."""
        return lambda: self.library.matmul(a, b, out=c)

    def lt(self, case: Case, a: Any, b: Any) -> dict[str, Callable[[], Any]]:
        """Return calls of cuBLASLt where cuBLAS has none, by the name of their times."""
        return {}


class _Tensors(Arrays):
    """PyTorch's tensors of 8 and 16 bits."""

    def __init__(self, name: str) -> None:
        try:
            import torch
        except ImportError:
            raise UnavailableError("torch is not installed; pip install torch") from None
        of = precision(name)
        self.library, self.dtype = torch, getattr(torch, of.dtype_name)
        self.result = getattr(torch, of.result_name)
        self.letter, self.flops, self.options = name if name in KINDS else "", 2, {}

    def _whole(self, shape: tuple[int, int], order: str, pad: int, dtype: Any) -> Any:
        rows, columns = shape if order == "C" else shape[::-1]
        return self.library.empty((rows, columns + pad), dtype=dtype, device="cuda")

    def _fill(self, whole: Any, seed: int) -> None:
        generator = self.library.Generator("cuda").manual_seed(seed)
        if self.letter == "int8":
            whole.random_(-128, 128, generator=generator)
        elif whole.element_size() == 1:  # PyTorch draws no FP8
            drawn = self.library.empty(whole.shape, device="cuda").normal_(generator=generator)
            whole.copy_(drawn)
        else:
            whole.normal_(generator=generator)

    def release(self) -> None:
        self.library.cuda.empty_cache()

    def address(self, x: Any) -> int:
        return int(x.data_ptr())

    def difference(self, x: Any, y: Any) -> float:
        return super().difference(x.float(), y.float())

    def on_stream(self, stream: Any) -> Any:
        return self.library.cuda.stream(self.library.cuda.ExternalStream(stream.ptr))

    def contiguous(self, x: Any, trans: Any) -> Any:
        return (x.T if trans.transposed else x).contiguous()

    def lt(self, case: Case, a: Any, b: Any) -> dict[str, Callable[[], Any]]:
        """Return PyTorch's product of scaled FP8 matrices, sums promoted as ours are, and not.

        It takes operands along k alone.
        """
        sides, ops, order = case
        along_k = "NT" if order == "C" else "TN"
        named = "".join(op.value for op in ops) == along_k
        if self.letter or not named or any(side % _FP8_SIDE for side in sides):
            return {}
        x, y = (one.T if op.transposed else one for one, op in zip((a, b), ops, strict=True))
        torch = self.library
        one, out = (
            torch.ones((), device="cuda"),
            torch.empty(sides[:2], dtype=self.result, device="cuda"),
        )

        def call(fast: bool) -> Callable[[], Any]:
            return lambda: torch._scaled_mm(
                x, y, one, one, out_dtype=self.result, use_fast_accum=fast, out=out
            )

        return {"cublaslt_us": call(False), "cublaslt_fast_us": call(True)}

    def peer(self, a: Any, b: Any, c: Any) -> Callable[[], Any]:
        if self.dtype.itemsize == 1:
            raise UnavailableError(f"torch.mm has no {self.dtype} on a GPU; leave it out")
        return lambda: self.library.mm(a, b, out=c)


class _Pairs(Arrays):
    """Double-double arrays whose words are CuPy's."""

    def __init__(self, name: str) -> None:
        import cupy

        self.library, self.dtype, self.result = cupy, np.dtype("f8"), np.dtype("f8")
        self.letter, self.flops = "", precision(name).flops
        self.options = {"accuracy": "fast"} if name == "f" else {}

    def _whole(self, shape: tuple[int, int], order: str, pad: int, dtype: Any) -> Any:
        rows, columns = shape if order == "C" else shape[::-1]
        return self.library.empty((rows, columns + pad, 2), dtype)

    def _part(self, whole: Any, shape: tuple[int, int], order: str) -> Any:
        if order == "C":
            return DoubleDouble.of_words(whole[:, : shape[1]])
        return DoubleDouble.of_words(whole.transpose(1, 0, 2)[: shape[0]])

    def _fill(self, whole: Any, seed: int) -> None:
        draw = self.library.random.default_rng(seed)
        high = draw.standard_normal(whole.shape[:2])
        whole[..., 0] = high
        whole[..., 1] = high * (draw.random(whole.shape[:2]) - 0.5) * 2.0**-53  # below half an ulp


def arrays_of(name: str) -> Arrays:
    """Return the arrays of a name.

    Raises
    ------
    ValueError
        If it is none of `NAMES`.
    UnavailableError
        If their library is not installed.
    """
    if name not in NAMES:
        raise ValueError(f"precision={name!r} is unknown here; use {', '.join(NAMES)}")
    if name in _TENSORS:
        return _Tensors(name)
    return _Pairs(name) if name in ("e", "f") else Arrays(name)


def operands(arrays: Arrays, rng: Any, case: Case, pads: tuple[int, int] = (0, 0)) -> list[Any]:
    """Return random A and B of a case as they are stored."""
    (m, n, k), ops, order = case
    stored = zip(((m, k), (k, n)), ops, pads, strict=True)
    return [
        arrays.random(rng, shape[::-1] if op.transposed else shape, order, pad)
        for shape, op, pad in stored
    ]


def public_call(arrays: Arrays, case: Case, a: Any, b: Any, c: Any) -> Callable[[], Any]:
    """Return ``tw.gemm`` of a case, its options made beforehand."""
    options: dict[str, Any] = {
        "trans_a": case[1][0].value, "trans_b": case[1][1].value, **arrays.options
    }  # fmt: skip
    return lambda: gemm(a, b, c, **options)
