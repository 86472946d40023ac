"""Plans: the launches of a call, laid out once and started again and again; on CUDA in C.

A plan is laid out at made-up addresses and with made-up scalars: whatever route lays it out works
on numbers as it would for one call.  Every argument that turns out to be a made-up address plus a
distance, or a made-up scalar, is filled in anew at each call; all others stay as they are::

    made-up          at each call
    A + 64      ->   the call's A, plus 64
    POOL + 4096 ->   the stream's workspace, plus 4096
    ALPHA       ->   the call's alpha

Plans are immutable and know nothing of a caller's arrays; the table of `tilewright.serve.warm`
finds the plan of a call by its arrays' layouts.
"""

from __future__ import annotations

import ctypes
import struct
import weakref
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tilewright.backend import BackendError, Kernel, LaunchError, OutOfMemoryError
from tilewright.core import needed_library
from tilewright.serve.batched.arrange import Repeat
from tilewright.stencil import Launch, TensorMap, Workspace
from tilewright.stencil.table import Table

__all__ = [
    "ALPHA",
    "BETA",
    "REPORT",
    "VECTORS",
    "A",
    "B",
    "C",
    "Layout",
    "Plan",
    "PlanParts",
    "Space",
    "Step",
    "WorkspaceError",
    "call_of",
    "core",
    "member",
]

Step = tuple[Kernel, Launch, tuple[Any, ...]]
"""A kernel with its grid and its arguments."""

# Ranges of 2^45 bytes, longer than any matrix and below 2^48: the driver, which makes tensor maps
# of them, takes them for addresses.
_RANGE = 45
A, B, C, REPORT, _POOL, _ZEROS, _WORKSPACE = (number << _RANGE for number in range(1, 8))
VECTORS = tuple(number << _RANGE for number in range(8, 11))  # of an epilogue: no maps are of them

# The ranges of A, B and C have one of 2^38 bytes for each member of a group.
_MEMBER = 38

# Exact in every type that scalars have, and nothing that a kernel is told otherwise.
ALPHA = complex(1234577.0, 1234583.0)
BETA = complex(1234601.0, 1234627.0)

# core.h: what is patched, and how scalars are stored.
_SLOTS = {A: 0, B: 1, C: 2, REPORT: 3}
_SCRATCH = 4
_SCALARS = {ALPHA.real: 5, ALPHA.imag: 6, BETA.real: 7, BETA.imag: 8}
_SLOTS |= {at: 9 + number for number, at in enumerate(VECTORS)}
_TYPES = {"f4": 0, "f8": 1, "i4": 3}
_PAIR = 2

# Of pieces of a workspace: what allocators align to, so that no piece is worse off than an array.
_ALIGNMENT = 256

# CUDA C++ Programming Guide, table of technical specifications: grid in x and in y.
_GRID = (2**31 - 1, 65535)

# From this compute capability on, a launch may begin before the one before it has ended.
_EARLY_FROM = 90

# core.h: what places say of tensor maps; places of a table, the first a multiple of so many.
_NO_MAP, _MAP_HERE = -1, -2
_TABLE_PLACES = 4

_PLACE_BYTES = 16
_UPPER = bytes(8)  # of a place whose number has eight bytes

# core.h: statuses that are no CUresults.
_NO_WORKSPACE, _NO_MEMORY = -1, -2


class WorkspaceError(OutOfMemoryError):
    """A device has too little memory for what a call needs besides; nothing was enqueued."""


class _Launch(ctypes.Structure):
    """tilewright_launch of core.h."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        *((name, ctypes.c_uint) for name in (
            "grid_x", "grid_y", "grid_z", "block_x", "block_y", "shared_bytes", "early", "first",
            "count",
        )),
    )  # fmt: skip


# tilewright_patch of core.h: place, kind, type, member and delta, aligned as C does.
_PATCH = struct.Struct("@IBBHq")


class _Call(ctypes.Structure):
    """tilewright_call of core.h."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("a", "b", "c", "report")),
        ("alpha", ctypes.c_double * 4),
        ("beta", ctypes.c_double * 4),
        ("stream", ctypes.c_void_p),
        ("vectors", ctypes.c_uint64 * len(VECTORS)),
        ("members", ctypes.c_void_p),
    )


def member(base: int, number: int) -> int:
    """Return where a member's matrix lies that is `A`, `B` or `C`: of a group at most 128."""
    return base + (number << _MEMBER)


@lru_cache(maxsize=1)
def core() -> ctypes.CDLL:
    """Return the core with the driver found; its functions let other threads run.

    Raises
    ------
    CoreError
        If there is no core and none can be made.
    BackendError
        If there is no CUDA driver.
    """
    # The very file that the table is in: what is found here is the library's, not a process's.
    found = ctypes.CDLL(needed_library()._name)
    found.tilewright_plan_new.restype = ctypes.c_void_p
    found.tilewright_plan_free.argtypes = [ctypes.c_void_p]
    if not found.tilewright_find_driver():
        raise BackendError("NVIDIA's driver is not here, or older than CUDA 12; update it")
    return found


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
            Of the piece: a larger one is asked for first.
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


