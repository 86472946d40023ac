"""Fixtures that every test may use: private directories, and the devices present."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Before anything imports tilewright.  Compiled kernels are shared among tests; measurements
# never are (see `data`), so that no test depends on what another one stored.
_scratch = tempfile.TemporaryDirectory(prefix="tilewright-tests-")
if "PYTEST_XDIST_WORKER" not in os.environ:  # workers share the kernels of what started them
    os.environ["TILEWRIGHT_CACHE_DIR"] = os.path.join(_scratch.name, "cache")
os.environ["TILEWRIGHT_DATA_DIR"] = os.path.join(_scratch.name, "data")
os.environ.pop("POCL_CACHE_DIR", None)
# Several processes test at a time: BLAS's threads would wait for each other's, a fifth of the time.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
# Where a test names no device it means one of OpenCL, with a GPU beside it or without.
os.environ["TILEWRIGHT_DEVICE"] = "opencl"
# Kernels are what nearly all tests are of, however small; those of host BLAS ask for it.
os.environ["TILEWRIGHT_HOST_BLAS"] = "0"

# How long an example takes is for the machine's load to say; what fixtures give is for all examples
# of a test.
settings.register_profile(
    "tilewright",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("tilewright")

pytest.register_assert_rewrite("tests.stencil.contract")

from tilewright.backend import LiveDevice, devices  # noqa: E402
from tilewright.portfolio.find import reload  # noqa: E402


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave all but every n-th case of a test marked ``every(n)`` to ``make thorough``."""
    seen: Counter[tuple[Path, str]] = Counter()
    for item in items:
        mark = item.get_closest_marker("every")
        if mark is not None:
            key = item.path, getattr(item, "originalname", item.name)
            if seen[key] % mark.args[0]:
                item.add_marker("thorough")
            seen[key] += 1


def pytest_unconfigure() -> None:
    """Remove what the tests left."""
    _scratch.cleanup()


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a data directory, and so a store, of its own."""
    directory = tmp_path / "data"
    monkeypatch.setenv("TILEWRIGHT_DATA_DIR", str(directory))
    reload()
    return directory


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure for a moment only: what is shown does not depend on how exact times are."""
    from tilewright.bench import sweep
    from tilewright.tuning import host_blas, tuner

    monkeypatch.setattr(tuner, "_RACE_SECONDS", 0.3)
    monkeypatch.setattr(host_blas, "_SECONDS", 0.1)
    monkeypatch.setattr(sweep, "SPIN_SECONDS", 0.005)


def _present(*backends: str) -> list[object]:
    """Return a parameter for each device of these backends; GPUs carry the marker."""
    return [
        pytest.param(d.id, marks=[pytest.mark.gpu] if d.spec.kind == "gpu" else [])
        for d in devices()
        if d.backend in backends
    ]


def _named(request: pytest.FixtureRequest) -> LiveDevice:
    return next(d for d in devices() if d.id == request.param)


@pytest.fixture(params=_present("opencl"))
def live(request: pytest.FixtureRequest) -> LiveDevice:
    """Every OpenCL device present, one after the other."""
    return _named(request)


@pytest.fixture(params=[d.id for d in devices() if d.spec.kind == "cpu"])
def cpu(request: pytest.FixtureRequest) -> LiveDevice:
    """Every CPU device present: what the packed stencil is for."""
    return _named(request)


@pytest.fixture(params=_present("cuda", "opencl"))
def everywhere(request: pytest.FixtureRequest) -> LiveDevice:
    """Every device present, one after the other."""
    return _named(request)


@pytest.fixture
def cuda() -> LiveDevice:
    """The first CUDA device; where there is none, the test is skipped and says why."""
    found = [d for d in devices() if d.backend == "cuda"]
    if not found:
        reason = "needs an NVIDIA GPU, its driver and the tilewright[tune] extra"
        if os.environ.get("TILEWRIGHT_REQUIRE_GPU") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return found[0]


# -- portfolios --------------------------------------------------------------------------


@pytest.fixture
def ship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Let kernels come with the package, and nothing else; see `examples.write`."""
    from tests.portfolio.examples import forget, write
    from tilewright.portfolio import find

    folder = tmp_path / "package"
    folder.mkdir()
    monkeypatch.setattr(
        find, "shipped_folder", lambda capability: folder if capability == 90 else None
    )

    def plant(*kernels: Any, name: str = "s", **facts: Any) -> Any:
        made = write(folder, kernels, name, **facts)
        forget()
        return made

    forget()
    yield plant
    monkeypatch.undo()
    forget()


@pytest.fixture
def keep() -> Iterator[Callable[..., Any]]:
    """Let kernels be the user's own on a device with this key."""
    from tests.portfolio.examples import forget, write
    from tilewright.portfolio import find

    def plant(key: str, *kernels: Any, name: str = "s", **facts: Any) -> Any:
        made = write(find.own_folder(key), kernels, name, **facts)
        forget()
        return made

    forget()
    yield plant
    forget()
