"""Libraries on the formats of matrix units: cuBLAS through cublasGemmEx, NumPy where no GPU is."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import LiveDevice
from tilewright.bench.formats import Format, by_element
from tilewright.bench.peers.cublas import OPERATIONS, CuBLAS
from tilewright.problem import Problem, Trans

__all__ = ["CuBLASFormats", "FormatPeer", "NumPyFormats", "Product", "format_peer"]

# cudaDataType of library_types.h, and cublasComputeType_t of cublas_api.h: FP32 sums, TF32 where
# floats are given, 32-bit integers.
_DATA = {"float16": 2, "bfloat16": 14, "float32": 0, "int8": 3, "int32": 10}
_COMPUTE = {"f16": 68, "bf16": 68, "float32": 68, "tf32": 77, "s8": 72}
_DEFAULT_MATH, _DEFAULT_ALGORITHM = 0, -1


@dataclass(frozen=True)
class Product:
    """A column-major product of matrices that lie in device memory.

    Parameters
    ----------
    problem : Problem
        Sizes, transposes and leading dimensions; its precision is not looked at.
    format : Format
        Of A and B.
    a, b, c : object
        Device memory.
    result : str
        Type of C; the format's own `result` without it.
    """

    problem: Problem
    format: Format
    a: Any
    b: Any
    c: Any
    result: str = ""

    @property
    def result_type(self) -> str:
        """Type of C."""
        return self.result or self.format.result


class CuBLASFormats(CuBLAS):
    """cublasGemmEx with the library's own choice of kernel, timed by events."""

    name = "cublas"

    def __init__(self, live: LiveDevice) -> None:
        super().__init__(live)
        with self._live.current():
            status = self._api.cublasSetMathMode(self._handle, _DEFAULT_MATH)
            self._check(status, "cublasSetMathMode")

    def prepare_product(self, product: Product) -> Callable[[], int]:
        """Return a function that multiplies once and returns the device's nanoseconds.

        Raises
        ------
        UnavailableError
            From the function: cuBLAS refuses the product.
        """
        p, form = product.problem, product.format
        type_ab, type_c = _DATA[form.element], _DATA[product.result_type]
        compute = _COMPUTE[form.name]
        scalars = np.array([1, 0], "i4" if form.result == "int32" else "f4")
        first = scalars.ctypes.data
        whole = ctypes.c_int
        a, b, c = (ctypes.c_void_p(memory) for memory in (product.a, product.b, product.c))
        arguments = (
            *(self._handle, OPERATIONS[p.trans_a], OPERATIONS[p.trans_b]),
            *(whole(p.m), whole(p.n), whole(p.k), ctypes.c_void_p(first)),
            *(a, whole(type_ab), whole(p.lda), b, whole(type_ab), whole(p.ldb)),
            *(ctypes.c_void_p(first + scalars.itemsize), c, whole(type_c), whole(p.ldc)),
            *(whole(compute), whole(_DEFAULT_ALGORITHM)),
        )

        def run() -> int:
            assert scalars.size == 2  # held for its address
            event = self._live.between_events(
                lambda: self._check(self._api.cublasGemmEx(*arguments), "cublasGemmEx"),
                name="cublas",
                held=1,
            )
            return int(event.nanoseconds())

        return run


class NumPyFormats:
    """numpy.matmul on the same numbers in single precision: what a host without such units has."""

    name = "numpy"

    def __init__(self, live: LiveDevice) -> None:
        self._live = live
        self.version = np.__version__

    def prepare_product(self, product: Product) -> Callable[[], int]:
        """Return a function that multiplies once, writes C, and returns the host's nanoseconds."""
        p, form, live = product.problem, product.format, self._live

        def operand(memory: Any, rows: int, columns: int, ld: int, trans: Trans) -> NDArray[Any]:
            stored = np.empty((rows if trans.transposed else columns, ld), form.storage)
            live.download(memory, stored)
            x = form.values(stored[:, : columns if trans.transposed else rows])
            return x if trans.transposed else x.T

        a = operand(product.a, p.m, p.k, p.lda, p.trans_a)
        b = operand(product.b, p.k, p.n, p.ldb, p.trans_b)
        result = by_element(product.result_type)
        c = np.zeros((p.n, p.ldc), result.storage)

        def run() -> int:
            started = time.perf_counter_ns()
            c[:, : p.m] = result.store((a @ b).T)
            taken = time.perf_counter_ns() - started
            live.write(product.c, c)
            return taken

        return run


FormatPeer = CuBLASFormats | NumPyFormats


def format_peer(live: LiveDevice, name: str = "") -> FormatPeer:
    """Return the library for a device: cuBLAS on CUDA, else NumPy.

    Raises
    ------
    ValueError
        If `name` is given and neither.
    UnavailableError
        If it is not installed, or does not serve the device.
    """
    chosen = name or ("cublas" if live.backend == "cuda" else "numpy")
    if chosen == "cublas":
        return CuBLASFormats(live)
    if chosen == "numpy":
        return NumPyFormats(live)
    raise ValueError(f"peer={name!r} does not know these formats; use cublas or numpy")
