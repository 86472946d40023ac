"""What hardware is: the frozen numbers that bounds and constraints may use."""

from tilewright.hardware.catalogue import (
    CatalogueDevice,
    catalogue,
    catalogue_device,
    described,
    read_device,
    recognised,
)
from tilewright.hardware.quantity import QUANTITIES, Mix, Quantity
from tilewright.hardware.spec import DeviceSpec

__all__ = [
    "QUANTITIES",
    "CatalogueDevice",
    "DeviceSpec",
    "Mix",
    "Quantity",
    "catalogue",
    "catalogue_device",
    "described",
    "read_device",
    "recognised",
]
