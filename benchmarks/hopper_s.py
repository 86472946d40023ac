r"""SGEMM beside cuBLAS: hopper.py with its default precision, by the name that its results have.

python benchmarks/hopper_s.py --seconds 165 --json FILE        needs a CUDA device
"""

from __future__ import annotations

import runpy
from pathlib import Path

if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).with_name("hopper.py")), run_name="__main__")
