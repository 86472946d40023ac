"""The core's choices (choose.c, ways.c) over tables that are laid out at run time.

It decides as NumPy's rule in `tilewright.portfolio.choose` does, to the last bit of the time that
is expected, in some microseconds.  The structures mirror those of ``core/native/choice.h``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Sequence

from tilewright.core import library
from tilewright.dataclass import dataclass
from tilewright.portfolio.kernel import PortfolioKernel
from tilewright.portfolio.portfolio import Copying
from tilewright.problem import Problem
from tilewright.stencil import Variant
from tilewright.stencil.geometry import Geometry

__all__ = ["NativeChoice", "Row", "fits_tables", "native_choice"]

_INT, _LONG = ctypes.c_int, ctypes.c_int64
_UNSIGNED, _DOUBLE = ctypes.c_uint, ctypes.c_double

_NONE = -1  # TILEWRIGHT_NONE
_MODES = 8  # TILEWRIGHT_MODES
_COPIED_B, _COPIED_A, _WAYS = 1, 2, 4  # TILEWRIGHT_WAYS: numbers by what is copied

# Counts of a geometry stay below, so that products of three fit 64 bits; bytes of a block's sums
# are those of a tile, 1 MB in the largest.
_MOST_COUNT, _MOST_BYTES = 1 << 16, 1 << 24

# Of C's integers: sizes and leading dimensions are below.
_MOST_SIZE = 1 << 63


class _Geometry(ctypes.Structure):
    _fields_ = (
        *((name, _LONG) for name in ("tile_m", "tile_n", "tile_k", "stages", "resident")),
        *((name, _LONG) for name in ("cluster_m", "cluster_n", "cluster_k")),
        *((name, _UNSIGNED) for name in ("threads_x", "threads_y")),
        *((name, _INT) for name in ("folded", "persistent", "stream_k", "tree")),
        *((name, _INT) for name in ("tma", "vector_along_k")),
        *((name, _LONG) for name in ("tma_line_bytes", "stages_k", "most_k")),
        *((name, _INT) for name in ("streamed", "any_alignment")),
        ("map_line_bytes", _LONG),
        ("split_k", _INT),
        ("step_cycles", _DOUBLE),
        ("cut_bytes", _LONG),
        *((name, _UNSIGNED) for name in ("reduction_blocks", "reduction_threads")),
        ("most_parts", _LONG),
        ("reduction_cycles", _DOUBLE),
    )


class _Won(ctypes.Structure):
    _fields_ = (("m", _LONG), ("n", _LONG), ("k", _LONG), ("ns", _DOUBLE))


class _Kernel(ctypes.Structure):
    _fields_ = (
        ("geometry", _Geometry),
        ("codes", _INT * _MODES),
        ("costs", ctypes.POINTER(_DOUBLE)),
        ("won", ctypes.POINTER(_Won)),
        *((name, _INT) for name in ("won_count", "own", "device")),
    )


class _Rows(ctypes.Structure):
    _fields_ = (
        ("kernels", ctypes.POINTER(_Kernel)),
        ("count", _INT),
        ("timed", _INT),
        ("fallback", ctypes.c_void_p),
    )


class _Problem(ctypes.Structure):
    _fields_ = (
        *((name, _INT) for name in ("element_bytes", "is_single")),
        *((name, _INT) for name in ("trans_a", "trans_b", "aligned")),
        *((name, _LONG) for name in ("m", "n", "k", "lda", "ldb", "ldc", "batch")),
    )


class _Place(ctypes.Structure):
    _fields_ = (("multiprocessors", _LONG), ("alike", ctypes.c_uint64), ("memory", ctypes.c_uint64))


class _Copying(ctypes.Structure):
    _fields_ = (("begin_ns", _DOUBLE), ("bytes_per_ns", _DOUBLE))


class _Choice(ctypes.Structure):
    _fields_ = (("kernel", ctypes.c_void_p), ("mode", _INT), ("code", _INT), ("ns", _DOUBLE))


@dataclass(frozen=True)
class Row:
    """A kernel that may be chosen.

    Parameters
    ----------
    at : int
        What the choice names it by.
    kernel : PortfolioKernel
        Its geometry, and the sizes that it won races of.
    costs : sequence of float
        As the model counts with them; empty where no kernel of the variant has any.
    compiled : sequence of bool
        Whether there is machine code, by the number of the launch mode.
    own : bool
        Whether it is the user's: it serves every launch mode.
    device : int
        What it was measured on, by number.
    """

    at: int
    kernel: PortfolioKernel
    costs: Sequence[float]
    compiled: Sequence[bool]
    own: bool
    device: int


def fits_tables(geometry: Geometry) -> bool:
    """Whether a geometry's numbers are such that C's arithmetic on them stays within 64 bits."""
    g, cut, part_bytes = geometry, geometry.split_k, 0
    counts = [g.tile_m, g.tile_n, g.tile_k, g.stages, *g.threads, 1 + g.resident]
    counts += [g.cluster_m, g.cluster_n, g.cluster_k, g.stream_k]
    if cut is not None:
        counts += [cut.reduction_blocks, cut.reduction_threads, cut.most_parts]
        part_bytes = cut.part_bytes
    return (
        max(counts) < _MOST_COUNT
        and max(g.tma_line_bytes, part_bytes) <= _MOST_BYTES
        and max(g.stages_k, g.most_k) < _MOST_SIZE
    )


def native_choice(
    rows: Sequence[Row],
    variant: Variant,
    multiprocessors: int,
    memory_bytes: int,
    alike: Collection[int],
) -> NativeChoice | None:
    """Return the core's choice among some kernels.

    None where the core is not here, or something is beyond its tables: NumPy's rule decides alike.

    Parameters
    ----------
    rows : sequence of Row
        In the order in which ties are decided.
    variant : Variant
        Of the problems.
    multiprocessors, memory_bytes : int
        Of the device.
    alike : collection of int
        Which devices, by number, have as many multiprocessors.
    """
    core = library()
    if core is None or multiprocessors < 1:
        return None
    if not all(fits_tables(one.kernel.geometry) for one in rows):
        return None
    if any(max(sizes) >= _MOST_SIZE for one in rows for sizes in one.kernel.won):
        return None
    return NativeChoice(
        core, rows, variant, _Place(multiprocessors, sum(1 << one for one in alike), memory_bytes)
    )


class NativeChoice:
    """A table of kernels, and the core's choice among them; see `native_choice`."""

    def __init__(
        self, core: ctypes.PyDLL, rows: Sequence[Row], variant: Variant, place: _Place
    ) -> None:
        self._core, self._choose = core, core.tilewright_chosen
        self._kernels = (_Kernel * len(rows))(*map(_kernel, rows))  # Kept: the table points there.
        timed = any(len(one.costs) for one in rows)
        self._table = _Rows(self._kernels, len(rows), timed, None)
        self._pointer = ctypes.pointer(self._table)
        self._from, self._here = ctypes.byref(self._table), ctypes.byref(place)
        self._at = [one.at for one in rows]
        self._kind = (
            variant.precision.element_bytes,
            variant.precision.letter == "s",
            variant.trans_a.transposed,
            variant.trans_b.transposed,
        )

    @staticmethod
    def takes(p: Problem) -> bool:
        """Whether C's integers hold a problem, and there is something to compute."""
        return p.m > 0 < p.n and max(p.n, p.k, p.lda, p.ldb, p.ldc, p.batch) < _MOST_SIZE

    def __call__(self, p: Problem, aligned: bool) -> tuple[int, int, float | None] | None:
        """Return the kernel, the number of the launch mode, and the nanoseconds to expect.

        Parameters
        ----------
        p : Problem
            One that it `takes`, of the variant.
        aligned : bool
            Whether A and B begin at multiples of 16 bytes.

        Returns
        -------
        tuple or None
            None where no kernel takes the operands as they lie.
        """
        found = _Choice()
        asked = ctypes.byref(self._asked(p, aligned))
        at = self._choose(self._from, asked, self._here, ctypes.byref(found))
        if at == _NONE:
            return None
        ns = found.ns
        return self._at[at], found.mode, ns if ns == ns else None  # Not a number: unknown.

    def _asked(self, p: Problem, aligned: bool) -> _Problem:
        return _Problem(*self._kind, aligned, p.m, p.n, p.k, p.lda, p.ldb, p.ldc, p.batch)

    def copied(
        self,
        others: Callable[[bool, bool], NativeChoice | None],
        p: Problem,
        aligned: tuple[bool, bool],
        ns: float,
        copying: Copying,
    ) -> tuple[bool, bool]:
        """Return whether A and B of a problem are copied first, because that is faster.

        Parameters
        ----------
        others : callable
            Returns the choice for the variant that is computed where A and B are copies, or not;
            asked for those alone that take a closer look.
        p : Problem
            One that it `takes`, of the variant.
        aligned : tuple of bool
            Whether A and B begin at multiples of 16 bytes.
        ns : float
            Nanoseconds that are expected without copies: what is chosen for the problem has them.
        copying : Copying
            How long passes take.
        """
        cost = _Copying(copying.begin_ns, copying.bytes_per_ns)
        about = (
            ctypes.byref(self._asked(p, all(aligned))), *aligned, self._here, ctypes.byref(cost),
        )  # fmt: skip
        opened = self._core.tilewright_worth_a_look(*about, _DOUBLE(ns))
        if not opened:
            return False, False
        tables = (ctypes.POINTER(_Rows) * _WAYS)(self._pointer)
        for way in range(1, _WAYS):
            other = (
                others(bool(way & _COPIED_A), bool(way & _COPIED_B)) if opened >> way & 1 else None
            )
            if other is not None:
                tables[way] = other._pointer
        chosen = self._core.tilewright_chosen_way(tables, *about)
        return bool(chosen & _COPIED_A), bool(chosen & _COPIED_B)


