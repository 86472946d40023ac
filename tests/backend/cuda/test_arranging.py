"""From compiled kernels to ones whose main loops a launch brings near; no GPU takes part."""

from __future__ import annotations

import functools
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from tests.backend.cuda.ptxas import usage
from tilewright.backend.cache import KernelCache
from tilewright.backend.cubin import Cubin
from tilewright.backend.cuda import arranging, compiler
from tilewright.backend.cuda.arrange import FETCHED_BYTES, moved_only
from tilewright.backend.cuda.arranging import arranged
from tilewright.precision import precision
from tilewright.problem import Trans
from tilewright.sass import Instruction, decode, main_loop, read_cubin
from tilewright.sass.elf import section_span
from tilewright.space import Config
from tilewright.stencil import Source, Variant, stencil

if compiler.nvrtc() is None:
    pytest.skip("NVRTC is not here; it comes with tilewright[tune]", allow_module_level=True)

ROOT = Path(__file__).parents[3]
EXITS = 0x1C  # the record that names where a kernel ends

# Work that is never done in front of a loop, in parts between which the kernel may be cut.
LONG = r"""
#define FMA1(x) asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(x));
#define FMA8(x) FMA1(x) FMA1(x) FMA1(x) FMA1(x) FMA1(x) FMA1(x) FMA1(x) FMA1(x)
#define FMA64(x) FMA8(x) FMA8(x) FMA8(x) FMA8(x) FMA8(x) FMA8(x) FMA8(x) FMA8(x)
#define FMA256(x) FMA64(x) FMA64(x) FMA64(x) FMA64(x)
#define FMA512(x) FMA256(x) FMA256(x)
extern "C" __global__ void gemm(float *out, int trips) {
    float x = out[threadIdx.x];
    PARTS
    for (int i = 0; i < trips; ++i) { FMA256(x) }
    out[threadIdx.x] = x;
}"""


def source(parts: int) -> Source:
    """Return a kernel with so many parts of 8 KiB each in front of its loop."""
    text = " else ".join(f"if (x > {part}) {{ FMA512(x) }}" for part in range(parts))
    return Source(LONG.replace("PARTS", text), {})


@functools.cache
def compiled(parts: int = 9, arch: str = "sm_90a") -> Cubin:
    return compiler.compile_cubin(source(parts), arch)


def code(cubin: Cubin) -> tuple[Instruction, ...]:
    (kernel,) = read_cubin(cubin.code).kernels
    return decode(kernel.code, kernel.arch)


def loop_end(cubin: Cubin) -> int:
    loop = main_loop(code(cubin))
    assert loop is not None
    return loop.end


def exits(cubin: bytes) -> list[int]:
    """Return the places that a cubin names as those where its kernel ends."""
    at, size = section_span(cubin, ".nv.info.gemm")
    end = at + size
    while at < end:
        form, attribute, value = struct.unpack_from("<BBH", cubin, at)
        length = value if form == 4 else 0
        at += 4 + length
        if attribute == EXITS:
            return list(struct.unpack_from(f"<{length // 4}I", cubin, at - length))
    return []


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "kernels")


def test_what_this_compiler_writes_is_arranged() -> None:
    assert loop_end(arranged(compiled())) < FETCHED_BYTES[90]


def test_a_loop_beyond_what_is_fetched_moves_inside() -> None:
    before = compiled()
    assert loop_end(before) >= FETCHED_BYTES[90]
    after = arranged(before)
    assert loop_end(after) < FETCHED_BYTES[90]
    assert replace(after, code=before.code) == before  # the log, the names, the architecture
    where = moved_only(code(before), code(after), 90)
    assert len(where) > 4096

    old, new = exits(before.code), exits(after.code)
    assert new == [where[place] for place in old] != old
    by_address = {one.address: one for one in code(after)}
    assert {by_address[place].mnemonic for place in new} == {"EXIT"}


def test_only_the_text_and_its_records_change() -> None:
    before, after = compiled().code, arranged(compiled()).code
    assert len(after) == len(before)
    may = [section_span(before, f"{kind}.gemm") for kind in (".text", ".nv.info")]
    assert may == [section_span(after, f"{kind}.gemm") for kind in (".text", ".nv.info")]
    masked = [bytearray(before), bytearray(after)]
    for at, size in may:
        for each in masked:
            assert each[at : at + size] != bytes(size)
            each[at : at + size] = bytes(size)
    assert masked[0] == masked[1]
    assert arranged(replace(compiled(), code=after)).code == after


def test_it_is_done_once(cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    after = arranged(compiled(), cache)
    (entry,) = cache.directory.iterdir()
    assert cache.load(entry.name) == after.code

    # An entry that was cut short is made anew.
    entry.write_bytes(after.code[:-16])
    assert arranged(compiled(), cache).code == after.code
    assert cache.load(entry.name) == after.code

    monkeypatch.setattr(arranging, "_arranged", None)
    assert arranged(compiled(), cache) == after
    with pytest.raises(TypeError):
        arranged(compiled())
    assert loop_end(compiled()) >= FETCHED_BYTES[90]


def test_what_is_short_or_of_another_architecture_is_returned_as_it_is(
    cache: KernelCache,
) -> None:
    short, older = compiled(2), compiled(arch="sm_80")
    assert arranged(short, cache) is short
    assert loop_end(older) >= FETCHED_BYTES[90]
    assert arranged(older, cache) is older
    assert list(cache.directory.iterdir()) == []


def test_a_kernel_that_is_refused_stays_and_its_neighbour_moves(cache: KernelCache) -> None:
    """A table of places to go on at is not followed: neither is a kernel that has one."""
    cases = " ".join(f"case {part}: FMA512(x) x += {part}; break;" for part in range(9))
    plain = source(9).text
    tabled = source(1).text.replace("if (x > 0) { FMA512(x) }", f"switch (trips) {{ {cases} }}")
    only = tabled.split("gemm(")[1]
    both = Source(f'{plain}\nextern "C" __global__ void tabled({only}', {})
    before = compiler.compile_cubin(both, "sm_90a")
    after = arranged(before, cache)
    (entry,) = cache.directory.iterdir()
    assert cache.load(entry.name) == after.code
    old, new = ({one.name: one for one in read_cubin(c.code).kernels} for c in (before, after))
    assert len(old["tabled"].code) > FETCHED_BYTES[90]
    assert new["tabled"] == old["tabled"]
    assert new["gemm"] != old["gemm"]


# SGEMM of 2048: its blocks take one tile after another.
PERSISTENT = {
    "b_first": 1, "block_k": 12, "block_m": 256, "block_n": 128, "copy_groups": 2,
    "lanes_m": 8, "persistent": 1, "swizzle_rows": 8, "min_blocks": 1, "cluster_k": 1, "stages": 3,
    "tile_m": 8, "tile_n": 16, "unroll_k": 12, "serpentine_rows": 0, "specialised_epilogue": 1,
}  # fmt: skip


def test_a_kernel_whose_blocks_take_tile_after_tile(cache: KernelCache) -> None:
    """128 KiB of machine code, of which the last things come first."""
    family, of = stencil("simt_async"), Variant(precision("s"), Trans.N, Trans.N)
    made = family.source(Config(family.name, PERSISTENT), of, "cuda")
    before = compiler.cached_cubin(made, "sm_90a", cache)
    assert loop_end(before) >= FETCHED_BYTES[90]
    after = arranged(before, cache)
    assert loop_end(after) < FETCHED_BYTES[90]
    assert usage(after) == usage(before)
    assert read_cubin(after.code).kernel().registers == read_cubin(before.code).kernel().registers
