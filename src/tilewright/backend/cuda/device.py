"""A live CUDA device: compile, allocate, launch, time."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import re
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.backend.base import (
    BackendError,
    DeviceLostError,
    Event,
    Kernel,
    LiveDevice,
    MachineCode,
)
from tilewright.backend.cubin import Cubin
from tilewright.backend.cuda import probe
from tilewright.backend.cuda.driver import check, driver, stream_state
from tilewright.backend.cuda.functions import (
    ANY_CLUSTER,
    MAX_DYNAMIC_SHARED_BYTES,
    MEMORY_HOST,
    MEMORY_TYPE,
    NON_BLOCKING,
)
from tilewright.stencil import Launch, Source
from tilewright.timeline import is_recording, span

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tilewright.backend.base import Rewrite
    from tilewright.backend.cache import KernelCache
    from tilewright.backend.cuda.events import CUDAEvent, EventPool
    from tilewright.backend.cuda.launch import PreparedLaunch
    from tilewright.backend.cuda.workspace import Workspaces

__all__ = ["CUDADevice", "LoadedKernel", "device_at", "devices"]

_AS_IT_IS = contextlib.nullcontext()


class LoadedKernel:
    """A function of a cubin in a device's context; unloaded with its last reference.

    Nothing it was launched for may still run then: whoever launches keeps it until then.

    Parameters
    ----------
    device : CUDADevice
        Where it is loaded.
    cubin : Cubin
        What is loaded.
    entry : str
        Name of the function in the source.
    dynamic_shared_bytes : int
        Shared memory that every launch asks for; the function is allowed it here, once.
    part_bytes : int
        What each block of a launch needs of a workspace.
    second : str
        Name of the function that is launched behind it; empty for none.
    """

    def __init__(
        self,
        device: CUDADevice,
        cubin: Cubin,
        entry: str,
        dynamic_shared_bytes: int = 0,
        part_bytes: int = 0,
        second: str = "",
    ) -> None:
        found = device.api
        with device.current():
            module = device.check(found.cuModuleLoadData(cubin.code), f"loading {entry!r}")
            # The process's end unloads everything by itself, and in an order of its own.
            weakref.finalize(self, device.unload, module).atexit = False

            def function_of(name: str) -> int:
                known = cubin.lowered.get(name, name).encode()
                made = found.cuModuleGetFunction(module, known)
                return int(device.check(made, f"finding {name!r}"))

            self.function = function_of(entry)
            self.second = function_of(second) if second else 0
            if dynamic_shared_bytes:
                most = MAX_DYNAMIC_SHARED_BYTES
                device.check(
                    found.cuFuncSetAttribute(self.function, most, dynamic_shared_bytes),
                    f"asking for {dynamic_shared_bytes} bytes of shared memory for {entry!r}",
                )
                found.cuFuncSetAttribute(self.function, ANY_CLUSTER, 1)  # devices without: none ask
        self.cubin = cubin
        self.dynamic_shared_bytes = dynamic_shared_bytes
        self.part_bytes = part_bytes


class CUDADevice(LiveDevice):
    """One CUDA device in its primary context, which CuPy and PyTorch use too.

    Memory handles are device addresses: plain integers, as CuPy and PyTorch give them.
    Streams (`queue` of `launch`) are plain integers too; without one, work goes on a
    stream of this object's own, where copies go as well.

    The context is retained with the first use, so that listing devices costs no memory
    on them.  Every call makes it current for itself and restores what was: the calling
    thread may be working on another device.

    After a `DeviceLostError` every further call fails likewise, for the whole process.

    Parameters
    ----------
    ordinal : int
        CUDA's number of the device.
    """

    backend = dialect = "cuda"

    def __init__(self, ordinal: int) -> None:
        found = driver()
        if found is None:
            raise BackendError(f"cuda:{ordinal} needs NVIDIA's driver and its GPU; install it")
        self.api = found
        self.ordinal = ordinal
        self.raw = probe.handle(ordinal)
        self.id = f"cuda:{ordinal}"
        self.arch = probe.architecture(self.raw)
        self.spec = probe.spec_of(self.raw)
        self.driver = probe.driver_version() or f"CUDA {probe.cuda_version()}"
        self.lost: DeviceLostError | None = None
        self._starting = threading.RLock()
        self._here = threading.local()

    # What launches between events take, which calls of gemm() do without, is imported on demand.

    @cached_property
    def events(self) -> EventPool:
        """Pairs of events to record, their clock, and what holds streams meanwhile."""
        from tilewright.backend.cuda.events import EventPool

        return EventPool(self)

    @cached_property
    def workspaces(self) -> Workspaces:
        """Memory of launches whose blocks leave parts of sums to one another."""
        from tilewright.backend.cuda.workspace import Workspaces

        return Workspaces(self)

    # NVRTC is needed to tune and to compile, not to serve: it is asked for its version on demand.

    @cached_property
    def compiler(self) -> str:
        """NVRTC with its build, or that there is none."""
        from tilewright.backend.cuda.compiler import nvrtc, nvrtc_version

        return f"NVRTC {nvrtc_version()}" if nvrtc() is not None else "no NVRTC"

    @cached_property
    def _cache(self) -> KernelCache:
        from tilewright.backend.cache import KernelCache

        return KernelCache()

    @cached_property
    def platform(self) -> str:  # type: ignore[override]  # found on demand
        """The CUDA version that the driver serves, and the compiler."""
        return f"CUDA {probe.cuda_version()} ({self.compiler})"

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]  # found on demand
        """12 digits over what may change a measurement."""
        parts = (self.spec.name, self.driver, self.platform, self.arch)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]

    @property
    def hardware_key(self) -> str:
        """The driver's number of the device, whichever devices this process may see."""
        found = check(self.api.cuDeviceGetUuid(self.raw), f"asking {self.id} who it is")
        return bytes(found).hex()

    @cached_property
    def portfolio_key(self) -> str:
        """Architecture and model: machine code outlives drivers and compilers."""
        return f"{self.arch}-" + re.sub(r"[^a-z0-9]+", "-", self.spec.name.lower())

    # -- context -----------------------------------------------------------------------

    @cached_property
    def context(self) -> int:
        """Address of the primary context."""
        with self._starting:
            retained = self.api.cuDevicePrimaryCtxRetain(self.raw)
            return int(self.check(retained, f"starting {self.id}"))

    @cached_property
    def stream(self) -> int:
        """Address of this object's own stream."""
        with self._starting, self.current():
            return int(self.check(self.api.cuStreamCreate(NON_BLOCKING), "making a stream"))

    def current(self) -> contextlib.AbstractContextManager[None]:
        """Make the context current for the calling thread, and then what was before."""
        return _AS_IT_IS if getattr(self._here, "stays", False) else self._pushed()

    @contextlib.contextmanager
    def staying_current(self) -> Iterator[None]:
        """Make the context current once for all that the thread does within a ``with`` block.

        For threads that we start: nothing else in them may change the current context.  A refusal
        is not raised here, as whatever the thread calls next is refused alike.
        """
        (refused,) = self.api.cuCtxPushCurrent(self.context)
        self._here.stays = not refused
        try:
            yield
        finally:
            self._here.stays = False
            if not refused:
                self.api.cuCtxPopCurrent()

    @contextlib.contextmanager
    def _pushed(self) -> Iterator[None]:
        self.check(self.api.cuCtxPushCurrent(self.context), f"using {self.id}")
        try:
            yield
        finally:
            self.api.cuCtxPopCurrent()

    def check(self, result: tuple[Any, ...], doing: str) -> Any:
        """Return what a driver call returns besides its status; see `driver.check`."""
        try:
            return check(result, doing)
        except BackendError as error:
            raise self.failed(error) from None

    def failed(self, error: BackendError) -> BackendError:
        """Remember an error that the process cannot recover from; return it."""
        if isinstance(error, DeviceLostError):
            self.lost = error
        return error

    # -- kernels -----------------------------------------------------------------------

    def compile(self, source: Source, *, rewrite: Rewrite | None = None) -> Kernel:
        """Compile a source, or take it from the disk cache."""
        started = time.perf_counter()
        with span("compile"):
            # What machine code is made with is imported where something is compiled.
            from tilewright.backend.cuda.arranging import arranged_cubin

            cubin = arranged_cubin(source, self.arch, self._cache, rewrite)
            wants = source.dynamic_shared_bytes, source.part_bytes, source.second
            loaded = LoadedKernel(self, cubin, source.entry, *wants)
        return Kernel(loaded, source.entry, time.perf_counter() - started, cubin.code)

    def load(self, code: MachineCode, cubin: bytes) -> Kernel:
        """Load a cubin that was compiled before."""
        started = time.perf_counter()
        with span("load"):
            wants = code.shared_bytes, code.part_bytes, code.second
            loaded = LoadedKernel(self, Cubin(cubin, "", {}, self.arch), code.symbol, *wants)
        return Kernel(loaded, code.symbol, time.perf_counter() - started, cubin)

    def unload(self, module: Any) -> None:
        """Forget a module; errors no longer matter to anyone."""
        with contextlib.suppress(BackendError), self.current():
            self.api.cuModuleUnload(module)

    def prepare(self, kernel: Kernel, launch: Launch, arguments: Sequence[Any]) -> PreparedLaunch:
        """Return a launch that is laid out once and enqueued many times."""
        from tilewright.backend.cuda.launch import PreparedLaunch

        loaded = kernel.handle
        wants = loaded.dynamic_shared_bytes, loaded.part_bytes, loaded.second
        return PreparedLaunch(self, loaded.function, launch, arguments, *wants)

    def launch(
        self,
        kernel: Kernel,
        launch: Launch,
        arguments: Sequence[Any],
        queue: Any = None,
        after: Sequence[Any] = (),
        *,
        held: int = 0,
    ) -> Event:
        """Enqueue a kernel between two events and return at once."""
        stream = self.stream if queue is None else int(queue)
        with span("launch"):
            prepared = self.prepare(kernel, launch, arguments)
            return self.between_events(
                lambda: prepared.enqueue(stream), stream, after, kernel, kernel.entry, held
            )

    def between_events(
        self,
        enqueue: Callable[[], object],
        stream: int | None = None,
        after: Sequence[Any] = (),
        keep: Any = None,
        name: str = "kernel",
        held: int = 0,
        *,
        ours: bool = False,
    ) -> CUDAEvent:
        """Enqueue anything, a library's kernel for one, between two events.

        Parameters
        ----------
        enqueue : callable
            Puts work on the stream; the context is current.
        stream : int, optional
            The stream; this object's own by default.
        after : sequence of CUDAEvent
            What the work waits for.
        keep : object
            What must live until the work has ended.
        name : str
            What a timeline calls it.
        held : int
            So many launches are enqueued while the stream is kept busy.  Without it, events around
            a kernel of ten microseconds measure how fast the host enqueues it.
        ours : bool
            Whether the stream is our own, and nobody but a timeline asks how long the work took.
        """
        from tilewright.backend.cuda.events import CUDAEvent

        stream = self.stream if stream is None else stream
        with self.current():
            for event in after:
                event.before(stream, ours=ours)
            record = self.api.cuEventRecordOnOurs if ours else self.api.cuEventRecord
            pair = self.events.take()
            zero = self.events.clock.zero() if is_recording() else None
            if held:
                self.events.hold.enqueue(stream, held)
            # Nothing may come between: the device is faster than Python.
            begun = record(pair[0], stream) if zero or not ours else (0,)
            enqueue()
            ended = record(pair[1], stream)
            for recorded in (begun, ended):
                self.check(recorded, "recording an event")
        return CUDAEvent(self, pair, keep, name, zero, stream)

    def launch_timed(self, kernel: Kernel, launch: Launch, arguments: Sequence[Any]) -> Event:
        """Enqueue a kernel between two events, on a stream that is held meanwhile."""
        return self.launch(kernel, launch, arguments, held=1)

    def finish(self) -> None:
        """Block until everything enqueued in the context has ended."""
        with span("wait"), self.current():
            self.check(self.api.cuCtxSynchronize(), f"waiting for {self.id}")

    def is_captured(self, queue: Any = None) -> bool:
        """Whether a stream's work is captured into a graph."""
        if queue is None:
            return False
        with self.current():
            return self.stream_state(int(queue)) is None

    def stream_state(self, stream: int) -> int | None:
        """Return a stream's number, None while it is captured; the context is current.

        Raises
        ------
        LaunchError
            If the driver refuses.
        """
        try:
            return stream_state(stream)
        except BackendError as error:
            raise self.failed(error) from None

    # -- memory ------------------------------------------------------------------------

    def allocate(self, size: int) -> int:
        """Return the address of `size` bytes of device memory; at least one, as CUDA wants."""
        with self.current():
            found = self.api.cuMemAlloc(max(1, int(size)))
            return int(self.check(found, f"{self.id} cannot allocate {size} bytes"))

    def upload(self, array: NDArray[Any]) -> int:
        """Return device memory holding a copy of a contiguous array."""
        memory = self.allocate(array.nbytes)
        try:
            self.write(memory, array)
        except BackendError:
            self.free(memory)
            raise
        return memory

    def download(self, memory: int, array: NDArray[Any], offset: int = 0) -> None:
        """Fill a contiguous array from device memory; blocks."""
        if array.nbytes:
            copy = self.api.cuMemcpyDtoHAsync
            with span("copy to host", array.nbytes):
                self._copy(copy, _address(array), memory + offset, array.nbytes)

    def write(self, memory: int, array: NDArray[Any], offset: int = 0) -> None:
        """Copy a contiguous array into device memory; blocks."""
        if array.nbytes:
            copy = self.api.cuMemcpyHtoDAsync
            with span("copy to device", array.nbytes):
                self._copy(copy, memory + offset, _address(array), array.nbytes)

    def _copy(self, copy: Any, to: int, source: int, size: int) -> None:
        """Copy on our own stream: CUDA's plain copies wait for other streams only."""
        with self.current():
            self.check(copy(to, source, size, self.stream), f"{self.id} could not copy")
            self.check(self.api.cuStreamSynchronize(self.stream), f"{self.id} could not copy")

    def free(self, memory: int) -> None:
        """Give device memory back at once; a lost device has nothing to give."""
        if self.lost is None:
            with self.current():
                self.check(self.api.cuMemFree(memory), f"{self.id} could not free memory")

    @contextlib.contextmanager
    def pinned(self, size: int) -> Iterator[NDArray[np.uint8]]:
        """Return host memory with locked pages, for the time of a ``with`` block."""
        size = max(1, size)
        with self.current():
            found = self.api.cuMemHostAlloc(size, 0)
            address = int(self.check(found, f"{self.id} cannot lock {size} bytes of host memory"))
        try:
            yield np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
        finally:
            if self.lost is None:
                with self.current():
                    self.check(self.api.cuMemFreeHost(address), f"{self.id} could not free memory")

    def is_pinned(self, address: int) -> bool:
        """Whether an address is of host memory whose pages are locked."""
        kind = ctypes.c_uint()
        with self.current():
            status, *_ = self.api.cuPointerGetAttribute(ctypes.byref(kind), MEMORY_TYPE, address)
        return status == 0 and kind.value == MEMORY_HOST

    @property
    def free_memory(self) -> int:
        """Bytes of device memory that nobody has taken."""
        with self.current():
            return int(self.check(self.api.cuMemGetInfo(), f"asking {self.id} for its memory"))

    def environment(self) -> dict[str, str]:
        """Return what a measurement should remember about the software."""
        return super().environment() | {"compiler": self.compiler, "arch": self.arch}


def _address(array: NDArray[Any]) -> int:
    """Return where a contiguous array lies."""
    assert array.flags.c_contiguous or array.flags.f_contiguous
    return int(array.ctypes.data)


@lru_cache(maxsize=64)
def device_at(ordinal: int) -> CUDADevice:
    """Return the one device object for CUDA's number of a device."""
    return CUDADevice(ordinal)


def devices() -> list[LiveDevice]:
    """Return every CUDA device, in CUDA's order; none where anything it takes is missing.

    What is broken rather than missing is said in a warning: other backends go on.
    """
    if probe.count() == 0:
        return []
    try:
        return [device_at(ordinal) for ordinal in range(probe.count())]
    except BackendError as error:
        warnings.warn(f"CUDA devices are left out: {error}", RuntimeWarning, stacklevel=2)
        return []
