"""Every kernel of the project: written back byte by byte, and without a hazard as compiled."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.reschedule.test_wait_masks import reordered
from tests.reschedule.test_webs import renamed, sums
from tests.sass import nvdisasm
from tests.sass.compiled import kept
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.precision import precision
from tilewright.problem import Trans
from tilewright.reschedule.access import access
from tilewright.reschedule.equivalence import differences
from tilewright.reschedule.hazards import hazards
from tilewright.reschedule.webs import registers_of
from tilewright.sass import Instruction, decode, edit, patch, read_cubin
from tilewright.stencil import Variant, stencils_for

ARCH = "sm_90a"
QUICK = "s"  # the other precisions take NVRTC longer
KERNELS = [
    pytest.param(stencil, letter, id=f"{stencil.name}-{letter}",
                 marks=[] if letter == QUICK else pytest.mark.slow)
    for letter in "sdcz"
    for stencil in stencils_for(
        architecture_spec(ARCH), Variant(precision(letter), Trans("N"), Trans("T"))
    )
]  # fmt: skip


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
            assert [h for h in hazards(code) if not h.copy] == []


def names(text: str) -> list[str]:
    """Return the registers that a line of nvdisasm names, in order."""
    return re.findall(r"(?<![A-Z])R\d+", text.split(" ", 1)[-1])


@pytest.mark.parametrize("how", ["reordered", "renamed"])
def test_nvdisasm_reads_an_edited_kernel_as_it_was_meant(how: str, tmp_path: Path) -> None:
    """Operation by operation it is the compiler's text, with other registers or elsewhere."""
    data = kept("sm_90a")
    was = decode(read_cubin(data).kernel().code, 90)
    code: Sequence[Instruction] = reordered()
    if how == "renamed":
        code = renamed(sums()[0], registers_of(was))
    before, after = nvdisasm.printed(data, tmp_path), nvdisasm.printed(patch(data, code), tmp_path)
    assert differences(was, code, 90) == []
    assert sorted(t.split()[0] for t in before.values()) == sorted(
        t.split()[0] for t in after.values()
    )
    for one in code:
        if one.mnemonic == "FFMA" and one.guard.always and len(one.reads) == 3:
            meant = [f"R{one.dst[0]}", *(f"R{o.value}" for o in one.srcs)]
            assert names(after[one.address]) == meant
