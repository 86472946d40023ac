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
from tilewright.portfolio.select import Selected
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


def test_nothing_is_packed_of_a_kernel_that_was_left_out(work, tmp_path, monkeypatch):
    """One for batches alone, of which what is for groups was verified and the other was not."""
    monkeypatch.setattr(
        build, "arranged_cubin",
        lambda source, arch, *_: Cubin(source.identity.encode(), "", {}, arch),
    )  # fmt: skip
    of = Variant.of(PROBLEM)
    alone, kept = (replace(kernel(of, one, ()), batched={PLAIN: ""}, grouped={PLAIN: ""})
                   for one in FAMILY.batch_configs(of)[:2])  # fmt: skip
    instances = build.instances_of([Selected(alone), Selected(kept)])
    work.compile(instances, 60)
    codes = {one.name: work.read(one)[0].digest for one in instances}
    right = {x: "here" for name, x in codes.items() if name != f"{alone.name}-v2-plain-batched"}
    base = write(tmp_path, [])
    made = build.pack(work, instances, [alone, kept], base, tmp_path, right)
    assert [one.config for one in made.kernels] == [kept.config]
    assert set(made.codes) == {
        codes[f"{kept.name}-v2-plain-{form}"] for form in ("batched", "grouped")
    }
