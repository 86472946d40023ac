"""A work folder keeps what a build made, and takes over what is still right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.portfolio.examples import H100, costs, cubin_of, kernel, nothing_ahead, write
from tilewright.backend.base import CompileError
from tilewright.backend.cubin import Cubin
from tilewright.portfolio import Portfolio, build
from tilewright.portfolio.build import Instance, Work
from tilewright.portfolio.kernel import PortfolioKernel
from tilewright.portfolio.portfolio import PortfolioError
from tilewright.problem import Problem
from tilewright.reschedule.levels import LEVELS
from tilewright.stencil import Variant, stencil
from tilewright.stencil.geometry import PLAIN

PROBLEM = Problem(4096, 4096, 4096, "s")
FAMILY = stencil("simt_async")
CONFIG = FAMILY.starts(Variant.of(PROBLEM), H100)[0]


def instance(**changes) -> Instance:
    """Return the plain instance of a kernel, changed."""
    made = kernel(PROBLEM, CONFIG.replace(parallel_split_k=1), costs=costs(1.0))
    source = FAMILY.source(CONFIG, made.variant, "cuda")
    return replace(Instance(f"{made.name}-v{made.version}-plain", "x", source, made), **changes)


@pytest.fixture
def work(tmp_path, monkeypatch) -> Work:
    """Return a work folder whose compiler is none, and whose scheduler refuses everything."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "nvrtc_version", lambda: "1.2")

    def compiled(source, arch, cache, rewrite):
        made = Cubin(b"compiled", "", {}, arch)
        return made if rewrite is None else rewrite(made, cache)

    monkeypatch.setattr(build, "arranged_cubin", compiled)
    monkeypatch.setattr(build, "compiling_ahead", nothing_ahead)

    def refuse(*_):
        raise CompileError("schedule 'ahead' is refused: it has no loop", "")

    monkeypatch.setattr("tilewright.reschedule.cubin.reschedule", refuse)
    return Work(tmp_path / "work", "sm_90a")


def test_a_loop_that_cannot_be_rescheduled_is_the_compilers_own(work):
    level = next(iter(LEVELS.values()))
    one = instance(level=level)
    assert work.compile([one], 60) == {one.name: "schedule 'ahead' is refused: it has no loop"}
    code, text = work.read(one)
    assert (text, code.rescheduled) == (b"compiled", False)


def made_of(source: str, folder: Path, kernel: PortfolioKernel) -> Portfolio:
    """Return a portfolio of a kernel that says of which source its machine code is."""
    made = write(folder, [kernel])
    codes = {digest: replace(code, source=source) for digest, code in made.codes.items()}
    return replace(made, codes=codes)


@pytest.mark.parametrize("source", ["another", ""])
def test_machine_code_of_the_same_source_alone_is_taken_over(work, tmp_path, source):
    one = instance()
    work.seed([one], made_of(source, tmp_path / "before", one.kernel))
    assert not work.has(one)
    work.seed([one], made_of(one.source.digest, tmp_path / "same", one.kernel))
    assert work.read(one)[1] == cubin_of(one.kernel.config, one.kernel.variant, PLAIN)


@pytest.mark.parametrize(
    ("more", "same"), [("/* why */ // and how\n", True), ("  \n", True), ("int x;", False)]
)
def test_a_source_that_changed_is_compiled_again(work, more, same):
    one = instance()
    work.compile([one], 60)
    changed = replace(one, source=replace(one.source, text=more + one.source.text))
    assert work.has(one)
    assert work.has(changed) is same


def test_machine_code_of_launches_that_are_cut_otherwise_is_not(work, tmp_path):
    """Before blocks stored whole tiles a second launch always followed."""
    one = instance()
    cut = replace(one.kernel.geometry.split_k, reduction_cycles=0.0)
    before = replace(one.kernel, geometry=replace(one.kernel.geometry, split_k=cut))
    work.seed([one], made_of(one.source.digest, tmp_path / "before", before))
    assert not work.has(one)


def test_kernels_of_one_machine_code_that_are_launched_differently_are_refused(work, tmp_path):
    one = instance()
    other = replace(one, name="other", source=replace(one.source, entry="another"))
    work.compile([one, other], 60)
    with pytest.raises(PortfolioError, match="'another' and 'gemm' have the same machine code"):
        build.pack(work, [one, other], [one.kernel], write(tmp_path / "of", []), tmp_path / "to")
