"""What kernels are exported for: a device here, one measured before, or an architecture."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.hardware import DeviceSpec
from tilewright.tuning.database import default_path
from tilewright.tuning.store import Store

__all__ = ["Target", "find_target"]

_ARCHITECTURE = re.compile(r"sm_\d+[af]?")
_FINGERPRINT = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True)
class Target:
    """What kernels are chosen and compiled for.

    Parameters
    ----------
    arch : str
        Architecture to compile for, such as ``"sm_90a"``.
    spec : DeviceSpec
        What a config may use: of the device if it is here, else of the architecture.
    fingerprint : str
        Whose measurements count; empty for defaults only.
    name : str
        The device in words, or the architecture.
    """

    arch: str
    spec: DeviceSpec
    fingerprint: str
    name: str


def find_target(device: str | None, *, defaults: bool = False) -> Target:
    """Return the target that a name means.

    Parameters
    ----------
    device : str, optional
        An architecture such as ``"sm_90a"``, which needs no GPU: the stored measurements of
        its one device count; the fingerprint of a device in the store; or a CUDA device
        that is here, by id or a part of its name, the best one if nothing is given.
    defaults : bool
        Whether stored measurements are to be left aside.

    Raises
    ------
    ValueError
        If nothing answers to that name, it is no CUDA device, or the store has
        measurements of several devices of the architecture.
    """
    if device and _ARCHITECTURE.fullmatch(device):
        return _architecture(device, defaults)
    if device and _FINGERPRINT.fullmatch(device):
        measured = {m[0]: m for m in _measured()}
        if device not in measured:
            raise ValueError(f"device={device!r} has no CUDA measurements; see: tilewright db list")
        fingerprint, name, arch = measured[device]
        return Target(arch, architecture_spec(arch), "" if defaults else fingerprint, name)
    return _live(device, defaults)


def _architecture(arch: str, defaults: bool) -> Target:
    spec = architecture_spec(arch)
    if defaults:
        return Target(arch, spec, "", arch)
    found = [(fingerprint, name) for fingerprint, name, of in _measured() if of == arch]
    if len(found) > 1:
        listed = ", ".join(f"{fingerprint} ({name})" for fingerprint, name in found)
        raise ValueError(f"device={arch!r} was measured on several devices; name one: {listed}")
    fingerprint, name = found[0] if found else ("", arch)
    return Target(arch, spec, fingerprint, name)


def _live(device: str | None, defaults: bool) -> Target:
    """Return a CUDA device that is here."""
    from tilewright.backend import device as find_device
    from tilewright.backend.cuda.device import CUDADevice

    live = find_device(device)
    if not isinstance(live, CUDADevice):
        raise ValueError(
            f"device={live.id!r} ({live.spec.name}) is no CUDA device, and only these run what is"
            " exported; name an architecture such as sm_90a to export for a GPU elsewhere"
        )
    return Target(live.arch, live.spec, "" if defaults else live.fingerprint, live.spec.name)


def _measured() -> list[tuple[str, str, str]]:
    """Return fingerprint, name and architecture of the CUDA devices that have winners."""
    path = default_path()
    if not path.exists():
        return []
    found = {}
    with Store(path, create=False) as store:
        for fingerprint, name in store.devices().items():
            rows = store.query(device=fingerprint, backend="cuda", stage="winner", limit=1)
            for measurement in rows:
                arch = str(measurement.environment.get("arch", ""))
                if _ARCHITECTURE.fullmatch(arch):
                    found[fingerprint] = (fingerprint, name, arch)
    return list(found.values())
