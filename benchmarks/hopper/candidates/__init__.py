"""Points of the stencils' spaces that a search tries: a module for each precision.

Each has a function ``candidates(trans)`` that returns configs, of one stencil or of several,
the likeliest first.
"""

from __future__ import annotations

import importlib

from tilewright.space import Config

MODULES = {"s": "single", "d": "double", "c": "complex_single", "z": "complex_double"}


def candidates(letter: str, trans: str) -> list[Config]:
    """Return what is tried of a case, the likeliest first, each once."""
    module = importlib.import_module(f".{MODULES[letter]}", __name__)
    found: list[Config] = module.candidates(trans)
    return list(dict.fromkeys(found))
