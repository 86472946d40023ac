"""Decoding by hand-made words and refusals; the corpus is compared in test_against_nvdisasm."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sass.compiled import kept
from tests.sass.words import LDS, ffma, word
from tilewright.sass import decode, read_cubin
from tilewright.sass.decode import controls, decode_one, opcodes


def test_an_ffma_names_its_slots_and_reuse() -> None:
    found = ffma(122, 16, 44, 75, reuse=1)
    assert str(found) == "FFMA R122, R16.reuse, R44, R75"
    assert [(s.slot, s.registers) for s in found.srcs] == [("A", (16,)), ("B", (44,)), ("C", (75,))]
    assert found.dst == (122,)
    assert found.reads == {16, 44, 75}


def test_a_wide_load_writes_a_range() -> None:
    found = decode_one(word(LDS, 16, 15, 0, 0, extra=6 << 73 | 0x100 << 40), 0, 90)
    assert found.name == "LDS.128"
    assert found.dst == (16, 17, 18, 19)
    assert found.offset == 0x100
    assert found.access_bits == 128


@pytest.mark.parametrize("offset", [0, 0x100, 0x7FFFFC, -4, -0x800000])
def test_offsets_are_24_bits_with_a_sign(offset: int) -> None:
    raw = word(LDS, 16, 15, 0, 0, extra=4 << 73 | (offset & 0xFFFFFF) << 40)
    assert decode_one(raw, 0, 90).offset == offset


def test_rz_is_no_register() -> None:
    found = ffma(255, 255, 4, 255)
    assert found.dst == ()
    assert found.reads == {4}


def test_control_fields() -> None:
    raw = word(0x223, 1, 2, 3, 4, stall=13, write=2, wait=0b100101, reuse=0b101)
    found = decode_one(raw, 0, 90).control
    assert (found.stall, found.yields) == (13, False)
    assert (found.write_barrier, found.read_barrier) == (2, None)
    assert found.waits == (0, 2, 5)
    assert found.reuse == (True, False, True)
    assert decode_one(raw & ~(1 << 109), 0, 90).control.yields


def test_the_same_number_means_another_operation_on_a_later_architecture() -> None:
    assert decode_one(word(0x235, 1, 2, 3, 4), 0, 90).mnemonic == "HFMA2"
    assert decode_one(word(0x235, 1, 2, 3, 4), 0, 120).mnemonic == "IADD"


def test_an_unknown_opcode_keeps_its_number_and_claims_nothing() -> None:
    found = decode_one(word(0xFFF, 1, 2, 3, 4), 32, 90)
    assert (found.mnemonic, found.known, found.address) == ("OP_FFF", False, 32)
    assert (found.dst, found.srcs) == ((), ())


@given(st.integers(0, 2**128 - 1), st.sampled_from([70, 75, 80, 90, 100, 120]))
def test_any_128_bits_decode(raw: int, arch: int) -> None:
    found = decode_one(raw, 0, arch)
    assert found.raw == raw
    assert str(found)
    assert all(0 <= r < 256 + 32 for r in (*found.dst, *found.reads))


def test_older_architectures_are_refused() -> None:
    with pytest.raises(ValueError, match="arch=sm_61 has another instruction format; compile for"):
        decode(b"", 61)


def test_a_cut_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="code=20 bytes is no multiple of 16"):
        decode(bytes(20), 90)


def test_opcodes_and_controls_agree_with_whole_decoding() -> None:
    kernel = read_cubin(kept("sm_90a")).kernels[0]
    whole = decode(kernel.code, 90)
    assert opcodes(kernel.code, 90).tolist() == [i.opcode for i in whole]
    words = np.frombuffer(kernel.code, "<u8").reshape(-1, 2)
    assert controls(words) == [i.control for i in whole]
