"""The driver of tests (fake_cuda.c) as tests set it, and what they read of it."""

from __future__ import annotations

import contextlib
import ctypes
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

LAUNCH, ALLOCATE, FREE, CLEAR, WAIT, RECORD, AWAIT = range(7)
NAMES = ("launch", "allocate", "free", "clear", "wait", "record", "await")
_SLOTS, _SLOT_BYTES, _EVENTS = 8, 128, 2048

# Contexts are pointers that nobody follows.
CONTEXT, OTHER = 0xC0, 0xC1

# plan.c: what needs more takes it for one call.
MOST_ARENA = 64 << 20


class _Event(ctypes.Structure):
    """What fake_cuda.c writes down."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("early", ctypes.c_uint),
        *((name, ctypes.c_void_p) for name in ("context", "stream", "function")),
        ("memory", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("arguments", (ctypes.c_ubyte * _SLOT_BYTES) * _SLOTS),
    )


@dataclass(frozen=True)
class Event:
    """One thing that was asked of the driver."""

    kind: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    early: bool
    context: int
    stream: int
    function: int
    memory: int
    bytes: int
    arguments: list[bytes] = field(repr=False)

    def word(self, place: int) -> int:
        """Return an argument as an integer of 64 bits, or a map's address."""
        return int.from_bytes(self.arguments[place][:8], "little")

    def numbers(self, place: int, form: str) -> tuple[Any, ...]:
        """Return an argument as `struct` unpacks it."""
        return struct.unpack_from(form, self.arguments[place])


class Driver:
    """The library itself."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.library.fake_function.restype = ctypes.c_void_p

    def function(self, arguments: int, maps: int = 0) -> int:
        """Return a function with so many arguments, of which some, by bits, are tensor maps."""
        return int(self.library.fake_function(arguments, maps))

    def set(self, **values: int) -> None:
        """Set variables by their names without ``fake_``."""
        for name, value in values.items():
            ctypes.c_int.in_dll(self.library, f"fake_{name}").value = value

    def reset(self) -> None:
        """Forget what was asked; succeed from now on."""
        self.set(logs=1, logged=0, capture=0, launch_result=0, fails_after=0)
        self.set(allocate_result=0, wait_result=0, full=0)

    @property
    def log(self) -> list[Event]:
        """What was asked since `reset`, in order."""
        count = ctypes.c_int.in_dll(self.library, "fake_logged").value
        events = (_Event * _EVENTS).in_dll(self.library, "fake_log")
        return [
            Event(
                NAMES[it.kind], tuple(it.grid), tuple(it.block), it.shared_bytes, bool(it.early),
                it.context or 0, it.stream or 0, it.function or 0, it.memory, it.bytes,
                [bytes(slot) for slot in it.arguments],
            )
            for it in events[:count]
        ]  # fmt: skip

    @property
    def launches(self) -> list[Event]:
        """The launches among them."""
        return [it for it in self.log if it.kind == "launch"]

    @property
    def kinds(self) -> list[str]:
        """What they are."""
        return [it.kind for it in self.log]

    def current(self) -> int:
        """Return the calling thread's context; 0 for none."""
        found = ctypes.c_void_p()
        self.library.cuCtxGetCurrent(ctypes.byref(found))
        return found.value or 0

    @contextlib.contextmanager
    def within(self, context: int) -> Iterator[None]:
        """Make a context the calling thread's."""
        assert self.library.cuCtxPushCurrent_v2(ctypes.c_void_p(context)) == 0
        try:
            yield
        finally:
            self.library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))


class Device:
    """What plans and arenas ask of a CUDA device, over the driver of tests."""

    id, ordinal, lost = "cuda:0", 0, None

    def __init__(self, driver: Driver, capability: int = 90) -> None:
        self._driver = driver
        self.context = CONTEXT
        self.spec = SimpleNamespace(multiprocessors=132, compute_capability=capability)
        self.api = SimpleNamespace(cuMemsetD8Async=self._clear)

    def _clear(self, memory: int, value: int, size: int, stream: int) -> tuple[Any, ...]:
        at, many = ctypes.c_uint64(memory), ctypes.c_size_t(size)
        return (self._driver.library.cuMemsetD8Async(at, value, many, ctypes.c_void_p(stream)),)

    def current(self) -> Any:
        return self._driver.within(self.context)

    def is_captured(self, stream: int) -> bool:
        return bool(ctypes.c_int.in_dll(self._driver.library, "fake_capture").value)

    def check(self, result: tuple[Any, ...], doing: str) -> Any:
        from tilewright.backend.cuda.driver import check

        return check(result, doing)

    def failed(self, error: Exception) -> Exception:
        return error


def loaded(function: int, second: int = 0, shared: int = 0, parts: int = 0) -> Any:
    """Return a kernel as a device loads it."""
    handle = SimpleNamespace(
        function=function, second=second, dynamic_shared_bytes=shared, part_bytes=parts
    )
    return SimpleNamespace(handle=handle)
