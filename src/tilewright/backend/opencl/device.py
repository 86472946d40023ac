"""A live OpenCL device: compile, allocate, launch, time."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend.base import (
    CompileError,
    Event,
    Kernel,
    LaunchError,
    LiveDevice,
    OutOfMemoryError,
)
from tilewright.backend.cache import KernelCache
from tilewright.backend.opencl.platforms import opencl, ordered_devices, spec_of, version_of
from tilewright.backend.opencl.pocl_cache import Compiled, pocl_cache
from tilewright.backend.opencl.unknown_cpu import rename_unknown_cpu
from tilewright.dataclass import dataclass
from tilewright.paths import cache_dir
from tilewright.stencil import Launch, Source
from tilewright.timeline import device_span, is_recording, span

if TYPE_CHECKING:
    from tilewright.backend.base import Rewrite

__all__ = ["OPTIONS", "OpenCLDevice", "OpenCLEvent", "devices"]

# No option that relaxes IEEE arithmetic may ever stand here: the numerics contract.
OPTIONS = ("-cl-std=CL1.2", "-w")  # PoCL counts warnings on its caller's stderr

# PoCL 5 (Ubuntu 24.04 has it) optimises kernels whose blocks have several threads to wrong ones:
# the pre-pass of parts writes nothing, products lose elements.  PoCL 3 and 6 do not, and without
# optimisation 5 is right, too.
_MISCOMPILING = (5,)
_UNOPTIMISED = "-cl-opt-disable"
_SEVERAL_THREADS = re.compile(r"^KERNEL \w+\(", re.MULTILINE)  # THREADS_PER_BLOCK(64)


# Arguments belong to a kernel until it is enqueued, whatever the queue.
_enqueuing = threading.Lock()


class OpenCLEvent(Event):
    """A pyopencl event with profiling.

    Parameters
    ----------
    event : pyopencl.Event
        What is waited for.
    track, name : str
        The device and the kernel, for a timeline.
    then : callable, optional
        Called when it was waited for.
    """

    def __init__(
        self,
        event: Any,
        track: str = "opencl",
        name: str = "kernel",
        then: Callable[[], None] | None = None,
    ) -> None:
        self.raw = event
        self._track, self._name, self._then = track, name, then
        self._told = False

    def wait(self) -> None:
        """Block until it has ended."""
        cl = opencl()
        assert cl is not None
        try:
            with span("wait"):
                self.raw.wait()
        except cl.Error as error:
            raise LaunchError(f"the kernel failed on the device: {error}") from error
        if self._then is not None:
            then, self._then = self._then, None
            then()
        if is_recording() and not self._told:
            self._told = True
            with contextlib.suppress(cl.Error):  # a caller's queue may not take times
                times = self.raw.profile
                device_span(self._track, self._name, times.start, times.end)

    def nanoseconds(self) -> int:
        """Return the time between start and end, by the device's clock."""
        self.wait()
        return int(self.raw.profile.end - self.raw.profile.start)


@dataclass(frozen=True)
class _CompiledKernel(Kernel):
    """A kernel with what PoCL has of it, and what its arguments are."""

    compiled: Compiled | None = None
    types: list[np.dtype[Any] | None] = field(default_factory=list)

    def set_arguments(self, arguments: Sequence[Any]) -> None:
        """Set NumPy scalars and memory as the next launch's arguments.

        pyopencl takes 9 us for a scalar of which it was not told the type, and 2 us for sixteen of
        which it was.  Types are the same at every launch: they are the kernel's parameters'.
        """
        if not self.types:
            self.types.extend(getattr(one, "dtype", None) for one in arguments)
            self.handle.set_arg_types(self.types)
        self.handle.set_args(*arguments)


