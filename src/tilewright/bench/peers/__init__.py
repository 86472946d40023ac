"""Libraries to compare with.  A new one is a file and a row here."""

from __future__ import annotations

from tilewright.backend import LiveDevice
from tilewright.bench.peers.base import Peer, UnavailableError

__all__ = ["PEERS", "Peer", "UnavailableError", "peer"]

PEERS = ("cublas", "clblast", "numpy", "flint")


def peer(name: str, live: LiveDevice) -> Peer:
    """Return a peer ready to run on a device.

    Raises
    ------
    ValueError
        If there is none of that name.
    UnavailableError
        If it is not installed, or does not serve the device.
    """
    if name == "cublas":
        from tilewright.bench.peers.cublas import CuBLAS

        return CuBLAS(live)
    if name == "clblast":
        from tilewright.bench.peers.clblast import CLBlast

        return CLBlast(live)
    if name == "numpy":
        from tilewright.bench.peers.numpy_blas import NumPy

        return NumPy(live)
    if name == "flint":
        from tilewright.bench.peers.flint_arb import Flint

        return Flint(live)
    raise ValueError(f"peer={name!r} is no peer; use one of {', '.join(PEERS)}")
