"""Read a cubin: the ELF64 container, its kernels and what the compiler recorded about each.

A cubin is a little-endian ELF64 file of machine 190.  Where facts lie (compared with ptxas 12.9
and 13.4's output and nvdisasm's listing of ``.nv.info``):

- machine code in ``.text.NAME``; static shared memory is the size of ``.nv.shared.NAME``,
  parameters and compiler constants fill ``.nv.constant0.NAME``;
- ``.nv.info`` holds records (format byte, attribute byte, 16-bit value or length) with, for each
  function symbol, EIATTR_REGCOUNT 0x2f, FRAME_SIZE 0x11, MIN_STACK_SIZE 0x12; ``.nv.info.NAME``
  holds one kernel's: MAX_THREADS 0x05, CBANK_PARAM_SIZE 0x19, NUM_BARRIERS 0x4c;
- the architecture is in ``e_flags``: bits [15:8] where EI_OSABI is 0x41 (CUDA 13), bits [7:0]
  where it is 0x33 (before).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Cubin", "Kernel", "read_cubin", "section_of", "section_span"]

MACHINE_CUDA = 190
OSABI_BEFORE_13, OSABI_13 = 0x33, 0x41
SHT_SYMTAB, SHT_NOBITS = 2, 8
REGCOUNT, FRAME_SIZE, MIN_STACK_SIZE = 0x2F, 0x11, 0x12
MAX_THREADS, PARAM_BYTES, NUM_BARRIERS = 0x05, 0x19, 0x4C
SIZED_RECORD = 4  # this record format carries a payload; the others carry 16 bits
RESERVED_SHARED_BYTES = 1024  # what the system keeps of a block's shared memory since sm_80
_RESERVED_IN_SECTION_SINCE = 90  # since sm_90 ptxas counts it into .nv.shared.NAME


@dataclass(frozen=True)
class Kernel:
    """One kernel of a cubin as the compiler left it.

    Parameters
    ----------
    name : str
        Its symbol.
    arch : int
        Architecture number, such as 90.
    code : bytes
        Machine code.
    registers : int
        32-bit registers of each thread.
    shared_bytes : int
        Static shared memory that the kernel declares itself, without what the
        system reserves.
    frame_bytes, stack_bytes : int
        Local memory of the kernel's own frame, and of the deepest call.
    barriers : int
        Named barriers used.
    param_bytes, constant_bytes : int
        Kernel parameters, and the whole of constant bank 0.
    max_threads : tuple of int or None
        Largest block the source promised with ``__launch_bounds__``.
    code_offset : int
        Where `code` begins in the file.
    """

    name: str
    arch: int
    code: bytes
    registers: int
    shared_bytes: int
    frame_bytes: int
    stack_bytes: int
    barriers: int
    param_bytes: int
    constant_bytes: int
    max_threads: tuple[int, int, int] | None
    code_offset: int


@dataclass(frozen=True)
class Cubin:
    """A cubin's architecture and kernels, in file order."""

    name: str
    arch: int
    kernels: tuple[Kernel, ...]

    def kernel(self, name: str | None = None) -> Kernel:
        """Return the kernel of that name; without a name, the only one.

        Raises
        ------
        ValueError
            If there is none, or if several and no name was given.
        """
        names = [k.name for k in self.kernels]
        if name is None and len(names) == 1:
            return self.kernels[0]
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        listed = ", ".join(names) or "none at all"
        raise ValueError(f"kernel={name!r} is not in {self.name}; it has {listed}: name one")


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int


def read_cubin(source: str | Path | bytes, name: str = "cubin") -> Cubin:
    """Read a cubin from a file or from its bytes.

    Parameters
    ----------
    source : str, Path or bytes
        A path, or the contents.
    name : str
        What error messages call it where `source` is bytes.

    Raises
    ------
    ValueError
        If it is not a cubin, is cut short, or contradicts itself; the message
        names it and says what is wrong.
    OSError
        If the file cannot be read.
    """
    if isinstance(source, bytes):
        return _Reader(source, name).cubin()
    return _Reader(Path(source).read_bytes(), str(source)).cubin()


def section_of(code: bytes, section: str) -> bytes:
    """Return what a cubin's section holds; nothing where it has no such section.

    Raises
    ------
    ValueError
        As for `read_cubin`.
    """
    at, size = section_span(code, section)
    return code[at : at + size]


def section_span(code: bytes, section: str) -> tuple[int, int]:
    """Return where a cubin's section begins in the file, and its bytes there; 0 if it has none.

    Raises
    ------
    ValueError
        As for `read_cubin`.
    """
    reader = _Reader(code, "cubin")
    reader.arch()
    found = (one for one in reader.sections() if one.name == section)
    return next(((one.offset, len(reader.slice(one))) for one in found), (0, 0))


