"""Every rung is right: bit for bit on integers, at any size, wherever its rows begin."""

from __future__ import annotations

import dataclasses
import re
from functools import cache
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.backend import LiveDevice, device, devices
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.bench.ladder.rungs import RUNGS, Async, Rung, register_rungs
from tilewright.problem import Problem
from tilewright.sass import decode, inspect_kernel, read_cubin
from tilewright.stencil import Source, Variant
from tilewright.stencil import stencil as find_stencil
from tilewright.stencil.geometry import PLAIN
from tilewright.tuning.matrices import Matrix
from tilewright.tuning.verify import Bench, Check, certify, screen

SGEMM = Variant.of(Problem(1, 1, 1, "s", "N", "N"))
PORTABLE = [one for one in RUNGS if "opencl" in one.dialects]

# Copies done at once, by whoever asks: what is left of rung 7 is OpenCL C, and its indices are
# tested where there is no GPU.  That copies overlap is for a GPU to test.
AT_ONCE = """
typedef ulong shared_address;
HELPER shared_address address_of(const SHARED float *pointer) { return (ulong)pointer; }
HELPER void copy16(shared_address to, const GLOBAL float *from)
{
    *(SHARED float4 *)to = *(const GLOBAL float4 *)from;
}
HELPER void copy4(shared_address to, const GLOBAL float *from, int inside)
{
    *(SHARED float *)to = inside ? *from : 0.0f;
}
HELPER void end_group(void) {}
#define WAIT_FOR_ALL_BUT(count)
"""


class Synchronous(Async):
    """Rung 7 with copies that wait."""

    dialects = ("opencl", "cuda")

    def source(self, config, variant, dialect, mode=PLAIN):
        made = super().source(config, variant, dialect)
        kernels = files("tilewright.bench.ladder").joinpath("kernels")
        copies = kernels.joinpath("async_copy.h").read_text()
        assert copies in made.text
        text = made.text.replace(copies, AT_ONCE)
        ring = "SHARED_ARRAY ALIGNED(16) float ring[STAGES * STAGE_BYTES / 4];"
        text = re.sub(r"DYNAMIC_SHARED_ARRAY.*ring\[\];", ring, text)
        return dataclasses.replace(made, text=text, dynamic_shared_bytes=0)


ALL = [*PORTABLE, Synchronous()]


# Where rung 7's ring fits: a GPU's OpenCL may leave it too little.
CPU = next(d.id for d in devices() if d.backend == "opencl" and d.spec.kind == "cpu")


@cache
def built(one: Rung, id: str) -> Bench:
    live = device(id)
    kernel = live.compile(one.source(one.config, SGEMM, live.dialect))
    return Bench(live, kernel, one, one.config, SGEMM)


@pytest.mark.every(4)
@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
def test_edges_scalars_offsets_and_padding(live: LiveDevice, one: Rung):
    if live.spec.shared_bytes_per_block < one.resources(one.config, SGEMM).shared_bytes:
        pytest.skip("the device has too little local memory")
    bench = built(one, live.id)
    screen(live, bench.kernel, one, one.config, SGEMM)
    rng = np.random.default_rng(1)
    # Whole tiles and whole rows of vectors: the ways that screening's odd sizes do not take.
    m, n, k = (one.constants[f"block_{side}"] for side in "nmk")
    bench.exact(Check(2 * m, n, 5 * k, alpha=2, beta=-1), rng)
    bench.exact(Check(m, 2 * n, 3 * k + 4, padding=4, offset=4, nan_in_c=True), rng)
    bench.exact(Check(m, n, 2 * k, padding=1, offset=3), rng)
    bench.exact(Check(m + 4, n, 2 * k, offset=2), rng)
    bench.propagation((19, 21, 13), rng)


@pytest.mark.every(9)
@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
def test_an_empty_sum_is_zero_whatever_alpha_is(one: Rung):
    bench = built(one, CPU)
    nothing = np.full(8, np.nan, np.float32)
    a, b = (Matrix(nothing, *shape, 0, 7) for shape in ((7, 0), (0, 5)))
    c = Matrix.result(np.arange(35, dtype=np.float32).reshape(7, 5))
    after = bench.run(Check(7, 5, 0, alpha=np.inf, beta=2), a, b, c)
    assert np.array_equal(c.view(after), 2 * c.view())


