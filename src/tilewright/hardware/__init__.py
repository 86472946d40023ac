"""What hardware is: the frozen numbers that bounds and constraints may use.

Devices that are described in files are in `tilewright.hardware.catalogue`.
"""

from tilewright.hardware.spec import DeviceSpec

__all__ = ["DeviceSpec"]
