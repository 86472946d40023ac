"""Which OpenCL devices there are, and in which order they are offered."""

from __future__ import annotations

import os
import re
import warnings
from functools import lru_cache
from types import ModuleType
from typing import Any

from tilewright.backend.opencl.pocl_cache import starting
from tilewright.hardware import DeviceSpec

__all__ = ["missing", "opencl", "ordered_devices", "spec_of", "version_of"]


@lru_cache(maxsize=1)
def opencl() -> ModuleType | None:
    """Import pyopencl with its surroundings in order; None if there is no OpenCL at all."""
    # pyopencl's build cache holds pickles; ours does not, and is the only one we use.
    os.environ.setdefault("PYOPENCL_NO_CACHE", "1")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pyopencl
    except ImportError:
        return None
    return pyopencl  # type: ignore[no-any-return]


def missing() -> str:
    """Return what to do where there is no OpenCL device."""
    if opencl() is None:
        return "pyopencl cannot be imported; run: pip install pyopencl"
    return "no OpenCL driver is here; run: pip install pocl-binary-distribution, or install a GPU's"


def version_of(text: str) -> tuple[int, ...]:
    """Return the last dotted number: "OpenCL 3.0 PoCL 3.1+debian" is PoCL 3.1."""
    found = re.findall(r"(\d+(?:\.\d+)+)", text.split(",")[0])
    return tuple(int(part) for part in found[-1].split(".")) if found else (0,)


def ordered_devices() -> list[Any]:
    """Return every OpenCL device, GPUs first, then by newest platform.

    Oclgrind simulates a device to find errors; it is offered only where
    ``TILEWRIGHT_OCLGRIND=1`` asks for it.
    """
    cl = opencl()
    if cl is None:
        return []
    with starting():
        return _ordered(cl)


def _ordered(cl: ModuleType) -> list[Any]:
    try:
        platforms = cl.get_platforms()
    except cl.LogicError:  # no ICD is registered
        return []
    found = []
    for position, platform in enumerate(platforms):
        if platform.name == "Oclgrind" and os.environ.get("TILEWRIGHT_OCLGRIND") != "1":
            continue
        try:
            devices = platform.get_devices()
        except cl.Error:
            continue
        for device in devices:
            is_gpu = bool(device.type & cl.device_type.GPU)
            order = (not is_gpu, [-part for part in version_of(platform.version)], position)
            found.append((order, device))
    return [device for _, device in sorted(found, key=lambda entry: entry[0])]


def _query(device: Any, name: str) -> Any:
    """Return a device property, or None where the driver does not know it."""
    cl = opencl()
    assert cl is not None
    try:
        return getattr(device, name)
    except (AttributeError, cl.Error):
        return None


def spec_of(device: Any) -> DeviceSpec:
    """Return the numbers of an OpenCL device.

    Sources: clGetDeviceInfo; cl_nv_device_attribute_query for warps and registers.
    """
    cl = opencl()
    assert cl is not None
    is_gpu = bool(device.type & cl.device_type.GPU)
    nvidia = "NVIDIA" in device.vendor
    warp = _query(device, "warp_size_nv") or _query(device, "wavefront_width_amd")
    registers = _query(device, "registers_per_block_nv")
    megahertz = _query(device, "max_clock_frequency")
    return DeviceSpec(
        name=device.name.strip(),
        vendor=device.vendor.strip(),
        kind="gpu" if is_gpu else "cpu",
        multiprocessors=device.max_compute_units,
        warp_size=int(warp or (32 if is_gpu else 1)),
        max_threads_per_block=device.max_work_group_size,
        shared_bytes_per_block=device.local_mem_size,
        has_fp64="cl_khr_fp64" in device.extensions,
        vector_bytes=max(16, 4 * device.native_vector_width_float) if not is_gpu else 16,
        registers_per_multiprocessor=registers,
        # Every NVIDIA GPU since Kepler (CUDA C++ Programming Guide, compute capabilities).
        max_registers_per_thread=255 if nvidia else None,
        clock_hz=megahertz * 1e6 if megahertz else None,
        memory_bytes=device.global_mem_size,
        l2_bytes=device.global_mem_cache_size or None,
        unified_memory=bool(device.host_unified_memory),
    )