class Plan:
    """Launches of one CUDA device, ready to be started with any addresses and scalars.

    Parameters
    ----------
    device : CUDADevice
        Where they run.
    steps : sequence of Step
        Laid out at `A`, `B`, `C`, `REPORT` and addresses of `space`, with `ALPHA` and `BETA`.
    space : Space
        Where its pieces come from.
    begins : tuple of int
        How far beyond `A` and `B` the operands were laid out to begin: their alignment.
    name : str
        What a timeline calls it.
    repeats : sequence of Repeat
        Of a batch: how all launches are repeated, in bytes, the slowest first.
    is_group : bool
        Whether each operand is a `member`, whose addresses calls bring.

    Raises
    ------
    LaunchError
        If no CUDA device has such a grid, or the driver refuses a tensor map.
    """

    def __init__(
        self,
        device: Any,
        steps: Sequence[Step],
        space: Space,
        begins: tuple[int, int] = (0, 0),
        name: str = "gemm",
        repeats: Sequence[Repeat] = (),
        *,
        is_group: bool = False,
    ) -> None:
        self.name = name
        self._device = device
        self._kernels = [kernel for kernel, _, _ in steps]  # stay loaded
        laid = Layout(device, space, begins, is_group=is_group)
        for kernel, launch, arguments in steps:
            laid.add(kernel.handle, launch, arguments)
        self.zero_bytes, self.scratch_bytes = laid.zero_bytes, laid.scratch_bytes
        self.native = laid.made()
        if repeats:
            flat = (ctypes.c_int64 * (4 * len(repeats)))(*(x for one in repeats for x in one))
            native = ctypes.c_void_p(self.native)
            if not core().tilewright_plan_repeat(native, flat, len(repeats)):
                raise MemoryError
        weakref.finalize(self, core().tilewright_plan_free, self.native).atexit = False

    @property
    def bytes(self) -> int:
        """What it needs of a workspace."""
        return self.zero_bytes + self.scratch_bytes

    @property
    def shares(self) -> bool:
        """Whether that is kept for the next call on a stream; else it is taken for one call."""
        return bool(core().tilewright_plan_shares(ctypes.c_void_p(self.native)))

    def start(self, call: _Call, memory: int = 0) -> bool:
        """Enqueue all launches; False where the stream's arena is too small.

        Parameters
        ----------
        call : _Call
            By `call_of`.
        memory : int
            Of `bytes` to use instead of the arena.

        Raises
        ------
        WorkspaceError
            If the call is captured, and the device has too little memory for its graph's.
        BackendError
            If the device refuses a launch, or an earlier one has failed.
        """
        at, native = ctypes.byref(call), ctypes.c_void_p(self.native)
        if memory:
            status = core().tilewright_start_in(native, at, ctypes.c_uint64(memory))
        else:
            status = core().tilewright_start(native, at)
        return self._is_done(status)

    def run(self, call: _Call) -> int:
        """Enqueue all launches, in memory of the driver's where the stream's arena is too small.

        Returns
        -------
        int
            The scratch of an arena of somebody's memory that is no longer used; 0 for none.

        Raises
        ------
        WorkspaceError
            If the device has too little memory.
        BackendError
            If the device refuses a launch, or an earlier one has failed.
        """
        freed = ctypes.c_uint64()
        status = core().tilewright_run(
            ctypes.c_void_p(self.native), ctypes.byref(call), ctypes.byref(freed)
        )
        self._is_done(status)
        return freed.value

    def _is_done(self, status: int) -> bool:
        """Whether launches are enqueued; raises what a status stands for."""
        if status == _NO_MEMORY:
            raise WorkspaceError(
                f"{self._device.id} cannot allocate {self.bytes} bytes for parts of a product"
            )
        if status > 0:
            from tilewright.backend.cuda.driver import error_of

            raise self._device.failed(error_of(status, f"launching on {self._device.id}"))
        return status != _NO_WORKSPACE


def call_of(
    a: int, b: int, c: int, alpha: Any, beta: Any, stream: int, report: int = 0,
    vectors: Sequence[int] = (), members: Any = None,
) -> ctypes.Structure:  # fmt: skip
    """Return a call's addresses, as kernels have them, scalars and stream for `Plan.start`.

    Of a group `members` has the address of A, B and C of each, one behind the other, as an array of
    ctypes or NumPy's 64-bit integers.
    """
    made = _Call(a, b, c, report, _words(alpha), _words(beta), stream)
    for number, address in enumerate(vectors):
        made.vectors[number] = address
    if members is not None:
        made.held = held = np.ascontiguousarray(members, np.uint64)
        made.members = held.ctypes.data
    return made


