"""Predicates that instructions read and write, compared with what nvdisasm prints."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.sass import nvdisasm
from tests.sass.compiled import cubin, kept
from tilewright.reschedule.access import UNIFORM, access, name_of
from tilewright.sass import decode, read_cubin
from tilewright.sass.decode import decode_one

_PREDICATES = re.compile(r"(?<![A-Z0-9_.])(U?P[0-6])(?![0-9])")


@pytest.mark.parametrize("name", ["", "dgemm", "mixed", "tensor"])
def test_predicates_are_those_that_nvdisasm_prints(name: str, tmp_path: Path) -> None:
    data = cubin(name, "sm_90a") if name else kept("sm_90a")
    path = tmp_path / "kernel.cubin"
    path.write_bytes(data)
    done = subprocess.run([nvdisasm.find(), "-c", str(path)], capture_output=True, text=True)
    parts = re.split(r"//-+ \.text\.(\S+)", done.stdout)
    texts = dict(zip(parts[1::2], parts[2::2], strict=True))
    compared = 0
    for kernel in read_cubin(data).kernels:
        _, text = texts[kernel.name].split("\n", 1)
        lines = dict(re.findall(r"/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", text))
        for one in decode(kernel.code, kernel.arch):
            use = access(one)
            if use.kind == "unknown":
                continue
            line = lines[f"{one.address:04x}"]
            found = {name_of(r) for r in use.reads | use.writes if r >= UNIFORM}
            printed = set(_PREDICATES.findall(line.removeprefix("P2R")))
            if mask := re.match(r"P2R R\d+, PR, \S+, (0x[0-9a-f]+)", line):
                printed = {f"P{n}" for n in range(7) if int(mask[1], 16) >> n & 1}
            assert {n for n in found if "P" in n} == printed, line
            compared += 1
    assert compared > 100


def test_a_form_that_may_name_a_register_is_not_modelled() -> None:
    """BAR with its number in a register, which the decoder does not read."""
    bar = decode_one(0xB1D | 1 << 109 | 7 << 110 | 7 << 113 | 7 << 12, 0, 90)
    other = decode_one(0x31D | 1 << 109 | 7 << 110 | 7 << 113 | 7 << 12, 0, 90)
    assert (bar.mnemonic, other.mnemonic) == ("BAR", "BAR")
    assert (access(bar).kind, access(other).kind) == ("order", "unknown")


@pytest.mark.parametrize(
    ("mnemonic", "word"),
    [
        ("CGAERRBAR", 0x000FEC0000000000_00000000000075AB),
        ("YIELD", 0x0000000003800000_0000000000007946),
    ],
)
def test_what_waits_for_other_blocks_names_no_register(mnemonic: str, word: int) -> None:
    """A release for the whole device waits for the cluster's errors; a loop of acquires yields."""
    one = decode_one(word, 0, 90)
    use = access(one)
    assert (one.mnemonic, use.kind) == (mnemonic, "order")
    assert not use.reads | use.writes


def test_a_resource_has_the_name_of_its_file() -> None:
    assert [name_of(r) for r in (3, 256, 513, 526)] == ["R3", "UR0", "P1", "UP6"]
