"""The register map of the main loop, against kernels whose registers are known."""

from __future__ import annotations

import pytest

from tests.sass.compiled import cubin, kept
from tests.sass.words import branch_back, ffma, word
from tilewright.sass import Loop, RegisterMap, decode, main_loop, read_cubin, register_map
from tilewright.sass.decode import decode_one


def _map(data: bytes, kernel: str | None = None) -> tuple[RegisterMap, int]:
    found = read_cubin(data).kernel(kernel)
    instructions = decode(found.code, found.arch)
    loop = main_loop(instructions)
    assert loop is not None
    return register_map(instructions, loop), found.registers


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100"])
def test_the_papers_list_of_a_kept_kernel(arch: str) -> None:
    """Section 4.1: B_R squared registers hold C; A and B come through as many as are loaded."""
    found, registers = _map(kept(arch))
    assert found.most["accumulator"] == 16
    assert found.most["prefetch"] == 4  # two floats of A and of B
    assert 8 <= found.most["fragment"] <= 24  # a row and a column of 4, loaded ahead or not
    assert found.most["shared address"] >= 1
    assert found.most["global address"] >= 2
    assert found.peak_live <= registers


@pytest.mark.parametrize(("blocking", "load"), [(4, 1), (6, 2), (8, 4)])
def test_accumulators_are_the_square_of_the_blocking(blocking: int, load: int) -> None:
    found, _ = _map(cubin("sgemm", "sm_90a", (("BR", blocking), ("LW", load))))
    assert found.most["accumulator"] == blocking**2
    # 2 * 16 * blocking * 8 floats over 256 threads; the compiler may store the first ones early.
    assert 0 < found.most["prefetch"] <= blocking


def test_accumulators_of_other_precisions_and_units() -> None:
    assert _map(cubin("dgemm", "sm_90a"))[0].most["accumulator"] == 2 * 16  # 4 x 4 doubles
    tensor = cubin("tensor", "sm_90a")
    assert _map(tensor, "hmma")[0].most["accumulator"] == 4 * 8 * 4
    assert _map(tensor, "dmma")[0].most["accumulator"] == 4 * 4 * 4
    assert _map(cubin("mixed", "sm_90a"), "half2k")[0].most["accumulator"] == 64


def test_each_register_is_listed_once() -> None:
    found, _ = _map(kept("sm_90a"))
    listed = [r for members in found.registers.values() for r in members]
    assert len(listed) == len(set(listed))
    for register, roles in found.also.items():
        assert register in listed
        assert all(register not in found.registers.get(role, ()) for role in roles)


def test_an_accumulator_that_changes_registers_counts_once() -> None:
    """R1 and R2 take turns: at no point do both hold a sum."""
    body = [ffma(2, 8, 9, 1, address=0), ffma(1, 8, 9, 2, address=16), branch_back(32, 32)]
    after = [decode_one(word(0x94D), 48, 80)]
    found = register_map([*body, *after], Loop(tuple(body)))
    assert found.most["accumulator"] == 1
    assert found.most["fragment"] == 2
    assert set(found.registers["accumulator"]) == {1, 2}


def test_an_address_made_at_the_end_serves_the_next_iteration() -> None:
    body = [
        decode_one(word(0x984, 8, 4, 0, 0, extra=4 << 73), 0, 80),  # LDS R8, [R4]
        ffma(1, 8, 9, 1, address=16),
        decode_one(word(0x210, 4, 4, 5, 255, extra=0x3F << 81), 32, 80),  # IADD3 R4, R4, R5, RZ
        branch_back(48, 48),
    ]
    after = [decode_one(word(0x94D), 64, 80)]
    found = register_map([*body, *after], Loop(tuple(body)))
    assert found.registers["shared address"] == (4, 5)  # the address, and what makes it
    assert found.most["shared address"] == 2


def test_a_register_needed_only_after_the_loop_is_held() -> None:
    body = [ffma(1, 8, 9, 1, address=0), branch_back(16, 16)]
    after = [ffma(3, 20, 1, 255, address=32), decode_one(word(0x94D), 48, 80)]
    found = register_map([*body, *after], Loop(tuple(body)))
    assert found.registers["held"] == (20,)
    assert found.peak_live == 4
