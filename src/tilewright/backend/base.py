"""One protocol for every way of running a kernel.

A backend lists live devices; a live device compiles, allocates, launches and times.
Everything above this floor is written against these classes only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tilewright.dataclass import dataclass
from tilewright.hardware import DeviceSpec
from tilewright.stencil import Dialect, Launch, Source

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tilewright.backend.cache import KernelCache
    from tilewright.backend.cubin import Cubin

    Rewrite = Callable[[Cubin, KernelCache | None], Cubin]

__all__ = [
    "BackendError",
    "CompileError",
    "DeviceFailedError",
    "DeviceLostError",
    "Event",
    "HostError",
    "Kernel",
    "LaunchError",
    "LiveDevice",
    "MachineCode",
    "OutOfMemoryError",
]


class BackendError(RuntimeError):
    """A device refused something; `detail` holds what it said at length."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


class CompileError(BackendError):
    """The compiler refused a source; `detail` is its log."""


class LaunchError(BackendError):
    """The device refused a launch or failed while it ran."""


class DeviceLostError(LaunchError):
    """A kernel failed so that this process can use the device no more.

    CUDA reports an illegal address, say, once more for every call that follows.  Nothing
    but a new process helps; processes beside this one are not touched.
    """


class DeviceFailedError(DeviceLostError):
    """The device itself failed or is gone, which is no kernel's fault."""


class HostError(BackendError):
    """The host failed, not the kernel: no room on a disk, no permission, no compiler."""


class OutOfMemoryError(BackendError):
    """The device or the host has too little memory."""


@dataclass(frozen=True)
class Kernel:
    """A compiled source.

    Parameters
    ----------
    handle : object
        The backend's own object.
    entry : str
        Name of the function.
    compile_seconds : float
        Time the build took; near zero when it came from a cache.
    code : bytes or None
        Machine code in a form that `tilewright.sass` reads; None on other devices.
    """

    handle: Any
    entry: str
    compile_seconds: float
    code: bytes | None = None


class MachineCode(Protocol):
    """What the launches of a cubin need besides it; `tilewright.portfolio.Code` is one."""

    @property
    def symbol(self) -> str:
        """The kernel's name in the cubin."""

    @property
    def second(self) -> str:
        """The function launched behind it with the same arguments; empty for none."""

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""

    @property
    def part_bytes(self) -> int:
        """What each block needs of a workspace."""


class Event(ABC):
    """Something enqueued that will end."""

    @abstractmethod
    def wait(self) -> None:
        """Block until it has ended.

        Raises
        ------
        LaunchError
            If it ended in failure.
        """

    @abstractmethod
    def nanoseconds(self) -> int:
        """Return how long it ran on the device; waits first."""


class LiveDevice(ABC):
    """A device that is here and can run kernels.

    Attributes
    ----------
    backend : str
        Its backend's name.
    id : str
        How people name it, such as ``"opencl:0"``.
    spec : DeviceSpec
        Its numbers.
    platform, driver : str
        The software that serves it, with versions.
    fingerprint : str
        12 hexadecimal digits over everything that may change a kernel's speed or
        correctness: name, platform, driver.  Measurements belong to a fingerprint.
    """

    backend: str
    id: str
    spec: DeviceSpec
    platform: str
    driver: str
    fingerprint: str
    dialect: Dialect
    # Largest piece of memory in bytes, where the device limits it below what it has.
    max_allocation: int | None = None
    # What machine code is compiled for, such as "sm_90a"; empty where the device shows none.
    arch: str = ""

    @abstractmethod
    def compile(self, source: Source, *, rewrite: Rewrite | None = None) -> Kernel:
        """Compile a source, or take it from the disk cache.

        Parameters
        ----------
        source : Source
            What to compile.
        rewrite : callable, optional
            Returns another cubin for the compiler's, to be loaded in its place; it is given the
            disk cache, or None, to keep what it makes.

        Raises
        ------
        CompileError
            With the compiler's log in `detail`; or if machine code is to be rewritten that the
            device does not show.
        """

    def compile_ahead(self, source: Source, rewrite: Rewrite | None = None) -> bytes | None:
        """Compile a source into the disk cache, without the device where that can be.

        Returns
        -------
        bytes or None
            Machine code as `Kernel` has it.

        Raises
        ------
        CompileError
            As `compile`.
        """
        return self.compile(source, rewrite=rewrite).code

    def load(self, code: MachineCode, cubin: bytes) -> Kernel:
        """Load machine code that was compiled before.

        Parameters
        ----------
        code : MachineCode
            What its launches need.
        cubin : bytes
            Machine code.

        Raises
        ------
        BackendError
            If the driver refuses it.
        """
        raise BackendError(f"{self.id} loads no machine code; it compiles")

    @property
    def portfolio_key(self) -> str:
        """What the device's own portfolios are kept under."""
        return self.fingerprint

    @property
    def hardware_key(self) -> str:
        """What tells this piece of hardware from others of this machine, as a file's name."""
        return "cpu" if self.spec.kind == "cpu" else self.fingerprint

    @abstractmethod
    def allocate(self, size: int) -> Any:
        """Return `size` bytes of device memory.

        Raises
        ------
        OutOfMemoryError
            If the device has too little.
        """

    @abstractmethod
    def upload(self, array: NDArray[Any]) -> Any:
        """Return device memory holding a copy of a contiguous array."""

    @abstractmethod
    def download(self, memory: Any, array: NDArray[Any], offset: int = 0) -> None:
        """Fill a contiguous array from device memory, `offset` bytes in; blocks."""

    @abstractmethod
    def write(self, memory: Any, array: NDArray[Any], offset: int = 0) -> None:
        """Copy a contiguous array into device memory, `offset` bytes in; blocks."""

    def write_lines(self, memory: Any, lines: NDArray[Any], pitch: int, offset: int = 0) -> None:
        """Copy a matrix into device memory, each line `pitch` bytes behind the last; blocks."""
        for number, line in enumerate(lines):
            self.write(memory, np.ascontiguousarray(line), offset + number * pitch)

    @abstractmethod
    def free(self, memory: Any) -> None:
        """Give device memory back at once."""

    def pinned(self, size: int) -> AbstractContextManager[NDArray[np.uint8]]:
        """Return `size` bytes of host memory that the device reaches without the host's help.

        Its pages are locked; they are given back at the end of the ``with`` block, after
        which no view of the array may be used.

        Raises
        ------
        OutOfMemoryError
            If the host gives no such memory.
        """
        raise BackendError(f"{self.id} has no pinned host memory; use memory of NumPy's")

    @abstractmethod
    def launch(
        self,
        kernel: Kernel,
        launch: Launch,
        arguments: Sequence[Any],
        queue: Any = None,
        after: Sequence[Any] = (),
    ) -> Event:
        """Enqueue a kernel and return at once.

        Raises
        ------
        LaunchError
            If the device refuses the launch.
        """

    @abstractmethod
    def finish(self) -> None:
        """Block until everything enqueued has ended."""

    def launch_timed(self, kernel: Kernel, launch: Launch, arguments: Sequence[Any]) -> Event:
        """Enqueue a kernel whose time is asked for: without the host's share of it.

        Where the device itself says when a kernel began, that is any launch.
        """
        return self.launch(kernel, launch, arguments)

    def is_captured(self, queue: Any = None) -> bool:
        """Whether what is enqueued is recorded, to be run later and perhaps elsewhere."""
        return False

    def environment(self) -> dict[str, str]:
        """Return what a measurement should remember about the software."""
        return {"platform": self.platform, "driver": self.driver}

    def __str__(self) -> str:
        return f"{self.id} {self.spec.name}"
