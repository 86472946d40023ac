"""What hardware is: the frozen numbers that bounds and constraints may use."""

from tilewright.device.spec import DeviceSpec

__all__ = ["DeviceSpec"]
