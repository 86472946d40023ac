"""Fixtures that every test may use: private directories, and every OpenCL device present."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before anything imports tilewright.  Compiled kernels are shared among tests; measurements
# never are (see `data`), so that no test depends on what another one stored.
_scratch = tempfile.TemporaryDirectory(prefix="tilewright-tests-")
os.environ["TILEWRIGHT_CACHE_DIR"] = os.path.join(_scratch.name, "cache")
os.environ["TILEWRIGHT_DATA_DIR"] = os.path.join(_scratch.name, "data")
os.environ.pop("POCL_CACHE_DIR", None)
os.environ.pop("TILEWRIGHT_DEVICE", None)

from tilewright.backend import LiveDevice, devices  # noqa: E402


def pytest_unconfigure() -> None:
    """Remove what the tests left."""
    _scratch.cleanup()


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a data directory, and so a store, of its own."""
    directory = tmp_path / "data"
    monkeypatch.setenv("TILEWRIGHT_DATA_DIR", str(directory))
    return directory


def _ids() -> list[str]:
    return [d.id for d in devices()]


@pytest.fixture(params=_ids())
def live(request: pytest.FixtureRequest) -> Iterator[LiveDevice]:
    """Every OpenCL device present, one after the other."""
    return next(d for d in devices() if d.id == request.param)
