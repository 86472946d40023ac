"""A portfolio: the kernels that serve an architecture and a precision, in a folder of files.

::

    s.json        device, kernels (geometry, modes, costs), codes (digest, symbol, shared memory)
    s-NN.xz       machine code of the kernels of one transpose pair, one behind the other
    s-NT.xz       ...

What a file says is data: it is checked when it is read, and machine code is loaded only where its
digest is the one that the manifest names.  Digests say that a file is whole, not that it is good:
folders from outside the package are read only where the user owns them (`tilewright.paths`).
"""

from __future__ import annotations

import hashlib
import json
import lzma
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from tilewright.hardware import DeviceSpec
from tilewright.paths import write_atomically
from tilewright.portfolio.kernel import Code, PortfolioKernel
from tilewright.stencil import Variant

__all__ = ["Copying", "Portfolio", "PortfolioError", "read_portfolio", "write_portfolio"]

_FORMAT = 1

# Far above any block's machine code: a damaged file cannot fill the memory.
_LIMIT_BYTES = 1 << 28

# Kernels that are fast on one member of a generation are so on others (114 to 132 multiprocessors
# for Hopper), not on a slice of a GPU, whose share of caches and memory is another.
_ALIKE = 0.8


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

    def ns(self, traffic: int) -> float:
        """Return the nanoseconds for so many bytes."""
        return self.begin_ns + traffic / self.bytes_per_ns


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
    kernels : tuple of PortfolioKernel
        For GEMM.
    codes : Mapping
        Machine code by digest.
    sources : Mapping
        Digests by the identity of a source (`Source.identity`): what has no config.
    copying : Copying, optional
        Of operands; None where it was not measured.
    made : Mapping
        When, by which commit, from what.
    folder : Traversable, optional
        Where its files are.
    """

    name: str
    arch: str
    device: str
    compute_capability: int | None
    multiprocessors: int
    kernels: tuple[PortfolioKernel, ...]
    codes: Mapping[str, Code] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    copying: Copying | None = None
    made: Mapping[str, Any] = field(default_factory=dict)
    folder: Traversable | None = None

    def names(self, device: DeviceSpec) -> bool:
        """Whether it was measured on this very model, so that times may be compared."""
        return device.name == self.device and device.multiprocessors == self.multiprocessors

    def serves(self, device: DeviceSpec) -> bool:
        """Whether kernels that are fast there are fast here."""
        few, many = sorted((device.multiprocessors, self.multiprocessors))
        alike = device.compute_capability == self.compute_capability and few >= _ALIKE * many
        return self.names(device) or alike

    @cached_property
    def by_variant(self) -> Mapping[Variant, tuple[PortfolioKernel, ...]]:
        """The kernels of each variant."""
        found: dict[Variant, list[PortfolioKernel]] = {}
        for one in self.kernels:
            found.setdefault(one.variant, []).append(one)
        return {variant: tuple(kernels) for variant, kernels in found.items()}

    @cached_property
    def _blocks(self) -> dict[str, bytes]:
        return {}

    @cached_property
    def _lock(self) -> threading.Lock:
        return threading.Lock()

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
        with self._lock:
            block = self._blocks.get(code.block)
            if block is None:
                # One block at a time: a program's calls are mostly of one transpose pair.
                self._blocks.clear()
                block = self._blocks[code.block] = _unpacked(self.folder, code.block)
        found = block[code.at : code.at + code.size]
        if hashlib.sha256(found).hexdigest() != digest:
            raise PortfolioError(
                f"{code.block} of portfolio {self.name!r} is damaged: {code.symbol} differs from"
                " its digest; install the package again, or build the portfolio again"
            )
        return found


def _unpacked(folder: Traversable, name: str) -> bytes:
    try:
        packed = folder.joinpath(name).read_bytes()
        return lzma.LZMADecompressor().decompress(packed, _LIMIT_BYTES)
    except (OSError, lzma.LZMAError) as error:
        raise PortfolioError(f"{name} cannot be read: {error}") from None


def read_portfolio(folder: Traversable, name: str) -> Portfolio:
    """Return a portfolio of a folder.

    Raises
    ------
    PortfolioError
        If there is none of that name, or it is no portfolio.
    """
    try:
        text = folder.joinpath(f"{name}.json").read_text(encoding="utf-8")
    except OSError as error:
        raise PortfolioError(f"portfolio {name!r} cannot be read: {error.strerror}") from None
    try:
        return _portfolio(json.loads(text), name, folder)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PortfolioError(f"{name}.json is no portfolio: {error!r}") from None


def _portfolio(document: Any, name: str, folder: Traversable) -> Portfolio:
    if document["format"] != _FORMAT:
        raise ValueError(f"format={document['format']!r}, this version reads {_FORMAT}")
    codes = [Code(**{"digest": digest, **row}) for digest, row in document["codes"].items()]
    for one in codes:
        if "/" in one.block or one.block.startswith(".") or one.at < 0 or one.size < 0:
            raise ValueError(f"block={one.block!r} is no file of the folder")
    capability, copying = document["compute_capability"], document.get("copying")
    return Portfolio(
        name,
        str(document["arch"]),
        str(document["device"]),
        None if capability is None else int(capability),
        int(document["multiprocessors"]),
        tuple(PortfolioKernel.from_json(row) for row in document["kernels"]),
        {one.digest: one for one in codes},
        {str(key): str(digest) for key, digest in document.get("sources", {}).items()},
        None if copying is None else Copying(float(copying[0]), float(copying[1])),
        dict(document.get("made", {})),
        folder,
    )


def write_portfolio(
    folder: Path, portfolio: Portfolio, blocks: Mapping[str, Iterable[tuple[Code, bytes]]]
) -> Portfolio:
    """Write a portfolio's files, the manifest last; return it as it reads.

    Parameters
    ----------
    folder : Path
        Where to.
    portfolio : Portfolio
        Without codes.
    blocks : Mapping
        By name what each block holds: codes, whose places are filled in, with their machine code.
    """
    codes = {}
    for name, members in blocks.items():
        text = bytearray()
        for code, machine_code in members:
            row = asdict(code) | {"block": f"{portfolio.name}-{name}.xz", "at": len(text)}
            codes[row.pop("digest")] = row
            text += machine_code
        # 16 MB of dictionary: kernels of one transpose pair repeat each other's machine code.
        # Instructions are 16 bytes long, which `lp` and `pb` say.
        filters = [
            {"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": 1 << 24, "lc": 0, "lp": 4, "pb": 4}
        ]
        packed = lzma.compress(bytes(text), lzma.FORMAT_XZ, lzma.CHECK_CRC32, filters=filters)
        write_atomically(folder / f"{portfolio.name}-{name}.xz", packed)
    copying = portfolio.copying
    document = {
        "format": _FORMAT,
        "arch": portfolio.arch,
        "device": portfolio.device,
        "compute_capability": portfolio.compute_capability,
        "multiprocessors": portfolio.multiprocessors,
        "made": dict(portfolio.made),
        "copying": None if copying is None else [copying.begin_ns, copying.bytes_per_ns],
        "kernels": [one.to_json() for one in portfolio.kernels],
        "codes": codes,
        "sources": dict(portfolio.sources),
    }
    rows = ",\n".join(f'"{key}": {_dump(value)}' for key, value in document.items())
    write_atomically(folder / f"{portfolio.name}.json", f"{{\n{rows}\n}}\n".encode())
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
