"""The kernels that can be: each folder one kernel source, its parameters, its resource use."""

from tilewright.stencil.base import Resources, Stencil, Variant
from tilewright.stencil.call import TensorMap
from tilewright.stencil.geometry import PLAIN, Geometry, Launch, Mode, SplitK
from tilewright.stencil.registry import register, stencil, stencils, stencils_for
from tilewright.stencil.source import STATIC_SHARED_BYTES, Dialect, Source, Workspace

__all__ = [
    "PLAIN",
    "STATIC_SHARED_BYTES",
    "Dialect",
    "Geometry",
    "Launch",
    "Mode",
    "Resources",
    "Source",
    "SplitK",
    "Stencil",
    "TensorMap",
    "Variant",
    "Workspace",
    "register",
    "stencil",
    "stencils",
    "stencils_for",
]
