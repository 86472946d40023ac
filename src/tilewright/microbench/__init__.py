"""Microbenchmarks: what one device can do, measured by loops and copies made for one question.

A module here with an ``EXPERIMENT`` is one; a new experiment is a new file.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache

from tilewright.microbench.experiment import Experiment, Row

__all__ = ["Experiment", "Row", "experiments"]


@lru_cache(maxsize=1)
def experiments() -> dict[str, Experiment]:
    """Return every experiment by name; the first call imports the modules of this package."""
    modules = (
        importlib.import_module(f"{__name__}.{one.name}") for one in pkgutil.iter_modules(__path__)
    )
    found = (getattr(module, "EXPERIMENT", None) for module in modules)
    return {one.name: one for one in found if one is not None}
