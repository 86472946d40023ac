"""The static model's parts on hand-made loops, where the answer can be counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from tests.sass.compiled import cubin, kept
from tests.sass.words import LDS, ffma, word
from tilewright.sass import (
    Instruction,
    Loop,
    PortUse,
    TwoBanks,
    annotate,
    decode,
    loop_cycles,
    main_loop,
    read_cubin,
    verdict,
    wavefronts,
)
from tilewright.sass.cycles import pipe_cycles
from tilewright.sass.decode import decode_one


def _cycles(*body: Instruction) -> list[int]:
    return [use.cycles for use in TwoBanks().walk(body)]


def test_three_operands_in_two_banks_take_two_cycles() -> None:
    assert _cycles(ffma(1, 2, 3, 4)) == [2]  # R2, R4 even, R3 odd
    assert _cycles(ffma(1, 2, 4, 6)) == [3]
    assert _cycles(ffma(1, 2, 3, 255)) == [1]


def test_one_register_in_two_slots_is_read_once() -> None:
    assert _cycles(ffma(1, 2, 2, 3)) == [1]


def test_reuse_saves_a_read_in_its_slot_only() -> None:
    same_slot = TwoBanks().walk([ffma(1, 2, 3, 4, reuse=1), ffma(5, 2, 7, 8)])
    assert [use.hits for use in same_slot] == [0, 1]
    assert [use.cycles for use in same_slot] == [2, 1]
    other_slot = TwoBanks().walk([ffma(1, 2, 3, 4, reuse=1), ffma(5, 7, 2, 8)])
    assert other_slot[1].hits == 0


def test_a_slot_keeps_one_register_of_each_bank() -> None:
    """R2 and R3 stay in slot A side by side; R4 would push R2 out."""
    pair = [ffma(1, 2, 9, 255, reuse=1), ffma(1, 3, 9, 255, reuse=1)]
    assert [use.hits for use in TwoBanks().walk([*pair, *pair])] == [1, 1, 1, 1]
    clash = [ffma(1, 2, 9, 255, reuse=1), ffma(1, 4, 9, 255, reuse=1)]
    assert [use.hits for use in TwoBanks().walk([*clash, *clash])] == [0, 0, 0, 0]


def test_a_missing_flag_is_a_reuse_miss() -> None:
    uses = TwoBanks().walk([ffma(1, 2, 3, 4), ffma(5, 2, 7, 6), ffma(0, 8, 11, 12)])
    assert [use.hits for use in uses] == [0, 0, 0]
    assert [use.missed_reuse for use in uses] == [0, 1, 0]  # R2 in slot A, twice in a row


def test_only_the_fma_pipe_competes_for_ports() -> None:
    move = decode_one(word(0x210, 1, 2, 4, 6), 0, 90)  # IADD3 with three even registers
    assert _cycles(move) == [1]


def _loop(*body: Instruction) -> Loop:
    return Loop(body)


def test_the_port_rule_is_replaceable() -> None:
    @dataclass(frozen=True)
    class Free:
        name: str = "free ports"

        def walk(self, body: Sequence[Instruction]) -> list[PortUse]:
            return [PortUse(1, (0, 0)) for _ in body]

    loop = _loop(*[ffma(1, 2, 4, 6)] * 10)
    assert loop_cycles(loop, 90, 8).terms["register ports"] == 30
    free = loop_cycles(loop, 90, 8, rule=Free())
    assert "register ports" not in free.terms
    assert (free.rule, free.pipe_share) == ("free ports", 1.0)


def test_pipe_cycles_follow_the_lanes_of_an_architecture() -> None:
    assert [pipe_cycles(ffma(1, 2, 3, 4), arch) for arch in (80, 86, 90)] == [2, 1, 1]
    dfma = decode_one(word(0x22B, 2, 4, 6, 8), 0, 90)
    assert [pipe_cycles(dfma, arch) for arch in (80, 89, 90)] == [4, 64, 2]
    assert pipe_cycles(decode_one(word(0x23C, 0, 4, 8, 0), 0, 90), 90) is None


def _lds(bits: int, address: int = 0) -> Instruction:
    return decode_one(word(LDS, 8, 4, 0, 0, extra={32: 4, 64: 5, 128: 6}[bits] << 73), address, 90)


def test_shared_wavefronts_are_shared_by_four_schedulers() -> None:
    loop = _loop(*[_lds(128, 16 * i) for i in range(3)], ffma(1, 2, 3, 255))
    assert loop_cycles(loop, 90, 4).terms["shared wavefronts"] == 4 * 3 * 2
    known = loop_cycles(loop, 90, 4, wavefronts={0: 8, 16: 4})
    assert known.terms["shared wavefronts"] == 4 * (8 + 4 + 2)
    assert known.bound_by == "shared wavefronts"


def test_a_lone_warp_waits_for_its_load_and_more_warps_hide_it() -> None:
    load = decode_one(word(LDS, 8, 4, 0, 0, write=0, extra=4 << 73), 0, 90)
    use = decode_one(word(0x223, 1, 8, 3, 1, wait=1), 16, 90)
    one = loop_cycles(_loop(load, use), 90, 1)
    assert one.waits == [0, 28]  # 29 cycles after issue, one of which the load itself took
    assert one.terms["latency"] == 30
    assert one.bound_by == "latency"
    assert loop_cycles(_loop(load, use), 90, 10).terms["latency"] == 3


def test_no_warp_is_refused() -> None:
    with pytest.raises(ValueError, match="warps=0 cannot issue anything; give 1 or more"):
        loop_cycles(_loop(ffma(1, 2, 3, 4)), 90, 0)


@pytest.mark.parametrize(
    ("addresses", "bits", "passes"),
    [
        ([4 * i for i in range(32)], 32, 1),
        ([0] * 32, 32, 1),  # broadcast
        ([8 * i for i in range(32)], 32, 2),
        ([128 * i for i in range(32)], 32, 32),
        ([8 * i for i in range(32)], 64, 2),
        ([16 * i for i in range(32)], 128, 4),
        ([16 * (i % 8) for i in range(32)], 128, 1),  # all quarters read the same words
        ([16 * (i // 8) for i in range(32)], 128, 4),
        ([132 * i for i in range(32)], 32, 1),  # padding spreads a column over the banks
    ],
)
def test_wavefronts(addresses: list[int], bits: int, passes: int) -> None:
    assert wavefronts(addresses, bits) == passes


@pytest.mark.parametrize(
    ("addresses", "bits", "said"),
    [
        ([0], 16, "bits=16 is no shared access"),
        ([], 32, "addresses=0 lanes are no warp"),
        ([0] * 33, 32, "addresses=33 lanes are no warp"),
        ([4], 64, "addresses=4 is not aligned; give multiples of 8 bytes"),
        ([-4], 32, "addresses=-4"),
    ],
)
def test_wrong_accesses_are_named(addresses: list[int], bits: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        wavefronts(addresses, bits)


def test_the_annotated_loop_says_what_each_line_costs() -> None:
    load = decode_one(word(LDS, 8, 4, 0, 0, write=0, stall=12, extra=4 << 73), 0, 90)
    use = decode_one(word(0x223, 1, 8, 2, 4, wait=1), 16, 90)
    loop = _loop(load, use)
    cycles = loop_cycles(loop, 90, 1)
    first, second = annotate(loop, cycles).splitlines()
    assert "LDS R8, R4" in first
    assert "stall 12" in first
    assert "port conflict (3+0 reads, 3 cycles)" in second
    assert "wait on 0 (17 cycles alone)" in second


def test_the_verdict_is_one_line_that_names_the_bound() -> None:
    loop = _loop(*[ffma(1, 2, 4, 6)] * 4)
    line = verdict(loop, loop_cycles(loop, 90, 8))
    assert "\n" not in line
    assert line.startswith("bound by register ports: 12 cycles an iteration, 4 of 4 instructions")
    assert "pipe 33.3 % busy" in line


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100"])
def test_a_kept_kernel_gets_a_verdict(arch: str) -> None:
    kernel = read_cubin(kept(arch)).kernels[0]
    loop = main_loop(decode(kernel.code, kernel.arch))
    assert loop is not None
    found = loop_cycles(loop, kernel.arch, 4)
    assert 0 < found.pipe_share <= 1
    assert found.cycles >= len(loop.instructions)
    assert len(annotate(loop, found).splitlines()) == len(loop.instructions)


def test_a_compiled_double_precision_loop_is_bound_by_its_pipe_where_lanes_are_few() -> None:
    kernel = read_cubin(cubin("dgemm", "sm_80")).kernels[0]
    loop = main_loop(decode(kernel.code, 80))
    assert loop is not None
    assert loop_cycles(loop, 86, 4).bound_by == "pipe"
