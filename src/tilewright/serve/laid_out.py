"""A plan as it is laid out: at made-up addresses and with made-up scalars.

Every argument that turns out to be a made-up address plus a distance, or a made-up scalar, is
filled in anew at each call; all others stay as they are::

    made-up          at each call
    A + 64      ->   the call's A, plus 64
    POOL + 4096 ->   the stream's workspace, plus 4096
    ALPHA       ->   the call's alpha

So whatever route lays a plan out works on numbers as it would for one call.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any, NamedTuple

import numpy as np

from tilewright.backend import LaunchError
from tilewright.stencil import Launch, TensorMap, Workspace
from tilewright.stencil.table import MAP_BYTES, Table

__all__ = [
    "ALPHA",
    "BETA",
    "PATCH",
    "REPORT",
    "VECTORS",
    "A",
    "B",
    "C",
    "Layout",
    "NativeLaunch",
    "PlanParts",
    "Space",
    "member",
]

# Ranges of 2^45 bytes, longer than any matrix and below 2^48: the driver, which makes tensor maps
# of them, takes them for addresses.
_RANGE = 45
A, B, C, REPORT, _POOL, _ZEROS, _WORKSPACE = (number << _RANGE for number in range(1, 8))
VECTORS = tuple(number << _RANGE for number in range(8, 11))  # of an epilogue: no maps are of them

# The ranges of A, B and C have one of 2^38 bytes for each member of a group.
_MEMBER = 38

# Exact in every type that scalars have, and no number that a kernel is given for anything else.
ALPHA = complex(1234577.0, 1234583.0)
BETA = complex(1234601.0, 1234627.0)

# core.h: what is patched, and how scalars are stored.
_SLOTS = {A: 0, B: 1, C: 2, REPORT: 3}
_SCRATCH = 4
_SCALARS = {ALPHA.real: 5, ALPHA.imag: 6, BETA.real: 7, BETA.imag: 8}
_SLOTS |= {at: 9 + number for number, at in enumerate(VECTORS)}
_TYPES: dict[type, int] = {np.float32: 0, np.float64: 1, np.void: 2, np.int32: 3}

# Pieces of a workspace are aligned as allocators align arrays, so that kernels serve them alike.
_ALIGNMENT = 256

# CUDA C++ Programming Guide, table of technical specifications: grid in x and in y.
_GRID = (2**31 - 1, 65535)

# From this compute capability on, a launch may begin before the one before it has ended.
_EARLY_FROM = 90

# core.h: what a place says where a tensor map belongs; a table begins at a multiple of so many.
_NO_MAP, _MAP_HERE = -1, -2
_TABLE_PLACES = 4

_PLACE_BYTES = 16
_UPPER = bytes(8)  # of a place whose number has eight bytes
_WHOLE = struct.Struct("<q8x")  # a place with a size


class NativeLaunch(ctypes.Structure):
    """tilewright_launch of core.h."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        *((name, ctypes.c_uint) for name in (
            "grid_x", "grid_y", "grid_z", "block_x", "block_y", "shared_bytes", "early", "first",
            "count",
        )),
    )  # fmt: skip


# tilewright_patch of core.h: place, kind, type, member and delta, aligned as C does.
PATCH = struct.Struct("@IBBHq")


def member(base: int, number: int) -> int:
    """Return where `A`, `B` or `C` lies, by `base`, of a group's member; there are 128 at most."""
    return base + (number << _MEMBER)


