"""The same text is CUDA C++: it compiles without a warning, with the resources we state."""

from __future__ import annotations

import pytest

from tests.backend.cuda.ptxas import usage
from tests.stencil.portable.covering import unpruned
from tests.stencil.portable_harness import variant
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.hardware import DeviceSpec
from tilewright.stencil.portable import Portable

H100 = DeviceSpec(
    "H100", "NVIDIA Corporation", "gpu", 132, 32, 1024, 232448,
    max_threads_per_multiprocessor=2048, registers_per_multiprocessor=65536,
    max_registers_per_thread=255, shared_bytes_per_multiprocessor=233472,
    max_blocks_per_multiprocessor=32,
)  # fmt: skip

VARIANTS = ("sNN", "dTT", "cCN", "zRC", "eTN", "fNT", "wRC")


@pytest.mark.skipif(nvrtc() is None, reason="NVRTC is not here")
@pytest.mark.every(4)
@pytest.mark.parametrize("name", VARIANTS)
def test_it_compiles_as_cuda(name: str) -> None:
    """A drawn config as well as the default, which other tests compile too."""
    portable, of = Portable(), variant(name)
    drawn = unpruned(of, H100).sample(40, seed=3)
    modest = [config for config in drawn if portable.resources(config, of).registers < 100]
    for config in (portable.default(of, H100), modest[0]):
        source = portable.source(config, of, "cuda")
        made = compile_cubin(source, "sm_90")
        assert "warning" not in made.log
        used = usage(made)
        shared = used.shared_bytes + source.dynamic_shared_bytes
        assert shared == portable.resources(config, of).shared_bytes
        assert used.spill_store_bytes == 0


def test_cuda_and_opencl_share_all_but_the_dialect():
    portable, of = Portable(), variant("zNC")
    config = portable.default(of, H100)
    cuda, opencl = (portable.source(config, of, dialect) for dialect in ("cuda", "opencl"))
    assert cuda.defines == opencl.defines
    ends = {made.text[made.text.index("/* Prelude of") :] for made in (cuda, opencl)}
    assert len(ends) == 1
