"""The kernels that can be: each folder one kernel text, its parameters, its resource use."""

from tilewright.stencil.base import (
    STATIC_SHARED_BYTES,
    Dialect,
    Launch,
    Resources,
    Source,
    Stencil,
    Variant,
    Workspace,
)
from tilewright.stencil.registry import register, stencil, stencils, stencils_for

__all__ = [
    "STATIC_SHARED_BYTES",
    "Dialect",
    "Launch",
    "Resources",
    "Source",
    "Stencil",
    "Variant",
    "Workspace",
    "register",
    "stencil",
    "stencils",
    "stencils_for",
]
