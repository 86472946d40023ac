"""Compiled sources that several kinds of calls launch beside the product's own kernel."""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary

from tilewright.backend import Kernel, LiveDevice
from tilewright.stencil import Source

__all__ = ["kernel_of"]

# Kernels belong to a device's context and go with it.
_kernels: WeakKeyDictionary[LiveDevice, dict[Any, Kernel]] = WeakKeyDictionary()
_compiling = threading.Lock()


def kernel_of(live: LiveDevice, source: Source) -> Kernel:
    """Return a compiled source; compiled once for a device."""
    with _compiling:
        known = _kernels.setdefault(live, {})
        key = (source.text, source.entry, tuple(source.defines.items()))
        if key not in known:
            known[key] = live.compile(source)
        return known[key]
