"""Launches one after another on a CUDA stream: between two events, held where they are timed."""

from __future__ import annotations

import pytest

from tests.backend.streams import RecordedStream
from tilewright.backend import Kernel
from tilewright.library.in_order import in_order
from tilewright.stencil import Launch


@pytest.mark.parametrize("timed", [False, True])
def test_all_is_laid_out_before_the_stream_is_held(timed):
    live, grid = RecordedStream(), Launch((1, 1), (32, 1))
    launches = [(Kernel(object(), name, 0.0), grid, ()) for name in ("copy", "gemm")]
    in_order(live, None, launches, None, (), "gemm", timed)
    held = ["held for 2"] if timed else []
    assert live.order == ["prepare copy", "prepare gemm", *held, "begin", "copy", "gemm", "end"]
