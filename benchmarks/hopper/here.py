"""The GPU that a benchmark measures, a line that says that there is none, or one that is absent."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.hardware import DeviceSpec

__all__ = ["Absent", "first_gpu"]


@dataclass(frozen=True)
class Absent:
    """A device that is not here: its numbers, and no measurements of its own."""

    spec: DeviceSpec
    fingerprint: str = ""


def first_gpu() -> Any:
    """Return the first CUDA device; without one, end the program in a line."""
    from tilewright.backend import BackendError, device

    try:
        return device("cuda:0")
    except (ValueError, BackendError) as error:
        raise SystemExit(f"{Path(sys.argv[0]).name}: {error}") from None
