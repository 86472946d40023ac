"""A portfolio: the kernels that serve an architecture and a precision, in a folder of files.

::

    s.json               device, kernels (geometry, modes, costs), codes (digest, symbol, ...)
    s-0123456789abcdef.xz    machine code in compressed blocks, one behind the other: a block
                         holds a kernel's instances, and is unpacked as far as one is needed

What a file says is data: it is checked when it is read, and machine code is loaded only where its
digest is the one that the manifest names.  Digests say that a file is whole, not that it is good:
folders from outside the package are read only where the user owns them (`tilewright.paths`).
"""

from __future__ import annotations

import hashlib
import json
import lzma
import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tilewright.dataclass import dataclass
from tilewright.hardware import DeviceSpec
from tilewright.paths import write_atomically
from tilewright.portfolio.kernel import Code, KernelRows, PortfolioKernel
from tilewright.stencil import Variant
from tilewright.text import reason

__all__ = ["Copying", "Portfolio", "PortfolioError", "read_portfolio", "write_portfolio"]

_FORMAT = 1

# Far above any block's machine code: a damaged file cannot fill the memory.
_LIMIT_BYTES = 1 << 28

# Blocks that stay unpacked, a megabyte or less each: the instances of a kernel are wanted together.
_KEPT_BLOCKS = 8

# A block that two threads unpack at once is damaged for both.
_unpacking = threading.Lock()

# A block's kernels repeat each other's machine code; `lp` and `pb` say that instructions are 16
# bytes long.
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": 1 << 24, "lc": 0, "lp": 4, "pb": 4}]

_REPEATED = ("symbol", "second", "part_bytes", "shared_bytes", "compiler", "rescheduled", "checked")

# Kernels that are fast on one member of a generation are so on others (114 to 132 multiprocessors
# for Hopper), not on a slice of a GPU, whose share of caches and memory is another.
_ALIKE = 0.8


# A data file's name: of the folder, and of nothing beside or above it.
_FILE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")

# What a document that is something else leads to.
_WRONG = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)


class PortfolioError(ValueError):
    """A portfolio's file is damaged, or none at all; the message is one line."""


@dataclass(frozen=True)
class Copying:
    """How long a pass over memory takes that copies an operand (realign.cl).

    Parameters
    ----------
    begin_ns : float
        Whatever its size.
    bytes_per_ns : float
        Of those that it reads and writes.
    """

    begin_ns: float
    bytes_per_ns: float

    def ns(self, size: int) -> float:
        """Return the nanoseconds that a copy of so many bytes takes."""
        return self.begin_ns + 2 * size / self.bytes_per_ns


