"""What may follow a tensor-core product, its text run on the CPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.stencil.contract import cut, thorough_but
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.wgmma.harness import (
    FAMILY,
    Case,
    drawn,
    lay_down,
    numbers,
    small,
    stored,
    variant,
)
from tilewright.backend import LiveDevice, Operand
from tilewright.stencil.wgmma import Arithmetic, Following, TensorCall, Wgmma

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")

KINDS = {
    "bf16": Arithmetic("bfloat16", "bfloat16", epilogue=True),
    "f16": Arithmetic("float16", "float16", epilogue=True),
    "f16-f32": Arithmetic("float16", epilogue=True),
    "s8-bf16": Arithmetic("int8", "bfloat16", epilogue=True),
    "s8-f32": Arithmetic("int8", epilogue=True),
    "e4m3-bf16": Arithmetic("float8_e4m3fn", "bfloat16", epilogue=True),
}
SMALLEST = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-20}


def activated(x: NDArray[Any], activation: str | None) -> NDArray[Any]:
    if activation == "relu":
        return np.maximum(x, 0)
    if activation == "gelu":
        return x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    if activation == "gelu_tanh":
        return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return x


def check(
    live: LiveDevice,
    name: str,
    case: Case,
    activation: str | None = None,
    wanted: str = "scale_m scale_n bias_n",
    family: Wgmma = FAMILY,
    **changes: int,
) -> None:
    """Compare with float64, to the result's last place; sums themselves are exact."""
    of, rng = variant("TN", KINDS[name]), np.random.default_rng(4)
    made = of.arithmetic
    a, b, c, _, _ = drawn(rng, case, of)
    config = small(of, live, **changes)
    kernel = live.compile(family.source(config, of, "cuda"))
    kind = made.result
    given = {
        word: rng.choice([0.25, -0.5, 2.0], case.m if word.endswith("m") else case.n)
        for word in wanted.split()
    }
    narrow = case.padding == 0
    memory = {
        word: live.upload(stored(x, kind) if narrow and "bias" in word else x.astype("f4"))
        for word, x in given.items()
    }
    old = stored(c if case.beta else np.full_like(c, np.nan), kind)
    ld, first = case.m + case.padding_c, case.offset_c
    flat = np.full(first + case.n * ld + 64, stored(np.array([77.0]), kind)[0], old.dtype)
    flat[first : first + case.n * ld].reshape(case.n, ld)[:, : case.m] = old.T
    result = live.upload(flat)
    call = TensorCall(
        case.m, case.n, case.k, case.alpha, lay_down(live, a, made.element, case),
        lay_down(live, b.swapaxes(1, 2), made.element, case), case.beta,
        Operand(result, first, ld),
        then=Following(**memory, bias_is_output=narrow, activation=activation),
    )  # fmt: skip
    launch = family.launch(config, case.m, case.n, case.k)
    live.launch(kernel, launch, family.arguments(config, of, call)).wait()
    after = np.empty_like(flat)
    live.download(result, after)
    columns = after[first : first + case.n * ld].reshape(case.n, ld)
    got = numbers(columns[:, : case.m].T.copy(), kind)
    columns[:, : case.m] = stored(np.array([77.0]), kind)[0]
    assert (numbers(after, kind) == 77).all()
    one = np.ones(1)
    right = (
        case.alpha * given.get("scale_m", one)[:, None] * given.get("scale_n", one) * (a[0] @ b[0])
    )
    right = right + (case.beta * c if case.beta else 0)
    right = right + given.get("bias_m", 0 * one)[:, None] + given.get("bias_n", 0 * one)
    right = activated(right, activation)
    assert np.all(np.abs(got - right) <= SMALLEST[kind] * np.abs(right) + 2e-6)


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_tanh"])
def test_every_activation(emulated: EmulatedDevice, activation: str | None) -> None:
    check(emulated, "bf16", Case(70, 133, 40, 0.125, padding_c=3, offset_c=1), activation)


@pytest.mark.parametrize("name", thorough_but(["f16-f32", "s8-bf16", "e4m3-bf16"], KINDS))
def test_every_result(emulated: EmulatedDevice, name: str) -> None:
    """C is read, and biases are single precision where operands are padded."""
    changes = {"promote_k": 32} if name.startswith("e4m3") else {}
    case = Case(66, 130, 40, 2, -1, padding=1, padding_c=1)
    check(emulated, name, case, "relu", **changes)


@pytest.mark.parametrize("wanted", thorough_but(["bias_m"], ["", "scale_m", "bias_m", "bias_n"]))
def test_what_is_not_wanted_is_not_read(emulated: EmulatedDevice, wanted: str) -> None:
    check(emulated, "f16", Case(64, 128, 40), None, wanted)


def test_it_follows_sums_of_slices(emulated: EmulatedDevice) -> None:
    sliced: Any = cut(Wgmma, 3)
    check(
        emulated, "bf16", Case(70, 20, 300, 0.125, 1, padding_c=1), "gelu", family=sliced,
        parallel_split_k=1,
    )  # fmt: skip


def test_integers_without_it_stay_integers() -> None:
    with pytest.raises(ValueError, match="result='float32'"):
        Arithmetic("int8")
    with pytest.raises(ValueError, match="one part"):
        Arithmetic("float16", scaled=True, epilogue=True)