class _Reader:
    """Reads with every offset checked, so that damage ends in one line."""

    def __init__(self, data: bytes, name: str) -> None:
        self.data, self.name = data, name

    def fail(self, what: str) -> ValueError:
        return ValueError(f"{self.name} is no readable cubin: {what}; compile it again")

    def unpack(self, form: str, offset: int, what: str) -> tuple[int, ...]:
        size = struct.calcsize(form)
        if offset < 0 or offset + size > len(self.data):
            raise self.fail(f"{what} lies outside its {len(self.data)} bytes")
        return struct.unpack_from(form, self.data, offset)

    def slice(self, section: _Section) -> bytes:
        if section.kind == SHT_NOBITS:
            return b""
        if section.offset + section.size > len(self.data):
            raise self.fail(f"section {section.name} lies outside its {len(self.data)} bytes")
        return self.data[section.offset : section.offset + section.size]

    def arch(self) -> int:
        """Check the header and return the architecture."""
        if self.data[:4] != b"\x7fELF":
            raise self.fail("it does not start as an ELF file")
        if self.data[4:6] != b"\x02\x01":
            raise self.fail("it is not a 64-bit little-endian ELF file")
        (machine,) = self.unpack("<H", 18, "its header")
        if machine != MACHINE_CUDA:
            raise self.fail(f"its ELF machine is {machine}, not CUDA's {MACHINE_CUDA}")
        (flags,) = self.unpack("<I", 48, "its header")
        osabi = self.data[7]
        if osabi not in (OSABI_BEFORE_13, OSABI_13):
            raise self.fail(f"its ELF OS ABI {osabi:#x} is neither CUDA 13's nor an older one")
        return flags >> 8 & 0xFF if osabi == OSABI_13 else flags & 0xFF

    def sections(self) -> list[_Section]:
        (table,) = self.unpack("<Q", 40, "its header")
        entry, count, names_at = self.unpack("<HHH", 58, "its header")
        if entry != 64:
            raise self.fail(f"its section headers have {entry} bytes, not 64")
        if names_at >= count:
            raise self.fail("it names no section string table")
        raw = [
            self.unpack("<IIQQQQIIQQ", table + 64 * i, f"section header {i}") for i in range(count)
        ]
        strings = self.slice(
            _Section("names", raw[names_at][1], 0, raw[names_at][4], raw[names_at][5], 0)
        )
        return [_Section(self.string(strings, r[0]), r[1], r[2], r[4], r[5], r[6]) for r in raw]

    def string(self, table: bytes, offset: int) -> str:
        end = table.find(b"\0", offset)
        if end < 0:
            raise self.fail("a name lies outside its string table")
        return table[offset:end].decode("utf-8", "replace")

    def symbols(self, sections: list[_Section]) -> list[str]:
        """Names of symbols by index."""
        for section in sections:
            if section.kind != SHT_SYMTAB:
                continue
            if section.link >= len(sections):
                raise self.fail("its symbol table has no strings")
            strings, table = self.slice(sections[section.link]), self.slice(section)
            return [
                self.string(strings, int.from_bytes(table[at : at + 4], "little"))
                for at in range(0, len(table) - 23, 24)
            ]
        return []

    def records(self, section: _Section) -> Iterator[tuple[int, bytes]]:
        """Yield attribute and payload of each record of an info section."""
        data, at = self.slice(section), 0
        while at + 4 <= len(data):
            form, attribute, value = struct.unpack_from("<BBH", data, at)
            payload = data[at + 2 : at + 4]
            at += 4
            if form == SIZED_RECORD:
                payload = data[at : at + value]
                if len(payload) != value:
                    raise self.fail(f"a record of {section.name} is cut short")
                at += value
            yield attribute, payload

    def cubin(self) -> Cubin:
        arch, sections = self.arch(), self.sections()
        by_name = {s.name: s for s in sections}
        per_function = self.function_records(by_name, self.symbols(sections))
        kernels = []
        for section in sections:
            # Device functions called by kernels have .text sections too, but no .nv.info of theirs.
            name = section.name.removeprefix(".text.")
            if name != section.name and f".nv.info.{name}" in by_name:
                kernels.append(self.kernel(name, arch, by_name, per_function.get(name, {})))
        return Cubin(self.name, arch, tuple(kernels))

    def function_records(
        self, sections: dict[str, _Section], symbols: list[str]
    ) -> dict[str, dict[int, int]]:
        """Return what ``.nv.info`` says of each function: attribute to value."""
        found: dict[str, dict[int, int]] = {}
        if ".nv.info" not in sections:
            return found
        for attribute, payload in self.records(sections[".nv.info"]):
            if attribute not in (REGCOUNT, FRAME_SIZE, MIN_STACK_SIZE) or len(payload) != 8:
                continue
            index, value = struct.unpack("<II", payload)
            if index >= len(symbols):
                raise self.fail(f"a record of .nv.info names symbol {index} of {len(symbols)}")
            found.setdefault(symbols[index], {})[attribute] = value
        return found

    def kernel(
        self, name: str, arch: int, sections: dict[str, _Section], facts: dict[int, int]
    ) -> Kernel:
        text = sections[f".text.{name}"]
        if REGCOUNT not in facts:
            raise self.fail(f".nv.info gives no register count for kernel {name}")
        own = dict(self.records(sections[f".nv.info.{name}"]))
        shared = sections.get(f".nv.shared.{name}")
        constant = sections.get(f".nv.constant0.{name}")
        shared_bytes = shared.size if shared else 0
        if arch >= _RESERVED_IN_SECTION_SINCE:
            shared_bytes = max(0, shared_bytes - RESERVED_SHARED_BYTES)
        threads = own.get(MAX_THREADS, b"")
        return Kernel(
            name=name,
            arch=arch,
            code=self.slice(text),
            registers=facts[REGCOUNT],
            shared_bytes=shared_bytes,
            frame_bytes=facts.get(FRAME_SIZE, 0),
            stack_bytes=facts.get(MIN_STACK_SIZE, 0),
            barriers=self.barriers(text, own),
            param_bytes=int.from_bytes(own.get(PARAM_BYTES, b"")[:2], "little"),
            constant_bytes=constant.size if constant else 0,
            max_threads=struct.unpack("<III", threads) if len(threads) == 12 else None,
            code_offset=text.offset,
        )

    def barriers(self, text: _Section, own: dict[int, bytes]) -> int:
        """Named barriers: a record since CUDA 13, bits [26:20] of the section flags before."""
        if NUM_BARRIERS in own:
            return own[NUM_BARRIERS][0]
        return text.flags >> 20 & 0x7F
