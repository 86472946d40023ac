"""Whether products of parts are served where no device has proved them: to measure them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from tilewright.serve import warm

__all__ = ["serve_unproved", "unproved_are_served"]

_unproved: ContextVar[bool] = ContextVar("tilewright_serve_unproved", default=False)


@contextlib.contextmanager
def serve_unproved() -> Iterator[None]:
    """Let "fp32" use products that no device has proved, to measure them.

    Within this block the guard decides as it would where tensor cores are proved; elsewhere
    such calls are served in IEEE arithmetic.
    """
    warm.forget()
    token = _unproved.set(True)
    try:
        yield
    finally:
        _unproved.reset(token)


def unproved_are_served() -> bool:
    """Whether the caller is within `serve_unproved`: plans of products of parts depend on it."""
    return _unproved.get()