sizes = st.integers(1, 150)


@pytest.mark.every(2)
@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
@settings(max_examples=12)
@given(
    m=sizes, n=sizes, k=st.integers(0, 40), beta=st.sampled_from([0, 1, -2]),
    padding=st.integers(0, 5), offset=st.integers(0, 5),
)  # fmt: skip
def test_any_shape(one: Rung, m: int, n: int, k: int, beta: int, padding: int, offset: int):
    bench = built(one, CPU)
    check = Check(m, n, k, alpha=3, beta=beta, padding=padding, offset=offset, nan_in_c=beta == 0)
    bench.exact(check, np.random.default_rng(m))


@pytest.mark.every(2)
@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
def test_the_whole_contract(one: Rung):
    bench = built(one, CPU)
    assert certify(bench.device, bench.kernel, one, one.config, SGEMM) < 1e-5


@pytest.mark.gpu
@pytest.mark.parametrize("one", RUNGS, ids=lambda one: one.name)
def test_the_whole_contract_on_a_gpu(cuda: LiveDevice, one: Rung):
    kernel = cuda.compile(one.source(one.config, SGEMM, "cuda"))
    assert certify(cuda, kernel, one, one.config, SGEMM) < 1e-5


@pytest.mark.every(2)
@pytest.mark.skipif(nvrtc() is None, reason="needs NVRTC: pip install 'tilewright[tune]'")
@pytest.mark.parametrize("one", RUNGS, ids=lambda one: one.name)
def test_machine_code_is_what_the_rung_promises(one: Rung):
    """No spills, shared memory as stated, two blocks resident where the text asks for two."""
    source = one.source(one.config, SGEMM, "cuda")
    cubin = compile_cubin(source, "sm_90a")
    warnings = [line for line in cubin.log.splitlines() if "warning #" in line]
    # No rung needs every helper of the headers.
    assert all("declared but never referenced" in line for line in warnings), warnings
    kernel = read_cubin(cubin.code).kernel(cubin.lowered["gemm"])
    found = inspect_kernel(kernel, one.threads, source.dynamic_shared_bytes)
    taken = found.resources
    assert (taken.local_loads, taken.local_stores, taken.stack_bytes) == (0, 0, 0)
    stated = one.resources(one.config, SGEMM).shared_bytes
    assert taken.shared_bytes + found.dynamic_shared_bytes == stated
    if "RESIDENT_BLOCKS(2) void" in source.text:
        assert found.occupancy.blocks >= 2
    names = {i.mnemonic for i in decode(kernel.code, kernel.arch)}
    assert ("LDGSTS" in names) == (one.name == "v7_async")
    wide = {i.access_bits for i in decode(kernel.code, kernel.arch) if i.mnemonic == "LDG"}
    assert (128 in wide) == (one.name >= "v5")


def test_rungs_are_found_by_name_and_never_chosen_by_a_tuner():
    register_rungs()
    for one in RUNGS:
        assert find_stencil(one.name) is one
        assert not one.suits(device(CPU).spec)
        space = one.space(SGEMM, device(CPU).spec)
        assert space.count() == 1
        assert one.default(SGEMM, device(CPU).spec) in space


def test_what_a_rung_does_not_compute_is_refused():
    double, turned = (Variant.of(Problem(1, 1, 1, *case)) for case in (("d",), ("s", "T")))
    for variant in (double, turned):
        with pytest.raises(ValueError, match="SGEMM NN only"):
            RUNGS[0].source(RUNGS[0].config, variant, "opencl")
    with pytest.raises(ValueError, match="CUDA only"):
        Async().source(Async().config, SGEMM, "opencl")


def test_a_text_is_read_in_ten_minutes():
    """A rung's own text and each header stay below 150 lines, and begin with what they are."""
    kernels = files("tilewright.bench.ladder").joinpath("kernels")
    for file in (one for one in kernels.iterdir() if one.is_file()):
        lines = file.read_text().splitlines()
        assert len(lines) <= 150, file.name
        assert lines[0].startswith("/* "), file.name
    for number, one in enumerate(RUNGS, start=1):
        text = one.source(one.config, SGEMM, "cuda")
        assert isinstance(text, Source)
        assert f"/* Rung {number}, " in text.text
