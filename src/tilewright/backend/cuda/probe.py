"""What a CUDA device is: its numbers, and the software that serves it."""

from __future__ import annotations

import ctypes
import re
from functools import lru_cache
from pathlib import Path

from tilewright.backend.cuda.driver import check, driver
from tilewright.hardware import DeviceSpec

__all__ = ["architecture", "capability", "count", "cuda_version", "driver_version", "spec_of"]

# CUdevice_attribute of cuda.h, CU_DEVICE_ATTRIBUTE_*.
_ATTRIBUTES = {
    "MAX_THREADS_PER_BLOCK": 1,
    "MAX_SHARED_MEMORY_PER_BLOCK": 8,
    "WARP_SIZE": 10,
    "CLOCK_RATE": 13,
    "MULTIPROCESSOR_COUNT": 16,
    "INTEGRATED": 18,
    "L2_CACHE_SIZE": 38,
    "MAX_THREADS_PER_MULTIPROCESSOR": 39,
    "COMPUTE_CAPABILITY_MAJOR": 75,
    "COMPUTE_CAPABILITY_MINOR": 76,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 81,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 82,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 97,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 106,
}

# Every architecture since Kepler (CUDA C++ Programming Guide, compute capabilities).
_REGISTERS_PER_THREAD = 255


def count() -> int:
    """Return the number of CUDA devices; zero without a driver."""
    found = driver()
    if found is None:
        return 0
    status, number = found.cuDeviceGetCount()
    return int(number) if status == 0 else 0


def handle(ordinal: int) -> int:
    """Return the driver's handle of a device."""
    found = driver()
    assert found is not None
    return int(check(found.cuDeviceGet(ordinal), f"finding cuda:{ordinal}"))


def _attribute(device: int, name: str) -> int | None:
    """Return a device attribute; None where the driver does not know it."""
    found = driver()
    assert found is not None
    status, value = found.cuDeviceGetAttribute(_ATTRIBUTES[name], device)
    return int(value) if status == 0 else None


def _required(device: int, name: str) -> int:
    value = _attribute(device, name)
    assert value is not None, name
    return value


def capability(device: int) -> tuple[int, int]:
    """Return the compute capability."""
    return (
        _required(device, "COMPUTE_CAPABILITY_MAJOR"),
        _required(device, "COMPUTE_CAPABILITY_MINOR"),
    )


def architecture(device: int) -> str:
    """Return what to compile for: this very architecture with all it has.

    From Hopper on the suffix "a" adds instructions that later ones drop.
    """
    major, minor = capability(device)
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def spec_of(device: int) -> DeviceSpec:
    """Return the numbers of a CUDA device.  Source: cuDeviceGetAttribute."""
    found = driver()
    assert found is not None
    name = check(found.cuDeviceGetName(256, device), "naming a CUDA device")
    major, minor = capability(device)
    kilohertz = _attribute(device, "CLOCK_RATE")
    return DeviceSpec(
        name=name.split(b"\0")[0].decode(errors="replace").strip(),
        vendor="NVIDIA Corporation",
        kind="gpu",
        multiprocessors=_required(device, "MULTIPROCESSOR_COUNT"),
        warp_size=_required(device, "WARP_SIZE"),
        max_threads_per_block=_required(device, "MAX_THREADS_PER_BLOCK"),
        # What a launch may ask for: sources say what they need beyond static arrays.
        shared_bytes_per_block=_attribute(device, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        or _required(device, "MAX_SHARED_MEMORY_PER_BLOCK"),
        has_fp64=True,
        vector_bytes=16,
        max_threads_per_multiprocessor=_attribute(device, "MAX_THREADS_PER_MULTIPROCESSOR"),
        registers_per_multiprocessor=_attribute(device, "MAX_REGISTERS_PER_MULTIPROCESSOR"),
        max_registers_per_thread=_REGISTERS_PER_THREAD,
        shared_bytes_per_multiprocessor=_attribute(device, "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        max_blocks_per_multiprocessor=_attribute(device, "MAX_BLOCKS_PER_MULTIPROCESSOR"),
        clock_hz=kilohertz * 1e3 if kilohertz else None,
        memory_bytes=int(check(found.cuDeviceTotalMem(device), "asking for the memory's size")),
        l2_bytes=_attribute(device, "L2_CACHE_SIZE") or None,
        unified_memory=bool(_attribute(device, "INTEGRATED")),
        compute_capability=10 * major + minor,
    )


def cuda_version() -> str:
    """Return the CUDA version that the driver serves, such as ``"13.0"``."""
    found = driver()
    assert found is not None
    number = int(check(found.cuDriverGetVersion(), "asking for the driver's version"))
    return f"{number // 1000}.{number % 1000 // 10}"


@lru_cache(maxsize=1)
def driver_version() -> str:
    """Return the driver's own version, such as ``"580.95.05"``; empty where it is hidden."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return _version_from_nvml()
    hit = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", text)
    return hit[1] if hit else _version_from_nvml()


def _version_from_nvml() -> str:
    """Ask the management library, which containers have where /proc is not shown."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        text = ctypes.create_string_buffer(96)
        if nvml.nvmlInit_v2() != 0:
            return ""
        status = nvml.nvmlSystemGetDriverVersion(text, len(text))
        nvml.nvmlShutdown()
    except (OSError, AttributeError):
        return ""
    return text.value.decode(errors="replace") if status == 0 else ""
