"""What compilers make of the stencil of asynchronous copies, where no GPU is."""

from __future__ import annotations

import pytest

from tests.stencil.portable_harness import variant
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import nvrtc
from tilewright.stencil import stencils_for
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.inspection import inspect_config

FAMILY = SimtAsync()

needs_nvrtc = pytest.mark.skipif(nvrtc() is None, reason="needs NVRTC: tilewright[tune]")


@needs_nvrtc
def test_the_loop_holds_little_but_multiply_adds() -> None:
    """Of 256 multiply-adds and 12 reads in two steps, and copies, nothing is recomputed."""
    made = inspect_config(stencil="simt_async", trans="NT")
    loop = made.kernel.loop
    assert loop is not None
    assert made.kernel.resources.local_loads == 0
    assert loop.useful_share > 0.9
    # Lane addresses are known, and both operands are read without a bank conflict: 16 bytes
    # of 32 lanes take two passes.
    reads = [i for i in loop.instructions if i.name.startswith("LDS.128")]
    assert reads
    assert all(made.kernel.wavefronts.get(i.address) == 2 for i in reads)


@pytest.mark.every(2)
@needs_nvrtc
@pytest.mark.parametrize("trans", ["NT", "TN"])
def test_lane_addresses_of_blocks_that_stay_are_known(trans: str) -> None:
    """Though the number of each next tile comes from memory, and a register is spilled."""
    made = inspect_config(
        {"persistent": 1, "stream_k": 1}, stencil="simt_async", trans=trans, partial=True
    )
    loop = made.kernel.loop
    assert loop is not None
    shared = [i for i in loop.instructions if i.mnemonic == "LDS" and not i.guard.never]
    assert {made.kernel.wavefronts.get(i.address) for i in shared} == {2}
    copies = [i for i in loop.instructions if i.name.startswith("LDGSTS.E.128")]
    assert all(made.kernel.lines[i.address].crowded == 0 for i in copies)


def test_it_is_for_cuda_devices_that_copy_asynchronously() -> None:
    for arch, suits in {"sm_75": False, "sm_80": True, "sm_90a": True}.items():
        device = architecture_spec(arch)
        assert FAMILY.suits(device) is suits
        fitting = stencils_for(device, variant("sNN"))
        assert (fitting[0].name == FAMILY.name) is suits


def test_clusters_are_for_devices_that_have_them() -> None:
    of = variant("sNT")
    split = FAMILY.default(of, architecture_spec("sm_90a")).replace(cluster_k=2)
    assert split in FAMILY.space(of, architecture_spec("sm_90a"))
    against = FAMILY.space(of, architecture_spec("sm_80")).violated(split)
    assert [constraint.name for constraint in against] == ["clusters"]


def test_shared_memory_is_what_the_text_has() -> None:
    """A ring of stages, rows 4 or 8 elements longer where copies transpose; or a part of C."""
    of = variant("sTT")
    config = FAMILY.default(of, architecture_spec("sm_90a"))
    take = config.integer
    assert of.k_fast == (True, False)
    ring = take("stages") * take("block_k") * (take("block_m") + 4 + take("block_n"))
    assert FAMILY.resources(config, of).shared_bytes == 4 * ring
    split = config.replace(cluster_k=2)
    part = take("block_m") * take("block_n")
    assert FAMILY.resources(split, of).shared_bytes == 4 * max(ring, part)
    halves = config.replace(block_k=12, unroll_k=12)
    ring = take("stages") * 12 * (take("block_m") + 8 + take("block_n"))
    assert FAMILY.resources(halves, of).shared_bytes == 4 * ring


def test_sums_of_pairs_are_settled_with_a_tiles_end() -> None:
    device = architecture_spec("sm_90a")
    of = variant("eNN")
    space = FAMILY.space(of, device)
    against = space.violated(FAMILY.default(of, device).replace(block_k=12, unroll_k=4))
    assert "sums are settled with a tile's end" in [constraint.name for constraint in against]


def test_only_cuda_has_it() -> None:
    of = variant("sNN")
    config = FAMILY.default(of, architecture_spec("sm_90a"))
    with pytest.raises(ValueError, match="use portable"):
        FAMILY.source(config, of, "opencl")
