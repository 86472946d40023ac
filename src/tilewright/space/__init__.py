"""Parameter spaces: enumerate, prune, explain the funnel.

Everything is imported on first use: calls of a portfolio's kernels need `Config` alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.space.config import Config, Value
    from tilewright.space.constraint import Constraint, composed
    from tilewright.space.funnel import Funnel, Stage
    from tilewright.space.parameter import Parameter
    from tilewright.space.space import Space

_HOMES = {
    "Config": "config",
    "Constraint": "constraint",
    "Funnel": "funnel",
    "Parameter": "parameter",
    "Space": "space",
    "Stage": "funnel",
    "Value": "config",
    "composed": "constraint",
}

__all__ = ["Config", "Constraint", "Funnel", "Parameter", "Space", "Stage", "Value", "composed"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = found
    return found
