"""Stored configs, which name their launch mode among their parameters, as when it was one.

Results stores go on writing them so: what was measured keeps its id.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.space import Config, Value
from tilewright.space.aliases import LAUNCH_MODES
from tilewright.stencil.geometry import Mode

__all__ = ["config_and_mode", "stored_config"]


def config_and_mode(stencil: str, values: Mapping[str, Value]) -> tuple[Config, Mode]:
    """Return the config of a stencil's values, and the launch mode that they name.

    A mode at a value other than 0 or 1 stays in the config, which then is in no space.
    """
    named = {name: old for name, old in _names(stencil).items() if values.get(old) == 1}
    kept = {name: x for name, x in values.items() if name not in named.values()}
    return Config(stencil, kept), Mode(**dict.fromkeys(named, True))


def stored_config(config: Config, mode: Mode) -> Config:
    """Return a config that names its launch mode, for stores; its id is that of both."""
    names = _names(config.stencil)
    return config.replace(**{names[name]: 1 for name in mode.names})


def _names(stencil: str) -> Mapping[str, str]:
    return LAUNCH_MODES.get(stencil, {})
