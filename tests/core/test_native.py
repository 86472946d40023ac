"""The core against a driver of tests, in a process that has no other.

The tests proper are in `tests.core.inside`: each file of it is run there by pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.export.building import build_fake, needs_c

INSIDE = Path(__file__).parent / "inside"
ROOT = INSIDE.parents[2]

pytestmark = needs_c


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a driver without a device."""
    return build_fake(tmp_path_factory.mktemp("driver")).parent


@pytest.mark.parametrize(
    ("file", "dlpack"),
    [
        *(
            (one, "0")
            for one in ("native_plans", "laid_plans", "arenas", "calls", "fields", "pairs")
        ),
        *((one, dlpack) for one in ("table", "entries", "groups") for dlpack in "01"),
        ("table", "2"),
    ],
)
def test_behaviours(fake: Path, file: str, dlpack: str) -> None:
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--confcutdir", INSIDE,
         INSIDE / f"{file}.py"],
        cwd=ROOT, capture_output=True, text=True, timeout=250,
        env={
            **os.environ,
            "LD_LIBRARY_PATH": str(fake),
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "PYTEST_ADDOPTS": "",
            "FAKE_CUDA_HERE": "1",
            "FAKE_DLPACK": dlpack,
        },
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout
