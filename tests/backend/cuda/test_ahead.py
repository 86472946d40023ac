"""Sources are compiled in processes, into the cache that the caller's threads read."""

from __future__ import annotations

import pytest

from tilewright.backend.cache import KernelCache
from tilewright.backend.cuda import compiler
from tilewright.backend.cuda.ahead import compiling_ahead
from tilewright.backend.cuda.compiler import cached_cubin, nvrtc
from tilewright.stencil import Source


@pytest.mark.skipif(nvrtc() is None, reason="NVRTC is not here: pip install 'tilewright[tune]'")
def test_what_was_compiled_ahead_is_in_the_cache_and_what_is_wrong_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    good = Source('extern "C" __global__ void gemm(int *x) { *x = 1; }', {}, "gemm")
    with compiling_ahead("sm_90a") as ahead:
        asked = [ahead(good), ahead(Source("this is none", {}, "gemm"))]
        assert [one() for one in asked] == [True, False]
    monkeypatch.setattr(compiler, "compile_cubin", None)
    assert cached_cubin(good, "sm_90a", KernelCache()).code
