"""Portfolios that ship and that were tuned, and a library exported from them that tests call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.export.building import (
    COMPILER,
    WARNINGS,
    Caller,
    build_fake,
    build_library,
    named,
    pretended,
    run,
    written,
)
from tests.export.portfolios import DEVICE, MULTIPROCESSORS, drawn, tuned
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.export import KernelSet
from tilewright.export.compiling import link
from tilewright.export.preload import answering_sources
from tilewright.export.target import Target
from tilewright.export.variants import variants_of
from tilewright.hardware import DeviceSpec
from tilewright.portfolio import find, reload
from tilewright.portfolio.find import VARIABLE
from tilewright.portfolio.portfolio import Copying

KEY = "sm_90a-a-gpu-of-tests"
# cuBLAS of tests has both's functions.
LIBRARIES = "libcublas.so.13", "libcublasLt.so.13"
# As fake_cuda.c has it.
SPEC = replace(
    architecture_spec("sm_90a"), name=DEVICE, multiprocessors=MULTIPROCESSORS,
    memory_bytes=80 << 30,
)  # fmt: skip
# Another member of the generation: what ships serves it, but races of the first do not count.
OTHER = replace(SPEC, name="Another GPU of tests", multiprocessors=114)
TARGET = Target("sm_90a", SPEC, KEY, DEVICE + " */")


@dataclass(frozen=True)
class Served:
    """What `choose` asks of a device."""

    portfolio_key: str
    spec: DeviceSpec


HERE, THERE = Served(KEY, SPEC), Served(KEY, OTHER)


@pytest.fixture(scope="session")
def portfolios(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Drawn kernels ship for s, d and z; of s and z some were tuned, of c nothing is there.

    Of one transpose pair of d nothing but TMA kernels ships.  Operands of s and z may be copied, at
    little cost, so that it is often worth it.
    """
    folder = tmp_path_factory.mktemp("portfolios")
    for seed, letter in enumerate("sdz"):
        copying = None if letter == "d" else Copying(100.0, 20000.0)
        drawn(folder / "sm_90", letter, seed, "TT" if letter == "d" else "", copying)
    own = folder / "own"
    own.mkdir(mode=0o700)
    for letter, trans in (("s", "NN,TN"), ("z", "CT")):
        tuned(own / KEY, letter, variants_of(letter, trans), SPEC)
    return folder


@contextmanager
def served_by(portfolios: Path) -> Iterator[None]:
    """Let these portfolios serve, and forget them again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(find, "shipped_folder", lambda number: portfolios / f"sm_{number}")
        patch.setenv(VARIABLE, str(portfolios / "own"))
        _forget()
        yield
    _forget()


def _forget() -> None:
    find.shipped_for.cache_clear()
    find.shipped.cache_clear()
    reload()


@pytest.fixture
def drawn_portfolios(portfolios: Path) -> Iterator[None]:
    """Let the drawn kernels serve a test."""
    with served_by(portfolios):
        yield


@dataclass(frozen=True)
class Exported:
    """A library with what it was made from."""

    kernels: KernelSet
    sources: Path
    fake: Path
    call: Caller


@pytest.fixture(scope="session")
def kernels(portfolios: Path) -> KernelSet:
    """All transposes of s, d and z; CGEMM's kernels are left out."""
    with served_by(portfolios), pytest.MonkeyPatch.context() as patch:
        return pretended(patch, TARGET, variants_of("s,d,z", "all"))


@pytest.fixture(scope="session")
def exported(kernels: KernelSet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exported]:
    """The library of those kernels, whose machine code is their names."""
    directory = tmp_path_factory.mktemp("native")
    sources = written(named(kernels), directory / "c")
    fake = build_fake(directory)
    caller = Caller(build_library(sources, directory / "libtilewright-gemm.so"), fake)
    yield Exported(kernels, sources, fake, caller)
    caller.close()


@pytest.fixture(scope="session")
def preloaded(exported: Exported, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the library, a cuBLAS and a driver of tests."""
    folder = tmp_path_factory.mktemp("preloaded")
    for name, text in answering_sources().items():
        (folder / name).write_bytes(text)
    sources = [*folder.glob("*.c"), *sorted(exported.sources.glob("*.c"))]
    link(sources, folder / "ours.so", *WARNINGS, "-shared", f"-I{exported.sources}")
    # -Bsymbolic: what cuBLAS calls of its own is not the preloaded library's.
    flags = ("-std=c11", "-O1", "-shared", "-fPIC", "-DWORKSPACE=0", "-Wl,-Bsymbolic")
    source = Path(__file__).with_name("fake_cublas.c")
    for name in LIBRARIES:
        run(COMPILER, *flags, source, "-o", folder / name, f"-Wl,-soname,{name}", "-lm")
    build_fake(folder)
    return folder
