"""JAX's products of matrices by Tilewright's kernels, within `jax.jit`, gradients and `jax.vmap`.

::

    matmul(a, b)  --jax.ffi-->  _Target, called by XLA with buffers and its stream
                                   |  CUDA: launches on that stream      CPU: tilewright.gemm
                                   +--error--> XLA, which raises it

XLA calls a function of C; ctypes makes one of Python's, so that nothing is compiled here.
Structures are those of XLA's ``xla/ffi/api/c_api.h``, major version 0, whose fields keep their
places.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable
from ctypes import c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tilewright.precision import PRECISIONS
from tilewright.problem import Trans
from tilewright.serve.accuracy import arithmetic_of, by_precision, with_accuracy
from tilewright.serve.arrange import shapes_of
from tilewright.serve.gemm import gemm
from tilewright.serve.request import Request

__all__ = ["matmul"]

_LETTERS = {PRECISIONS[letter].dtype: letter for letter in "sdcz"}
_TURNED = {"N": "T", "T": "N"}
_METADATA, _EXECUTE, _INTERNAL = 1, 3, 13
# XLA_FFI_DataType, by number.
_DTYPES: dict[int, np.dtype[Any]] = {
    11: np.dtype("f4"),
    12: np.dtype("f8"),
    15: np.dtype("c8"),
    18: np.dtype("c16"),
}


def matmul(a: Any, b: Any, /, *, accuracy: str = "fp32") -> jax.Array:
    """Return the matrix product of arrays, vectors and batches, as `jax.numpy.matmul` does.

    It has a rule for `jax.vmap`, and gradients by the same kernels; of forward-mode
    differentiation (`jax.jvp`) it has none.

    Parameters
    ----------
    a, b : array
        Of one dtype, float32, float64, complex64 or complex128.  Vectors and batches are as
        `tilewright.matmul` has them.
    accuracy : str
        As of `tilewright.gemm`, for the dtypes that know it; "ieee" for others.

    Raises
    ------
    ValueError
        If the shapes are no product's, the dtypes differ or have no GEMM here, or no dtype knows
        the accuracy.
    """
    of = by_precision(accuracy)
    a, b = jnp.asarray(a), jnp.asarray(b)
    if not a.ndim or not b.ndim:
        raise ValueError(f"{'b' if a.ndim else 'a'} has no dimensions; multiply by a number with *")
    if a.dtype != b.dtype or a.dtype not in _LETTERS:
        known = ", ".join(map(str, _LETTERS))
        raise ValueError(f"a.dtype={a.dtype} and b.dtype={b.dtype}; convert both to one of {known}")
    rows, columns = a[None] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
    made = _product(rows, columns, "N", "N", of[_LETTERS[a.dtype]])
    gone = [axis for axis, x in ((-2, a), (-1, b)) if x.ndim == 1]
    return jnp.squeeze(made, gone)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _product(a: Any, b: Any, trans_a: str, trans_b: str, accuracy: str) -> Any:
    """Return op(a) op(b)."""
    ops = Trans.parse(trans_a), Trans.parse(trans_b)
    batch, m, n, _ = shapes_of(a, b, None, *ops)
    shape = jax.ShapeDtypeStruct((*batch, m, n), a.dtype)
    name = _target(trans_a, trans_b, accuracy)
    return jax.ffi.ffi_call(name, shape, vmap_method="expand_dims")(a, b)


def _backward(trans_a: str, trans_b: str, accuracy: str, kept: Any, given: Any) -> tuple[Any, Any]:
    """Return what reaches a and b: of transposed ones, the products are transposed, too."""
    a, b = kept
    left, right = (given, b, "N", _TURNED[trans_b]), (a, given, _TURNED[trans_a], "N")
    if trans_a == "T":
        left = b, given, trans_b, "T"
    if trans_b == "T":
        right = given, a, "T", trans_a
    return _summed(_product(*left, accuracy), a.shape), _summed(_product(*right, accuracy), b.shape)


def _summed(x: Any, shape: tuple[int, ...]) -> Any:
    """Return the sum over the dimensions of a batch that an operand was broadcast along."""
    x = x.sum(tuple(range(x.ndim - len(shape))))
    return x.sum([i for i, size in enumerate(shape) if size != x.shape[i]], keepdims=True)


_product.defvjp(lambda a, b, *how: (_product(a, b, *how), (a, b)), _backward)


# -- XLA's side --------------------------------------------------------------------------------


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("size", c_size_t), ("extension", c_void_p), ("dtype", c_int), ("data", c_void_p),
        ("rank", c_int64), ("dims", ctypes.POINTER(c_int64)),
    )  # fmt: skip

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.dims[: self.rank])


class _Buffers(ctypes.Structure):
    _fields_ = (
        ("size", c_size_t), ("extension", c_void_p), ("count", c_int64), ("types", c_void_p),
        ("at", ctypes.POINTER(ctypes.POINTER(_Buffer))),
    )  # fmt: skip


class _Version(ctypes.Structure):
    _fields_ = (("size", c_size_t), ("extension", c_void_p), ("major", c_int), ("minor", c_int))


class _Metadata(ctypes.Structure):
    _fields_ = (("size", c_size_t), ("version", _Version))


class _Extension(ctypes.Structure):
    _fields_ = (
        ("size", c_size_t), ("type", c_int), ("next", c_void_p),
        ("metadata", ctypes.POINTER(_Metadata)),
    )  # fmt: skip


# Arguments of functions that fill one field in, and of the one that makes an error.
class _Asked(ctypes.Structure):
    _fields_ = (
        ("size", c_size_t), ("extension", c_void_p), ("context", c_void_p), ("found", c_void_p),
    )  # fmt: skip


class _Error(ctypes.Structure):
    _fields_ = (("size", c_size_t), ("extension", c_void_p), ("message", c_char_p), ("code", c_int))


_FUNCTION = ctypes.CFUNCTYPE(c_void_p, c_void_p)


class _Api(ctypes.Structure):
    _fields_ = (
        ("size", c_size_t), ("extension", c_void_p), ("version", _Version), ("own", c_void_p),
        ("error", _FUNCTION), ("unused", c_void_p * 3), ("stream", _FUNCTION),
        ("others", c_void_p * 12), ("ordinal", _FUNCTION),
    )  # fmt: skip


class _Frame(ctypes.Structure):
    _fields_ = (
        ("size", c_size_t), ("extension", ctypes.POINTER(_Extension)),
        ("api", ctypes.POINTER(_Api)), ("context", c_void_p), ("stage", c_int),
        ("given", _Buffers), ("made", _Buffers),
    )  # fmt: skip


_HANDLER = ctypes.CFUNCTYPE(c_void_p, ctypes.POINTER(_Frame))


# By name and platform; XLA calls them as long as the process lives.
_handlers: dict[tuple[str, str], Any] = {}
_lock = threading.Lock()


def _target(trans_a: str, trans_b: str, accuracy: str) -> str:
    """Return the name by which XLA knows what multiplies so; made known when first asked for."""
    name = f"tilewright_matmul_{trans_a}{trans_b}_{accuracy}"
    with _lock:
        for platform, compute in (("cpu", _on_host), ("CUDA", _on_device)):
            if (name, platform) not in _handlers:  # XLA takes each once
                handler = _HANDLER(partial(_answer, partial(compute, trans_a, trans_b, accuracy)))
                jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handler), platform=platform)
                _handlers[name, platform] = handler
    return name


def _answer(compute: Callable[[_Frame, list[_Buffer]], None], at: Any) -> int | None:
    """Do what XLA asks for; return its error, or nothing."""
    frame = at.contents
    api = frame.api.contents
    try:
        if frame.extension and frame.extension.contents.type == _METADATA:
            if api.version.major or api.size < ctypes.sizeof(_Api):
                raise RuntimeError("tilewright.jax knows another version of XLA; update both")
            version = frame.extension.contents.metadata.contents.version
            version.major, version.minor = api.version.major, api.version.minor
        elif frame.stage == _EXECUTE:
            compute(frame, [x.contents for x in (*frame.given.at[:2], frame.made.at[0])])
    except BaseException as problem:  # it must not pass through XLA's C++
        said = f"{type(problem).__name__}: {problem}".encode()
        made = _Error(ctypes.sizeof(_Error), None, said, _INTERNAL)
        found: int | None = api.error(ctypes.addressof(made))
        return found
    return None


def _on_host(
    trans_a: str, trans_b: str, accuracy: str, frame: _Frame, buffers: list[_Buffer]
) -> None:
    """Compute by `tilewright.gemm`, in XLA's memory."""
    arrays = []
    for x in buffers:
        dtype, shape = _DTYPES[x.dtype], x.shape
        memory = (ctypes.c_byte * (math.prod(shape) * dtype.itemsize)).from_address(x.data or 0)
        arrays.append(np.frombuffer(memoryview(memory), dtype).reshape(shape))
    gemm(*arrays, trans_a=trans_a, trans_b=trans_b, accuracy=accuracy)


