"""Whatever lies in the cache, or lacks there, the caller's process lives and results are right."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.disks import fill, small_disk
from tilewright.backend import HostError, devices
from tilewright.backend.cache import KernelCache
from tilewright.backend.opencl.pocl_cache import PoclCache, pack, unpack

pytestmark = pytest.mark.skipif(
    not any("Portable Computing Language" in one.platform for one in devices()),
    reason="needs PoCL",
)

PRODUCT = """
import sys, numpy as np, tilewright as tw
for kind in sys.argv[1:] or ["f4", "c16"]:
    a = np.arange(20 * 30).reshape(20, 30).astype(kind)
    assert np.array_equal(tw.gemm(a, a.T, device="opencl"), a @ a.T)
print("right")
"""


def run(
    cache: Path, *kinds: str, code: str = PRODUCT, most_bytes: int | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Multiply in a process of its own."""

    def limit() -> None:
        if most_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(cache), **variables}
    return subprocess.run(
        [sys.executable, "-c", code, *kinds], env=environment, preexec_fn=limit,
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    return folder


def is_right(ran: subprocess.CompletedProcess[str]) -> bool:
    assert ran.returncode == 0, ran.stderr
    return ran.stdout == "right\n"


# -- what is kept --------------------------------------------------------------------------


def test_what_was_compiled_is_kept_and_not_compiled_again(cache: Path) -> None:
    assert is_right(run(cache, "f4"))
    (kept,) = (cache / "kernels").iterdir()
    before = kept.read_bytes()
    time_before = kept.stat().st_mtime_ns
    assert is_right(run(cache, "f4"))
    assert kept.stat().st_mtime_ns > time_before  # it was used
    assert kept.read_bytes() == before
    assert [one for one in cache.iterdir() if one.name.startswith("pocl-")] == []


@pytest.mark.every(3)
@pytest.mark.parametrize("seed", range(3))
def test_damage_is_found_before_it_is_loaded(cache: Path, seed: int) -> None:
    draw = random.Random(seed)
    assert is_right(run(cache))
    for _ in range(3):
        files = [one for one in cache.rglob("*") if one.is_file()]
        for victim in draw.sample(files, 2):
            text = bytearray(victim.read_bytes())
            if draw.random() < 0.4:
                del text[draw.randrange(len(text)) :]
            else:
                for _ in range(100):
                    text[draw.randrange(len(text))] ^= 1 + draw.randrange(255)
            victim.write_bytes(text)
        assert is_right(run(cache))


TWO_KERNELS = '''
import sys, numpy as np, gc
from tilewright.backend import device
from tilewright.stencil import Launch, Source
live = device("opencl")
text = """
kernel void one(global int *x) { *x = 1; }
kernel void two(global int *x) { if (get_global_id(0) == 0) *x += 2; }
"""
x = live.upload(np.zeros(1, np.int32))
def run(entry, block):
    kernel = live.compile(Source(text, {}, entry))
    live.launch(kernel, Launch((1, 1), block), (x,)).wait()
    return kernel
first = run("one", (1, 1))
second = run("two", (1, 1))
del first  # the other's files stay
gc.collect()
live.launch(second, Launch((1, 1), (2, 1)), (x,)).wait()
found = np.zeros(1, np.int32)
live.download(x, found)
assert found[0] == 5, found
print("right")
'''


def test_a_program_of_two_kernels_is_kept_as_one(cache: Path) -> None:
    for _ in range(2):
        assert is_right(run(cache, code=TWO_KERNELS))
        (kept,) = (cache / "kernels").iterdir()
        text = kept.read_bytes()
        assert b"one.so" in text
        assert b"two.so" in text


def test_a_pack_holds_what_there_is(tmp_path: Path) -> None:
    folder = tmp_path / "one" / "AB" / "CDEF"
    (folder / "gemm" / "8-1-1").mkdir(parents=True)
    contents = {"program.bc": b"\n{}\n", "gemm/8-1-1/gemm.so": bytes(range(256)), "empty.so": b""}
    for name, text in contents.items():
        (folder / name).write_bytes(text)
    packed = pack(Path("AB/CDEF"), folder, [folder / name for name in contents])
    made = unpack(packed, tmp_path / "two")
    assert made == tmp_path / "two" / "AB" / "CDEF"
    found = {str(x.relative_to(made)): x.read_bytes() for x in made.rglob("*") if x.is_file()}
    assert found == contents


def test_files_go_with_their_last_user(tmp_path: Path) -> None:
    """A stand-in for PoCL writes a program; two kernels of it are made and collected."""

    class Kernel:
        pass

    scratch = PoclCache(tmp_path)
    kept = KernelCache(tmp_path / "kept")
    program = tmp_path / "AB" / "program"

    def make() -> Kernel:
        program.mkdir(parents=True, exist_ok=True)
        (program / "program.bc").write_bytes(b"code")
        return Kernel()

    kernels = []
    for _ in range(2):
        kernel, compiled = scratch.build("key", kept, make)
        assert compiled is not None
        scratch.drop_with(kernel, "key")
        kernels.append(kernel)
        del kernel
    compiled.save()
    kernels.pop()
    assert program.is_dir()
    kernels.pop()
    assert not program.exists()
    assert kept.load("key") is not None


# -- what lacks ----------------------------------------------------------------------------


@pytest.mark.every(2)
@pytest.mark.parametrize("free", [0, 100_000, 1_500_000, 30_000_000])
def test_a_nearly_full_cache_serves(cache: Path, free: int) -> None:
    with small_disk(cache, "80m"):
        fill(cache, leave=free)
        ran = run(cache, "f4")
        assert is_right(ran)
        assert "TILEWRIGHT_CACHE_DIR" in ran.stderr
        assert ran.stderr.count("Warning") == 1


@pytest.mark.parametrize("warm", [False, True])
def test_where_nothing_can_be_written_one_line_says_so(cache: Path, warm: bool) -> None:
    """A limit of the process stands in for a full disk: it needs no rights."""
    assert not warm or is_right(run(cache, "f4"))
    ran = run(cache, "f4", most_bytes=100_000)
    assert ran.returncode == 1
    assert ran.stderr.count("nearly full; make room") == 1


def test_a_limit_that_leaves_room_does_no_harm(cache: Path) -> None:
    assert is_right(run(cache, "f4", most_bytes=20 * 2**20))


@pytest.mark.parametrize("where", ["cache", "home"])
def test_without_a_cache_a_temporary_directory_serves(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    variables = {"TMPDIR": str(temporary)}
    if where == "home":
        for name in ("TILEWRIGHT_CACHE_DIR", "TILEWRIGHT_DATA_DIR", "XDG_CACHE_HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv("XDG_DATA_HOME", raising=False)
        # /proc takes no directory, not even root's
        ran = run(Path(), "f4", **variables, HOME="/proc/none", TILEWRIGHT_CACHE_DIR="")
    else:
        ran = run(Path("/proc/none"), "f4", **variables)
    assert is_right(ran)
    assert ran.stderr.count("Warning") == 1
    assert "TILEWRIGHT_CACHE_DIR" in ran.stderr
    assert list(temporary.iterdir()) == []


def test_a_read_only_cache_serves(cache: Path, tmp_path: Path) -> None:
    assert is_right(run(cache, "f4"))
    with small_disk(tmp_path / "disk", "1m", read_only=True) as disk:
        ran = run(disk, "f4")
        assert is_right(ran)
        assert "cannot be written to" in ran.stderr


# -- what is killed ------------------------------------------------------------------------


def test_what_killed_processes_leave_goes_with_the_next_start(cache: Path) -> None:
    code = "import tilewright as tw, time\ntw.devices()\nprint('up', flush=True)\ntime.sleep(250)"
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE,
            env={**os.environ, "TILEWRIGHT_CACHE_DIR": str(cache)},
        )  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    left = list(cache.glob("pocl-*"))
    assert len(left) == 2
    for one in left:  # they are old
        os.utime(one, (time.time() - 120, time.time() - 120))
    assert is_right(run(cache, "f4"))
    assert list(cache.glob("pocl-*")) == []


def test_a_forked_child_leaves_its_parents_files_alone(cache: Path) -> None:
    code = (
        "import os, sys\nsys.argv[1:] = ['f4']\n"
        + PRODUCT
        + "if os.fork() == 0: sys.exit(0)\n"  # runs what is registered for the end
        "assert os.wait()[1] == 0\n"
        "from tilewright.backend.opencl.pocl_cache import pocl_cache\n"
        "assert pocl_cache().directory.is_dir()\n"
    ).replace('print("right")', 'print("right", flush=True)')
    assert is_right(run(cache, code=code))


def test_room_is_asked_for_before_compiling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "tilewright.backend.opencl.pocl_cache.has_room"
    monkeypatch.setattr(module, lambda *_: False)
    with pytest.raises(HostError, match="TILEWRIGHT_CACHE_DIR"):
        PoclCache(tmp_path).build("key", KernelCache(tmp_path / "kept"), lambda: None)


DROPPED = """
import numpy as np
from tilewright.backend import device
from tilewright.stencil import Launch, Source
text = "kernel void scaled(global float *x) { x[get_global_id(0)] *= FACTOR; }"
live = device("opencl")
memory = live.upload(np.ones(4, "f4"))
for factor in (*range(40), 1):  # the last one anew
    source = Source(text, {"FACTOR": factor}, "scaled")
    live.launch(live.compile(source), Launch((4, 1), (4, 1)), (memory,)).wait()
found = np.empty(4, "f4")
live.download(memory, found)
assert (found == 0).all()
print("right")
"""


def test_kernels_may_be_dropped_while_pocl_compiles_for_their_launch(cache: Path) -> None:
    """It does so in a thread of its own, and would end the process without their files."""
    assert is_right(run(cache, code=DROPPED))
