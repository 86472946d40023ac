"""Tiles that the copy engine brings, run on the CPU: every way through them is right."""

from __future__ import annotations

import numpy as np
import pytest

from tests.stencil.contract import bench, compiled, computes_the_product
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.portable_harness import variant
from tests.stencil.test_simt_async import small
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.verify import Check, certify, screen

FAMILY = SimtAsync()

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


@pytest.mark.parametrize("name", ["sNT"])
def test_the_contract_is_kept_in_boxes(emulated: EmulatedDevice, name: str) -> None:
    of = variant(name)
    config = small(of, emulated, tma=1, unroll_k=16)
    certify(emulated, compiled(emulated, FAMILY, config, of), FAMILY, config, of)


@pytest.mark.parametrize("name", ["sNT", "cNT", "cNC", "zNT", "eNT", "dNT"])
@pytest.mark.parametrize("stays", [0, 1, 2])
def test_pieces_in_boxes_are_right(emulated: EmulatedDevice, name: str, stays: int) -> None:
    of = variant(name)
    ways = {"persistent": 1, "stream_k": 2} if stays == 2 else {"persistent": stays}
    config = small(of, emulated, tma=1, unroll_k=16, **ways)
    computes_the_product(emulated, FAMILY, config, of)
