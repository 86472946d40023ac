"""Plans: the launches of a call, laid out once and started again and again; on CUDA in C.

They are laid out as `tilewright.serve.laid_out` says.  Plans are immutable and know nothing of a
caller's arrays; the table of `tilewright.serve.warm` finds the plan of a call by its arrays'
layouts.
"""

from __future__ import annotations

import ctypes
import struct
import weakref
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tilewright.backend import BackendError, OutOfMemoryError
from tilewright.core import needed_library
from tilewright.serve.arrange import Repeat
from tilewright.serve.laid_out import PATCH, VECTORS, Layout, Space
from tilewright.serve.steps import Step

__all__ = ["Plan", "WorkspaceError", "call_of", "core"]

# core.h: statuses that are no CUresults.
_NO_WORKSPACE, _NO_MEMORY = -1, -2


class WorkspaceError(OutOfMemoryError):
    """A device has too little memory for what a call needs besides; nothing was enqueued."""


_Words = ctypes.c_double * 4


class _Call(ctypes.Structure):
    """tilewright_call of core.h."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("a", "b", "c", "report")),
        ("alpha", _Words),
        ("beta", _Words),
        ("stream", ctypes.c_void_p),
        ("vectors", ctypes.c_uint64 * len(VECTORS)),
        ("members", ctypes.c_void_p),
    )


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
        self.native = _native(device, laid)
        weakref.finalize(self, core().tilewright_plan_free, self.native).atexit = False
        if repeats:
            flat = (ctypes.c_int64 * (4 * len(repeats)))(*(x for one in repeats for x in one))
            native = ctypes.c_void_p(self.native)
            if not core().tilewright_plan_repeat(native, flat, len(repeats)):
                raise MemoryError

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
    if type(value) is int or type(value) is float:  # as nearly all are
        return _Words(value)
    high, low = (complex(x) for x in (getattr(value, "hi", value), getattr(value, "lo", 0.0)))
    return _Words(high.real, low.real, high.imag, low.imag)


def _native(device: Any, laid: Layout) -> int:
    """Return the address of the native plan that was laid out."""
    it = laid.parts()
    many = len(it.places)
    made = core().tilewright_plan_new(
        ctypes.c_void_p(device.context),
        b"".join(it.launches), len(it.launches),
        b"".join(it.places), struct.pack(f"{many}i", *it.map_of), many,
        b"".join(laid.encoded(it.maps)), len(it.maps),
        it.patches, len(it.patches) // PATCH.size,
        ctypes.c_uint64(laid.zero_bytes), ctypes.c_uint64(laid.scratch_bytes),
    )  # fmt: skip
    if not made:
        raise BackendError("the host has too little memory for a plan")
    return int(made)
