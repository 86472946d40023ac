"""Ways of running kernels: find a device here, then use it through one protocol."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from typing import Any

from tilewright.backend.base import (
    BackendError,
    CompileError,
    DeviceFailedError,
    DeviceLostError,
    Event,
    HostError,
    Kernel,
    LaunchError,
    LiveDevice,
    OutOfMemoryError,
)
from tilewright.stencil.call import GemmCall, Operand

__all__ = [
    "BackendError",
    "CompileError",
    "DeviceFailedError",
    "DeviceLostError",
    "Event",
    "GemmCall",
    "HostError",
    "Kernel",
    "LaunchError",
    "LiveDevice",
    "Operand",
    "OutOfMemoryError",
    "device",
    "devices",
]

# The environment's own dictionary: to look for a name that is missing takes `os.environ` 1 us, as
# long as a small product.
_variables: Mapping[Any, Any] = os.environ._data  # type: ignore[attr-defined]
_VARIABLE = os.environ.encodekey("TILEWRIGHT_DEVICE")

_finding = threading.Lock()
_found: list[tuple[LiveDevice, ...]] = []


def devices() -> tuple[LiveDevice, ...]:
    """Return every live device of every backend, the best first.

    CUDA comes before OpenCL, which offers the same GPUs once more; there GPUs come before
    CPUs, and among equals the newest platform comes first.
    """
    if not _found:
        with _finding:  # two first calls at once would make two of each
            if not _found:
                _found.append(_find())
    return _found[0]


def _find() -> tuple[LiveDevice, ...]:
    from tilewright.backend.libcuda import library
    from tilewright.backend.opencl.device import devices as opencl_devices

    if library() is None:
        return tuple(opencl_devices())
    from tilewright.backend.cuda.device import devices as cuda_devices

    return (*cuda_devices(), *opencl_devices())


def device(name: str | LiveDevice | None = None) -> LiveDevice:
    """Return a live device by name.

    Parameters
    ----------
    name : str or LiveDevice, optional
        An id such as ``"opencl:0"``, a backend's name or a kind (``"cpu"``, ``"gpu"``) for
        its best device, or a part of a device's or platform's name.  Without it the
        environment variable ``TILEWRIGHT_DEVICE`` decides, and without that the best device.

    Raises
    ------
    ValueError
        If nothing here answers to that name.
    TypeError
        If `name` is neither a name nor a live device: one of the catalogue runs nothing.
    """
    if name is None and _found and _found[0] and not _variables.get(_VARIABLE):  # nearly always
        return _found[0][0]
    if name is not None and not isinstance(name, str):
        if (
            LiveDevice in type(name).__mro__
        ):  # `isinstance` takes an abstract class four times as long
            return name
        called = getattr(name, "id", name)
        raise TypeError(f"device={called!r} is no live device; give an id such as 'opencl:0'")
    wanted = name or os.environ.get("TILEWRIGHT_DEVICE") or ""
    found = devices()
    if not found:
        from tilewright.backend.opencl.platforms import missing

        raise ValueError(f"no device was found: {missing()}; for an NVIDIA GPU install its driver")
    if not wanted:
        return found[0]
    for live in found:
        if wanted in (live.id, live.backend, live.spec.kind):
            return live
    # Without the version numbers in platforms' names: "1" is no part of a name.
    words = re.compile(re.escape(wanted), re.IGNORECASE)
    meant = [d for d in found if words.search(re.sub(r"[\d.]+", "", f"{d.spec.name} {d.platform}"))]
    if len(meant) == 1:
        return meant[0]
    trouble = "means several" if meant else "is not here"
    ids = ", ".join(d.id for d in meant or found)
    asked = "device" if name else "TILEWRIGHT_DEVICE"
    raise ValueError(f"{asked}={wanted!r} {trouble}; use one of {ids}")
