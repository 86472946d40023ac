"""Records of a cubin that name instructions follow them to where they were moved."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from tests.sass.compiled import kept
from tilewright.backend.cuda.instruction_offsets import with_places
from tilewright.sass import RefusedError, decode, read_cubin
from tilewright.sass.elf import section_of, section_span

# Attributes, as `cuobjdump -elf` names them.
MAXREG_COUNT, EXITS, S2RCTAID, COOP_GROUPS, WARP_WIDE = 0x1B, 0x1C, 0x1D, 0x28, 0x31
INFO = ".nv.info.sgemm"
CUBIN = kept("sm_80")
CODE = read_cubin(CUBIN).kernel().code
(EXIT,) = (one.address for one in decode(CODE, 80) if one.mnemonic == "EXIT")
# As if everything had moved eight instructions towards the end.
MOVED = {place: place + 128 for place in range(0, 8192, 16)}


def records(cubin: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield each record of the kernel: where it begins in the file, its attribute, what it says."""
    at, size = section_span(cubin, INFO)
    end = at + size
    while at < end:
        form, attribute, value = struct.unpack_from("<BBH", cubin, at)
        length = value if form == 4 else 0
        yield at, attribute, cubin[at + 4 : at + 4 + length]
        at += 4 + length


def renamed(cubin: bytes, attribute: int, now: int) -> bytes:
    """Return a cubin whose record has another attribute."""
    made = bytearray(cubin)
    (at,) = (at for at, had, _ in records(cubin) if had == attribute)
    made[at + 1] = now
    return bytes(made)


@pytest.mark.parametrize("attribute", [EXITS, S2RCTAID, COOP_GROUPS, WARP_WIDE])
def test_a_list_of_places_names_the_new_ones_and_nothing_else_changes(attribute: int) -> None:
    cubin = renamed(CUBIN, EXITS, attribute)
    (before,) = ((at, said) for at, found, said in records(cubin) if found == attribute)
    assert before[1] == struct.pack("<I", EXIT)
    made = with_places(cubin, "sgemm", MOVED)
    at = before[0] + 4
    assert made[at : at + 4] == struct.pack("<I", EXIT + 128)
    assert made[:at] + cubin[at : at + 4] + made[at + 4 :] == cubin


def test_every_place_of_a_list_is_looked_up() -> None:
    """Sizes of parameters become places here: lists are as long as their records say."""
    cubin = renamed(CUBIN, 0x05, WARP_WIDE)  # three numbers: 256, 1, 1
    made = with_places(cubin, "sgemm", {**MOVED, 256: 512, 1: 16})
    assert [said for _, found, said in records(made) if found == WARP_WIDE] == [
        struct.pack("<III", 512, 16, 16)
    ]
    with pytest.raises(RefusedError, match="a record of sgemm names 0x1, which never runs"):
        with_places(cubin, "sgemm", MOVED)


def test_where_everything_stays_so_does_the_cubin() -> None:
    assert with_places(CUBIN, "sgemm", {place: place for place in MOVED}) == (CUBIN)


def test_a_place_that_never_runs_is_refused() -> None:
    where = {old: new for old, new in MOVED.items() if old != EXIT}
    with pytest.raises(RefusedError, match=f"names {EXIT:#x}, which never runs"):
        with_places(CUBIN, "sgemm", where)


@pytest.mark.parametrize("attribute", [0x02, 0x34, 0x39, 0xEE])
def test_a_record_that_is_not_known_is_refused(attribute: int) -> None:
    """Jump tables and indirect branches, 0x34, name places; what is new might."""
    cubin = renamed(CUBIN, EXITS, attribute)
    with pytest.raises(RefusedError, match=f"record {attribute:#x} of sgemm may name places"):
        with_places(cubin, "sgemm", MOVED)


@pytest.mark.parametrize("name", [b".rel.text.sgemm", b".rela.text.sgemm"])
def test_a_text_with_relocations_is_refused(name: bytes) -> None:
    """They name places in it; here a section of others takes their name."""
    cubin = CUBIN
    other = b".rel.debug_frame\0"
    cubin = cubin.replace(other, name.ljust(len(other), b"\0"))
    assert section_of(cubin, name.decode())
    with pytest.raises(RefusedError, match="the text of sgemm has relocations"):
        with_places(cubin, "sgemm", MOVED)


def test_relocations_that_there_are_none_of_do_not_matter() -> None:
    """Newer compilers write the section all the same."""
    cubin = kept("sm_90a")
    assert b".rela.text.sgemm\0" in cubin
    assert section_span(cubin, ".rela.text.sgemm")[1] == 0
    assert with_places(cubin, "sgemm", MOVED) != cubin


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_what_the_newest_compiler_writes_is_known(arch: str) -> None:
    assert with_places(kept(arch), "sgemm", MOVED) != kept(arch)


def test_a_section_is_where_its_bytes_are() -> None:
    at, size = section_span(CUBIN, ".text.sgemm")
    assert (at, size) == (read_cubin(CUBIN).kernel().code_offset, len(CODE))
    assert CUBIN[at : at + size] == CODE == section_of(CUBIN, ".text.sgemm")
    assert section_span(CUBIN, ".text.other") == (0, 0)
    assert section_span(CUBIN, ".nv.shared.sgemm")[1] == 0  # it has a size, and no bytes
