"""Libraries to compare with: one file each, of its name, whose ``PEER`` is the class."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from tilewright.backend import LiveDevice
from tilewright.bench.peers.base import Peer, UnavailableError

__all__ = ["PEERS", "Peer", "UnavailableError", "peer"]

# Of which only those asked for are imported.
PEERS = tuple(one.name for one in pkgutil.iter_modules(__path__) if one.name != "base")


def peer(name: str, live: LiveDevice) -> Peer:
    """Return a peer ready to run on a device.

    Raises
    ------
    ValueError
        If there is none of that name.
    UnavailableError
        If it is not installed, or does not serve the device.
    """
    if name not in PEERS:
        raise ValueError(f"peer={name!r} is no peer; use one of {', '.join(PEERS)}")
    found: Peer = import_module(f"{__name__}.{name}").PEER(live)
    return found
