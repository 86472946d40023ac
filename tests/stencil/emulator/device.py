"""A device whose kernels are compiled by the host's C++ compiler; see cuda_words.h."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import math
import mmap
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.backend import Kernel
from tilewright.backend.base import CompileError, Event, LaunchError, LiveDevice
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.stencil import Launch, Source, TensorMap, Workspace
from tilewright.stencil.table import MAP_BYTES, Table

HERE = Path(__file__).parent

# What kernels ask of whole arrays; CUDA's own allocations begin at multiples of 256.
ALIGNMENT = 16

PAGE = mmap.PAGESIZE

# Macros of our sources whose product is the number of blocks in a cluster.
_CLUSTER = ("CLUSTER_K", "CLUSTER_M", "CLUSTER_N")


# A product that is rounded where it should not be is not hidden: x86-64 has no contraction.  The
# engine jumps from stack to stack, which _FORTIFY_SOURCE would take for a mistake.
_OPTIONS = (
    "-std=c++17", "-O1", "-U_FORTIFY_SOURCE", "-fPIC", "-Wno-unknown-pragmas", "-ffp-contract=off",
)  # fmt: skip


def _words() -> tuple[str, ...]:
    """Return what all sources are compiled with."""
    return tuple(file.read_text() for file in sorted(HERE.glob("*_words.h")))


def compiler() -> str | None:
    """Return the host's C++ compiler, if there is one."""
    return shutil.which("g++") or shutil.which("clang++")


_scratch = tempfile.TemporaryDirectory(prefix="emulator-")


@functools.cache
def _built(found: str) -> Path:
    """Return a folder with what all sources share, compiled once: the engine, and their prefix.

    Only g++ compiles headers so that it finds them; others read them anew each time.
    """
    directory = Path(_scratch.name)
    prefix, engine = directory / "prefix.h", directory / "engine.so"
    names = (HERE / name for name in ("cuda_words.h", "hopper_words.h"))
    prefix.write_text("".join(f'#include "{name}"\n' for name in names))
    # The engine first: g++ 12 fails where options are not those that a header was compiled with.
    made = ("-O2", "-shared", "-include", str(prefix), "-o", str(engine))
    subprocess.run([found, *_OPTIONS, *made, *map(str, HERE.glob("*.cc"))], check=True)
    header = ("-x", "c++-header", "-o", f"{prefix}.gch", str(prefix))
    subprocess.run([found, *_OPTIONS, *header], capture_output=True)
    return directory


