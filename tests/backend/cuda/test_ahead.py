"""Sources are compiled in processes, into the cache that the caller's threads read."""

from __future__ import annotations

import os

import pytest

from tilewright.backend.cache import KernelCache
from tilewright.backend.cuda import ahead as compiled_ahead
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


def ends(*_) -> None:
    """Stand for a compiler that the kernel ends."""
    os._exit(1)


def test_what_an_ended_process_was_to_compile_is_not_called_wrong(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiled_ahead, "_compiles", ends)
    with compiling_ahead("sm_90a") as ahead:
        assert ahead(Source("", {}, "gemm"))()
        assert ahead(Source("", {}, "gemm"))()  # begun after that
