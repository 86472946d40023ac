"""Every kernel of the project: written back byte by byte, and without a hazard as compiled."""

from __future__ import annotations

import pytest

from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.precision import precision
from tilewright.problem import Trans
from tilewright.reschedule.access import access
from tilewright.reschedule.hazards import hazards
from tilewright.sass import decode, edit, patch, read_cubin
from tilewright.stencil import Variant, stencils_for

ARCH = "sm_90a"
KERNELS = [
    pytest.param(stencil, letter, id=f"{stencil.name}-{letter}")
    for letter in "sdcz"
    for stencil in stencils_for(
        architecture_spec(ARCH), Variant(precision(letter), Trans("N"), Trans("T"))
    )
]


# NVRTC 13.5 stores sums of fp64 to shared memory so soon; the scheduler leaves a cycle more.
NEWER = "7 cycles after it was set, not 8"


def compiled(stencil: object, letter: str) -> bytes:
    """Return a stencil's first start, compiled."""
    if nvrtc() is None:
        pytest.skip("NVRTC is not here: pip install 'tilewright[tune]'")
    variant = Variant(precision(letter), Trans("N"), Trans("T"))
    config = stencil.starts(variant, architecture_spec(ARCH))[0]  # type: ignore[attr-defined]
    return compile_cubin(stencil.source(config, variant, "cuda"), ARCH).code  # type: ignore[attr-defined]


@pytest.mark.every(5)
@pytest.mark.parametrize(("stencil", "letter"), KERNELS)
def test_a_kernel_of_the_project_is_written_back_byte_by_byte(stencil: object, letter: str) -> None:
    data = compiled(stencil, letter)
    for kernel in read_cubin(data).kernels:
        code = decode(kernel.code, kernel.arch)
        assert patch(data, code, kernel.name) == data
        for one in code:
            assert edit(one, kernel.arch, address=one.address, target=one.target).raw == one.raw
        if all(access(one).kind != "unknown" for one in code):
            assert [h for h in hazards(code) if not (h.copy or NEWER in h.reason)] == []