def _words(value: Any) -> Any:
    """Return a scalar's real and imaginary parts, high and low."""
    high, low = (complex(x) for x in (getattr(value, "hi", value), getattr(value, "lo", 0.0)))
    return (ctypes.c_double * 4)(high.real, low.real, high.imag, low.imag)


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
        self._launches: list[_Launch] = []
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
        for value in arguments:
            self._put(value)
        self._start(loaded.function, launch, loaded.dynamic_shared_bytes, first, many)
        if second is not None:
            self._start(loaded.second, second, 0, first, many)

    def _start(self, function: int, launch: Launch, shared: int, first: int, many: int) -> None:
        able = (self._device.spec.compute_capability or 0) >= _EARLY_FROM
        grid = *launch.grid, launch.batch
        made = _Launch(function, *grid, *launch.block, shared, launch.early and able)
        made.first, made.count = first, many
        self._launches.append(made)

    def _put(self, value: Any) -> None:
        """Lay out an argument."""
        place = len(self._places)
        if type(value) is np.int64:  # most are sizes, and never scalars
            self._places.append(value.tobytes() + _UPPER)
        elif isinstance(value, np.generic):
            self._scalar(place, value)
            self._places.append(value.tobytes().ljust(_PLACE_BYTES, b"\0"))
        elif isinstance(value, TensorMap):
            self._map_of[place] = len(self._maps)
            self._maps.append(value)
            self._addresses.append((place, int(value.memory) + value.offset))
            self._places.append(_UPPER + _UPPER)
        elif isinstance(value, Table):
            self._table(value)
            return
        else:
            address = int(value or 0)
            if address:
                self._addresses.append((place, address))
            self._places.append(address.to_bytes(8, "little") + _UPPER)
        assert len(self._places[-1]) == _PLACE_BYTES, value

    def _table(self, table: Table) -> None:
        """Lay out a table, whose addresses and maps are filled in where they are."""
        from tilewright.backend.cuda.tensor_map import encoded

        for piece in table.pieces():
            place = len(self._places)
            if isinstance(piece, TensorMap):
                self._map_of[place] = _MAP_HERE
                self._addresses.append((place, int(piece.memory) + piece.offset))
                raw = bytes(encoded(piece))
            else:
                address, rest = piece
                if address is not None:
                    self._addresses.append((place, int(address)))
                    rest = int(address).to_bytes(8, "little") + rest
                raw = rest
            self._places += [raw[at : at + _PLACE_BYTES] for at in range(0, len(raw), _PLACE_BYTES)]

    def _scalar(self, place: int, value: Any) -> None:
        """Let a made-up scalar be filled in."""
        pair = value.dtype.names is not None
        kind = _SCALARS.get(float(value["hi"]) if pair else value.item())
        type_of = _PAIR if pair else _TYPES.get(value.dtype.str[1:])
        if kind is not None and type_of is not None:
            self._scalars.append(_PATCH.pack(place, kind, type_of, 0, 0))

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

    def _patched(self, place: int, address: int) -> bytes:
        """Return the patch by which a made-up address is filled in; nothing for any other."""
        base = address >> _RANGE << _RANGE
        beyond = address - base
        if base in _SLOTS:
            member = beyond >> _MEMBER if self._is_group else 0
            beyond -= (member << _MEMBER) + self._begins.get(base, 0)
            return _PATCH.pack(place, _SLOTS[base], 0, member, beyond)
        at = {_WORKSPACE: -self._words, _POOL: self._parts, _ZEROS: -self.zero_bytes}.get(base)
        return b"" if at is None else _PATCH.pack(place, _SCRATCH, 0, 0, at + beyond)

    def parts(self) -> PlanParts:
        """Return what the native plan is made of."""
        found = (self._patched(*one) for one in self._addresses)
        map_of = [_NO_MAP] * len(self._places)
        for place, at in self._map_of.items():
            map_of[place] = at
        patches = b"".join((*self._scalars, *found))
        return PlanParts(self._launches, self._places, map_of, self._maps, patches)

    def made(self) -> int:
        """Return the native plan's address."""
        from tilewright.backend.cuda.tensor_map import encoded

        it = self.parts()
        many = len(it.places)
        with self._device.current():  # whose kernels these are
            made = core().tilewright_plan_new(
                ctypes.c_void_p(self._device.context),
                (_Launch * len(it.launches))(*it.launches), len(it.launches),
                b"".join(it.places), (ctypes.c_int * many)(*it.map_of), many,
                b"".join(bytes(encoded(one)) for one in it.maps), len(it.maps),
                it.patches, len(it.patches) // _PATCH.size,
                ctypes.c_uint64(self.zero_bytes), ctypes.c_uint64(self.scratch_bytes),
            )  # fmt: skip
        if not made:
            raise BackendError("the host has too little memory for a plan")
        return int(made)
