"""A Hopper that computes with NumPy: launches do what their kernels promise, and take no time."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.stencil.emulator.device import EmulatedDevice, Ended, Memory, memory_of
from tilewright.backend import Kernel, LaunchError
from tilewright.bench.formats import FORMATS, by_element
from tilewright.stencil import TensorMap

_PARTS = {1: "f16", 2: "bf16", 3: "tf32"}  # split/scheme.py
_ELEMENTS = {
    "ELEMENT_F16": "f16",
    "ELEMENT_BF16": "bf16",
    "ELEMENT_TF32": "tf32",
    "ELEMENT_S8": "s8",
}
_OUTPUTS = {"OUTPUT_F32": "float32", "OUTPUT_F16": "float16", "OUTPUT_BF16": "bfloat16"}


class Done(Ended):
    """What other launches are told to wait for."""

    raw = None


class NumPyHopper(EmulatedDevice):
    """What kernels of the split and of the tensor-core stencil compute, without running them.

    Nothing is scaled, and the guard always takes FP16x3.  Configs with a block of `broken` rows
    leave C as it is, those of `refused` stages are not launched.
    """

    def __init__(self, directory: Any, broken: int = 0, refused: int = 0) -> None:
        super().__init__(directory)
        self.broken, self.refused = broken, refused

    def compile(self, source, *, use_cache=True):
        return Kernel(source, source.entry, 0.0)

    def launch(self, kernel, launch, arguments, queue=None, after=()):
        memory_of(arguments)
        defines = kernel.handle.defines
        if kernel.entry == "split":
            _split(defines, arguments)
        elif kernel.entry == "decide":
            for memory in arguments[4:6]:
                memory.bytes[:].view(np.int32)[:8] = (1, 1, 128, 128, 0, 0, 0, 0)
        elif any(isinstance(x, TensorMap) for x in arguments):
            if defines["STAGES"] == self.refused:
                raise LaunchError("too many resources requested")
            if defines["BLOCK_M"] != self.broken:
                _multiply(defines, arguments)
        return Done()


def _split(defines: Any, arguments: Any) -> None:
    inner, outer, x, offset, ld, parts, stride, ld_parts = arguments[:8]
    if "RUN_IF" in defines and arguments[11].bytes.view(np.int32)[0] != defines["RUN_IF"]:
        return
    form = FORMATS[_PARTS[defines["PART"]]]
    rest = x.bytes.view(np.float32)[offset:][: ld * outer].reshape(outer, ld)[:, :inner].copy()
    for p in range(defines["PARTS"]):
        made = form.store(rest)
        rest -= form.values(made)
        made = made.T if defines["TRANSPOSE"] else made
        to = parts.bytes.view(form.storage)[p * stride :][: len(made) * ld_parts]
        to.reshape(len(made), ld_parts)[:, : made.shape[1]] = made


def _multiply(defines: Any, arguments: Any) -> None:
    m, n, _k, alpha, a, b, beta, c, ldc, _, _, run_if, wanted = arguments
    if run_if is not None and run_if.bytes.view(np.int32)[0] != wanted:
        return
    form, words = FORMATS[_ELEMENTS[defines["ELEMENT"]]], int(defines["PRODUCTS"][:-3], 16)
    total = np.zeros((n, m))
    for i in range(defines["PRODUCT_COUNT"]):
        p, q = divmod(words >> 4 * i & 15, 4)
        x, y = _part(a, form, p), _part(b, form, q)
        x = x if defines["TRANS_A"] else x.T  # m x k
        y = y.T if defines["TRANS_B"] else y  # n x k
        total += y @ x.T
    result = by_element(_OUTPUTS[defines["OUTPUT"]])
    to = c.bytes.view(result.storage)[: n * ldc].reshape(n, ldc)[:, :m]
    old = result.values(to) if beta else 0.0
    to[...] = result.store((alpha * total + beta * old).astype(np.float32))


def _part(of: TensorMap, form: Any, part: int) -> Any:
    """Return a part's rows in double precision."""
    inner, outer, _ = of.sizes
    assert isinstance(of.memory, Memory)
    ld, stride = (step // form.element_bytes for step in of.strides)
    words = of.memory.bytes.view(form.storage)[of.offset // form.element_bytes + part * stride :]
    whole = words[: ld * outer].reshape(outer, ld)[:, :inner]
    return form.values(whole).astype(np.float64)
