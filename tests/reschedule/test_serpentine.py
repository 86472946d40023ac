"""Serpentine order: other places, other registers, the same sums, fewer waits."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace

import pytest

from tests.sass.compiled import kept
from tests.stencil.portable_harness import variant
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.reschedule.dependencies import Block, blocks
from tilewright.reschedule.equivalence import differences
from tilewright.reschedule.hazards import hazards
from tilewright.reschedule.latency import needed
from tilewright.reschedule.schedule import schedule
from tilewright.reschedule.serpentine import Surroundings, fetch_cycles, serpentine
from tilewright.reschedule.values import is_plain_ffma
from tilewright.sass import Instruction, decode, main_loop, read_cubin
from tilewright.sass.edit import RefusedError, edit
from tilewright.space import Config
from tilewright.stencil.simt_async import SimtAsync

Kernel = tuple[Instruction, ...]
FFMA = 0x223
# 8 x 8 complex elements a thread, eight steps in the text: 2048 FFMA a trip.
COMPLEX = {
    "block_m": 64, "block_n": 64, "tile_m": 8, "tile_n": 8, "lanes_m": 8, "block_k": 8,
    "unroll_k": 8, "stages": 3, "cluster_k": 1, "min_blocks": 1, "copy_groups": 2,
    "serpentine_rows": 1,
    "b_first": 0, "swizzle_rows": 4,
}  # fmt: skip


# 8 x 16 elements a thread, in four layers of warps: what serves 1024 x 1024 on an H100 is like it.
LAYERED = {
    "block_m": 128, "block_n": 64, "tile_m": 8, "tile_n": 16, "lanes_m": 8, "block_k": 32,
    "unroll_k": 8, "stages": 2, "cluster_k": 1, "min_blocks": 1, "copy_groups": 4,
    "serpentine_rows": 0,
    "b_first": 0, "swizzle_rows": 8, "warps_k": 4,
}  # fmt: skip
AHEAD = 24


@functools.cache
def kernel(name: str) -> Kernel:
    """Return the small SGEMM that is kept, or CGEMM or SGEMM in layers as it is compiled here."""
    if name == "kept":
        found = read_cubin(kept("sm_90a")).kernels[0]
    else:
        if nvrtc() is None:
            pytest.skip("NVRTC is not here: pip install 'tilewright[tune]'")
        values = COMPLEX if name.startswith("c") else LAYERED
        source = SimtAsync().source(Config("simt_async", values), variant(name), "cuda")
        (found,) = read_cubin(compile_cubin(source, "sm_90a").code).kernels
    return decode(found.code, found.arch)


def block_of(code: Kernel) -> Block:
    """Return the loop's block that has most multiply-adds."""
    loop = main_loop(code)
    assert loop is not None
    inside = [b for b in blocks(code) if loop.start <= 16 * b.start <= loop.end]
    return max(inside, key=lambda b: sum(x.opcode == FFMA for x in code[b.start : b.stop]))


@functools.cache
def rewritten(name: str, ahead: int | None = None) -> tuple[Kernel, Block]:
    code = kernel(name)
    block = block_of(code)
    made = list(code)
    around = Surroundings(code, block)
    made[block.start : block.stop], _, _ = serpentine(around, 90, apart=True, ahead=ahead)
    return tuple(made), block


def products_ahead(code: Kernel, block: Block) -> list[int]:
    """Return, of each shared load that the block itself reads, the products before its first."""
    found, body = [], code[block.start : block.stop]
    for at, one in enumerate(body):
        if not one.name.startswith("LDS") or not one.dst:
            continue
        count = 0
        for later in body[at + 1 :]:
            if set(one.dst) & {x.value for x in later.srcs if x.kind == "reg"}:
                found.append(count)
                break
            count += later.opcode == FFMA
    return found


def test_loads_come_ahead_of_the_products_that_take_them() -> None:
    """To other registers, so that what they overwrote is not in their way; sums stay the same."""
    (plain, block), (made, _) = rewritten("sNN"), rewritten("sNN", AHEAD)
    assert differences(kernel("sNN"), made, 90) == []
    assert hazards(made) == []
    before, after = products_ahead(plain, block), products_ahead(made, block)
    assert sum(n >= AHEAD for n in after) > sum(n >= AHEAD for n in before)


