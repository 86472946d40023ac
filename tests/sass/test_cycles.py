"""The static model's parts on hand-made loops, where the answer can be counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sass.compiled import cubin, kept
from tests.sass.words import LDS, ffma, word
from tilewright.backend.cuda.compiler import compile_cubin
from tilewright.microbench.rates import KINDS
from tilewright.sass import (
    Instruction,
    Loop,
    Machine,
    annotate,
    decode,
    loop_cycles,
    main_loop,
    read_cubin,
    wavefronts,
)
from tilewright.sass.annotate import verdict
from tilewright.sass.cycles import LoopCycles
from tilewright.sass.decode import decode_one
from tilewright.sass.pipes import pipe_of
from tilewright.sass.ports import port_use


def _cycles(*body: Instruction) -> list[int]:
    return [use.cycles for use in port_use(body)]


def test_three_operands_in_two_banks_take_two_cycles() -> None:
    assert _cycles(ffma(1, 2, 3, 4)) == [2]  # R2, R4 even, R3 odd
    assert _cycles(ffma(1, 2, 4, 6)) == [3]
    assert _cycles(ffma(1, 2, 3, 255)) == [1]


def test_one_register_in_two_slots_is_read_once() -> None:
    assert _cycles(ffma(1, 2, 2, 3)) == [1]


def test_reuse_saves_a_read_in_its_slot_only() -> None:
    same_slot = port_use([ffma(1, 2, 3, 4, reuse=1), ffma(5, 2, 7, 8)])
    assert [use.hits for use in same_slot] == [0, 1]
    assert sum(use.cycles for use in same_slot) == 3  # R2, R4 and R8 are even, R2 read once
    other_slot = port_use([ffma(1, 2, 3, 4, reuse=1), ffma(5, 7, 2, 8)])
    assert other_slot[1].hits == 0


def test_a_slot_keeps_one_register_of_each_bank() -> None:
    """R2 and R3 stay in slot A side by side; R4 would push R2 out."""
    pair = [ffma(1, 2, 9, 255, reuse=1), ffma(1, 3, 9, 255, reuse=1)]
    assert [use.hits for use in port_use([*pair, *pair])] == [1, 1, 1, 1]
    clash = [ffma(1, 2, 9, 255, reuse=1), ffma(1, 4, 9, 255, reuse=1)]
    assert [use.hits for use in port_use([*clash, *clash])] == [0, 0, 0, 0]


def test_a_missing_flag_is_a_reuse_miss() -> None:
    uses = port_use([ffma(1, 2, 3, 4), ffma(5, 2, 7, 6), ffma(0, 8, 11, 12)])
    assert [use.hits for use in uses] == [0, 0, 0]
    assert [use.missed_reuse for use in uses] == [0, 1, 0]  # R2 in slot A, twice in a row


def test_reads_of_one_bank_are_smoothed_over_the_window_by_the_next_ones() -> None:
    """Three reads of a bank in one instruction leave its other bank to the next two."""
    even, odd = ffma(1, 2, 4, 6), ffma(1, 3, 5, 7)
    assert sum(_cycles(even, odd)) == 3
    assert sum(_cycles(even, ffma(1, 255, 255, 255), ffma(3, 255, 255, 255))) == 3
    # Two in a row wait for one another's latches, as measured: 8 cycles, not 6.
    assert sum(_cycles(even, ffma(1, 8, 10, 12), odd, ffma(1, 9, 11, 13))) == 8


def _loop(*body: Instruction) -> Loop:
    return Loop(tuple(replace(one, address=16 * at) for at, one in enumerate(body)))


def _model(loop: Loop, blocks: int = 1, warps: int = 4, arch: int = 90, **more) -> LoopCycles:
    return loop_cycles(loop.instructions, loop, arch, blocks, warps, **more)


def test_port_conflicts_bound_a_loop_of_one_bank() -> None:
    found = _model(_loop(*[ffma(1, 2, 4, 6)] * 10), warps=8)
    assert found.terms["register ports"] == 30
    assert found.bound_by == "register ports"
    assert found.pipe_share == pytest.approx(1 / 3, rel=0.02)
    free = _model(_loop(*[ffma(1, 2, 3, 255)] * 10), warps=8)
    assert "register ports" not in free.terms
    assert free.pipe_share == pytest.approx(1)


def test_pipes_follow_the_lanes_of_an_architecture() -> None:
    assert [pipe_of(ffma(1, 2, 3, 4), arch)[1] for arch in (80, 86, 90)] == [2, 1, 1]
    dfma = decode_one(word(0x22B, 2, 4, 6, 8), 0, 90)
    assert [pipe_of(dfma, arch) for arch in (80, 89, 90)] == [
        ("fp64", 4),
        ("fp64", 64),
        ("fp64", 2),
    ]


@pytest.mark.parametrize(("shape", "cycles"), [(0, 16), (1, 16), (2, 32), (3, 64)])
def test_tensor_cores_take_doubles_at_the_measured_rate(shape: int, cycles: int) -> None:
    """By shape 8x8x4, 16x8x4, 16x8x8, 16x8x16: 64 multiply-adds a cycle, and 128."""
    dmma = decode_one(word(0x23F, 8, 16, 32, 8, extra=shape << 76), 0, 90)
    assert dmma.mnemonic == "DMMA"
    assert pipe_of(dmma, 90) == ("tensor", cycles)
    found = _model(_loop(*[dmma] * 10), warps=8)
    assert found.terms["pipe"] == 10 * cycles
    assert "register ports" not in found.terms
    assert found.pipe_share > 0.9


def _lds(bits: int, address: int = 0) -> Instruction:
    return decode_one(word(LDS, 8, 4, 0, 0, extra={32: 4, 64: 5, 128: 6}[bits] << 73), address, 90)


def test_shared_wavefronts_are_shared_by_four_schedulers() -> None:
    loop = _loop(*[_lds(128)] * 3, ffma(1, 2, 3, 255))
    assert _model(loop).terms["shared wavefronts"] == 4 * 3 * 2
    known = _model(loop, warps=16, wavefronts={0: 8, 16: 4})
    assert known.terms["shared wavefronts"] == 4 * (8 + 4 + 2)
    assert known.bound_by == "shared wavefronts"
    assert known.cycles == pytest.approx(56)


def test_a_lone_warp_waits_for_its_load_and_more_warps_hide_it() -> None:
    load = decode_one(word(LDS, 8, 4, 0, 0, write=0, extra=4 << 73), 0, 90)
    use = decode_one(word(0x223, 1, 8, 3, 1, wait=1), 16, 90)
    one = _model(_loop(load, use))
    assert one.waits == [0, Machine().shared_latency - 1]  # the load itself took a cycle
    assert one.bound_by == "latency"
    assert one.cycles > Machine().shared_latency
    assert _model(_loop(load, use), warps=40).cycles < one.cycles / 4


@pytest.mark.parametrize(("cost", "cycles"), [(0.0, 0), (0.5, 1), (1.0, 2), (1.5, 3)])
def test_a_wide_read_keeps_its_scheduler_longer_than_its_slot(cost: float, cycles: int) -> None:
    """Two of 128 bits in a trip; narrower ones and those that are switched off cost a slot."""
    machine = replace(Machine(), wide_read=cost)

    def trip(bits: int, guard: int = 7) -> float:
        size = {64: 5, 128: 6}[bits] << 73
        load = decode_one(word(LDS, 8, 4, 0, 0, extra=size, guard=guard), 0, 90)
        spread = [ffma(1, 2, 3, 255)] * 31
        return _model(_loop(load, *spread, load, *spread), warps=16, machine=machine).cycles

    assert trip(64) == pytest.approx(64)
    assert trip(128) == pytest.approx(64 + cycles)
    assert trip(128, guard=15) == pytest.approx(64)  # @!PT


@pytest.mark.parametrize(
    ("addresses", "bits", "passes"),
    [
        ([4 * i for i in range(32)], 32, 1),
        ([0] * 32, 32, 1),  # broadcast
        ([8 * i for i in range(32)], 32, 2),
        ([128 * i for i in range(32)], 32, 32),
        ([8 * i for i in range(32)], 64, 2),
        ([16 * i for i in range(32)], 128, 4),
        ([16 * (i % 8) for i in range(32)], 128, 4),  # equal quarters do not go together
        ([16 * (i // 8) for i in range(32)], 128, 2),  # equal neighbours do, in pairs
        ([8 * (i % 4) for i in range(32)], 64, 2),
        ([8 * (i // 8) for i in range(32)], 64, 1),
        ([8 * (i % 2) for i in range(32)], 64, 1),  # second neighbours likewise
        ([132 * i for i in range(32)], 32, 1),  # padding spreads a column over the banks
    ],
)
def test_wavefronts(addresses: list[int], bits: int, passes: int) -> None:
    assert wavefronts(addresses, bits) == passes


def test_the_annotated_loop_says_what_each_line_costs() -> None:
    load = decode_one(word(LDS, 8, 4, 0, 0, write=0, stall=12, extra=4 << 73), 0, 90)
    use = decode_one(word(0x223, 1, 8, 2, 4, wait=1), 16, 90)
    loop = _loop(load, use)
    cycles = _model(loop)
    first, second = annotate(loop, cycles).splitlines()
    assert "LDS R8, R4" in first
    assert "stall 12" in first
    # A load reads by a way of its own: three reads take three cycles, its dispatch among them.
    assert "port conflict (3+0 reads, 2 cycles)" in second
    assert "wait on 0 (11 cycles alone)" in second


def test_the_verdict_is_one_line_that_names_the_bound() -> None:
    loop = _loop(*[ffma(1, 2, 4, 6)] * 4)
    line = verdict(_model(loop, warps=8))
    assert "\n" not in line
    assert line.startswith(
        "bound by register ports: 12 cycles for a warp's trip over k, 4 of its 4"
    )
    assert "pipe 33.3 % busy" in line


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100"])
def test_a_kept_kernel_gets_a_verdict(arch: str) -> None:
    kernel = read_cubin(kept(arch)).kernels[0]
    instructions = decode(kernel.code, kernel.arch)
    loop = main_loop(instructions)
    assert loop is not None
    found = loop_cycles(instructions, loop, kernel.arch, 1, 8)
    assert 0 < found.pipe_share <= 1
    assert found.cycles >= len(loop.instructions)
    assert len(annotate(loop, found).splitlines()) == len(loop.instructions)


def test_a_compiled_double_precision_loop_is_bound_by_its_pipe_where_lanes_are_few() -> None:
    kernel = read_cubin(cubin("dgemm", "sm_80")).kernels[0]
    instructions = decode(kernel.code, 80)
    loop = main_loop(instructions)
    assert loop is not None
    assert loop_cycles(instructions, loop, 86, 1, 16).bound_by == "pipe"


def test_a_warpgroup_multiply_keeps_its_tensor_core_busy_for_half_a_cycle_a_column() -> None:
    """128 cycles for 64 x 256, as measured; other shapes in proportion."""
    codes = [cubin("bulk", "sm_90a", (("WG", 1),))]
    codes += [compile_cubin(k.source(), "sm_90a").code for k in KINDS if k.name == "wgmma_s8"]
    found = {}
    for (kernel,) in (read_cubin(code).kernels for code in codes):
        code = decode(kernel.code, kernel.arch)
        found |= {i.name: pipe_of(i, 90) for i in code if i.mnemonic in ("HGMMA", "IGMMA")}
    assert {name.split(".")[1] for name in found} == {"64x64x16", "64x256x32"}
    for shape, (pipe, cycles) in found.items():
        assert pipe == "tensor"
        assert cycles == int(shape.split("x")[1]) / 2
