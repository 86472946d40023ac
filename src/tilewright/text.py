"""Text from files and stores that others may have written."""

from __future__ import annotations

__all__ = ["plain"]


def plain(text: str) -> str:
    """Return text with control characters spelled out: they steer terminals and break XML."""
    return "".join(one if one.isprintable() or one in "\n\t" else repr(one)[1:-1] for one in text)
