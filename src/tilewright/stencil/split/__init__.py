"""Numbers in parts: what a tensor core multiplies in place of single precision."""

from tilewright.stencil.split.scheme import SCHEMES, Scheme, scheme
from tilewright.stencil.split.texts import Texts

__all__ = ["SCHEMES", "Scheme", "Texts", "scheme"]
