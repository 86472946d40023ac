"""One triangle of a tensor-core product, its text run on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stencil.contract import thorough_but
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.wgmma.harness import Case, Few, Run, small, variant
from tilewright.stencil.wgmma import Arithmetic

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")

BF16 = Arithmetic("bfloat16", "bfloat16", triangle=True)
F16 = Arithmetic("float16", "float16", triangle=True)

# Tiles whose squares hold one, two and six of them, and a cluster's.
SHAPES = {
    "1x1": {"block_m": 64, "block_n": 64, "consumers": 1},
    "2x1": {"block_m": 64, "block_n": 128},
    "3x2": {"block_m": 128, "block_n": 192, "instruction_m": 128, "consumers": 3},
    "turns": {"block_m": 64, "block_n": 64, "pingpong": 1, "multiprocessors": 132},
    "cluster": {"block_m": 64, "block_n": 64, "consumers": 1, "cluster_m": 2},
}


@pytest.mark.parametrize("shape", thorough_but(["2x1", "turns"], SHAPES))
@pytest.mark.parametrize("trans", ["NT", "TN"])
def test_a_triangle_is_written_and_nothing_else(
    emulated: EmulatedDevice, shape: str, trans: str
) -> None:
    of = variant(trans, BF16)
    run = Run(emulated, small(of, emulated, **SHAPES[shape]), of, Few())
    for lower in (False, True):
        for n in (1, 70, 200, 390):
            run.check(Case(n, n, 72, lower=lower))
        run.check(Case(200, 200, 40, 2, -1, padding_c=1, lower=lower))
        run.check(Case(200, 200, 40, 2, padding_c=3, offset_c=1, lower=lower))
        run.check(Case(200, 200, 40, 1, 2, padding_c=8, lower=lower))
        run.check(Case(130, 130, 40, 0, 2, lower=lower))


@settings(max_examples=8, deadline=None)
@given(n=st.integers(1, 500), lower=st.booleans(), padding=st.integers(0, 9))
def test_any_number_of_columns(emulator: EmulatedDevice, n: int, lower: bool, padding: int) -> None:
    of = variant("NT", F16)
    run = Run(emulator, small(of, emulator, **SHAPES["3x2"]), of, Few())
    run.check(Case(n, n, 33, padding_c=padding, lower=lower))


@pytest.mark.parametrize("wrong", [{"result": "float32"}, {"scaled": True}, {"epilogue": True}])
def test_it_is_of_plain_products_of_short_results(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="triangle=True"):
        Arithmetic("float16", **{"result": "float16", "triangle": True, **wrong})
