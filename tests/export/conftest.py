"""A store of winners, and a library exported from it that a test can call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.export.building import Caller, build_fake, build_library, pretended, written
from tests.tuning.measurement_examples import example
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.export import KernelSet, Target
from tilewright.export.variants import variants_of
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import STATIC_SHARED_BYTES, Variant
from tilewright.stencil.portable import Portable
from tilewright.tuning.measurement import Stage
from tilewright.tuning.store import Store

PORTABLE = Portable()
FINGERPRINT = "0123456789ab"
TARGET = Target("sm_90a", architecture_spec("sm_90a"), FINGERPRINT, "A GPU */ of tests")

# Single precision was tuned for NN and TN, complex double for CN only, double never.
TUNED = (
    *(Problem(n, n, n, "s") for n in (100, 1000, 4000)),
    *(Problem(m, n, k, "s") for m, n, k in ((64, 4096, 64), (4096, 64, 64), (7, 5, 100000))),
    *(Problem(n, n, n, "s", "T", "N") for n in (256, 1000, 2048)),
    *(Problem(n, n, n // 2, "z", "C", "N") for n in (128, 512, 2048)),
)


def _config(problem: Problem, seed: int) -> Config:
    """Return a config of the space; for the largest one with much shared memory."""
    variant = Variant.of(problem)
    space = PORTABLE.space(variant, TARGET.spec)
    for config in PORTABLE.starts(variant, TARGET.spec) if problem.k == 4000 else ():
        shared = PORTABLE.resources(config, variant).shared_bytes
        if shared > STATIC_SHARED_BYTES and config in space:
            return config
    return space.sample(1, seed)[0]


@pytest.fixture(scope="module")
def module_patch() -> Iterator[pytest.MonkeyPatch]:
    """A monkeypatch that lasts for a module's tests."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory whose store holds a winner for each of `TUNED`."""
    directory = tmp_path_factory.mktemp("stored")
    directory.chmod(0o700)
    with Store(directory / "results.sqlite") as store:
        for number, problem in enumerate(TUNED):
            store.add(
                replace(
                    example(),
                    config=_config(problem, number),
                    problem=problem,
                    device=FINGERPRINT,
                    backend="cuda",
                    stencil_version=PORTABLE.version,
                    stage=Stage.WINNER,
                    environment={"arch": "sm_90a"},
                )
            )
    return directory


@pytest.fixture
def data(stored: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use the winners' store: tests here write none of their own."""
    monkeypatch.setenv("TILEWRIGHT_DATA_DIR", str(stored))
    return stored


@pytest.fixture(autouse=True)
def _data(data: Path) -> None:
    """Use it in every test of this folder."""


@dataclass(frozen=True)
class Exported:
    """A library with what it was made from."""

    kernels: KernelSet
    sources: Path
    fake: Path
    call: Caller


@pytest.fixture(scope="module")
def exported(
    stored: Path, module_patch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Exported]:
    """All precisions and transposes but CGEMM, whose kernels are left out."""
    module_patch.setenv("TILEWRIGHT_DATA_DIR", str(stored))
    with pytest.MonkeyPatch.context() as patch:
        kernels = pretended(patch, TARGET, variants_of("s,d,z", "all"))
    directory = tmp_path_factory.mktemp("native")
    sources = written(kernels, directory / "c")
    fake = build_fake(directory)
    caller = Caller(build_library(sources, directory / "libtilewright-gemm.so"), fake)
    yield Exported(kernels, sources, fake, caller)
    caller.close()
