"""Single precision from tensor cores: parts, guard, product and fallback in one call."""

from tilewright.library.split.decision import Decision
from tilewright.library.split.product import serve_unproved

__all__ = ["Decision", "serve_unproved"]
