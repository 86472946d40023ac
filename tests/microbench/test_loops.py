"""Loops are exactly what was asked for, by NVIDIA's reading too, or they are refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.microbench.compiled import banks, compiled, narrow, trip
from tests.sass import nvdisasm
from tilewright.microbench.loops import LoopRejectedError, Slot, Template, check_names, template
from tilewright.microbench.rates import KINDS
from tilewright.sass import decode, patch, read_cubin
from tilewright.sass.decode import decode_one
from tilewright.stencil import Source


def _body(loop: Template, count: int) -> list[Slot]:
    """Return multiply-adds with a load between every eight."""
    even, odd = banks(loop)
    body = []
    for i in range(count):
        if i % 8 == 0:
            body.append(Slot("LDS.128", 20))
        else:
            body.append(Slot("FFMA", odd[i % 9], even[1], even[2 + i % 6], odd[i % 9], reuse=1))
    return body


def test_a_filled_loop_is_its_body_and_what_counts_the_trips() -> None:
    loop = narrow()
    body = _body(loop, 200)
    found = trip(loop, body)
    assert len(found.instructions) == 200 + loop.overhead
    names = found.names()
    assert names["FFMA"] == 175
    assert names["LDS.128"] == 25
    assert found.end == loop.end  # slots left over lie before the loop, and run once


def test_nothing_but_the_loop_and_the_wait_behind_it_changes() -> None:
    loop = narrow()
    before, after = loop.cubin.code, loop.filled(_body(loop, 200)).code
    start = read_cubin(before).kernel().code_offset
    changed = [i for i in range(len(before)) if before[i] != after[i]]
    assert len(before) == len(after)
    assert start + loop.start <= min(changed)
    assert max(changed) < start + loop.end + 32


def test_nvdisasm_reads_the_same_loop(tmp_path: Path) -> None:
    loop = narrow()
    body = _body(loop, 80)
    made = loop.filled(body).code
    lines = nvdisasm.listing(made, tmp_path)["loop"]
    first = loop.end - 16 * (len(body) + loop.overhead - 1)
    read = [lines[first + 16 * i] for i in range(len(body) + loop.overhead)]
    sums = [line for line in read if line.opcode == "FFMA"]
    wanted = [slot for slot in body if slot.kind == "FFMA"]
    assert [line.operands for line in sums] == [
        f"R{s.d},R{s.a}.reuse,R{s.b},R{s.c}" for s in wanted
    ]
    assert sum(line.opcode == "LDS.128" for line in read) == 10
    assert read[-1].opcode == "BRA"


def test_the_loop_keeps_out_of_registers_that_mean_something() -> None:
    loop = narrow()
    kernel = read_cubin(loop.cubin.code).kernel()
    load = loop.kinds["LDS"].srcs[0].value
    assert load not in loop.registers
    assert max(loop.registers) < kernel.registers
    with pytest.raises(ValueError, match="names registers"):
        loop.filled([Slot("FFMA", load, 255, 255, 255)] * 100)


@pytest.mark.parametrize("count", [10, 1000])
def test_a_body_that_does_not_fit_is_refused(count: int) -> None:
    loop = narrow()
    with pytest.raises(ValueError, match=f"body={count} instructions"):
        loop.filled([Slot("FFMA", 255)] * count)


def test_a_loop_with_another_instruction_is_rejected() -> None:
    """The check decodes what is in the cubin, not what was meant to be written."""
    loop = narrow()
    even, odd = banks(loop)
    body = [Slot("FFMA", odd[0], even[0], even[1], odd[0])] * 100
    wrong = dataclasses.replace(loop, kinds={**loop.kinds, "FFMA": loop.kinds["DFMA"]})
    with pytest.raises(LoopRejectedError, match="DFMA"):
        wrong.filled(body)


def test_a_kernel_without_the_loop_is_no_template() -> None:
    text = 'extern "C" __global__ void loop(float *x) { x[threadIdx.x] *= 2; }'
    with pytest.raises(LoopRejectedError, match="0 loops"):
        template(compiled(Source(text, {}, "loop")))


def test_a_loop_without_a_clock_behind_it_is_no_template() -> None:
    loop = narrow()
    instructions = decode(read_cubin(loop.cubin.code).kernel().code, 90)
    clocks = [i for i in instructions if i.mnemonic == "CS2R" and i.address > loop.end]
    untimed = patch(loop.cubin.code, [decode_one(loop.nothing.raw, i.address, 90) for i in clocks])
    with pytest.raises(LoopRejectedError, match="clock is not read"):
        template(dataclasses.replace(loop.cubin, code=untimed))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_rate_loop_is_of_its_instruction_alone(kind: object) -> None:
    code = compiled(kind.source()).code
    fillers = kind.check(code)
    kernel = read_cubin(code).kernel()
    assert fillers >= 0
    assert kernel.frame_bytes == 0 or kind.name == "dmma_16x8x16"  # no sum lies in memory
    assert kernel.registers * 32 * max(kind.warps) <= 65536


def test_a_rate_loop_with_too_few_or_other_instructions_is_rejected() -> None:
    kind = KINDS[0]
    code = compiled(kind.source()).code
    with pytest.raises(LoopRejectedError, match="no loop has exactly"):
        check_names(code, {"FFMA": kind.instructions + 1}, 3)
    with pytest.raises(LoopRejectedError, match="no loop has exactly"):
        check_names(code, {"FFMA": kind.instructions}, 2)
    instructions = decode(read_cubin(code).kernel().code, 90)
    sums = [i for i in instructions if i.mnemonic == "FFMA"]
    nothing = next(i for i in instructions if i.mnemonic == "NOP")
    one_less = patch(code, [decode_one(nothing.raw, sums[9].address, 90)])
    with pytest.raises(LoopRejectedError, match="no loop has exactly"):
        check_names(one_less, {"FFMA": kind.instructions}, 3)


def test_warpgroup_multiplies_of_bytes_are_read_as_nvdisasm_does(tmp_path: Path) -> None:
    kind = next(kind for kind in KINDS if kind.name == "wgmma_s8")
    code = compiled(kind.source()).code
    lines = nvdisasm.listing(code, tmp_path)["loop"]
    found = [i for i in decode(read_cubin(code).kernel().code, 90) if i.mnemonic == "IGMMA"]
    assert len(found) == kind.instructions
    for one in found:
        assert lines[one.address].opcode.startswith(one.name)
        assert one.dst == tuple(range(one.dst[0], one.dst[0] + 128))
