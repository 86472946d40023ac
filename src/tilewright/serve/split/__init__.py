"""Single precision from tensor cores: parts, guard, product and fallback in one call."""

from tilewright.serve.split.decision import Decision
from tilewright.serve.split.product import serve_unproved

__all__ = ["Decision", "serve_unproved"]