@dataclass(frozen=True, eq=False)
class Portfolio:
    """What serves calls of one precision on one architecture.

    Parameters
    ----------
    name : str
        A precision's letter, or ``"passes"`` for what every precision launches besides.
    arch : str
        What the machine code is for, such as ``"sm_90a"``; empty where configs alone are held.
    device : str
        The model that it was measured on, as its driver reports it.
    compute_capability, multiprocessors : int or None
        Of that device.
    kernels : sequence of PortfolioKernel
        For GEMM.
    codes : Mapping
        Machine code by digest.
    sources : Mapping
        Digests by the identity of a source (`Source.identity`): what has no config.
    copying : Copying, optional
        Of operands; None where it was not measured.
    made : Mapping
        When, by which commit, from what.
    folder : Path, optional
        Where its files are.
    data : str
        The file with the machine code.
    blocks : Mapping
        Where each block begins in that file, and its bytes.
    """

    name: str
    arch: str
    device: str
    compute_capability: int | None
    multiprocessors: int
    kernels: Sequence[PortfolioKernel]
    codes: Mapping[str, Code] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    copying: Copying | None = None
    made: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    data: str = ""
    blocks: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def measured_on(self) -> tuple[str, int]:
        """The model of device that it was measured on, and how many multiprocessors it had."""
        return self.device, self.multiprocessors

    def fits(self, device: DeviceSpec) -> bool:
        """Whether it was measured on as many multiprocessors, so that what won there wins here.

        An H200 has an H100's, and faster memory: what won on an H100 served squares and layers of
        language models there better than what is expected to be fast.
        """
        here = device.compute_capability, device.multiprocessors
        return here == (self.compute_capability, self.multiprocessors)

    def serves(self, device: DeviceSpec) -> bool:
        """Whether kernels that are fast there are fast here."""
        few, many = sorted((device.multiprocessors, self.multiprocessors))
        alike = device.compute_capability == self.compute_capability and few >= _ALIKE * many
        return alike or device.name == self.device

    def of_variant(self, variant: Variant) -> tuple[PortfolioKernel, ...]:
        """Return the kernels of a variant."""
        if isinstance(self.kernels, KernelRows):
            return self.kernels.of(variant)
        return tuple(one for one in self.kernels if one.variant == variant)

    @cached_property
    def _unpacked(self) -> OrderedDict[str, _Block]:
        return OrderedDict()

    def machine_code(self, digest: str) -> bytes:
        """Return a cubin.

        Raises
        ------
        PortfolioError
            If it is missing or not what the manifest names.
        """
        code = self.codes.get(digest)
        if code is None or self.folder is None:
            raise PortfolioError(f"portfolio {self.name!r} has no machine code {digest[:12]}")
        with _unpacking:
            block = self._unpacked.get(code.block)
            if block is None:
                block = self._unpacked[code.block] = _Block(self._packed(code.block))
                if len(self._unpacked) > _KEPT_BLOCKS:
                    self._unpacked.popitem(last=False)
            try:
                found = block.cut(code.at, code.size)
            except lzma.LZMAError as error:
                raise PortfolioError(f"{self.data} cannot be read: {error}") from None
        if hashlib.sha256(found).hexdigest() != digest:
            raise PortfolioError(
                f"{self.data} of portfolio {self.name!r} is damaged: {code.block} differs from its"
                " digest; install the package again, or build the portfolio again"
            )
        return found

    def _packed(self, name: str) -> bytes:
        at, size = self.blocks.get(name, (0, 0))
        assert self.folder is not None
        try:
            with self.folder.joinpath(self.data).open("rb") as file:
                file.seek(at)
                return file.read(size)
        except OSError as error:
            raise PortfolioError(f"{self.data} cannot be read: {error}") from None


class _Block:
    """A compressed block, unpacked as far as somebody asked for: often not beyond a third.

    Parameters
    ----------
    packed : bytes
        As the data file has it.
    """

    def __init__(self, packed: bytes) -> None:
        self._packed, self._unpacker = packed, lzma.LZMADecompressor()
        self._found = bytearray()

    def cut(self, at: int, size: int) -> bytes:
        """Return some bytes of the block; fewer where it ends before.

        Raises
        ------
        lzma.LZMAError
            If the block is damaged.
        """
        end = min(at + size, _LIMIT_BYTES)
        while len(self._found) < end and not self._unpacker.eof:
            piece = self._unpacker.decompress(self._packed, end - len(self._found))
            if not piece and not self._packed:
                break  # damaged: it ends before its end
            self._packed = b""  # the unpacker has it
            self._found += piece
        return bytes(self._found[at : at + size])


