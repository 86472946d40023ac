"""The stencils there are.  A new one is one folder and one row here."""

from __future__ import annotations

import threading
from importlib import import_module

from tilewright.hardware import DeviceSpec
from tilewright.stencil.base import Stencil, Variant

__all__ = ["register", "stencil", "stencils", "stencils_for"]


# Module and class by name, and whether only CUDA devices run it: others' first call has no time
# to import it.  Where several suit a device, the first is the most fitting.  Wgmma multiplies
# 16-bit operands, and what is asked for as an accuracy.  Skinny is for products with a short side
# only, so behind what serves any.
_OURS = {
    "mma_f64": ("tilewright.stencil.mma_f64", "MmaF64", True),
    "simt_async": ("tilewright.stencil.simt_async", "SimtAsync", True),
    "packed": ("tilewright.stencil.packed", "Packed", False),
    "portable": ("tilewright.stencil.portable", "Portable", False),
    "wgmma": ("tilewright.stencil.wgmma", "Wgmma", True),
    "skinny": ("tilewright.stencil.skinny", "Skinny", True),
    "outer": ("tilewright.stencil.outer", "Outer", True),
}
_made: dict[str, Stencil] = {}
_registered: dict[str, Stencil] = {}
# Two first calls at once would make two of each, and what one of them chose would be no stencil
# of the other's.
_lock = threading.RLock()


def _one(name: str) -> Stencil | None:
    """Return a stencil by name, imported and made when it is first asked for."""
    with _lock:
        found = _made.get(name) or _registered.get(name)
        if found is None and name in _OURS:
            module, kind, _ = _OURS[name]
            found = _made[name] = getattr(import_module(module), kind)()
        return found


def register(made: Stencil) -> None:
    """Add a stencil from outside the package; `tune(..., modules=...)` does so in workers.

    Raises
    ------
    ValueError
        If its name is taken by another one.
    """
    with _lock:
        if type(_one(made.name) or made) is not type(made):
            raise ValueError(f"stencil={made.name!r} is registered already; use another name")
        if made.name not in _OURS:
            _registered[made.name] = made


def stencils() -> tuple[Stencil, ...]:
    """Return every stencil there is."""
    return _those(list(_OURS))


def _those(names: list[str]) -> tuple[Stencil, ...]:
    ours = (one for one in map(_one, names) if one is not None)
    with _lock:
        return (*ours, *_registered.values())


def stencil(name: str) -> Stencil:
    """Return a stencil by name.

    Raises
    ------
    ValueError
        If there is none of that name.
    """
    found = _one(name)
    if found is None:
        known = ", ".join((*_OURS, *_registered))
        raise ValueError(f"stencil={name!r} is unknown; use one of {known}")
    return found


def stencils_for(device: DeviceSpec, variant: Variant | None = None) -> tuple[Stencil, ...]:
    """Return the stencils that suit a device, the most fitting first.

    With a variant, those that compute it; where none of them suits the device, those that
    do not suit it but run on it.
    """
    is_cuda = device.compute_capability is not None
    run = _those([name for name, (_, _, needs_cuda) in _OURS.items() if is_cuda or not needs_cuda])
    if variant is None:
        return tuple(made for made in run if made.suits(device))
    able = [made for made in run if made.computes(variant)]
    return tuple([made for made in able if made.suits(device)] or able)
