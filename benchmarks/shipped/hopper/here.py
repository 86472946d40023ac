"""The GPU that a benchmark measures, or a line that says that there is none."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

__all__ = ["first_gpu"]


def first_gpu() -> Any:
    """Return the first CUDA device; without one, end the program in a line."""
    from tilewright.backend import BackendError, device

    try:
        return device("cuda:0")
    except (ValueError, BackendError) as error:
        raise SystemExit(f"{Path(sys.argv[0]).name}: {error}") from None
