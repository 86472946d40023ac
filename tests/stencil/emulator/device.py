"""A device whose kernels are compiled by the host's C++ compiler; see cuda_words.h."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.backend import Kernel
from tilewright.backend.base import CompileError, Event, LaunchError, LiveDevice
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.stencil import Launch, Source, Workspace

HERE = Path(__file__).parent

# CUDA's own allocations are aligned so, and kernels look at it.
ALIGNMENT = 256


def compiler() -> str | None:
    """Return the host's C++ compiler, if there is one."""
    return shutil.which("g++") or shutil.which("clang++")


class Memory:
    """Host memory that poses as a device's."""

    def __init__(self, size: int) -> None:
        whole = np.zeros(size + ALIGNMENT, np.uint8)
        self.bytes = whole[-whole.ctypes.data % ALIGNMENT :][:size]


class _Range(ctypes.Structure):
    _fields_ = (("begin", ctypes.c_void_p), ("end", ctypes.c_void_p))


class _Launch(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int) for name in
          ("blocks", "threads", "cluster", "shared_bytes", "late", "seed", "arrays",
           "at_once")),
        ("readable", ctypes.POINTER(_Range)),
    )  # fmt: skip


@dataclass
class Loaded:
    """A compiled text and what its launches need."""

    function: Any
    cluster: int
    shared_bytes: int
    part_bytes: int


class Ended(Event):
    """Emulated launches end before they return."""

    def wait(self) -> None:
        """Return at once."""

    def nanoseconds(self) -> int:
        """Return nothing that anyone should compare."""
        return 1


class EmulatedDevice(LiveDevice):
    """A CUDA device made of coroutines, with an architecture's limits.

    Parameters
    ----------
    directory : Path
        Where kernels are compiled.
    arch : str
        Whose limits it has.
    multiprocessors : int
        For blocks that stay: how many times their number a multiprocessor there are.
    """

    id, platform, driver, fingerprint, dialect = "emulated:0", "emulator", "0", "0" * 12, "cuda"

    def __init__(self, directory: Path, arch: str = "sm_90a", multiprocessors: int = 8) -> None:
        self.spec = replace(architecture_spec(arch), multiprocessors=multiprocessors)
        self.directory = directory
        self.launches = 0
        self.workspace = Memory(0)  # its words stay as kernels leave them

    @property
    def backend(self) -> str:
        return "emulated"

    def compile(self, source: Source, *, use_cache: bool = True) -> Kernel:
        parts = ((HERE / "cuda_words.h").read_text(), source.text, (HERE / "entry.h").read_text())
        text = "\n".join(parts)
        macros = {"EMULATED": f'"{HERE / "ptx_words.h"}"', **source.defines}
        name = hashlib.sha256(repr((text, macros)).encode()).hexdigest()[:16]
        file, library = self.directory / f"{name}.cc", self.directory / f"{name}.so"
        if not library.exists():
            file.write_text(text)
            found = compiler()
            assert found is not None
            # No contraction: it would hide a product that is rounded where it should not be.
            options = ["-std=c++17", "-O1", "-fPIC", "-shared", "-Wno-unknown-pragmas"]
            done = subprocess.run(
                [found, *options, *(f"-D{key}={value}" for key, value in macros.items()),
                 "-o", str(library), str(file)],
                capture_output=True, text=True,
            )  # fmt: skip
            if done.returncode:
                raise CompileError("the host's compiler refused the kernel", done.stderr)
        function = ctypes.CDLL(str(library)).emulate
        function.restype = ctypes.c_char_p
        cluster = int(source.defines.get("SPLIT_K", 1))
        return Kernel(
            Loaded(function, cluster, source.dynamic_shared_bytes, source.part_bytes),
            source.entry,
            0.0,
        )

    def launch(
        self,
        kernel: Kernel,
        launch: Launch,
        arguments: Sequence[Any],
        queue: Any = None,
        after: Sequence[Any] = (),
    ) -> Event:
        """Run both ways: copies and writes for others at once, and as late as allowed.

        Blocks that stay run all at once, and one after the other as far as they get.
        """
        loaded: Loaded = kernel.handle
        launch = launch.on(self.spec.multiprocessors)
        memory = [x for x in arguments if isinstance(x, Memory)]
        result = memory[-1]
        space = Workspace(launch.grid[0], loaded.part_bytes)
        if self.workspace.bytes.nbytes < space.size:
            self.workspace = Memory(space.size)
        workspace = self.workspace
        ranges = _ranges([*memory, workspace])
        before = result.bytes.copy()
        results = []
        for late in (0, 1):
            result.bytes[:] = before
            workspace.bytes[space.cleared_bytes :] = 0xFF  # NaN
            self.launches += 1
            most = launch.grid[0] if late else 1 + self.launches % 3
            how = _Launch(
                launch.grid[0], launch.block[0], loaded.cluster, loaded.shared_bytes, late,
                self.launches, len(ranges), most if launch.resident else 0, ranges,
            )  # fmt: skip
            fault = loaded.function(ctypes.byref(how), *map(_foreign, (*arguments, workspace)))
            if fault:
                raise LaunchError(fault.decode())
            if workspace.bytes[: space.cleared_bytes].any():
                raise LaunchError("the workspace's words are not left as they were")
            results.append(result.bytes.copy())
        if not np.array_equal(*results):
            raise LaunchError("the result depends on what happens when")
        return Ended()

    def allocate(self, size: int) -> Memory:
        return Memory(size)

    def upload(self, array: Any) -> Memory:
        memory = Memory(array.nbytes)
        memory.bytes[:] = np.frombuffer(array.tobytes("A"), np.uint8)
        return memory

    def download(self, memory: Memory, array: Any, offset: int = 0) -> None:
        array.view(np.uint8).reshape(-1)[:] = memory.bytes[offset : offset + array.nbytes]

    def write(self, memory: Memory, array: Any, offset: int = 0) -> None:
        memory.bytes[offset : offset + array.nbytes] = np.frombuffer(array.tobytes("A"), np.uint8)

    def free(self, memory: Memory) -> None:
        """Leave it to Python."""

    def finish(self) -> None:
        """Nothing runs on."""


def _ranges(memory: Sequence[Memory]) -> Any:
    """Return where device memory lies, as C takes it."""
    ranges = (_Range * len(memory))()
    for at, piece in zip(ranges, memory, strict=True):
        at.begin = piece.bytes.ctypes.data
        at.end = piece.bytes.ctypes.data + piece.bytes.nbytes
    return ranges


def _foreign(argument: Any) -> Any:
    """Return an argument as C takes it."""
    if isinstance(argument, Memory):
        return ctypes.c_void_p(argument.bytes.ctypes.data)
    kinds = {
        np.dtype(np.int64): ctypes.c_longlong,
        np.dtype(np.float32): ctypes.c_float,
        np.dtype(np.float64): ctypes.c_double,
    }
    return kinds[argument.dtype](argument.item())
