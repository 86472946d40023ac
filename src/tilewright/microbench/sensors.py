"""A GPU's own sensors: clock, power, temperature, and why the clock is not higher.

NVIDIA's management library (NVML, which comes with the driver) is asked through ctypes.  It finds
the device by its place on the PCI bus: its own numbering is not CUDA's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.backend import LiveDevice

__all__ = ["Reading", "pci_bus_id", "reasons_of", "sensors"]

# nvml.h, nvmlClocksEventReason...: what holds the clock down.
_REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clocks",
}
_CLOCK_SM = 1  # nvml.h, nvmlClockType_t
_TEMPERATURE_GPU = 0  # nvml.h, nvmlTemperatureSensors_t


@dataclass(frozen=True)
class Reading:
    """What the sensors say at one moment; None where one is silent.

    Parameters
    ----------
    clock_hz : float or None
        Clock of the multiprocessors.
    power_w : float or None
        Of the whole board; the driver averages over up to a second.
    temperature_c : float or None
        Of the chip.
    limit_w : float or None
        Power limit in force.
    reasons : int
        NVML's mask of what holds the clock down.
    """

    clock_hz: float | None
    power_w: float | None
    temperature_c: float | None
    limit_w: float | None
    reasons: int


def reasons_of(mask: int) -> str:
    """Return the words for a mask of reasons, with commas."""
    return ", ".join(words for bit, words in _REASONS.items() if mask & bit)


def pci_bus_id(device: LiveDevice) -> str:
    """Return a device's place such as ``"00000000:1B:00.0"``.

    Raises
    ------
    ValueError
        If it has none that we know how to ask for.
    """
    if device.backend == "cuda":
        cuda: Any = device
        text = cuda.check(cuda.api.cuDeviceGetPCIBusId(32, cuda.raw), "asking for the PCI bus id")
        return str(bytes(text).split(b"\0")[0].decode())
    raw: Any = getattr(device, "raw", None)
    try:
        # cl_nv_device_attribute_query: the slot holds device and function.
        bus, slot = int(raw.pci_bus_id_nv), int(raw.pci_slot_id_nv)
    except Exception:  # pyopencl's errors, or no such attribute
        raise ValueError(f"{device.id} has no sensors that can be read") from None
    return f"00000000:{bus:02X}:{slot >> 3:02X}.{slot & 7}"


def sensors(device: LiveDevice) -> Callable[[], Reading]:
    """Return a function that reads the sensors of a device.

    Raises
    ------
    ValueError
        If they cannot be read; the message says why.
    """
    place = pci_bus_id(device)
    try:
        return _Library(place)
    except OSError as problem:
        raise ValueError(f"{device.id}: {problem}") from None


class _Library:
    """NVML through ctypes."""

    def __init__(self, place: str, name: str = "libnvidia-ml.so.1") -> None:
        self._nvml = ctypes.CDLL(name)
        self._handle = ctypes.c_void_p()
        try:
            if self._nvml.nvmlInit_v2() != 0:
                raise OSError(f"{name} cannot reach the driver")
            find = self._nvml.nvmlDeviceGetHandleByPciBusId_v2
            if find(place.encode(), ctypes.byref(self._handle)) != 0:
                raise OSError(f"{name} knows no device at {place}")
        except AttributeError as problem:
            raise OSError(str(problem)) from None

    def __call__(self) -> Reading:
        clock = self._number("nvmlDeviceGetClockInfo", _CLOCK_SM)
        power = self._number("nvmlDeviceGetPowerUsage")
        limit = self._number("nvmlDeviceGetEnforcedPowerLimit")
        return Reading(
            None if clock is None else clock * 1e6,
            None if power is None else power * 1e-3,
            self._number("nvmlDeviceGetTemperature", _TEMPERATURE_GPU),
            None if limit is None else limit * 1e-3,
            self._mask(),
        )

    def _number(self, name: str, *selector: int) -> float | None:
        value = ctypes.c_uint()
        call = getattr(self._nvml, name)
        status = call(self._handle, *(ctypes.c_int(s) for s in selector), ctypes.byref(value))
        return float(value.value) if status == 0 else None

    def _mask(self) -> int:
        mask = ctypes.c_ulonglong()
        call = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        return int(mask.value) if call(self._handle, ctypes.byref(mask)) == 0 else 0
