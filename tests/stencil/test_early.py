"""Launches that may begin before the one before them has ended: kernels wait for that first."""

from __future__ import annotations

import re

import pytest

from tests.stencil.portable_harness import variant
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.sass import read_cubin
from tilewright.sass.decode import decode
from tilewright.stencil import Source, stencil

# griddepcontrol.wait on Hopper; and what reaches memory that other kernels see.
WAITS, REACHES = "ACQBULK", re.compile(r"\b(LDG?|STG?|LDGSTS|ATOMG?|REDG?|UTMALDG|UBLKCP)\b")
SPEC = architecture_spec("sm_90a")


def waits_first(source: Source) -> bool:
    """Whether a kernel waits, and touches no memory until then."""
    cubin = compile_cubin(source, "sm_90a")
    kernel = read_cubin(cubin.code).kernel(cubin.lowered.get(source.entry, source.entry))
    lines = [str(one) for one in decode(kernel.code, kernel.arch)]
    until = next((at for at, line in enumerate(lines) if WAITS in line), len(lines))
    assert any(REACHES.search(line) for line in lines)
    return not any(REACHES.search(line) for line in lines[:until])


@pytest.mark.every(3)
@pytest.mark.skipif(nvrtc() is None, reason="needs NVRTC")
@pytest.mark.parametrize(
    ("name", "of"),
    [("portable", "sNN"), ("simt_async", "sNT"), ("simt_async", "cTN"), ("mma_f64", "dNN"),
     ("mma_f64", "zTT"), ("skinny", "sNN"), ("skinny", "bf16TN"), ("wgmma", "bf16TN"),
     ("outer", "sNN"), ("outer", "zTT"), ("outer", "bf16TN")],
)  # fmt: skip
def test_a_kernel_that_begins_early_waits_before_it_touches_memory(name, of):
    family, one = stencil(name), variant(of)
    config = family.default(one, SPEC)
    assert family.geometry(config).early
    source = family.source(config, one, "cuda")
    forms = [source] if one.precision.is_short else [source, source.run_if_zero(), source.batched()]
    assert all(waits_first(form) for form in forms)
