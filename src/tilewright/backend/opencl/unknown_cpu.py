"""PoCL on a CPU that is newer than the LLVM it was built with.

LLVM calls such a CPU "generic", PoCL hands that name to Clang, and Clang knows none of it for x86:
every build ends in "unknown target CPU 'generic'" (PoCL's issues 512 and 1049).  PoCL 3.0, which is
the newest as a wheel, has LLVM 14 and so fails on AMD's Zen 5.  No option and no variable of the
environment reaches that name.  It stands in PoCL's own record of the device, behind the target's::

    struct _cl_device_id { ...
      char *llvm_target_triplet;      "x86_64-unknown-linux-gnu"
      char *llvm_cpu;                 "generic"  ->  "skylake-avx512"
      ... }

Nothing else looks like these two pointers in a row, so where they are found, and only there, the
second one is set to the CPU for which PoCL built the library of functions that it chose by the
features of this one.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Collection
from itertools import pairwise
from typing import Any

from tilewright.hardware.host import processor

__all__ = ["nearest_cpu", "rename_unknown_cpu"]

_PLATFORM = "Portable Computing Language"
_UNKNOWN, _TARGET = b"generic", b"x86_64-"

# PoCL 3.0's record has 1.5 KiB; what lies behind it is read, never written.
_RECORD_BYTES = 2048
_WORD = 8

# What a program may read lies below 2^47 on x86-64 Linux, and never on the first page.
_LOWEST, _HIGHEST = 1 << 12, 1 << 47

# PoCL's libraries, as its CMakeLists.txt builds them, and what Linux calls what they need.
_LIBRARIES: tuple[tuple[str, frozenset[str]], ...] = (
    ("skylake-avx512", frozenset(f"avx512{part}" for part in ("f", "bw", "cd", "dq", "vl"))),
    ("haswell", frozenset(("avx2", "fma", "f16c", "bmi1", "bmi2", "movbe", "abm"))),
    ("sandybridge", frozenset(("avx",))),
    ("x86-64", frozenset()),
)


def nearest_cpu(features: Collection[str]) -> str:
    """Return the name, known to LLVM since 2017, of a CPU whose instructions this one has.

    Parameters
    ----------
    features : collection of str
        The flags of /proc/cpuinfo.
    """
    return next(name for name, needed in _LIBRARIES if needed <= set(features))


def rename_unknown_cpu(device: Any) -> bool:
    """Let PoCL build for a CPU that its LLVM does not know; leave every other device as it is.

    Parameters
    ----------
    device : pyopencl.Device
        Any device.  The change is the process's, for all contexts of this device.

    Returns
    -------
    bool
        Whether a name was set.
    """
    if device.platform.name != _PLATFORM:
        return False
    try:
        at = _name_at(int(device.int_ptr))
    except OSError:  # no /proc: not Linux
        return False
    if at is None:
        return False
    name = nearest_cpu(processor().get("flags", "").split())
    # PoCL may free it, so it has to be malloc's.
    duplicate = ctypes.CDLL(None).strdup
    duplicate.restype = ctypes.c_void_p
    ctypes.c_void_p.from_address(at).value = duplicate(name.encode())
    return True


def _name_at(record: int) -> int | None:
    """Return where a device's record points to the name of an unknown CPU."""
    memory = os.open("/proc/self/mem", os.O_RDONLY)  # where a wrong address is no crash
    try:
        found = os.pread(memory, _RECORD_BYTES, record)
        words = struct.unpack(f"={_RECORD_BYTES // _WORD}Q", found)
        for position, pair in enumerate(pairwise(words)):
            if not all(_LOWEST <= word < _HIGHEST for word in pair):
                continue
            target, cpu = (_text(memory, word) for word in pair)
            if target.startswith(_TARGET) and cpu == _UNKNOWN:
                return record + _WORD * (position + 1)
    except struct.error:  # the memory behind the record ends early
        return None
    finally:
        os.close(memory)
    return None


def _text(memory: int, address: int) -> bytes:
    """Return the first characters of a text, or nothing where no memory is."""
    try:
        return os.pread(memory, 32, address).split(b"\0")[0]
    except OSError:
        return b""
