"""Every instruction of the corpus against NVIDIA's disassembler: names, registers, control flow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sass import nvdisasm
from tests.sass.compiled import CORPUS, KEPT, cubin
from tilewright.sass import Instruction, decode, read_cubin
from tilewright.sass.flow import live_before

CASES = [pytest.param(path, id=path.stem) for path in KEPT] + [
    pytest.param(
        case,
        id="-".join([case[0], *(f"{k}{v}" for k, v in case[1]), case[2]]),
        marks=pytest.mark.thorough if number % 3 else (),
    )
    for number, case in enumerate(CORPUS)
]
# Not in the decoder's table, and meant to keep their number.
UNKNOWN = {"BMOV", "LEPC"}


@pytest.fixture(scope="module", params=CASES)
def pairs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[Instruction, nvdisasm.Line]]:
    data = (
        request.param.read_bytes()
        if isinstance(request.param, Path)
        else cubin(request.param[0], request.param[2], request.param[1])
    )
    listed = nvdisasm.listing(data, tmp_path_factory.mktemp("cubin"))
    found = []
    for kernel in read_cubin(data).kernels:
        for instruction in decode(kernel.code, kernel.arch):
            line = listed[kernel.name].get(instruction.address)
            if line is not None:
                found.append((instruction, line))
    assert len(found) > 50, "the listing and the cubin do not share their kernels"
    return found


Pairs = list[tuple[Instruction, nvdisasm.Line]]


def _known(pairs: Pairs) -> Iterator[tuple[Instruction, nvdisasm.Line]]:
    return ((i, line) for i, line in pairs if i.known)


def test_every_mnemonic_agrees(pairs: Pairs) -> None:
    for instruction, line in pairs:
        name = line.opcode.split(".")[0]
        if not instruction.known:
            assert name in UNKNOWN, f"{instruction} is {line.opcode}"
            assert instruction.mnemonic == f"OP_{instruction.raw & 0xFFF:03X}"
        else:
            assert instruction.mnemonic == name, f"{instruction.address:#x}"


def test_modifiers_that_are_named_are_printed_there_too(pairs: Pairs) -> None:
    for instruction, line in _known(pairs):
        printed = line.opcode.split(".")[1:]
        assert set(instruction.modifiers) <= set(printed), f"{instruction} is {line.opcode}"


def test_widths_of_memory_instructions_are_never_left_out(pairs: Pairs) -> None:
    for instruction, line in _known(pairs):
        if instruction.mnemonic in ("LDS", "STS", "LDG", "STG", "LDL", "STL", "LDGSTS"):
            printed = set(line.opcode.split(".")) & {"64", "128", "U8", "S8", "U16", "S16"}
            assert printed == set(instruction.modifiers) - {"E"}, f"{instruction} is {line.opcode}"


def test_guards_agree(pairs: Pairs) -> None:
    for instruction, line in _known(pairs):
        # The JSON of nvdisasm calls the PR operand of P2R a predicate.
        if line.predicate != "PR":
            assert str(instruction.guard) == line.predicate, f"{instruction} is {line.opcode}"


@pytest.mark.parametrize("file", ["GPR", "PRED", "UGPR"])
def test_registers_written_agree(pairs: Pairs, file: str) -> None:
    for instruction, line in _known(pairs):
        mine = {
            "GPR": instruction.dst,
            "PRED": instruction.dst_predicates,
            "UGPR": instruction.udst,
        }[file]
        # nvdisasm counts what the called function does as done by the call.
        if file in line.written and instruction.mnemonic != "CALL":
            shown = {r for r in mine if r < line.shown[file]}
            assert shown == line.written[file], f"{instruction} is {line.opcode} {line.operands}"


@pytest.mark.parametrize("file", ["GPR", "UGPR"])
def test_registers_read_agree(pairs: Pairs, file: str) -> None:
    for instruction, line in _known(pairs):
        mine = {"GPR": instruction.reads, "UGPR": instruction.ureads}[file]
        if file in line.read and instruction.mnemonic != "CALL":
            shown = {r for r in mine if r < line.shown[file]}
            assert shown == line.read[file], f"{instruction} is {line.opcode} {line.operands}"


def test_reuse_flags_agree(pairs: Pairs) -> None:
    for instruction, line in _known(pairs):
        printed = re.findall(r"R(\d+)[^,]*?\.reuse", line.operands)
        mine = [str(s.value) for s in instruction.srcs if s.kind == "reg" and s.reuse]
        assert sorted(mine) == sorted(printed), f"{instruction} is {line.opcode} {line.operands}"


def test_operands_of_arithmetic_agree_in_order(pairs: Pairs) -> None:
    checked = 0
    for instruction, line in _known(pairs):
        if instruction.mnemonic in ("FFMA", "DFMA", "IMAD", "FMUL", "FADD", "DADD", "DMUL"):
            # The destination is printed first; carries and predicates are no registers.
            printed = re.findall(r"\b(U?R(?:\d+|Z))\b|(c\[0x\w+\]\[0x\w+\])", line.operands)[1:]
            mine = [str(s).removesuffix(".reuse") for s in instruction.srcs if s.kind != "imm"]
            assert mine == [a or b for a, b in printed], f"{instruction} is {line.operands}"
            checked += 1
    assert checked


def test_branch_targets_agree(pairs: Pairs) -> None:
    for instruction, line in _known(pairs):
        printed = re.search(r"(?:^|,)0x([0-9a-f]+)$", line.operands)
        if instruction.mnemonic in ("BRA", "BSSY") and printed:
            assert instruction.target == int(printed[1], 16), f"{instruction} is {line.operands}"


def test_offsets_of_memory_instructions_agree(pairs: Pairs) -> None:
    for instruction, line in _known(pairs):
        if instruction.offset is None:
            continue
        address = re.search(r"\[((?:U?R|[+-]|0x)[^\]]*)\]", line.operands.replace("desc[UR", "("))
        assert address is not None, line.operands
        printed = re.search(r"(?:^|\+)(-?0x[0-9a-f]+)$", address[1])
        expected = int(printed[1], 16) if printed else 0
        assert instruction.offset == expected, f"{instruction} is {line.opcode} {line.operands}"


def test_live_registers_agree(request: pytest.FixtureRequest, pairs: Pairs) -> None:
    """Every point agrees, but in dgemm, which loads under a predicate and its opposite.

    nvdisasm sees that one of the two writes happens and ends the old value's life there; here a
    write under a predicate never does.  So the difference may only be registers too many.
    """
    complementary = "dgemm" in request.node.name
    by_kernel: list[Pairs] = []
    for pair in pairs:
        if pair[0].address == 0:
            by_kernel.append([])
        by_kernel[-1].append(pair)
    points = wrong = 0
    for kernel in by_kernel:
        instructions = [i for i, _ in kernel]
        if any(i.mnemonic == "CALL" or not i.known for i in instructions):
            continue
        for mine, (_, line) in zip(live_before(instructions), kernel, strict=True):
            if "GPR" in line.live:
                points += 1
                # R1 is the stack pointer: live by convention, whoever reads it.
                wrong += mine - {1} != line.live["GPR"] - {1}
                assert line.live["GPR"] - {1} <= mine, f"{line.opcode} {line.operands}"
    assert wrong <= (0.30 if complementary else 0.0) * points
