"""What compilers make of the stencil on tensor cores for doubles, where no GPU is."""

from __future__ import annotations

import pytest

from tests.stencil.portable_harness import variant
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.sass import decode, main_loop, read_cubin
from tilewright.stencil import stencils_for
from tilewright.stencil.mma_f64 import MmaF64
from tilewright.tuning.inspection import inspect_config

FAMILY = MmaF64()

needs_nvrtc = pytest.mark.skipif(nvrtc() is None, reason="needs NVRTC: tilewright[tune]")


@pytest.mark.every(2)
@needs_nvrtc
@pytest.mark.parametrize("trans", ["NN", "NT", "TN", "TT"])
def test_the_loop_moves_no_doubles_between_registers(trans: str) -> None:
    """Of a tile's 64 or 32 instructions, fragments are where these want them when they are read."""
    made = inspect_config(stencil="mma_f64", precision="d", trans=trans)
    loop = made.kernel.loop
    assert loop is not None
    assert made.kernel.resources.local_loads == 0
    config = made.config
    tile = config.integer("warp_m") * config.integer("warp_n") * config.integer("block_k")
    products = [i for i in loop.instructions if i.mnemonic == "DMMA"]
    assert len(products) == tile // (128 * config.integer("mma_k"))
    moves = [i for i in loop.instructions if i.mnemonic in ("IMAD", "MOV")]
    assert len(moves) < len(products)
    # Every read takes the least passes over the banks there are.
    reads = [i for i in loop.instructions if i.mnemonic == "LDS" and not i.guard.never]
    assert reads
    for i in reads:
        assert made.kernel.wavefronts[i.address] == (i.access_bits or 0) // 32


@needs_nvrtc
def test_an_epilogue_in_a_loop_over_tiles_is_not_the_loop_over_k() -> None:
    """Complex persistent blocks scale their sums by 384 DFMA, beside 64 DMMA of a step."""
    device = architecture_spec("sm_90a")
    config = FAMILY.default(variant("zNN"), device).replace(
        block_m=64, block_n=64, warp_m=32, warp_n=32, cluster_k=1, persistent=1, stream_k=1
    )
    source = FAMILY.source(config, variant("zNN"), "cuda")
    (kernel,) = read_cubin(compile_cubin(source, "sm_90a").code).kernels
    loop = main_loop(decode(kernel.code, kernel.arch))
    assert loop is not None
    products = sum(i.mnemonic == "DMMA" for i in loop.instructions)
    assert products > len(loop.instructions) / 8


def test_it_comes_first_where_there_are_such_units() -> None:
    for arch, suits in {"sm_75": False, "sm_80": True, "sm_90a": True}.items():
        device = architecture_spec(arch)
        assert FAMILY.suits(device) is suits
        for letter in "dz":
            fitting = stencils_for(device, variant(f"{letter}NN"))
            assert (fitting[0].name == FAMILY.name) is suits
    assert not FAMILY.computes(variant("sNN"))
    assert not FAMILY.computes(variant("eNN"))


def test_instructions_of_16_rows_are_hoppers() -> None:
    of = variant("dNT")
    config = FAMILY.default(of, architecture_spec("sm_90a"))
    assert config.integer("mma_m") == 16
    against = FAMILY.space(of, architecture_spec("sm_80")).violated(config)
    assert "instructions of 16 rows" in [constraint.name for constraint in against]


def test_a_warp_multiplies_whole_instructions() -> None:
    """24 rows are three instructions of complex ones, whose parts have rows each."""
    device = architecture_spec("sm_90a")
    tall = {"block_m": 96, "block_n": 96, "warp_m": 24, "warp_n": 48, "block_k": 16, "mma_k": 4}

    def broken(name: str) -> list[str]:
        space = FAMILY.space(variant(name), device)
        return [
            one.name
            for one in space.violated(FAMILY.default(variant(name), device).replace(**tall))
        ]

    assert "whole instructions of a warp" in broken("dNT")
    assert "whole instructions of a warp" not in broken("zNT")


@pytest.mark.parametrize("name", ["dNN", "dNT", "dTN", "zNN"])
def test_shared_memory_is_what_the_text_has(name: str) -> None:
    """A ring of stages, whose rows are no longer than the block; or a part of C."""
    of = variant(name)
    config = FAMILY.default(of, architecture_spec("sm_90a"))
    take = config.integer
    size = of.precision.element_bytes
    ring = take("stages") * take("block_k") * (take("block_m") + take("block_n"))
    assert FAMILY.resources(config, of).shared_bytes == size * ring
    part = take("block_m") * take("block_n")
    split = config.replace(cluster_k=2)
    assert FAMILY.resources(split, of).shared_bytes == size * max(ring, part)
