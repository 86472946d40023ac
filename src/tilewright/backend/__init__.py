"""Ways of running kernels: find a device here, then use it through one protocol."""

from __future__ import annotations

import os
from functools import lru_cache

from tilewright.backend.base import (
    BackendError,
    CompileError,
    DeviceLostError,
    Event,
    GemmCall,
    Kernel,
    LaunchError,
    LiveDevice,
    Operand,
    OutOfMemoryError,
)

__all__ = [
    "BackendError",
    "CompileError",
    "DeviceLostError",
    "Event",
    "GemmCall",
    "Kernel",
    "LaunchError",
    "LiveDevice",
    "Operand",
    "OutOfMemoryError",
    "device",
    "devices",
]


@lru_cache(maxsize=1)
def devices() -> tuple[LiveDevice, ...]:
    """Return every live device of every backend, the best first.

    CUDA comes before OpenCL, which offers the same GPUs once more; there GPUs come before
    CPUs, and among equals the newest platform comes first.
    """
    from tilewright.backend.cuda.device import devices as cuda_devices
    from tilewright.backend.opencl.device import devices as opencl_devices

    return (*cuda_devices(), *opencl_devices())


def device(name: str | LiveDevice | None = None) -> LiveDevice:
    """Return a live device by name.

    Parameters
    ----------
    name : str or LiveDevice, optional
        An id such as ``"opencl:0"``, a backend's name for its best device, or a part
        of a device's or platform's name.  Without it the environment variable
        ``TILEWRIGHT_DEVICE`` decides, and without that the best device.

    Raises
    ------
    ValueError
        If nothing here answers to that name.
    """
    if isinstance(name, LiveDevice):
        return name
    wanted = name or os.environ.get("TILEWRIGHT_DEVICE") or ""
    found = devices()
    if not found:
        raise ValueError(
            "no device was found; install the pocl-binary-distribution package,"
            " or your GPU's driver and the tilewright[cuda] extra"
        )
    for test in (
        lambda d: d.id == wanted,
        lambda d: d.backend == wanted,
        lambda d: wanted.lower() in f"{d.spec.name} {d.platform}".lower(),
    ):
        for live in found:
            if test(live):
                return live
    raise ValueError(f"device={wanted!r} is not here; use one of {', '.join(d.id for d in found)}")
