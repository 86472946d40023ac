"""Cubins to test with: three small ones that are kept, and any kernel here compiled with NVRTC."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.problem import Problem
from tilewright.sass import Instruction, decode, read_cubin
from tilewright.stencil import Source, Variant
from tilewright.stencil.simt_async import SimtAsync

HERE = Path(__file__).parent
KEPT = sorted((HERE / "cubins").glob("*.cubin"))

# Kernel source, macros and targets of everything the decoder is compared on.
CORPUS = [
    *[
        ("sgemm", (("BR", b), ("LW", w)), arch)
        for b, w in ((4, 1), (6, 2), (8, 4))
        for arch in ("sm_75", "sm_80", "sm_86", "sm_90a", "sm_100", "sm_120")
    ],
    *[(name, (), arch) for name in ("dgemm", "mixed") for arch in ("sm_80", "sm_90a", "sm_100")],
    *[("tensor", (), arch) for arch in ("sm_80", "sm_90a", "sm_100")],
    ("mixed", (), "sm_120"),
    ("tensor_shapes", (), "sm_90a"),
    ("packed", (), "sm_100"),
    ("bulk", (), "sm_90a"),
    ("bulk", (("WG", 1),), "sm_90a"),
    ("bulk", (), "sm_100a"),
]


@functools.cache
def cubin(name: str, arch: str, macros: tuple[tuple[str, int], ...] = ()) -> bytes:
    """Compile a kernel source; skip where NVRTC is not installed."""
    if nvrtc() is None:
        pytest.skip("NVRTC is not here: pip install 'tilewright[tune]'")
    text = (HERE / "kernels" / f"{name}.cu").read_text()
    entry = re.search(r"\b__global__.*?\b(\w+)\s*\(", text.replace("__launch_bounds__(", ""), re.S)
    assert entry is not None
    return compile_cubin(Source(text, dict(macros), entry[1]), arch).code


@functools.cache
def boxed() -> bytes:
    """Compile a small SGEMM whose tiles the copy engine brings (`simt_async` with tma)."""
    if nvrtc() is None:
        pytest.skip("NVRTC is not here: pip install 'tilewright[tune]'")
    family, of = SimtAsync(), Variant.of(Problem(1, 1, 1, "s", "N", "T"))
    values = {
        "block_m": 64, "block_n": 32, "tile_m": 8, "tile_n": 4, "lanes_m": 8, "block_k": 4,
        "unroll_k": 4, "stages": 3, "cluster_k": 1, "min_blocks": 2, "copy_groups": 1,
        "serpentine_rows": 0, "b_first": 0, "swizzle_rows": 0, "tma": 1,
    }  # fmt: skip
    config = family.space(of, architecture_spec("sm_90a")).config(
        values, kinds=("divisibility", "hardware")
    )
    return compile_cubin(family.source(config, of, "cuda"), "sm_90a").code


def kept(arch: str) -> bytes:
    """Return the kept cubin of sgemm.cu with BR=4, LW=4 for this architecture."""
    return (HERE / "cubins" / f"sgemm_4x4_{arch}.cubin").read_bytes()


@functools.cache
def code_of(name: str = "", entry: str | None = None) -> tuple[Instruction, ...]:
    """Return the kept SGEMM for sm_90a, or a kernel of the corpus compiled for it."""
    found = read_cubin(cubin(name, "sm_90a") if name else kept("sm_90a"))
    one = found.kernel(entry) if entry else found.kernels[0]
    return decode(one.code, one.arch)
