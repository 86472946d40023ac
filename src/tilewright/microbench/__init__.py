"""Microbenchmarks: what one device can do, measured by loops and copies made for one question.

Every module here that registers an `Experiment` is one; a new experiment is a new file.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from tilewright.microbench.experiment import EXPERIMENTS, Device, Experiment, Row, register

__all__ = ["EXPERIMENTS", "Device", "Experiment", "Row", "experiments", "register"]


def experiments() -> Mapping[str, Experiment]:
    """Return every experiment by name; the first call imports the modules of this package."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return EXPERIMENTS
