"""Kernel sources: files beside this module, with their includes put in place.

Includes are resolved here rather than by the compiler so that a source is one
self-contained text: what is hashed, cached, compiled and put in a reproducer is
the same string.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import import_module
from pathlib import Path

__all__ = ["read_source", "read_sources"]

_INCLUDE = re.compile(r'^\s*#include "([\w/.]+)"\s*$', re.MULTILINE)


@lru_cache(maxsize=64)
def read_source(path: str, package: str = "tilewright.stencil") -> str:
    """Return a kernel source with every ``#include "..."`` replaced by its file.

    Parameters
    ----------
    path : str
        Relative to the package; so are the included names.
    package : str
        Where the files are: stencils outside this package bring their own.
    """
    folder = Path(import_module(package).__path__[0])
    text = folder.joinpath(path).read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda found: read_source(found.group(1), package), text)


def read_sources(*paths: str) -> str:
    """Return sources of this package, one behind the other."""
    return "\n".join(map(read_source, paths))