def _kernel(row: Row) -> _Kernel:
    won = [_Won(*sizes, ns) for sizes, ns in row.kernel.won.items()]
    made = _Kernel(_geometry(row.kernel.geometry), won_count=len(won), own=row.own)
    # Of one mode of machine code nothing is asked but whether it is there.
    made.codes[:] = [mode if there else _NONE for mode, there in enumerate(row.compiled)]
    if len(row.costs):
        made.costs = (_DOUBLE * len(row.costs))(*row.costs)
    if won:
        made.won = (_Won * len(won))(*won)
    made.device = row.device
    return made


def _geometry(g: Geometry) -> _Geometry:
    made = _Geometry(
        g.tile_m, g.tile_n, g.tile_k, g.stages, g.resident, g.cluster_m, g.cluster_n, g.cluster_k,
        *g.threads, g.folded, g.persistent, g.stream_k, g.tree, g.tma, g.vector_along_k,
        g.tma_line_bytes, g.stages_k, g.most_k, g.streamed, g.any_alignment,
    )  # fmt: skip
    if g.split_k is not None:
        cut = g.split_k
        made.split_k, made.step_cycles, made.cut_bytes = 1, cut.step_cycles, cut.part_bytes
        made.reduction_blocks, made.reduction_threads = cut.reduction_blocks, cut.reduction_threads
        made.most_parts, made.reduction_cycles = cut.most_parts, cut.reduction_cycles
    return made
