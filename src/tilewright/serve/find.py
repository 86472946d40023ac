"""Devices by name: one of the catalogue, one that a file describes, or one that is here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.hardware.catalogue import CatalogueDevice, catalogue, catalogue_device, read_device

if TYPE_CHECKING:
    from tilewright.backend import LiveDevice

__all__ = ["device", "numbers_of"]


def device(name: str | LiveDevice | CatalogueDevice | None = None) -> LiveDevice | CatalogueDevice:
    """Return a live device, or one of the catalogue (bounds only).

    Parameters
    ----------
    name : str, LiveDevice or CatalogueDevice, optional
        An id of the catalogue such as ``"gtx580"``; a file in the catalogue's form, whose name
        ends in ``.toml``; else an id such as ``"opencl:0"``, a backend's name or a kind
        (``"cpu"``, ``"gpu"``) for its best device, or a part of a live device's or platform's name.
        Without it the environment variable ``TILEWRIGHT_DEVICE`` decides, and without that
        the best live device.

    Raises
    ------
    ValueError
        If nothing answers to that name, or the file is not in the catalogue's form.
    """
    if isinstance(name, CatalogueDevice):
        return name
    if isinstance(name, str) and name.lower() in catalogue():
        return catalogue_device(name.lower())
    if isinstance(name, str) and name.lower().endswith(".toml"):
        return read_device(Path(name))
    from tilewright.backend import device as live_device

    try:
        return live_device(name)
    except ValueError as problem:
        if not isinstance(name, str):
            raise
        known = ", ".join(catalogue())
        raise ValueError(f"{problem}; for bounds and spaces also one of {known}") from None


def numbers_of(found: LiveDevice | CatalogueDevice) -> CatalogueDevice:
    """Return a device's numbers with their sources: of a live one, the driver's come first."""
    if isinstance(found, CatalogueDevice):
        return found
    from tilewright.microbench.numbers import live_numbers  # only of a device that is here

    return live_numbers(found)