def read_portfolio(folder: Path, name: str, *, trusted: bool = False) -> Portfolio:
    """Return a portfolio of a folder.

    Parameters
    ----------
    folder : Path
        Where its files are.
    name : str
        A precision's letter, or ``"passes"``.
    trusted : bool
        Whether kernels are read one by one when they are wanted, as those of the package.

    Raises
    ------
    PortfolioError
        If there is none of that name, or it is no portfolio.
    """
    file = folder / f"{name}.json"
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise PortfolioError(f"portfolio {name!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise PortfolioError(f"{file} is no portfolio: it is no text") from None
    try:
        return _portfolio(json.loads(text), name, folder, trusted)
    except _WRONG as error:
        raise PortfolioError(f"{file} is no portfolio: {reason(error)}") from None


def _portfolio(document: Any, name: str, folder: Path, trusted: bool) -> Portfolio:
    if document["format"] != _FORMAT:
        raise ValueError(f"format={document['format']!r}, this version reads {_FORMAT}")
    usual = dict(document["usual"])
    codes = [
        Code(**{"digest": digest, **usual, **row}) for digest, row in document["codes"].items()
    ]
    blocks = {str(key): (int(at), int(size)) for key, (at, size) in document["blocks"].items()}
    data = str(document["data"])
    if not _FILE.fullmatch(data):
        raise ValueError(f"data={data!r} is no file of the folder")
    for one in codes:
        if one.block not in blocks or min(one.at, one.size, *blocks[one.block]) < 0:
            raise ValueError(f"block={one.block!r} is no block of the data")
    kernels: Sequence[PortfolioKernel] = KernelRows(document["kernels"])
    if not trusted:  # a kernel that is none is found now, not by a call
        kernels = tuple(kernels)
        for sizes in (sizes for one in kernels for sizes in one.won):
            if not all(0 <= side < 1 << 63 for side in sizes):
                raise ValueError(f"won={sizes} are no sizes")
    capability, copying = document["compute_capability"], document.get("copying")
    return Portfolio(
        name,
        str(document["arch"]),
        str(document["device"]),
        None if capability is None else int(capability),
        int(document["multiprocessors"]),
        kernels,
        {one.digest: one for one in codes},
        {str(key): str(digest) for key, digest in document.get("sources", {}).items()},
        None if copying is None else Copying(float(copying[0]), float(copying[1])),
        dict(document.get("made", {})),
        folder,
        data,
        blocks,
    )


def write_portfolio(
    folder: Path, portfolio: Portfolio, blocks: Mapping[str, Iterable[tuple[Code, bytes]]]
) -> Portfolio:
    """Write a portfolio's files, the manifest last; return it as it reads.

    Readers see the old portfolio or all of the new: data have another name each time.

    Parameters
    ----------
    folder : Path
        Where to.
    portfolio : Portfolio
        Without codes.
    blocks : Mapping
        By name what each block holds: codes, whose places are filled in, with their machine code.
    """
    codes, places, data = {}, {}, bytearray()
    for name, members in blocks.items():
        whole = bytearray()
        for code, machine_code in members:
            row = asdict(code) | {"block": name, "at": len(whole)}
            codes[row.pop("digest")] = row
            whole += machine_code
        packed = lzma.compress(bytes(whole), lzma.FORMAT_XZ, lzma.CHECK_CRC32, filters=_FILTERS)
        places[name] = [len(data), len(packed)]
        data += packed
    file = f"{portfolio.name}-{hashlib.sha256(data).hexdigest()[:16]}.xz"
    write_atomically(folder / file, bytes(data))
    # What most codes have in common is said once.
    usual = {
        key: Counter(row[key] for row in codes.values()).most_common(1)[0][0]
        for key in _REPEATED
        if codes
    }
    copying = portfolio.copying
    document = {
        "format": _FORMAT,
        "arch": portfolio.arch,
        "device": portfolio.device,
        "compute_capability": portfolio.compute_capability,
        "multiprocessors": portfolio.multiprocessors,
        "made": dict(portfolio.made),
        "copying": None if copying is None else [copying.begin_ns, copying.bytes_per_ns],
        "data": file,
        "blocks": places,
        "kernels": [one.to_json() for one in portfolio.kernels],
        "usual": usual,
        "codes": {
            digest: {key: x for key, x in row.items() if x != usual.get(key)}
            for digest, row in codes.items()
        },
        "sources": dict(portfolio.sources),
    }
    rows = ",\n".join(f'"{key}": {_dump(value)}' for key, value in document.items())
    write_atomically(folder / f"{portfolio.name}.json", f"{{\n{rows}\n}}\n".encode())
    for other in folder.glob(f"{portfolio.name}-*.xz"):
        if other.name != file:
            other.unlink(missing_ok=True)
    return read_portfolio(folder, portfolio.name)


def _dump(value: Any) -> str:
    """Return JSON with a line for each row, so that versions of a file can be compared."""

    def short(one: Any) -> str:
        return json.dumps(one, separators=(",", ":"))

    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(map(short, value)) + "\n]"
    if isinstance(value, dict) and value and isinstance(next(iter(value.values())), dict | str):
        return "{\n" + ",\n".join(f"{short(k)}:{short(v)}" for k, v in value.items()) + "\n}"
    return short(value)
