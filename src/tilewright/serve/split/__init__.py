"""Single precision from tensor cores: parts, guard, product and fallback in one call."""

from tilewright.serve.split.decision import Decision
from tilewright.serve.split.product import serve_unproved
from tilewright.serve.split.promise import FLOOR, error_bound

__all__ = ["FLOOR", "Decision", "error_bound", "serve_unproved"]
