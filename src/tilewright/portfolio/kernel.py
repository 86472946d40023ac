"""What a portfolio holds: kernels with machine code, geometry, modes and costs, as data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, field, fields, replace
from typing import Any

from tilewright.dataclass import dataclass
from tilewright.precision import precision
from tilewright.space import Config
from tilewright.stencil import Variant
from tilewright.stencil.geometry import MOST_PARTS, PLAIN, Geometry, Mode, SplitK
from tilewright.stencil.stored import config_and_mode

__all__ = [
    "BATCHED",
    "GROUPED",
    "ROUTED",
    "TRIANGLE",
    "Code",
    "KernelRows",
    "PortfolioKernel",
    "geometry_from_json",
    "geometry_to_json",
    "variant_of",
]

Sizes = tuple[int, int, int]

# Forms of a kernel's instances, besides 0: they run where a number in device memory says so,
# compute all products of a batch, tiles of many problems (`Stencil.grouped_config`), or one
# triangle of a square result (`Stencil.triangles`).
ROUTED, BATCHED, GROUPED, TRIANGLE = 1, 2, 3, 4


@dataclass(frozen=True)
class Code:
    """Machine code of one compiled source, and what its launches need.

    Parameters
    ----------
    digest : str
        SHA-256 of the cubin, in hexadecimal: its identity.
    block : str
        Which compressed block of the portfolio's data holds it.
    at, size : int
        Bytes before it in that block, uncompressed, and its own.
    symbol : str
        Of the kernel in the cubin.
    second : str
        Of the function launched behind it with the same arguments; empty for none.
    shared_bytes : int
        Dynamic shared memory of a block.
    part_bytes : int
        What each block needs of a workspace.
    compiler : str
        What compiled it, with its build.
    rescheduled : bool
        Whether the main loop was rescheduled afterwards.
    checked : str
        On which device it was verified, and when; empty: never.
    source : str
        Digest of the source that it was compiled from (`tilewright.stencil.Source.digest`); empty
        in portfolios built before it was kept.
    """

    digest: str
    block: str
    at: int
    size: int
    symbol: str
    second: str = ""
    shared_bytes: int = 0
    part_bytes: int = 0
    compiler: str = ""
    rescheduled: bool = False
    checked: str = ""
    source: str = ""

    @property
    def launched(self) -> tuple[str, str, int, int]:
        """What it is launched by."""
        return self.symbol, self.second, self.shared_bytes, self.part_bytes


@dataclass(frozen=True)
class PortfolioKernel:
    """One config of one variant with its compiled instances and what its launches cost.

    Parameters
    ----------
    config : Config
        The point of its stencil's space, without launch modes.
    version : int
        Of the stencil that it was compiled from.
    variant : Variant
        Precision and transposes.
    geometry : Geometry
        How launches follow from a problem.
    modes : Mapping
        Digest of the machine code of each launch mode that ships.
    costs : tuple of float
        Nanoseconds for one of each of `tilewright.portfolio.model.TERMS`; empty where only
        `won` says how fast it is.
    won : Mapping
        By m, n and k: nanoseconds of races of exactly this size, columns contiguous, that it won.
    routed : Mapping
        The same as `modes`, compiled to run only where a number in device memory says so.
    batched, grouped, triangle : Mapping
        The same, compiled for batches, for groups and for triangles.
    """

    config: Config
    version: int
    variant: Variant
    geometry: Geometry
    modes: Mapping[Mode, str]
    costs: tuple[float, ...] = ()
    won: Mapping[Sizes, float] = field(default_factory=dict)
    routed: Mapping[Mode, str] = field(default_factory=dict)
    batched: Mapping[Mode, str] = field(default_factory=dict)
    grouped: Mapping[Mode, str] = field(default_factory=dict)
    triangle: Mapping[Mode, str] = field(default_factory=dict)

    @property
    def forms(self) -> tuple[Mapping[Mode, str], ...]:
        """Digests by launch mode: of instances as they are, `ROUTED` and so on, by form."""
        return self.modes, self.routed, self.batched, self.grouped, self.triangle

    def with_forms(self, forms: Sequence[Mapping[Mode, str]]) -> PortfolioKernel:
        """Return the kernel with other instances, in the order of `forms`."""
        modes, routed, batched, grouped, triangle = forms
        return replace(
            self, modes=modes, routed=routed, batched=batched, grouped=grouped, triangle=triangle
        )

    @property
    def name(self) -> str:
        """Stencil, variant and config in one word."""
        return f"{self.config.stencil}-{self.variant}-{self.config.id}"

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON has it."""
        made: dict[str, Any] = {
            "stencil": self.config.stencil,
            "version": self.version,
            "precision": self.variant.precision.letter,
            "trans": f"{self.variant.trans_a}{self.variant.trans_b}",
            **({"arithmetic": named} if (named := self.variant.arithmetic_name) else {}),
            "config": dict(self.config),
            "geometry": geometry_to_json(self.geometry),
            "modes": {str(mode): digest for mode, digest in self.modes.items()},
            "costs": [float(f"{cost:.6g}") for cost in self.costs],
            "won": [[*sizes, round(ns)] for sizes, ns in self.won.items()],
        }
        for name in ("routed", "batched", "grouped", "triangle"):
            modes: Mapping[Mode, str] = getattr(self, name)
            if modes:
                made[name] = {str(mode): digest for mode, digest in modes.items()}
        return made

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> PortfolioKernel:
        """Return what `to_json` made.

        Raises
        ------
        ValueError, KeyError, TypeError
            If the row is something else.
        """
        config, named = config_and_mode(str(row["stencil"]), dict(row["config"]))

        def digests(modes: Mapping[str, str]) -> dict[Mode, str]:
            found = {Mode.parse(mode): str(digest) for mode, digest in modes.items()}
            # Old rows name a mode in the config, and each of theirs is compiled in it, too.
            if named == PLAIN:
                return found
            return {mode | named: digest for mode, digest in found.items()}

        return cls(
            config,
            int(row["version"]),
            variant_of(str(row["precision"]), str(row["trans"]), row.get("arithmetic", "")),
            geometry_from_json(row["geometry"]),
            digests(row["modes"]),
            tuple(float(cost) for cost in row["costs"]),
            {(int(m), int(n), int(k)): float(ns) for m, n, k, ns in row["won"]},
            digests(row.get("routed", {})),
            digests(row.get("batched", {})),
            digests(row.get("grouped", {})),
            digests(row.get("triangle", {})),
        )


