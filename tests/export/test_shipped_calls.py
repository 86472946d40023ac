"""Calls of a library that is exported from what the package ships, beside those of `gemm`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.export.building import Caller, build_fake, build_library, named, needs_c, written
from tests.export.comparing import PretendedGPU, compare
from tests.export.conftest import Exported
from tests.export.test_calls import large_calls
from tilewright.export import collect, find_target, kernel_set, variants_of
from tilewright.portfolio.find import shipped_for

pytestmark = needs_c

LETTERS = "scd"


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Exported, PretendedGPU]]:
    """The library, on the device that its kernels were measured on; nothing is compiled."""
    target = find_target("sm_90a", defaults=True).serving("s")
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(kernel_set, "cached_cubin")
        kernels = collect(target, variants_of(",".join(LETTERS), "all"))
    folder = tmp_path_factory.mktemp("shipped")
    sources, fake = written(named(kernels), folder / "c"), build_fake(folder)
    call = Caller(build_library(sources, folder / "libtilewright-gemm.so"), fake)
    call("set", "fake_name", target.spec.name)
    call("set", "fake_multiprocessors", target.spec.multiprocessors)
    yield (
        Exported(kernels, sources, fake, call),
        PretendedGPU(replace(target.spec, memory_bytes=80 << 30)),
    )
    call.close()


def test_every_call_launches_what_gemm_launches(shipped):
    exported, gpu = shipped
    copied = set()
    for call in large_calls(LETTERS, 400):
        said = exported.call("gemm", *call, 7)
        copied |= {(call[0], name) for name in compare(exported, gpu, call, 7, said)}
    assert {letter for letter, _ in copied} == {"s", "c"}, "where copies were timed"


def test_what_copies_operands_is_machine_code_of_the_package(shipped):
    exported, _ = shipped
    passes = shipped_for(90, "passes")
    assert sorted(exported.kernels.copies) == ["c", "s"]
    for one in exported.kernels.copies.values():
        for name in one.codes:
            assert exported.kernels.codes[name].code.digest in passes.codes
