"""PoCL on CPUs that its LLVM does not know: the name it builds for is set in its own record."""

import ctypes
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from tilewright.backend.opencl.unknown_cpu import nearest_cpu, rename_unknown_cpu

_COMMON = "fpu sse sse2 ssse3 fma cx16 sse4_1 sse4_2 movbe popcnt avx f16c abm bmi1 avx2 bmi2"
_WIDE = "avx512f avx512dq avx512ifma avx512cd avx512bw avx512vl avx512_bf16"
ZEN5 = [*_COMMON.split(), *_WIDE.split()]


@dataclass
class Record:
    """What looks like a PoCL device: memory with a target's name and a CPU's behind each other."""

    target: bytes
    cpu: bytes
    platform: str = "Portable Computing Language"
    before: int = 80
    words: ctypes.Array = field(init=False)

    def __post_init__(self):
        self.texts = [ctypes.create_string_buffer(x) for x in (self.target, self.cpu)]
        addresses = [ctypes.addressof(text) for text in self.texts]
        # Numbers, a pointer to nowhere, and memory enough for the largest record.
        filler = [0, 17, 0xDEAD000, *range(self.before - 3)]
        self.words = (ctypes.c_uint64 * 512)(*filler, *addresses)

    @property
    def device(self):
        return SimpleNamespace(
            platform=SimpleNamespace(name=self.platform), int_ptr=ctypes.addressof(self.words)
        )

    @property
    def name(self):
        return ctypes.string_at(self.words[self.before + 1])


def test_an_unknown_cpu_is_named_after_the_library_that_pocl_has_for_it():
    record = Record(b"x86_64-unknown-linux-gnu", b"generic")
    others = [word for at, word in enumerate(record.words) if at != record.before + 1]
    assert rename_unknown_cpu(record.device)
    assert record.name in {b"skylake-avx512", b"haswell", b"sandybridge", b"x86-64"}
    assert [x for at, x in enumerate(record.words) if at != record.before + 1] == others
    assert not rename_unknown_cpu(record.device), "it is known now"


@pytest.mark.parametrize(
    ("target", "cpu", "platform"),
    [
        (b"x86_64-unknown-linux-gnu", b"znver3", "Portable Computing Language"),
        (b"aarch64-unknown-linux-gnu", b"generic", "Portable Computing Language"),
        (b"no target at all", b"generic", "Portable Computing Language"),
        (b"x86_64-unknown-linux-gnu", b"generic", "Oclgrind"),
    ],
)
def test_everything_else_stays_as_it_is(target, cpu, platform):
    record = Record(target, cpu, platform)
    before = list(record.words)
    assert not rename_unknown_cpu(record.device)
    assert list(record.words) == before


@pytest.mark.parametrize(
    ("features", "name"),
    [
        (ZEN5, "skylake-avx512"),
        ([x for x in ZEN5 if not x.startswith("avx512")], "haswell"),
        # A hypervisor may mask single features: a CPU's name promises all of its own.
        ([x for x in ZEN5 if x not in ("avx512vl", "bmi2")], "sandybridge"),
        (["fpu", "sse", "sse2"], "x86-64"),
    ],
)
def test_the_nearest_cpu_has_no_instruction_that_this_one_lacks(features, name):
    assert nearest_cpu(features) == name
