"""Reading cubins: what they say of a kernel, and one-line refusals of everything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sass.compiled import KEPT, cubin, kept
from tilewright.sass import inspect_kernel, read_cubin, resources


@pytest.mark.parametrize(("arch", "number"), [("sm_80", 80), ("sm_90a", 90), ("sm_100", 100)])
def test_a_kept_cubin_says_what_was_compiled(arch: str, number: int) -> None:
    found = read_cubin(kept(arch))
    assert found.arch == number
    (kernel,) = found.kernels
    assert kernel.name == "sgemm"
    # Two buffers of A and B, 8 steps of k by 64 floats; not the KiB that the system keeps.
    assert kernel.shared_bytes == 2 * 2 * 8 * 64 * 4
    assert kernel.max_threads == (256, 1, 1)
    assert kernel.barriers == 1
    assert kernel.param_bytes == 36  # three pointers, two integers, a float
    assert kernel.frame_bytes == 0
    assert 32 <= kernel.registers <= 255


def test_spills_and_stack_are_reported() -> None:
    data = cubin("mixed", "sm_90a")
    spilling = resources(read_cubin(data).kernel("spill"))
    assert spilling.local_loads
    assert spilling.local_stores
    assert spilling.registers == 64  # 65,536 over 1024 threads
    assert spilling.stack_bytes >= 4 * (12 * 12 - 64)  # the accumulators that found no register
    assert spilling.max_threads == 1024
    whole = resources(read_cubin(data).kernel("half2k"))
    assert (whole.local_loads, whole.local_stores) == (0, 0)


def test_a_kernel_is_found_by_name() -> None:
    data = cubin("tensor", "sm_80")
    found = read_cubin(data, "tensor.cubin")
    assert {k.name for k in found.kernels} == {"hmma", "tf32", "dmma", "imma"}
    assert found.kernel("dmma").name == "dmma"
    with pytest.raises(ValueError, match=r"kernel='x' is not in tensor.cubin; it has .*: name one"):
        found.kernel("x")
    with pytest.raises(ValueError, match=r"kernel=None is not in tensor\.cubin"):
        found.kernel()


def test_the_only_kernel_needs_no_name() -> None:
    assert read_cubin(KEPT[0]).kernel().name == "sgemm"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: b"", "does not start as an ELF file"),
        (lambda d: b"PK\x03\x04" + d[4:], "does not start as an ELF file"),
        (lambda d: d[:4] + b"\x01" + d[5:], "not a 64-bit little-endian ELF file"),
        (lambda d: d[:18] + b"\x3e\x00" + d[20:], "ELF machine is 62, not CUDA's 190"),
        (lambda d: d[:7] + b"\x00" + d[8:], "OS ABI 0x0 is neither"),
        (lambda d: d[:40], "its header lies outside its 40 bytes"),
        (lambda d: d[: len(d) // 4], "lies outside"),
        (lambda d: d[:58] + b"\x28\x00" + d[60:], "section headers have 40 bytes, not 64"),
        (lambda d: d[:62] + b"\xff\xff" + d[64:], "names no section string table"),
    ],
)
def test_damage_is_named_in_one_line(tmp_path: Path, change, said: str) -> None:
    path = tmp_path / "broken.cubin"
    path.write_bytes(change(kept("sm_90a")))
    with pytest.raises(ValueError, match=said) as error:
        read_cubin(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def _read_all(data: bytes) -> None:
    """Read a damaged cubin to the end; only a one-line ValueError is allowed to come out."""
    message = ""
    try:
        for kernel in read_cubin(data).kernels:
            inspect_kernel(kernel)
    except ValueError as error:
        message = str(error)
    assert "\n" not in message


@pytest.mark.parametrize("path", KEPT, ids=lambda p: p.stem)
def test_every_truncation_is_refused_or_read(path: Path) -> None:
    data = path.read_bytes()
    for length in [*range(200), *range(200, len(data), 61)]:
        _read_all(data[:length])


_CHANGES = given(
    arch=st.sampled_from(["sm_80", "sm_90a", "sm_100"]),
    changes=st.lists(st.tuples(st.integers(0, 11_935), st.integers(0, 255)), max_size=6),
)


def changed_bytes_never_crash_it(arch: str, changes: list[tuple[int, int]]) -> None:
    data = bytearray(kept(arch))
    for position, value in changes:
        data[position % len(data)] = value
    _read_all(bytes(data))


_HEADERS = given(
    position=st.integers(0, 63),
    value=st.binary(min_size=1, max_size=8),
    table=st.booleans(),
)


def changed_headers_never_crash_it(position: int, value: bytes, table: bool) -> None:
    data = bytearray(kept("sm_90a"))
    if table:  # the section headers instead of the file's
        position += int.from_bytes(data[40:48], "little") + 64 * (value[0] % 17)
    data[position : position + len(value)] = value
    _read_all(bytes(data))


# Reading a kernel to the end takes a tenth of a second: the same few every time, and by
# `make thorough` many.
DAMAGES = ((_CHANGES, changed_bytes_never_crash_it), (_HEADERS, changed_headers_never_crash_it))


@pytest.mark.every(2)
@pytest.mark.parametrize(("drawn", "damage"), DAMAGES, ids=["bytes", "headers"])
@pytest.mark.parametrize("examples", [60, pytest.param(1000, marks=pytest.mark.thorough)])
def test_damage_never_crashes_it(drawn, damage, examples: int) -> None:
    settings(max_examples=examples, derandomize=examples < 100)(drawn(damage))()