class OpenCLDevice(LiveDevice):
    """One OpenCL device with a context and an in-order queue of its own.

    Parameters
    ----------
    device : pyopencl.Device
        The device to use.
    name : str
        Its id, such as ``"opencl:0"``.
    context : pyopencl.Context, optional
        The caller's context, where arrays live in one already.
    """

    backend = dialect = "opencl"

    def __init__(self, device: Any, name: str, context: Any = None) -> None:
        cl = opencl()
        assert cl is not None
        rename_unknown_cpu(device)
        self._cl = cl
        self.raw = device
        self.id = name
        self.spec = spec_of(device)
        platform = device.platform
        self.platform = f"{platform.name} ({platform.version})"
        self.driver = str(device.driver_version)
        parts = (platform.name, platform.version, device.name, device.version, self.driver)
        self.fingerprint = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
        self.context = context or cl.Context([device])
        self.queue = cl.CommandQueue(
            self.context, device, properties=cl.command_queue_properties.PROFILING_ENABLE
        )
        self.max_allocation = int(device.max_mem_alloc_size)
        self._cache = KernelCache()
        self._process = os.getpid()
        # PoCL keeps what it compiles in a directory that we gave it.  Asking it for a
        # binary would compile every kernel once more, for a launch of unknown size.
        self._is_pocl = platform.name == "Portable Computing Language"
        self._miscompiles = self._is_pocl and version_of(platform.version)[:1] == _MISCOMPILING

    def compile(self, source: Source, *, rewrite: Rewrite | None = None) -> Kernel:
        """Compile a source, or take it from the disk cache."""
        if rewrite is not None:
            raise CompileError("OpenCL hides machine code, so none is rewritten; leave rewrite out")
        with span("compile"):
            return self._compiled(source)

    def _compiled(self, source: Source) -> Kernel:
        started = time.perf_counter()
        macros = tuple(f"-D{name}={value}" for name, value in source.defines.items())
        constant: tuple[str, ...] = OPTIONS
        if self._miscompiles and _SEVERAL_THREADS.search(source.text):
            constant += (_UNOPTIMISED,)
        options = [*constant, *macros]
        own = pocl_cache() if self._is_pocl else None
        one = replace(source, entry="") if own is not None else source
        key = self._cache.key(one, constant, self.fingerprint)
        compiled = None
        if own is not None:
            make = partial(self._build, source.text, options)
            program, compiled = own.build(key, self._cache, make)
        else:
            program = None if self._is_pocl else self._from_cache(key, options)
            if program is None:
                program = self._build(source.text, options)
                if not self._is_pocl:
                    self._cache.save(key, program.get_info(self._cl.program_info.BINARIES)[0])
        try:
            handle = self._cl.Kernel(program, source.entry)
        except self._cl.Error as problem:
            raise CompileError(
                f"kernel {source.entry!r} is not in what the driver compiled or kept ({problem});"
                f" if this stays so, empty {cache_dir()}"
            ) from None
        kernel = _CompiledKernel(
            handle, source.entry, time.perf_counter() - started, compiled=compiled
        )
        if own is not None and compiled is not None:
            own.drop_with(kernel, key)
        return kernel

    def _from_cache(self, key: str, options: list[str]) -> Any:
        binary = self._cache.load(key)
        if binary is None:
            return None
        try:
            # Some drivers write to stderr or warn about binaries they then accept.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return self._cl.Program(self.context, [self.raw], [binary]).build(options)
        except self._cl.Error:
            self._cache.drop(key)
            return None

    def _build(self, text: str, options: list[str]) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return self._cl.Program(self.context, text).build(options)
        except self._cl.Error as error:
            log = str(error)
            first = next((line for line in log.splitlines() if "error:" in line), "see its log")
            reason = first.rpartition("error:")[2].strip()
            raise CompileError(f"the OpenCL compiler refused the kernel: {reason}", log) from error

    def allocate(self, size: int) -> Any:
        """Return `size` bytes of device memory; at least one, as OpenCL wants."""
        self._refuse_children()
        flags = self._cl.mem_flags.READ_WRITE
        try:
            return self._cl.Buffer(self.context, flags, max(1, size))
        except self._cl.Error as error:
            raise OutOfMemoryError(
                f"{self.id} cannot allocate {size} bytes; use a smaller problem", str(error)
            ) from error

    def upload(self, array: NDArray[Any]) -> Any:
        """Return device memory holding a copy of a contiguous array."""
        memory = self.allocate(array.nbytes)
        self.write(memory, array)
        return memory

    def download(self, memory: Any, array: NDArray[Any], offset: int = 0) -> None:
        """Fill a contiguous array from device memory; blocks."""
        if array.nbytes:
            self._copy(array, memory, src_offset=offset)

    def write(self, memory: Any, array: NDArray[Any], offset: int = 0) -> None:
        """Copy a contiguous array into device memory; blocks."""
        if array.nbytes:
            self._copy(memory, array, dst_offset=offset)

    def write_lines(self, memory: Any, lines: NDArray[Any], pitch: int, offset: int = 0) -> None:
        """Copy a matrix into device memory, each line `pitch` bytes behind the last; blocks."""
        if lines.nbytes:
            width = lines.shape[1] * lines.itemsize
            self._copy(
                memory, np.ascontiguousarray(lines), region=(width, len(lines), 1),
                buffer_origin=(offset, 0, 0), host_origin=(0, 0, 0),
                buffer_pitches=(pitch, 0), host_pitches=(width, 0),
            )  # fmt: skip

    def _copy(self, to: Any, source: Any, **places: Any) -> None:
        self._refuse_children()
        to_host = isinstance(to, np.ndarray)
        size = (to if to_host else source).nbytes
        try:
            with span("copy to host" if to_host else "copy to device", size):
                self._cl.enqueue_copy(self.queue, to, source, is_blocking=True, **places)
        except self._cl.MemoryError as error:
            raise OutOfMemoryError(f"{self.id} has too little memory", str(error)) from error
        except self._cl.Error as error:
            raise LaunchError(f"{self.id} could not copy: {error}") from error

    def wrap(self, array: NDArray[Any] | memoryview) -> Any:
        """Return memory that is a contiguous host array, without a copy.

        Only for devices with unified memory; results are visible after `unwrap`.
        """
        self._refuse_children()
        flags = self._cl.mem_flags.READ_WRITE | self._cl.mem_flags.USE_HOST_PTR
        try:
            return self._cl.Buffer(self.context, flags, hostbuf=array)
        except self._cl.Error as error:
            raise OutOfMemoryError(
                f"{self.id} cannot use {array.nbytes} bytes in place: {error}", str(error)
            ) from error

    def unwrap(self, memory: Any, array: NDArray[Any] | memoryview) -> None:
        """Make what kernels wrote to wrapped memory visible to the host; blocks."""
        cl, size = self._cl, array.nbytes
        try:
            with span("copy to host", size):  # no copy where memory is shared indeed
                mapped, _ = cl.enqueue_map_buffer(
                    self.queue, memory, cl.map_flags.READ, 0, (size,), np.uint8, is_blocking=True
                )
                mapped.base.release(self.queue)
        except cl.Error as error:
            raise LaunchError(f"{self.id} could not give memory back: {error}") from error

    def free(self, memory: Any) -> None:
        """Give device memory back at once."""
        memory.release()

    @contextlib.contextmanager
    def pinned(self, size: int) -> Iterator[NDArray[np.uint8]]:
        """Return host memory that the driver allocated, mapped for the time of a ``with`` block.

        Drivers lock its pages (cl_mem_flags: CL_MEM_ALLOC_HOST_PTR).
        """
        self._refuse_children()
        flags = self._cl.mem_flags.READ_WRITE | self._cl.mem_flags.ALLOC_HOST_PTR
        access = self._cl.map_flags.READ | self._cl.map_flags.WRITE
        size = max(1, size)
        try:
            memory = self._cl.Buffer(self.context, flags, size)
            mapped, _ = self._cl.enqueue_map_buffer(
                self.queue, memory, access, 0, (size,), np.uint8, is_blocking=True
            )
        except self._cl.Error as error:
            raise OutOfMemoryError(
                f"{self.id} cannot lock {size} bytes of host memory", str(error)
            ) from error
        try:
            yield mapped
        finally:
            mapped.base.release(self.queue)
            self.queue.finish()
            memory.release()

    def _refuse_children(self) -> None:
        """Say what to do in a forked process, where nobody does what is enqueued.

        OpenCL's threads stayed in the parent, with the locks that they held.
        """
        if os.getpid() != self._process:
            raise LaunchError(
                "this process was forked after OpenCL started; use multiprocessing's 'spawn'"
            )

    def launch(
        self,
        kernel: Kernel,
        launch: Launch,
        arguments: Sequence[Any],
        queue: Any = None,
        after: Sequence[Any] = (),
    ) -> Event:
        """Enqueue a kernel and return at once."""
        self._refuse_children()
        size = launch.threads
        block = launch.block if launch.batch == 1 else (*launch.block, 1)
        assert isinstance(kernel, _CompiledKernel)
        compiled = kernel.compiled
        then = None if compiled is None else compiled.launching(kernel.entry, size, block)
        try:
            with span("launch"), _enqueuing:
                kernel.set_arguments(arguments)
                # By position: pyopencl takes longer for names.
                event = self._cl.enqueue_nd_range_kernel(
                    queue or self.queue, kernel.handle, size, block, None,
                    list(after) or None,
                )  # fmt: skip
        except self._cl.MemoryError as error:
            raise OutOfMemoryError(f"{self.id} has too little memory", str(error)) from error
        except self._cl.Error as error:
            raise LaunchError(f"{self.id} refused the launch: {error}", str(error)) from error
        if compiled is not None and then is not None:
            compiled.begun(event)
        return OpenCLEvent(event, self.id, kernel.entry, then)

    def finish(self) -> None:
        """Block until everything enqueued has ended; a forked process has enqueued nothing."""
        if os.getpid() == self._process:
            with span("wait"):
                self.queue.finish()


def devices() -> list[LiveDevice]:
    """Return a live device for each OpenCL device, in the order of their ids."""
    return [OpenCLDevice(raw, f"opencl:{i}") for i, raw in enumerate(ordered_devices())]
