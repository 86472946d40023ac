"""The stencils there are.  A new one is one folder and one row here."""

from __future__ import annotations

from functools import lru_cache

from tilewright.hardware import DeviceSpec
from tilewright.precision import Precision
from tilewright.stencil.base import Stencil

__all__ = ["register", "stencil", "stencils", "stencils_for"]


@lru_cache(maxsize=1)
def _all() -> dict[str, Stencil]:
    from tilewright.stencil.mma_f64 import MmaF64
    from tilewright.stencil.packed import Packed
    from tilewright.stencil.portable import Portable
    from tilewright.stencil.simt_async import SimtAsync
    from tilewright.stencil.wgmma import Wgmma

    # Where several suit a device, the first is the most fitting.  Wgmma computes no precision of
    # BLAS: what it multiplies is asked for as an accuracy, or is an array of shorter numbers.
    return {made.name: made for made in (MmaF64(), SimtAsync(), Packed(), Portable(), Wgmma())}


def register(made: Stencil) -> None:
    """Add a stencil from outside the package; `tune(..., modules=...)` does so in workers.

    Raises
    ------
    ValueError
        If its name is taken by another one.
    """
    known = _all().get(made.name)
    if known is not None and type(known) is not type(made):
        raise ValueError(f"stencil={made.name!r} is registered already; use another name")
    _all()[made.name] = made


def stencils() -> tuple[Stencil, ...]:
    """Return every stencil there is."""
    return tuple(_all().values())


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
    fitting = tuple(made for made in _all().values() if made.suits(device))
    if precision is None:
        return fitting
    able = [made for made in _all().values() if made.computes(precision)]
    return tuple([made for made in able if made in fitting] or able)
