"""What kernels are exported for: a device here, one that was tuned here, or an architecture."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.hardware import DeviceSpec
from tilewright.portfolio.find import own, own_keys, shipped_for
from tilewright.portfolio.portfolio import Portfolio
from tilewright.precision import precision

__all__ = ["LETTERS", "Target", "find_target"]

# The precisions that tilewright_gemm.h has a function for, in the order of its table.
LETTERS = ("s", "d", "c", "z")

_ARCHITECTURE = re.compile(r"sm_\d+[af]?")


@dataclass(frozen=True)
class Target:
    """What kernels are chosen and compiled for.

    Parameters
    ----------
    arch : str
        Architecture to compile for, such as ``"sm_90a"``.
    spec : DeviceSpec
        Of the device, or that all devices of the architecture share.
    portfolio_key : str
        Whose own portfolios count; empty for none.
    name : str
        The device in words, or the architecture.
    """

    arch: str
    spec: DeviceSpec
    portfolio_key: str
    name: str

    def serving(self, letter: str) -> Target:
        """Return the target as a device that kernels of a precision were measured on.

        An architecture has no number of multiprocessors; the device that its portfolio was
        measured on has one.
        """
        if self.name != self.arch:
            return self
        found = shipped_for(self.spec.compute_capability, precision(letter).portfolio)
        if found is None or found.arch != self.arch:
            return self
        return replace(self, spec=_measured(self.spec, found))


def _measured(spec: DeviceSpec, portfolio: Portfolio) -> DeviceSpec:
    """Return an architecture's numbers with those of the device of a portfolio."""
    return replace(spec, name=portfolio.device, multiprocessors=portfolio.multiprocessors)


def find_target(device: str | None, *, defaults: bool = False) -> Target:
    """Return the target that a name means.

    Parameters
    ----------
    device : str, optional
        An architecture such as ``"sm_90a"``, which needs no GPU: what ships for it, and what was
        tuned on its one device here; the key of a device that was tuned here, such as
        ``"sm_90a-nvidia-h100-pcie"``; or a CUDA device that is here, by id or a part of its name,
        the best one if nothing is given.
    defaults : bool
        Whether the user's own kernels are to be left aside.

    Raises
    ------
    ValueError
        If nothing answers to that name, it is no CUDA device, or several devices of the
        architecture were tuned here.
    """
    if device and _ARCHITECTURE.fullmatch(device):
        return _architecture(device, defaults)
    if device and _ARCHITECTURE.match(device) and "-" in device:
        if device not in own_keys():
            raise ValueError(f"device={device!r} has no kernels that were tuned here")
        return _tuned(device, defaults)
    return _live(device, defaults)


def _architecture(arch: str, defaults: bool) -> Target:
    spec = architecture_spec(arch)
    keys = [] if defaults else [key for key in own_keys() if key.startswith(f"{arch}-")]
    if len(keys) > 1:
        raise ValueError(
            f"device={arch!r}: several devices of it were tuned here; name one: {', '.join(keys)}"
        )
    return _tuned(keys[0], defaults) if keys else Target(arch, spec, "", arch)


def _tuned(key: str, defaults: bool) -> Target:
    """Return a device that was tuned here, whether it still is here or not."""
    arch = key.partition("-")[0]
    spec = architecture_spec(arch)
    for letter in LETTERS:
        found = own(key, letter)
        if found is not None:
            spec = _measured(spec, found)
            return Target(arch, spec, "" if defaults else key, found.device)
    return Target(arch, spec, "", arch)


def _live(device: str | None, defaults: bool) -> Target:
    from tilewright.backend import device as find_device
    from tilewright.backend.cuda.device import CUDADevice

    try:
        live = find_device(device)
    except ValueError as error:
        raise ValueError(f"{error}; or, by --device, an architecture such as sm_90a") from None
    if not isinstance(live, CUDADevice):
        raise ValueError(
            f"device={live.id!r} ({live.spec.name}) is no CUDA device, and only these run what is"
            " exported; name an architecture such as sm_90a to export for a GPU elsewhere"
        )
    return Target(live.arch, live.spec, "" if defaults else live.portfolio_key, live.spec.name)
