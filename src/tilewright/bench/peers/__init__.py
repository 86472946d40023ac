"""Libraries to compare with.  A new one is a file and a row here."""

from __future__ import annotations

from importlib import import_module

from tilewright.backend import LiveDevice
from tilewright.bench.peers.base import Peer, UnavailableError

__all__ = ["PEERS", "Peer", "UnavailableError", "peer"]

# Modules and classes, of which only those asked for are imported.
_CLASSES = {
    "cublas": ("cublas", "CuBLAS"), "clblast": ("clblast", "CLBlast"),
    "numpy": ("numpy_blas", "NumPy"), "flint": ("flint_arb", "Flint"),
}  # fmt: skip
PEERS = tuple(_CLASSES)


def peer(name: str, live: LiveDevice) -> Peer:
    """Return a peer ready to run on a device.

    Raises
    ------
    ValueError
        If there is none of that name.
    UnavailableError
        If it is not installed, or does not serve the device.
    """
    if name not in _CLASSES:
        raise ValueError(f"peer={name!r} is no peer; use one of {', '.join(PEERS)}")
    module, kind = _CLASSES[name]
    found: Peer = getattr(import_module(f"{__name__}.{module}"), kind)(live)
    return found
