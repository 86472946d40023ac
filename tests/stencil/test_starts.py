"""What tuning begins with and what nobody tuned: in the space, and without spills as compiled."""

from __future__ import annotations

import pytest

from tests.stencil.portable_harness import variant
from tests.stencil.ways import MMA, SIMT
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.sass import occupancy, read_cubin, resources
from tilewright.stencil import Stencil

QUICK = [(MMA, "sm_90a", "dTT")]
THOROUGH = [
    *((SIMT, "sm_90a", name) for name in ("sNT", "sTN", "cCN", "zTR")),
    (SIMT, "sm_80", "sTT"),
    *((MMA, "sm_90a", name) for name in ("dNN", "dNT", "dTN", "zNN", "zNC", "zTC", "zTT")),
    (MMA, "sm_80", "dTN"),
]


@pytest.mark.skipif(nvrtc() is None, reason="needs NVRTC: tilewright[tune]")
@pytest.mark.parametrize(
    ("family", "arch", "name"),
    [*QUICK, *(pytest.param(*one, marks=pytest.mark.thorough) for one in THOROUGH)],
    ids=lambda x: getattr(x, "name", x),
)
def test_starts_fit_their_registers(family: Stencil, arch: str, name: str) -> None:
    """None spills, and as many blocks fit as it was made for."""
    of, device = variant(name), architecture_spec(arch)
    space = family.space(of, device)
    shipped = [config for config in family.starts(of, device) if config in space]
    assert shipped
    for config in shipped:
        source = family.source(config, of, "cuda")
        cubin = compile_cubin(source, arch)
        taken = resources(read_cubin(cubin.code).kernel(cubin.lowered[source.entry]))
        assert taken.local_loads == taken.local_stores == 0, config
        shared = taken.shared_bytes + source.dynamic_shared_bytes
        threads = family.resources(config, of).threads
        fits = occupancy(device.compute_capability, threads, taken.registers, shared)
        assert fits.blocks >= config.integer("min_blocks"), config


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("family", "letters"), [(SIMT, "sdcz"), (MMA, "dz")], ids=lambda x: getattr(x, "name", x)
)
def test_a_default_is_in_the_space(family: Stencil, letters: str, arch: str) -> None:
    device = architecture_spec(arch)
    for letter in letters:
        for trans in ("NN", "NT", "TN", "TT"):
            of = variant(letter + trans)
            assert family.default(of, device) in family.space(of, device)
