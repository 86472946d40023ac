"""Compiling for CUDA takes no GPU and no driver."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.backend.cuda.naive_cuda import NAIVE
from tests.backend.cuda.ptxas import usage
from tilewright.backend import CompileError
from tilewright.backend.cache import KernelCache
from tilewright.backend.cuda import compiler
from tilewright.hardware import DeviceSpec
from tilewright.microbench.peak import peak_source
from tilewright.precision import PRECISIONS
from tilewright.problem import Trans
from tilewright.sass import read_cubin
from tilewright.stencil import Source, Variant, stencils_for
from tilewright.stencil.portable import Portable

if compiler.nvrtc() is None:
    pytest.skip("NVRTC is not here; it comes with tilewright[tune]", allow_module_level=True)

# A GPU of no name with the limits that every one since Ampere keeps.
GPU = DeviceSpec(
    "GPU", "NVIDIA Corporation", "gpu", 100, 32, 1024, 49152,
    max_threads_per_multiprocessor=1536, registers_per_multiprocessor=65536,
    max_registers_per_thread=255, shared_bytes_per_multiprocessor=102400,
    max_blocks_per_multiprocessor=16,
)  # fmt: skip

FINE = 'extern "C" __global__ void gemm(float *x) { x[threadIdx.x] *= 2; }'


def naive(fault: int = 0, letter: str = "s") -> Source:
    variant = Variant(PRECISIONS[letter], Trans.N, Trans.C.on(PRECISIONS[letter]))
    return NAIVE.source(NAIVE.config(fault), variant, "cuda")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100"])
@pytest.mark.parametrize("letter", list(PRECISIONS))
def test_every_precision_compiles_for_gpus_that_are_not_here(arch, letter):
    made = compiler.compile_cubin(naive(letter=letter), arch)
    assert made.code.startswith(b"\x7fELF")
    assert made.arch == arch
    assert made.seconds > 0
    used = usage(made)
    assert 8 <= used.registers <= 64
    assert used.shared_bytes == used.spill_store_bytes == used.spill_load_bytes == 0


def test_spills_and_shared_memory_are_reported():
    text = """
    extern "C" __global__ void __launch_bounds__(1024, 2) gemm(double *x) {
        __shared__ double s[64];
        double v[64];
        for (int i = 0; i < 64; ++i) v[i] = x[i * 1024 + threadIdx.x];
        s[threadIdx.x % 64] = v[0];
        __syncthreads();
        for (int r = 0; r < 64; ++r) for (int i = 0; i < 64; ++i) v[i] = v[i] * v[(i + 7) % 64];
        for (int i = 0; i < 64; ++i) x[i * 1024 + threadIdx.x] = v[i] + s[i];
    }"""
    used = usage(compiler.compile_cubin(Source(text, {}), "sm_90"))
    assert used.shared_bytes == 512
    assert used.barriers == 1
    assert used.spill_store_bytes > 0
    assert used.spill_load_bytes > 0
    assert used.stack_bytes > 0


def test_the_name_in_the_binary_is_known():
    text = "template <int N> __global__ void twice(float *x) { x[0] = N; }"
    made = compiler.compile_cubin(Source(text, {}, "twice<3>"), "sm_80")
    assert made.lowered["twice<3>"].encode() in made.code
    assert usage(made, "twice<3>").registers is not None


def test_the_first_error_is_in_the_message_and_the_whole_log_beside_it():
    with pytest.raises(CompileError, match=r'identifier "this"|"this"') as caught:
        compiler.compile_cubin(naive(fault=3), "sm_90")
    assert "\n" not in str(caught.value)
    assert "sm_90" in str(caught.value)
    assert "kernel.cu(" in caught.value.detail


def test_an_unknown_architecture_is_an_error_of_the_compiler():
    with pytest.raises(CompileError, match="gpu-architecture"):
        compiler.compile_cubin(Source(FINE, {}), "sm_42")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_too_much_static_shared_memory_is_refused_before_the_driver_does(arch):
    with pytest.raises(CompileError, match=r"65536 bytes of static shared memory.*49152"):
        compiler.compile_cubin(naive(fault=4), arch)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100"])
def test_what_the_launch_asks_for_is_not_static(arch):
    """A start of 49 KiB on GPUs that allow it: none in the cubin, all of it dynamic."""
    variant = Variant(PRECISIONS["s"], Trans.T, Trans.N)
    large = replace(GPU, shared_bytes_per_block=99 * 1024)
    found = [(Portable().source(c, variant, "cuda"), c) for c in Portable().starts(variant, large)]
    source, config = next(pair for pair in found if pair[0].dynamic_shared_bytes)
    made = compiler.compile_cubin(source, arch)
    assert [kernel.shared_bytes for kernel in read_cubin(made.code).kernels] == [0]
    assert source.dynamic_shared_bytes == Portable().resources(config, variant).shared_bytes


@pytest.mark.parametrize(("arch", "most"), [("sm_80", 163), ("sm_90a", 227)])
def test_too_much_dynamic_shared_memory_is_refused_before_the_driver_does(arch, most):
    fits = Source(FINE, {}, dynamic_shared_bytes=most * 1024)
    assert compiler.compile_cubin(fits, arch).code
    with pytest.raises(CompileError, match=rf"{arch} allows {most * 1024}; use smaller blocks"):
        compiler.compile_cubin(replace(fits, dynamic_shared_bytes=most * 1024 + 1), arch)


def test_no_option_relaxes_ieee_arithmetic():
    assert not any(re.search("fast|ftz|prec|fmad", option) for option in compiler.OPTIONS)


def test_a_cubin_is_compiled_once(tmp_path, monkeypatch):
    cache = KernelCache(tmp_path)
    first = compiler.cached_cubin(Source(FINE, {}), "sm_90", cache)
    monkeypatch.setattr(compiler, "compile_cubin", None)
    again = compiler.cached_cubin(Source(FINE, {}), "sm_90", cache)
    assert again == first
    assert again.seconds == 0
    assert usage(again) == usage(first)  # the log is kept with it


def test_a_damaged_cache_file_is_made_anew(tmp_path):
    cache = KernelCache(tmp_path)
    first = compiler.cached_cubin(Source(FINE, {}), "sm_90", cache)
    for damage in (b"", b"tilewright cubin 1\nnonsense\n", b"\x7fELF"):
        (file,) = tmp_path.iterdir()
        file.write_bytes(damage)
        assert compiler.cached_cubin(Source(FINE, {}), "sm_90", cache).code == first.code


def test_architecture_options_and_compiler_have_files_of_their_own(tmp_path, monkeypatch):
    cache = KernelCache(tmp_path)
    compiler.cached_cubin(Source(FINE, {}), "sm_90", cache)
    compiler.cached_cubin(Source(FINE, {}), "sm_80", cache)
    with monkeypatch.context() as patch:
        patch.setattr(compiler, "OPTIONS", ("--std=c++14",))
        compiler.cached_cubin(Source(FINE, {}), "sm_90", cache)
    assert len(list(tmp_path.iterdir())) == 3
    monkeypatch.setattr(compiler, "nvrtc_version", lambda: "13.99.1")
    compiler.cached_cubin(Source(FINE, {}), "sm_90", cache)
    assert len(list(tmp_path.iterdir())) == 4


def test_the_version_names_the_build():
    major, minor, build = compiler.nvrtc_version().split(".")
    assert (int(major), int(minor)) >= (13, 0)
    assert int(build) > 0
    assert 90 in compiler.supported_architectures()


def test_the_kernel_behind_the_peak_keeps_everything_in_registers():
    for size in (4, 8):
        source = peak_source("cuda", size, {"VECTOR": 1, "THREADS": 256, "TRIPS": 1000})
        used = usage(compiler.compile_cubin(source, "sm_90a"), "peak")
        assert used.stack_bytes == 0
        assert used.registers > 12 * size // 4


@pytest.mark.every(3)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100"])
@pytest.mark.parametrize("letter", list(PRECISIONS))
def test_every_stencil_for_gpus_uses_what_it_says(arch, letter):
    variant = Variant(PRECISIONS[letter], Trans.N, Trans.T)
    for family in stencils_for(GPU):
        config = family.default(variant, GPU)
        source = family.source(config, variant, "cuda")
        used = usage(compiler.compile_cubin(source, arch))
        assert (
            used.shared_bytes + source.dynamic_shared_bytes
            == family.resources(config, variant).shared_bytes
        )
        assert used.spill_store_bytes == 0