class KernelRows(Sequence[PortfolioKernel]):
    """Kernels that are read from their rows when somebody asks: a call asks for one variant's.

    Parameters
    ----------
    rows : sequence of Mapping
        As `PortfolioKernel.to_json` makes them.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows = rows
        self._read: dict[int, PortfolioKernel] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return tuple(self._one(x) for x in range(len(self))[at])
        return self._one(range(len(self))[at])

    def of(self, variant: Variant) -> tuple[PortfolioKernel, ...]:
        """Return those of a variant."""
        trans = f"{variant.trans_a}{variant.trans_b}"
        letter = variant.precision.letter
        return tuple(
            self._one(at)
            for at, row in enumerate(self._rows)
            if row["trans"] == trans and row["precision"] == letter
        )

    def _one(self, at: int) -> PortfolioKernel:
        if at not in self._read:
            self._read[at] = PortfolioKernel.from_json(self._rows[at])
        return self._read[at]


def variant_of(letter: str, trans: str, arithmetic: str = "") -> Variant:
    """Return the variant of a precision's letter and two operations; R conjugates alone.

    Or of tensor cores' arithmetic by its name (`tilewright.stencil.wgmma.NAMED`).

    Raises
    ------
    ValueError
        If they are none.
    """
    from tilewright.problem import Trans

    if arithmetic:
        from tilewright.stencil.wgmma import variant_named

        return variant_named(str(arithmetic))
    if len(trans) != 2:
        raise ValueError(f"trans={trans!r} is no pair of operations")
    return Variant(precision(letter), Trans(trans[0]), Trans(trans[1]))


_PLAIN = Geometry(1, 1, (1, 1))
_KNOWN = {one.name: type(getattr(_PLAIN, one.name)) for one in fields(Geometry)}

# Every number of parts of a tile is looked at when kernels are chosen: more than any device has
# blocks at a time is a mistake.
_MOST_SLICES = 2**13

# Of a geometry's fields that may be 0.
_LEAST = dict.fromkeys(
    ("resident", "folded", "persistent", "stream_k", "tree", "tma", "tma_line_bytes",
     "vector_along_k", "stages_k", "most_k", "streamed", "any_alignment", "early"),
    0,
)  # fmt: skip


def geometry_to_json(geometry: Geometry) -> dict[str, Any]:
    """Return a geometry's fields, but those that are as in a plain one."""
    found = {
        one.name: getattr(geometry, one.name)
        for one in fields(Geometry)
        if getattr(geometry, one.name) != getattr(_PLAIN, one.name)
        or one.name in ("tile_m", "tile_n", "threads")
    }
    if geometry.split_k is not None:
        cut = asdict(geometry.split_k)
        usual = {"most_parts": MOST_PARTS, "reduction_cycles": 0.0}
        found["split_k"] = {name: x for name, x in cut.items() if x != usual.get(name)}
    return {name: list(x) if isinstance(x, tuple) else x for name, x in found.items()}


def geometry_from_json(row: Mapping[str, Any]) -> Geometry:
    """Return the geometry of its fields.

    Raises
    ------
    ValueError, TypeError
        If a field is unknown, of another type, or a number that no launch has.
    """
    values = dict(row)
    x, y = values.pop("threads")
    cut = values.pop("split_k", None)
    for name, value in values.items():
        if type(value) is not _KNOWN.get(name) or value < _LEAST.get(name, 1):
            raise ValueError(f"{name}={value!r} is no field of a geometry")
    split_k = None if cut is None else SplitK(**cut)
    if not all(map(_is_positive, (x, y))) or (split_k is not None and not _is_good(split_k)):
        raise ValueError(f"threads={(x, y)}, split_k={cut!r} are of no geometry")
    return Geometry(**values, threads=(int(x), int(y)), split_k=split_k)


def _is_good(cut: SplitK) -> bool:
    """Whether the fields of parallel split-K, read from a file, are such as a launch has."""
    *counts, most, reduction_cycles = astuple(cut)
    free = type(reduction_cycles) is float and reduction_cycles == 0
    return (
        all(map(_is_positive, counts))
        and most in range(1, _MOST_SLICES + 1)
        and (free or _is_positive(reduction_cycles))
    )


def _is_positive(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < math.inf
