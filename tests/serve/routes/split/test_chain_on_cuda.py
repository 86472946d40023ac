"""The whole chain as CUDA runs it, on emulated hardware: texts, arguments, order and routes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.emulator import device as emulator
from tests.stencil.split.plainly import errors
from tilewright.serve.unproved import serve_unproved

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")

WORDS = (Path(__file__).parent / "plain_words.h").read_text()


class EmulatedStream(EmulatedDevice):
    """An emulated device that knows which text it is given, and tells what it launched."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.launched: list[str] = []

    def compile(self, source):
        """Choose the words that stand for a text's PTX, and the door to its kernel."""
        words = "wgmma_words.h" if "begin_multiplies" in source.text else "ptx_words.h"
        self.words = emulator.HERE / words
        text = source.text
        if source.entry != "gemm":
            text = f"{WORDS}{text}\n#define gemm {source.entry}\n"
        return super().compile(replace(source, text=text))

    def launch(self, kernel, launch, arguments, queue=None, after=()):
        self.launched.append(kernel.entry)
        return super().launch(kernel, launch, arguments, queue, after)


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    return EmulatedStream(tmp_path_factory.mktemp("kernels"))


def operands(k=160, m=70):
    rng = np.random.default_rng(2)
    return tuple(rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, 40)))


CHAIN = ["largest", "split", "split"]


def test_guarded_products_go_to_the_tensor_cores(emulated):
    a, b = operands()
    for expected, matrix in (("fp16x3", a), ("ieee", a.copy())):
        if expected == "ieee":
            matrix[5, 6] *= 2.0**40
        told = tw.Decision()
        emulated.launched.clear()
        with serve_unproved():
            c = tw.gemm(matrix, b, accuracy="fp32", report=told, device=emulated)
        assert told.variant == expected, told.explain()
        assert emulated.launched == [*CHAIN, "gemm", "gemm", "gemm"]
        assert errors(c, matrix, b)[0] < 2**-21
    np.testing.assert_array_equal(c, tw.gemm(matrix, b, device=emulated))


def test_bf16_parts_and_equal_calls(emulated):
    """12-bit numbers are for BF16; a call that comes again gives the same bits."""
    a, b = (np.round(x * 1000) for x in operands())
    with serve_unproved():
        first = tw.gemm(a, b, accuracy="fp32", device=emulated)
        again = tw.gemm(a, b, alpha=np.array(1.0), accuracy="fp32", device=emulated)
    assert errors(first, a, b)[0] < 2**-22
    np.testing.assert_array_equal(first, again)


def test_tf32_parts_lie_along_k(emulated):
    """Tensor cores read TF32 along k only: the pass transposes what lies otherwise."""
    a, b = operands()
    c = tw.gemm(np.asfortranarray(a), b, accuracy="tf32x3", device=emulated)
    assert errors(c, a, b)[0] < 2**-21


def test_plain_tf32_copies_one_of_two_that_lie_across_k(emulated):
    """One operand is read in either order; of two the other is copied along k."""
    a, b = operands(m=72)  # columns are aligned
    for x, y, before in (
        (a, np.asfortranarray(b), []),
        (np.asfortranarray(a), np.asfortranarray(b), []),
        (a, b, []),
        (np.asfortranarray(a), b, ["realign"]),
        (a[:, 1:], np.asfortranarray(b)[1:], ["realign"] * 2),  # not aligned to 16 bytes
    ):
        emulated.launched.clear()
        c = tw.gemm(x, y, accuracy="tf32", device=emulated)
        assert emulated.launched == [*before, "gemm"]
        assert 2**-16 < errors(c, x, y)[0] < 2**-9
