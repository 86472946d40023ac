"""Texts: from files and stores that others may have written, and what several errors say."""

from __future__ import annotations

__all__ = ["install_hint", "plain", "reason", "shown"]

# Of a value in an error of one line.
_SHOWN = 60


def plain(text: str) -> str:
    """Return text with control characters spelled out: they steer terminals and break XML."""
    return "".join(one if one.isprintable() or one in "\n\t" else repr(one)[1:-1] for one in text)


def install_hint(extra: str) -> str:
    """Return how to install what an extra of this package holds: it is on no package index."""
    return (
        f"run: pip install '.[{extra}]' in the clone, or pip install 'FILE.whl[{extra}]' of a wheel"
    )


def reason(error: Exception) -> str:
    """Return what is wrong with data that could not be read."""
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def shown(value: object) -> str:
    """Return a value as an error names it: short and on one line, whatever it is."""
    try:
        text = " ".join(line.strip() for line in repr(value).splitlines())
    except Exception:  # Python prints no integer of more than 4300 digits
        text = f"{type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]}...{text[-_SHOWN // 4 :]}"
