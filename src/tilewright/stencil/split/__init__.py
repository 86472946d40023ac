"""Numbers in parts: what a tensor core multiplies in place of single precision."""

from tilewright.stencil.split.scheme import SCHEMES, Scheme, scheme
from tilewright.stencil.split.sources import Sources

__all__ = ["SCHEMES", "Scheme", "Sources", "scheme"]
