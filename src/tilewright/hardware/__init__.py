"""What hardware is: the frozen numbers that bounds and constraints may use."""

from tilewright.hardware.spec import DeviceSpec

__all__ = ["DeviceSpec"]
