"""The stencils there are.  A new one is one folder and one row here."""

from __future__ import annotations

import threading

from tilewright.hardware import DeviceSpec
from tilewright.precision import Precision
from tilewright.stencil.base import Stencil

__all__ = ["register", "stencil", "stencils", "stencils_for"]


_known: dict[str, Stencil] = {}
# Two first calls at once would make two of each, and what one of them chose would be no stencil
# of the other's.
_lock = threading.Lock()


def _all() -> dict[str, Stencil]:
    """Return the stencils by name, made by the first call."""
    with _lock:
        if not _known:
            _known.update({made.name: made for made in _made()})
    return _known


def _made() -> tuple[Stencil, ...]:
    from tilewright.stencil.mma_f64 import MmaF64
    from tilewright.stencil.packed import Packed
    from tilewright.stencil.portable import Portable
    from tilewright.stencil.simt_async import SimtAsync
    from tilewright.stencil.wgmma import Wgmma

    # Where several suit a device, the first is the most fitting.  Wgmma computes no precision of
    # BLAS: what it multiplies is asked for as an accuracy, or is an array of shorter numbers.
    return (MmaF64(), SimtAsync(), Packed(), Portable(), Wgmma())


def register(made: Stencil) -> None:
    """Add a stencil from outside the package; `tune(..., modules=...)` does so in workers.

    Raises
    ------
    ValueError
        If its name is taken by another one.
    """
    known = _all()
    with _lock:
        if type(known.get(made.name, made)) is not type(made):
            raise ValueError(f"stencil={made.name!r} is registered already; use another name")
        known[made.name] = made


def stencils() -> tuple[Stencil, ...]:
    """Return every stencil there is."""
    known = _all()
    with _lock:
        return tuple(known.values())


def stencil(name: str) -> Stencil:
    """Return a stencil by name.

    Raises
    ------
    ValueError
        If there is none of that name.
    """
    found = _all().get(name)
    if found is None:
        raise ValueError(f"stencil={name!r} is unknown; use one of {', '.join(_all())}")
    return found


def stencils_for(device: DeviceSpec, precision: Precision | None = None) -> tuple[Stencil, ...]:
    """Return the stencils that suit a device, the most fitting first.

    With a precision, those that compute in it; where none of them suits the device, those that
    do not suit it but run on it.
    """
    if precision is None:
        return tuple(made for made in stencils() if made.suits(device))
    able = [made for made in stencils() if made.computes(precision)]
    return tuple([made for made in able if made.suits(device)] or able)