def _on_device(
    trans_a: str, trans_b: str, accuracy: str, frame: _Frame, buffers: list[_Buffer]
) -> None:
    """Enqueue the product on XLA's stream."""
    from tilewright.serve.arrays import device as on_device

    stream = _asked(frame, frame.api.contents.stream, 8)
    ordinal = _asked(frame, frame.api.contents.ordinal, 4)
    a, b, c = (_view(x, ordinal) for x in buffers)
    precision = with_accuracy(PRECISIONS[_LETTERS[a.dtype]], accuracy)
    op_a, op_b = Trans.parse(trans_a), Trans.parse(trans_b)
    batch, m, n, k = shapes_of(a, b, c, op_a, op_b)
    arithmetic = arithmetic_of(accuracy, precision)
    request = Request(precision, m, n, k, 1, 0, op_a, op_b, a, b, c, arithmetic)
    if 0 not in (*batch, m, n):
        on_device.run(request.arranged() if batch else request, None, lambda _: stream)


def _asked(frame: _Frame, function: Any, size: int) -> int:
    asked = _Asked(ctypes.sizeof(_Asked) - 8 + size, None, frame.context, None)
    if function(ctypes.addressof(asked)):
        raise RuntimeError("XLA does not name the stream and device of a product")
    return (asked.found or 0) if size == 8 else c_int32((asked.found or 0) & 0xFFFFFFFF).value


def _view(x: _Buffer, ordinal: int) -> Any:
    from tilewright.serve.arrays.device import View

    dtype, shape = _DTYPES[x.dtype], x.shape
    strides = tuple(dtype.itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return View(None, x.data or 0, shape, strides, dtype, ordinal)