@pytest.mark.thorough
def test_the_better_way_is_taken_and_proved() -> None:
    code = kernel("sNN")
    loop = main_loop(code)
    assert loop is not None
    found = schedule(code, loop, 90, ahead=True)
    assert found.moved > 0
    assert differences(code, found.instructions, 90) == []


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ["cNT", "cCN"])
def test_a_loop_in_serpentine_order_is_proved_the_same(name: str) -> None:
    """By the checker that shares no code with it: values, waits, and times."""
    made, block = rewritten(name)
    assert differences(kernel(name), made, 90) == []
    assert hazards(made) == []
    assert len(made) == len(kernel(name))
    assert made[: block.start] == kernel(name)[: block.start]


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ["cNT", "cCN"])
def test_complex_sums_change_banks_and_fetch_waits_less(name: str) -> None:
    """A real part meets factors of both banks alternately, and changes banks with them."""
    made, block = rewritten(name)
    before, after = (
        fetch_cycles(code[block.start : block.stop], 90, apart=True)
        for code in (kernel(name), made)
    )
    assert after < before
    banks = [(one.dst[0] + one.srcs[2].value) % 2 for one in made if one.opcode == FFMA]
    assert sum(banks) > len(banks) // 4


def test_one_factor_is_held_while_the_other_moves() -> None:
    made, block = rewritten("cNT")
    held = [one.srcs[0].value for one in made[block.start : block.stop] if one.opcode == FFMA]
    changes = sum(x != y for x, y in itertools.pairwise(held))
    # 8 steps of 8 x 8 complex elements: 16 numbers of A, each beside 16 of B.  A load that takes
    # a register from a product pulls it forward.
    assert 8 * 16 - 1 <= changes < 8 * 16 + 32


def test_a_sign_is_the_product_s_whichever_factor_stands_where() -> None:
    code = kernel("cNT")
    block = block_of(code)
    at, one = next(
        (at, x)
        for at, x in enumerate(code[block.start : block.stop], block.start)
        if x.opcode == FFMA and (x.raw >> 72 & 1) ^ (x.raw >> 63 & 1)
    )
    assert is_plain_ffma(one)
    a, b = one.srcs[0].value, one.srcs[1].value
    plain = edit(one, 90, a=b, b=a, reuse=(False, False, False))
    assert differences(code, (*code[:at], plain, *code[at + 1 :]), 90) == []
    for bit in (62, 73):  # of an absolute value
        assert not is_plain_ffma(replace(one, raw=one.raw | 1 << bit))


def test_what_the_uniform_pipe_computes_is_read_later_than_what_it_moves() -> None:
    """Taken for one, they let a USEL read its UIADD3 two cycles later: wrong on an H100."""
    seen: list[tuple[str, str, str, int]] = []
    for name in ("cNT", "cCN"):
        hazards(kernel(name), lambda *what: seen.append(what))
    least = {
        producer: min(c for p, q, how, c in seen if (p, q, how) == (producer, "uniform", "read"))
        for producer in ("uniform", "uniform move")
    }
    assert least["uniform"] == needed("uniform", "uniform", "read") == 4
    assert needed("uniform move", "uniform", "read") == 2 <= least["uniform move"]


def test_a_kernel_with_too_few_registers_is_left_alone_with_the_reason() -> None:
    """The small SGEMM has no register besides its sums' and factors', and they would exchange."""
    code = kernel("kept")
    loop = main_loop(code)
    assert loop is not None
    found = schedule(code, loop, 90, rounds=1)
    assert found.renamed == 0
    assert list(found.refused.values()) == ["there are not enough registers for the sums"]


def test_a_block_without_multiply_adds_is_refused() -> None:
    code = kernel("kept")
    loop = main_loop(code)
    assert loop is not None
    first = blocks(code)[0]
    assert not any(one.opcode == FFMA for one in code[first.start : first.stop])
    with pytest.raises(RefusedError, match="no multiply-add"):
        serpentine(Surroundings(code, first), 90)
