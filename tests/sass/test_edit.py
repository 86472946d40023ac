"""Editing machine code: what is set is what NVIDIA's disassembler reads, and nothing else moves."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sass import nvdisasm
from tests.sass.compiled import KEPT, kept
from tests.sass.words import branch_back, ffma
from tilewright.sass import Instruction, decode, edit, main_loop, patch, read_cubin

ARCHS = ["sm_80", "sm_90a", "sm_100"]


def _instructions(data: bytes) -> tuple[tuple[Instruction, ...], int]:
    kernel = read_cubin(data).kernel()
    return decode(kernel.code, kernel.arch), kernel.arch


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_an_untouched_kernel_is_written_back_byte_by_byte(path: Path) -> None:
    data = path.read_bytes()
    instructions, arch = _instructions(data)
    assert patch(data, instructions) == data
    same = [edit(i, arch, address=i.address, target=i.target) for i in instructions]
    assert patch(data, same) == data


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_every_field_set_to_what_it_is_changes_nothing(path: Path) -> None:
    instructions, arch = _instructions(path.read_bytes())
    for one in instructions:
        control = one.control
        again = edit(
            one,
            arch,
            **{o.slot.lower(): o.value for o in one.srcs if o.kind == "reg"},
            **({"d": one.dst[0]} if one.dst else {}),
            reuse=control.reuse,
            stall=control.stall,
            yields=control.yields,
            write_barrier=control.write_barrier,
            read_barrier=control.read_barrier,
            wait_mask=control.wait_mask,
        )
        assert again == one


registers = st.integers(0, 100)


@settings(max_examples=50)
@given(registers, registers, registers, registers, st.integers(0, 7), st.integers(0, 15))
def test_an_ffma_has_what_was_set(d: int, a: int, b: int, c: int, flags: int, stall: int) -> None:
    reuse = (bool(flags & 1), bool(flags & 2), bool(flags & 4))
    made = edit(ffma(1, 2, 3, 4), 90, d=d, a=a, b=b, c=c, reuse=reuse, stall=stall)
    assert made == ffma(d, a, b, c, flags) or stall != 1
    assert (made.dst, [o.value for o in made.srcs]) == ((d,), [a, b, c])
    assert (made.control.reuse, made.control.stall) == (reuse, stall)


@pytest.mark.parametrize("arch", ARCHS)
def test_nvdisasm_reads_the_edited_registers(arch: str, tmp_path: Path) -> None:
    """Every FFMA of a main loop with registers of its own, which lie within the kernel's."""
    data = kept(arch)
    instructions, number = _instructions(data)
    sums = [i for i in instructions if i.mnemonic == "FFMA" and len(i.reads) == 3]
    meant = {}
    for at, one in enumerate(sums):
        d, a, b, c = (at % 7, 8 + at % 5, 14 + at % 3, 18 + at % 4)
        flags = (at % 2 == 0, False, at % 3 == 0)
        meant[one.address] = edit(one, number, d=d, a=a, b=b, c=c, reuse=flags, yields=False)
    before = nvdisasm.printed(data, tmp_path)
    lines = nvdisasm.printed(patch(data, meant.values()), tmp_path)
    for address, text in lines.items():
        one = meant.get(address)
        assert text == (before[address] if one is None else str(one)), hex(address)


@pytest.mark.parametrize("arch", ARCHS)
def test_nvdisasm_follows_a_branch_that_moved(arch: str, tmp_path: Path) -> None:
    """The main loop's branch leads two instructions further; its line says so."""
    data = kept(arch)
    instructions, number = _instructions(data)
    loop = main_loop(instructions)
    assert loop is not None
    branch = loop.instructions[-1]
    made = edit(branch, number, target=loop.start + 32)
    assert made.target == loop.start + 32
    name = read_cubin(data).kernel().name
    line = nvdisasm.listing(patch(data, [made]), tmp_path)[name][branch.address]
    assert line.operands.endswith(str(loop.start + 32)) or hex(loop.start + 32) in line.operands


def test_a_branch_keeps_its_target_where_it_moves() -> None:
    branch = branch_back(64, 128)
    assert edit(branch, 80, address=96).target == branch.target


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"d": 300}, "d=300 does not fit"),
        ({"stall": 16}, "stall=16 does not fit"),
        ({"wait_mask": 64}, "wait_mask=64"),
        ({"write_barrier": 6}, "write_barrier=6 is no barrier"),
        ({"target": 0}, "is no branch"),
    ],
)
def test_what_a_field_cannot_hold_is_refused(fields: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        edit(ffma(1, 2, 3, 4), 90, **fields)


def test_wide_operands_stay_aligned() -> None:
    instructions, arch = _instructions(kept("sm_90a"))
    wide = next(i for i in instructions if i.mnemonic == "LDS" and i.access_bits == 128)
    with pytest.raises(ValueError, match="multiples of 4"):
        edit(wide, arch, d=6)
    assert edit(wide, arch, d=8).dst == (8, 9, 10, 11)


def test_an_operand_that_is_no_register_is_refused() -> None:
    instructions, arch = _instructions(kept("sm_90a"))
    branch = next(i for i in instructions if i.mnemonic == "BRA")
    with pytest.raises(ValueError, match="has no such register"):
        edit(branch, arch, b=4)


def test_an_address_outside_the_kernel_is_refused() -> None:
    data = kept("sm_90a")
    with pytest.raises(ValueError, match="is not in kernel"):
        patch(data, [edit(ffma(1, 2, 3, 4), 90, address=1 << 20)])
