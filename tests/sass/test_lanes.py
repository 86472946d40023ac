"""Lane addresses from machine code, against the layout that the kernel's source and config say."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.sass.compiled import cubin, kept
from tests.sass.offsets import lane_offsets
from tests.stencil.portable.covering import unpruned
from tests.stencil.portable_harness import variant
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.sass import Instruction, Loop, decode, main_loop, read_cubin, wavefronts
from tilewright.sass.lanes import loop_accesses
from tilewright.space import Config
from tilewright.stencil import Variant
from tilewright.stencil.portable import Portable

ARCHES = ("sm_80", "sm_90a", "sm_100")
ACCESSES = ("LDS", "STS")
SQUARE = {"threads_m": 16, "threads_n": 16, "block_m": 64, "block_n": 64, "block_k": 8}
READS = {"read_a_m": 64, "read_b_n": 64, "read_vector": 1, "unroll_k": 8}
PIPELINE = {"shared_buffers": 1, "prefetch": 1, "swizzle_rows": 0}


def square(fragment_vector: int, pad: int, strided: int, **changes: int) -> Config:
    shared = {"fragment_vector": fragment_vector, "pad": pad, "strided": strided}
    return Config("portable", {**SQUARE, **READS, **PIPELINE, **shared, **changes})


def layout(config: Config, of: Variant) -> dict[str, set[tuple[int, ...]]]:
    """Return every pattern of lane offsets that kernel.cl has, by kind of access.

    Written from the text's drawings and comments: a thread's fragment starts at its first row
    (or column); its share of a tile runs along memory's contiguous index.
    """
    take = config.integer
    size, vector = of.precision.element_bytes, take("read_vector")
    threads = take("threads_m") * take("threads_n")
    tid = np.arange(threads)
    found: dict[str, set[tuple[int, ...]]] = {"LDS": set(), "STS": set()}
    sides = (
        ("m", take("read_a_m"), of.trans_a.transposed, tid % take("threads_m")),
        ("n", take("read_b_n"), not of.trans_b.transposed, tid // take("threads_m")),
    )
    for side, readers, along_k, place in sides:
        if not readers:
            continue
        block, across = take(f"block_{side}"), take(f"threads_{side}")
        apart = take("fragment_vector") if take("strided") else block // across
        pitch = block + take("pad") * take("fragment_vector")
        if along_k:
            row, column = tid // (threads // readers), tid % (threads // readers) * vector
        else:
            row, column = tid % readers * vector, tid // readers
        for kind, elements in (("LDS", place * apart), ("STS", column * pitch + row)):
            warps = (size * elements).reshape(-1, 32)
            found[kind].add(tuple((warps - warps.min(axis=1, keepdims=True)).ravel().tolist()))
    return found


@cache
def compiled(config: Config, of: Variant, arch: str) -> tuple[Instruction, ...]:
    if nvrtc() is None:
        pytest.skip("NVRTC is not here: pip install 'tilewright[tune]'")
    made = compile_cubin(Portable().source(config, of, "cuda"), arch)
    (kernel,) = read_cubin(made.code).kernels
    return decode(kernel.code, kernel.arch)


def whole(instructions: tuple[Instruction, ...]) -> Loop:
    """All of a kernel, as if it were one loop: tiles are stored before the first step too."""
    return Loop(instructions)


def check(config: Config, of: Variant, arch: str) -> tuple[int, int]:
    """Compare every known access with the layout; return how many are known and there."""
    instructions = compiled(config, of, arch)
    threads = Portable().resources(config, of).threads
    found = lane_offsets(instructions, whole(instructions), threads)
    expected = layout(config, of)
    seen: dict[str, set[tuple[int, ...]]] = {kind: set() for kind in ACCESSES}
    accesses = [i for i in instructions if i.mnemonic in ACCESSES and not i.guard.never]
    for instruction in accesses:
        if instruction.address in found:
            pattern = tuple(found[instruction.address].ravel().tolist())
            assert pattern in expected[instruction.mnemonic], f"{instruction} of {config}"
            seen[instruction.mnemonic].add(pattern)
    if len(found) == len(accesses):
        assert seen == expected
    return len(found), len(accesses)


@pytest.mark.every(3)
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("strided", [0, 1])
@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize("vector", [1, 2, 4])
def test_sixteen_by_sixteen_threads(vector: int, pad: int, strided: int, arch: str) -> None:
    if vector == 4 and strided:
        pytest.skip("one chunk a side: the space keeps strided = 0")
    known, accesses = check(square(vector, pad, strided), variant("sNN"), arch)
    assert known == accesses


@pytest.mark.every(4)
@pytest.mark.parametrize("name", ["sTN", "dNT", "cCN", "zNC"])
@pytest.mark.parametrize("buffers", [1, 2])
def test_other_variants_and_double_buffers(name: str, buffers: int) -> None:
    of = variant(name)
    config = Portable().default(of, architecture_spec("sm_90a")).replace(shared_buffers=buffers)
    known, accesses = check(config, of, "sm_90a")
    assert known == accesses


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("arch", "count"),
    [
        ("sm_90a", 4),
        *((arch, 2) for arch in ARCHES if arch != "sm_90a"),
        *(pytest.param(arch, 12, marks=pytest.mark.thorough) for arch in ARCHES),
    ],
)
def test_drawn_configs(arch: str, count: int) -> None:
    """What is known of any kernel is right; what is not known is left out."""
    known = accesses = 0
    for name in ("sNT", "dTN"):
        of = variant(name)
        space = unpruned(of, architecture_spec(arch))
        drawn = [c for c in space.sample(60, seed=5) if Portable().resources(c, of).registers < 120]
        shared = [c for c in drawn if c.integer("read_a_m") or c.integer("read_b_n")]
        for config in shared[:count]:
            found, there = check(config, of, arch)
            known, accesses = known + found, accesses + there
    assert known == accesses > 0


def test_wavefronts_are_those_of_the_addresses() -> None:
    config, of = square(1, 0, 1), variant("sNN")
    instructions = compiled(config, of, "sm_90a")
    loop = main_loop(instructions)
    assert loop is not None
    found = loop_accesses(instructions, loop, 256).wavefronts
    offsets = lane_offsets(instructions, loop, 256)
    assert set(found) == {i.address for i in loop.instructions if i.mnemonic in ACCESSES}
    for instruction in loop.instructions:
        if instruction.address in found:
            rows = offsets[instruction.address].tolist()
            bits = instruction.access_bits or 32
            assert {wavefronts(row, bits) for row in rows} == {found[instruction.address]}


def test_a_column_stored_without_padding_conflicts_and_padding_cures_it() -> None:
    of = variant("sTN")  # A is contiguous along k: neighbouring lanes store to different rows
    stores = {}
    for pad in (0, 1):
        config = square(1, pad, 0, read_a_m=32, read_b_n=32)
        instructions = compiled(config, of, "sm_90a")
        found = loop_accesses(instructions, whole(instructions), 256).wavefronts
        names = {i.address: i.mnemonic for i in instructions}
        stores[pad] = {count for at, count in found.items() if names[at] == "STS"}
    assert min(stores[0]) > max(stores[1])


def test_addresses_that_depend_on_data_are_left_out() -> None:
    kernel = read_cubin(kept("sm_80")).kernels[0]
    instructions = decode(kernel.code, kernel.arch)
    loop = main_loop(instructions)
    assert loop is not None
    full = lane_offsets(instructions, loop, 256)
    assert full
    # The same kernel with its thread index loaded from memory instead.
    loads = [i for i in instructions if i.mnemonic == "LDG"]
    blind = [
        decode_as(loads[0], i) if i.mnemonic == "S2R" and i.raw >> 72 & 0xFF == 0x21 else i
        for i in instructions
    ]
    known = lane_offsets(blind, loop, 256)
    assert all((offsets == 0).all() for offsets in known.values())


def decode_as(load: Instruction, instruction: Instruction) -> Instruction:
    """Return a load in the place, and into the register, of an instruction."""
    return replace(load, address=instruction.address, dst=instruction.dst, guard=instruction.guard)


def test_warps_that_are_not_whole() -> None:
    kernel = read_cubin(kept("sm_80")).kernels[0]
    instructions = decode(kernel.code, kernel.arch)
    loop = main_loop(instructions)
    assert loop is not None
    assert loop_accesses(instructions, loop, 48).wavefronts == {}


def test_a_loop_of_tensor_core_loads() -> None:
    kernel = read_cubin(cubin("tensor", "sm_90a")).kernel("hmma")
    instructions = decode(kernel.code, kernel.arch)
    loop = main_loop(instructions)
    assert loop is not None
    found = loop_accesses(instructions, loop, 128).wavefronts
    for instruction in loop.instructions:
        if instruction.mnemonic == "LDSM" and instruction.address in found:
            # Each 8 x 8 matrix takes a pass at least, and 8 if its rows share banks.
            matrices = len(instruction.dst)
            assert matrices <= found[instruction.address] <= 8 * matrices
