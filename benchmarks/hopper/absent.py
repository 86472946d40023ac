"""A device that is not here, for what is chosen without one."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.hardware import DeviceSpec

__all__ = ["Absent"]


@dataclass(frozen=True)
class Absent:
    """A device's numbers, and no measurements of its own."""

    spec: DeviceSpec
    fingerprint: str = ""
