"""Offsets of instructions that a cubin keeps elsewhere, for machine code that has been moved.

``.nv.info.NAME`` has records of instructions that debuggers and the driver look up: lists of 32-bit
offsets from the kernel's first instruction.  Attributes are as `cuobjdump -elf` names them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from tilewright.sass.decode import INSTRUCTION_BYTES
from tilewright.sass.edit import RefusedError
from tilewright.sass.elf import SIZED_RECORD, section_span

__all__ = ["with_places"]

# What lists places, all named ..._INSTR_OFFSETS: EXIT, S2RCTAID, COOP_GROUP, INT_WARP_WIDE.
_LISTS = frozenset((0x1C, 0x1D, 0x28, 0x31))
# What has small numbers of other things: MAX_THREADS, PARAM_CBANK, KPARAM_INFO, CRS_STACK_SIZE,
# COOP_GROUP_MASK_REGIDS, SW_WAR, CUDA_API_VERSION, CTA_PER_CLUSTER, EXPLICIT_CLUSTER.
_WITHOUT = frozenset((0x05, 0x0A, 0x17, 0x1E, 0x29, 0x36, 0x37, 0x3D, 0x3E))


def with_places(cubin: bytes, kernel: str, where: Mapping[int, int]) -> bytes:
    """Return a cubin whose records name the new places of a kernel's instructions.

    Parameters
    ----------
    cubin : bytes
        The ELF file.
    kernel : str
        Whose instructions were moved.
    where : mapping of int
        New place by old place, in bytes from the kernel's first instruction.

    Raises
    ------
    RefusedError
        If the text has relocations, or a record may name places in a way not known here.
    """
    if any(section_span(cubin, f"{kind}.text.{kernel}")[1] for kind in (".rel", ".rela")):
        raise RefusedError(f"the text of {kernel} has relocations")
    made = bytearray(cubin)
    _, text = section_span(cubin, f".text.{kernel}")
    at, size = section_span(cubin, f".nv.info.{kernel}")
    end = at + size
    while at + 4 <= end:
        form, attribute, value = struct.unpack_from("<BBH", cubin, at)
        length = value if form == SIZED_RECORD else 0
        at += 4
        if attribute in _LISTS:
            for each in range(at, at + length, 4):
                (place,) = struct.unpack_from("<I", cubin, each)
                if place not in where:
                    raise RefusedError(f"a record of {kernel} names {place:#x}, which never runs")
                struct.pack_into("<I", made, each, where[place])
        elif attribute not in _WITHOUT and _may_name_places(cubin[at : at + length], text):
            raise RefusedError(f"record {attribute:#x} of {kernel} may name places in the text")
        at += length
    return bytes(made)


def _may_name_places(payload: bytes, text: int) -> bool:
    """Whether any 32-bit word of a record that is not known could be an instruction's offset.

    Records of 16 bits have none: they hold a number or a flag.
    """
    words = (int.from_bytes(payload[at : at + 4], "little") for at in range(0, len(payload), 4))
    return any(word % INSTRUCTION_BYTES == 0 and word < text for word in words)
