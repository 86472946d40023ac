"""Kernels for batches on Hopper's tensor cores, on a GPU: many products, and the contract."""

from __future__ import annotations

import numpy as np
import pytest

from tests.stencil.portable_harness import variant
from tilewright.backend import GemmCall, LiveDevice, Operand
from tilewright.portfolio.verify import Batched, check_batches
from tilewright.stencil import stencil
from tilewright.stencil.wgmma.small import is_small
from tilewright.tuning.verify import Bench, certify

pytestmark = pytest.mark.gpu


@pytest.fixture
def hopper(cuda: LiveDevice) -> LiveDevice:
    if not stencil("wgmma").suits(cuda.spec):
        pytest.skip(f"{cuda} has no such tensor cores")
    return cuda


@pytest.mark.parametrize("name", ["bf16TN", "fp16NT", "bf16_f32NN", "e4m3TN", "int8TN", "tf32TN"])
def test_kernels_for_batches_keep_the_contract(hopper: LiveDevice, name: str) -> None:
    family, of = stencil("wgmma"), variant(name)
    for config in family.batch_configs(of):
        kernel = hopper.compile(family.source(config, of, "cuda").batched())
        many = Batched(family, config, of)
        certify(hopper, kernel, many, config, of)
        check_batches(Bench(hopper, kernel, many, config, of, blocks=2))


@pytest.mark.parametrize("name", ["fp16NN", "fp16TT", "fp16_f32NT"])
@pytest.mark.parametrize(
    ("m", "n", "k", "batch"), [(16, 16, 16, 21), (32, 40, 24, 5), (72, 8, 200, 9)]
)
@pytest.mark.parametrize("shared", ["", "a", "b"])
def test_small_products_are_computed_side_by_side(
    hopper: LiveDevice, name: str, m: int, n: int, k: int, batch: int, shared: str
) -> None:
    family, of = stencil("wgmma"), variant(name)
    rng = np.random.default_rng(batch)
    down, right = of.k_fast
    a = rng.integers(-3, 4, (1 if shared == "a" else batch, m, k)).astype(np.float16)
    b = rng.integers(-3, 4, (1 if shared == "b" else batch, k, n)).astype(np.float16)
    # Column-major: the contiguous dimension last.
    lying = (
        np.ascontiguousarray(a if down else a.transpose(0, 2, 1)),
        np.ascontiguousarray(b.transpose(0, 2, 1) if right else b),
    )
    memory = [hopper.upload(x) for x in lying]
    for config in filter(is_small, family.batch_configs(of)):
        kernel = hopper.compile(family.source(config, of, "cuda").batched())
        c = np.full((batch + 1, n, m), np.nan, of.precision.result_dtype)
        place = hopper.upload(c)
        operands = [Operand(at, 0, x.shape[-1]) for at, x in zip(memory, lying, strict=True)]
        call = GemmCall(of.precision, m, n, k, 2, operands[0], operands[1], 0, Operand(place, 0, m))
        steps = 0 if shared == "a" else m * k, 0 if shared == "b" else k * n, m * n
        arguments = family.batched_arguments(config, of, call, batch, steps)
        launch = family.geometry(config).batched(m, n, batch)
        hopper.launch(kernel, launch, arguments).wait()
        hopper.download(place, c)
        np.testing.assert_array_equal(
            c[:-1].transpose(0, 2, 1), 2 * (a.astype("f8") @ b.astype("f8"))
        )
        assert np.isnan(c[-1]).all()
        hopper.free(place)
    for at in memory:
        hopper.free(at)