class Space:
    """Device memory that a plan will have at each call, by names; addresses are made up.

    Attributes
    ----------
    asked : dict
        By a piece's address: its name, its bytes, and whether it is zero at each call.
    """

    def __init__(self) -> None:
        self._pieces: dict[str, tuple[int, int]] = {}
        self.asked: dict[int, tuple[str, int, bool]] = {}
        self.pool_bytes = self.zero_bytes = 0

    def need(self, name: str, size: int, *, zeroed: bool = False) -> int:
        """Return a piece of at least so many bytes.

        Parameters
        ----------
        name : str
            Of the piece.  Who asks twice by a name asks for the larger one first.
        size : int
            In bytes.
        zeroed : bool
            Whether it is zero at each call, and is left so.
        """
        at, held = self._pieces.get(name, (0, -1))
        if held >= size:
            return at
        whole = -(-max(1, size) // _ALIGNMENT) * _ALIGNMENT
        if zeroed:
            at, self.zero_bytes = _ZEROS + self.zero_bytes, self.zero_bytes + whole
        else:
            at, self.pool_bytes = _POOL + self.pool_bytes, self.pool_bytes + whole
        self._pieces[name] = at, size
        self.asked[at] = name, size, zeroed
        return at

    @property
    def zero(self) -> int:
        """One int, 0, that nobody writes."""
        return self.need("zero", 4, zeroed=True)


class PlanParts(NamedTuple):
    """What a native plan is made of; arrays of core.h's structures.

    Parameters
    ----------
    launches : list
        Their functions are those of the kernels' handles.
    places : list of bytes
        Arguments.
    map_of : list of int
        Of each place.
    maps : list of TensorMap
        Not encoded yet.
    patches : bytes
        What calls fill in.
    """

    launches: list[Any]
    places: list[bytes]
    map_of: list[int]
    maps: list[TensorMap]
    patches: bytes


class Layout:
    """A plan as it is laid out, launch by launch; parameters as of `Plan`."""

    def __init__(
        self, device: Any, space: Space, begins: tuple[int, int], *, is_group: bool = False
    ) -> None:
        self._is_group = is_group
        self._device = device
        self._space = space
        self._begins = dict(zip((A, B), begins, strict=True))
        self._launches: list[NativeLaunch] = []
        self._places: list[bytes] = []
        self._map_of: dict[int, int] = {}  # by place
        self._maps: list[TensorMap] = []
        self._addresses: list[tuple[int, int]] = []  # place, made-up address
        self._scalars: list[bytes] = []  # patches
        self._part_bytes = 0
        self._words = 0

    def add(self, loaded: Any, launch: Launch, arguments: tuple[Any, ...]) -> None:
        """Lay out a loaded kernel's launch, and that of its second function."""
        launch = launch.on(self._device.spec.multiprocessors)
        if not all(0 < size <= most for size, most in zip(launch.grid, _GRID, strict=True)):
            raise LaunchError(
                f"grid={launch.grid} is outside what CUDA launches, 1 to {_GRID}; use larger blocks"
            )
        second = launch.second if loaded.second else None
        if loaded.part_bytes and loaded.second and second is None:
            arguments = (*arguments, 0)  # whole tiles: nobody looks at a workspace
        elif loaded.part_bytes:
            wanted = Workspace(launch.grid[0], loaded.part_bytes, not loaded.second)
            arguments = (*arguments, _WORKSPACE)
            self._words = wanted.cleared_bytes
            self._part_bytes = max(self._part_bytes, wanted.size - wanted.cleared_bytes)
        many = len(arguments)
        if arguments and isinstance(arguments[-1], Table):
            self._places += [_UPPER + _UPPER] * (-(len(self._places) + many - 1) % _TABLE_PLACES)
        first = len(self._places)
        self._put(arguments)
        self._start(loaded.function, launch, loaded.dynamic_shared_bytes, first, many)
        if second is not None:
            self._start(loaded.second, second, 0, first, many)

    def _start(self, function: int, launch: Launch, shared: int, first: int, many: int) -> None:
        early = launch.early and (self._device.spec.compute_capability or 0) >= _EARLY_FROM
        grid = *launch.grid, launch.batch
        made = NativeLaunch(function, *grid, *launch.block, shared, early, first, many)
        self._launches.append(made)

    def _put(self, arguments: tuple[Any, ...]) -> None:
        """Lay out a launch's arguments."""
        places = self._places
        for value in arguments:
            if type(value) is np.int64:  # most are sizes, and never scalars
                places.append(_WHOLE.pack(value))
            elif isinstance(value, np.generic):
                self._scalar(len(places), value)
                assert value.nbytes <= _PLACE_BYTES, value
                places.append(value.tobytes().ljust(_PLACE_BYTES, b"\0"))
            elif isinstance(value, TensorMap):
                self._map_of[len(places)] = len(self._maps)
                self._maps.append(value)
                self._addresses.append((len(places), int(value.memory) + value.offset))
                places.append(_UPPER + _UPPER)
            elif isinstance(value, Table):
                self._table(value)
            else:
                address = int(value or 0)
                if address:
                    self._addresses.append((len(places), address))
                places.append(address.to_bytes(_PLACE_BYTES, "little"))

    def _table(self, table: Table) -> None:
        """Lay out a table, whose addresses and maps are filled in where they are."""
        # Maps of operands that are laid out alike differ by addresses alone, which calls fill in.
        kinds = {_kind_of(one): one for one in table.maps}
        made = dict(zip(kinds, self.encoded(list(kinds.values())), strict=True))
        raw, first = table.raw(int, lambda one: made[_kind_of(one)]), len(self._places)
        self._places += [raw[at : at + _PLACE_BYTES] for at in range(0, len(raw), _PLACE_BYTES)]
        for place, one in enumerate(table.maps):
            at = first + place * (MAP_BYTES // _PLACE_BYTES)
            self._map_of[at] = _MAP_HERE
            self._addresses.append((at, int(one.memory) + one.offset))
        rows = first + table.map_room * (MAP_BYTES // _PLACE_BYTES)
        self._addresses += [
            (rows + at, int(one)) for at, (one, _) in enumerate(table.rows) if one is not None
        ]

    def encoded(self, maps: list[TensorMap]) -> list[bytes]:
        """Return maps as the driver makes them, which it does in a context alone."""
        if not maps:
            return []
        from tilewright.backend.cuda.tensor_map import encoded

        with self._device.current():
            return [bytes(encoded(one)) for one in maps]

    def _scalar(self, place: int, value: Any) -> None:
        """Let a made-up scalar be filled in."""
        pair = type(value) is np.void  # of which the high word is made up
        kind = _SCALARS.get((value["hi"] if pair else value).item())
        type_of = None if kind is None else _TYPES.get(type(value))
        if type_of is not None:
            self._scalars.append(PATCH.pack(place, kind, type_of, 0, 0))

    @property
    def zero_bytes(self) -> int:
        """What is zero between calls."""
        whole = self._space.zero_bytes + self._words
        return -(-whole // _ALIGNMENT) * _ALIGNMENT

    @property
    def scratch_bytes(self) -> int:
        """What may hold anything."""
        return self._parts + self._space.pool_bytes

    @property
    def _parts(self) -> int:
        """Parts of sums lie first: right behind their words."""
        return -(-self._part_bytes // _ALIGNMENT) * _ALIGNMENT

    def _patched(self, place: int, address: int, own: dict[int, int]) -> bytes:
        """Return the patch by which a made-up address is filled in; nothing for any other.

        In a plan's `own` memory ranges begin so many bytes behind its scratch.
        """
        base = address >> _RANGE << _RANGE
        beyond = address - base
        if base in _SLOTS:
            member = beyond >> _MEMBER if self._is_group else 0
            beyond -= (member << _MEMBER) + self._begins.get(base, 0)
            return PATCH.pack(place, _SLOTS[base], 0, member, beyond)
        at = own.get(base)
        return b"" if at is None else PATCH.pack(place, _SCRATCH, 0, 0, at + beyond)

    def parts(self) -> PlanParts:
        """Return what the native plan is made of."""
        own = {_WORKSPACE: -self._words, _POOL: self._parts, _ZEROS: -self.zero_bytes}
        found = [self._patched(*one, own) for one in self._addresses]
        map_of = [_NO_MAP] * len(self._places)
        for place, at in self._map_of.items():
            map_of[place] = at
        patches = b"".join((*self._scalars, *found))
        return PlanParts(self._launches, self._places, map_of, self._maps, patches)


def _kind_of(tensor: TensorMap) -> tuple[Any, ...]:
    """Return all of a tensor map but its address."""
    return tensor.element, tensor.sizes, tensor.strides, tensor.box, tensor.swizzle