class Memory:
    """Host memory that poses as a device's; adding bytes gives what lies behind them.

    It ends at a page that nobody may touch, or `ALIGNMENT` bytes before.
    """

    def __init__(self, size: int) -> None:
        whole = np.frombuffer(mmap.mmap(-1, -(-size // PAGE) * PAGE + PAGE), np.uint8)
        end = whole.size - PAGE
        if ctypes.CDLL(None).mprotect(ctypes.c_void_p(whole.ctypes.data + end), PAGE, 0):
            raise OSError("mprotect refuses a page")
        self.bytes = whole[(end - size) // ALIGNMENT * ALIGNMENT :][:size]
        self.freed = False

    def __add__(self, offset: int) -> Memory:
        rest = Memory(0)
        rest.bytes = self.bytes[offset:]
        return rest


class _Range(ctypes.Structure):
    _fields_ = (("begin", ctypes.c_void_p), ("end", ctypes.c_void_p))


class _Tensor(ctypes.Structure):
    """What hopper_words.h takes for a tensor map."""

    _fields_ = (
        ("first", ctypes.c_void_p),
        ("element_bytes", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("span", ctypes.c_int),
        ("sizes", ctypes.c_longlong * 3),
        ("strides", ctypes.c_longlong * 3),
        ("box", ctypes.c_int * 3),
        ("rest", ctypes.c_byte * 128),
    )

    @classmethod
    def of(cls, tensor: TensorMap) -> _Tensor:
        """Return a map as the emulated copy engine reads it."""
        whole = 3
        fill = (1,) * (whole - len(tensor.sizes))
        return cls(
            tensor.memory.bytes.ctypes.data + tensor.offset,
            tensor.element_bytes,
            len(tensor.sizes),
            tensor.swizzle,
            (ctypes.c_longlong * whole)(*tensor.sizes, *fill),
            (ctypes.c_longlong * whole)(tensor.element_bytes, *tensor.strides, *(0 for _ in fill)),
            (ctypes.c_int * whole)(*tensor.box, *fill),
        )


class _Launch(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int) for name in
          ("blocks", "threads", "cluster", "shared_bytes", "late", "seed", "arrays",
           "at_once", "batch")),
        ("readable", ctypes.POINTER(_Range)),
    )  # fmt: skip


@dataclass
class Loaded:
    """A compiled text and what its launches need."""

    functions: list[Any]  # the second one is launched behind the first
    cluster: int
    shared_bytes: int
    part_bytes: int


class Ended(Event):
    """Emulated launches end before they return."""

    raw = None  # nothing has to wait for one

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
        For persistent blocks: how many times their number a multiprocessor there are; the
        architecture's own by default.
    words : str
        The file here that stands for the text's PTX.
    """

    backend = "emulated"
    id, platform, driver, fingerprint, dialect = "emulated:0", "emulator", "0", "0" * 12, "cuda"

    def __init__(
        self,
        directory: Path,
        arch: str = "sm_90a",
        multiprocessors: int | None = None,
        words: str = "ptx_words.h",
    ) -> None:
        spec = architecture_spec(arch)
        self.spec = replace(spec, multiprocessors=multiprocessors or spec.multiprocessors)
        self.words = HERE / words
        self.directory = directory
        self.launches = 0
        self.workspace = Memory(0)  # its words stay as kernels leave them

    def compile(self, source: Source) -> Kernel:
        text = "\n".join((source.text, (HERE / "entry.h").read_text()))
        macros = {"EMULATED": f'"{self.words}"', **source.defines}
        if source.second:
            macros["SECOND"] = source.second
        name = hashlib.sha256(repr((text, macros, _words())).encode()).hexdigest()[:16]
        file, library = self.directory / f"{name}.cc", self.directory / f"{name}.so"
        if not library.exists():
            file.write_text(text)
            found = compiler()
            assert found is not None
            done = subprocess.run(
                [found, *_OPTIONS, "-shared", "-include", str(_built(found) / "prefix.h"),
                 *(f"-D{key}={value}" for key, value in macros.items()),
                 "-o", str(library), str(file), str(_built(found) / "engine.so")],
                capture_output=True, text=True,
            )  # fmt: skip
            if done.returncode:
                raise CompileError("the host's compiler refused the kernel", done.stderr)
        loaded = ctypes.CDLL(str(library))
        functions = [loaded.emulate, *([loaded.emulate_second] if source.second else [])]
        for function in functions:
            function.restype = ctypes.c_char_p
            function.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        cluster = math.prod(int(source.defines.get(name, 1)) for name in _CLUSTER)
        return Kernel(
            Loaded(functions, cluster, source.dynamic_shared_bytes, source.part_bytes),
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

        Persistent blocks run all at once, and one after the other as far as they get.
        """
        loaded: Loaded = kernel.handle
        launch = launch.on(self.spec.multiprocessors)
        memory = memory_of(arguments)
        space = Workspace(launch.grid[0], loaded.part_bytes, len(loaded.functions) == 1)
        if self.workspace.bytes.nbytes < space.size:
            self.workspace = Memory(space.size)
        before = [x.bytes.copy() for x in memory]
        results = []
        for late in (0, 1):
            for piece, old in zip(memory, before, strict=True):
                piece.bytes[:] = old
            self._launch(loaded, launch, arguments, memory, space, late)
            results.append([x.bytes.copy() for x in memory])
        if not all(map(np.array_equal, *results)):
            raise LaunchError("the result depends on what happens when")
        return Ended()

    def _launch(
        self,
        loaded: Loaded,
        launch: Launch,
        arguments: Sequence[Any],
        memory: Sequence[Memory],
        space: Workspace,
        late: int,
    ) -> None:
        workspace = self.workspace
        workspace.bytes[space.cleared_bytes :] = 0xFF  # NaN
        ranges = _ranges([*memory, workspace])
        self.launches += 1
        most = launch.grid[0] if late else 1 + self.launches % 3
        foreign = [_foreign(x) for x in (*arguments, workspace)]
        each = (ctypes.c_void_p * len(foreign))(*(address for _, address in foreign))
        said = ""
        # A second function has arrays of its own, which are no larger.
        ways = [
            (one, cluster, loaded.shared_bytes)
            for one, cluster in ((launch, loaded.cluster), (launch.second, 1))
            if one is not None
        ]
        for function, (its, cluster, shared_bytes) in zip(loaded.functions, ways, strict=False):
            how = _Launch(
                its.grid[0], its.block[0], cluster, shared_bytes, late,
                self.launches, len(ranges), most if its.resident else 0, its.batch, ranges,
            )  # fmt: skip
            fault = function(ctypes.byref(how), each)
            said = said or (fault.decode() if fault else "")
        if not said and workspace.bytes[: space.cleared_bytes].any():
            said = "the workspace's words are not left as they were"
        if said:
            self.workspace = Memory(0)  # the next launch is not to blame
            raise LaunchError(said)

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
        """Leave it to Python, but let no launch name it again."""
        memory.freed = True

    def finish(self) -> None:
        """Nothing runs on."""


def _ranges(memory: Sequence[Memory]) -> Any:
    """Return where device memory lies, as C takes it."""
    ranges = (_Range * len(memory))()
    for at, piece in zip(ranges, memory, strict=True):
        at.begin = piece.bytes.ctypes.data
        at.end = piece.bytes.ctypes.data + piece.bytes.nbytes
    return ranges


def memory_of(arguments: Sequence[Any]) -> list[Memory]:
    """Return the memory that arguments name.

    Raises
    ------
    LaunchError
        If any of it was freed: a device writes into who knows whose.
    """
    listed = [
        piece if isinstance(piece, TensorMap) else piece[0]
        for x in arguments
        if isinstance(x, Table)
        for piece in (*x.maps, *x.rows)
    ]
    named = (x.memory if isinstance(x, TensorMap) else x for x in (*arguments, *listed))
    found = [x for x in named if isinstance(x, Memory)]
    if any(x.freed for x in found):
        raise LaunchError("an argument names memory that was freed")
    return found


def _foreign(argument: Any) -> tuple[Any, int]:
    """Return an argument as C takes it, which must live as long as the call, and its address."""
    if isinstance(argument, TensorMap):
        made: Any = _Tensor.of(argument)
    elif isinstance(argument, Table):
        raw = argument.raw(
            lambda memory: int(memory.bytes.ctypes.data),
            lambda one: bytes(_Tensor.of(one))[:MAP_BYTES],
        )
        made = ctypes.create_string_buffer(raw, len(raw))
    elif argument is None or isinstance(argument, Memory):
        made = ctypes.c_void_p(argument and argument.bytes.ctypes.data)
    else:
        raw = argument.tobytes()
        number = Memory(len(raw))  # pairs of doubles are aligned to 16 bytes
        number.bytes[:] = np.frombuffer(raw, np.uint8)
        return number, number.bytes.ctypes.data
    return made, ctypes.addressof(made)
