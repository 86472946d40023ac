"""From a compiled kernel to a rescheduled one: searched once, kept, checked at every use."""

from __future__ import annotations

import functools
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.sass.compiled import kept
from tilewright.backend import CompileError, device
from tilewright.backend.cache import KernelCache
from tilewright.backend.cuda.compiler import Cubin, compile_cubin, nvrtc
from tilewright.reschedule import cubin as module
from tilewright.reschedule import search
from tilewright.reschedule.cubin import (
    RefusedScheduleError,
    compile_kernel,
    reschedule,
    schedule_key,
)
from tilewright.reschedule.equivalence import differences
from tilewright.reschedule.levels import LEVELS, Level
from tilewright.reschedule.schedule import schedule
from tilewright.sass import decode, edit, read_cubin
from tilewright.stencil import Source

LEVEL = LEVELS[5]


def compiled(arch: str = "sm_90a") -> Cubin:
    """Return the small SGEMM that is kept for an architecture."""
    code = kept(arch)
    return Cubin(code, "", {"sgemm": read_cubin(code).kernels[0].name}, arch)


def text(cubin: Cubin) -> bytes:
    """Return the machine code of a cubin's only kernel."""
    return read_cubin(cubin.code).kernels[0].code


class Searches:
    """The search with a single round, in this process, counting how often it is asked."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, code: bytes, arch: int, level: Level) -> bytes:
        self.count += 1
        return one_round(code, arch, level.ahead)


@functools.cache
def one_round(code: bytes, arch: int, ahead: bool) -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "schedule", functools.partial(schedule, rounds=1))
        return search.search(code, {"arch": arch, "ahead": ahead})


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Searches:
    found = Searches()
    monkeypatch.setattr(module, "searched", found)
    return found


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "kernels")


def test_the_main_loop_changes_and_is_proved_the_same(
    searches: Searches, cache: KernelCache
) -> None:
    before, after = compiled(), reschedule(compiled(), "sgemm", LEVEL, cache)
    assert text(before) != text(after)
    assert len(before.code) == len(after.code)
    assert differences(decode(text(before), 90), decode(text(after), 90), 90) == []
    assert after.lowered == before.lowered

    # What is kept is not searched again, and is the same.
    assert reschedule(compiled(), "sgemm", LEVEL, cache).code == after.code
    assert searches.count == 1

    # Code in a cache is data: what is not proved the same is searched anew.
    key = schedule_key(text(before), 90, LEVEL)
    one = next(i for i in decode(text(before), 90) if i.opcode == 0x223)
    wrong = edit(one, 90, a=(one.srcs[0].value + 2) % 64).raw.to_bytes(16, "little")
    spoiled = text(before)[: one.address] + wrong + text(before)[one.address + 16 :]
    for bad in (spoiled, spoiled[:-16], b"", b"\xff" * len(spoiled)):
        cache.save(key, bad)
        assert reschedule(compiled(), "sgemm", LEVEL, cache).code == after.code
        assert cache.load(key) == text(after)
    assert searches.count == 5


def test_a_proof_is_made_once_for_the_same_code(
    searches: Searches, cache: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = reschedule(compiled(), "sgemm", LEVEL, cache)
    proofs: list[bytes] = []

    def no_more(before: bytes, after: bytes, arch: int) -> str:
        proofs.append(after)
        return "it is not proved"

    monkeypatch.setattr(module, "_reason", no_more)
    assert reschedule(compiled(), "sgemm", LEVEL, cache).code == made.code
    assert proofs == []
    # Without a cache, or for other code, there is none.
    with pytest.raises(RefusedScheduleError, match="it is not proved"):
        reschedule(compiled(), "sgemm", LEVEL)
    key = schedule_key(text(compiled()), 90, LEVEL)
    cache.save(key, text(compiled()))
    reschedule(compiled(), "sgemm", LEVEL, cache)
    assert proofs[-1] == text(compiled())


def test_a_key_stands_for_code_architecture_level_and_scheduler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = schedule_key(b"code", 90, LEVEL)
    others = {
        schedule_key(b"another", 90, LEVEL),
        schedule_key(b"code", 100, LEVEL),
        schedule_key(b"code", 90, LEVELS[6]),
    }
    monkeypatch.setattr(module, "SCHEDULER_VERSION", -1)
    others.add(schedule_key(b"code", 90, LEVEL))
    assert len(others) == 4
    assert first not in others


def test_a_refusal_says_why_in_one_line_and_keeps_nothing(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as brief:
        brief.setattr(module, "SCHEDULE_SECONDS", 0.5)
        with pytest.raises(RefusedScheduleError, match=r"took longer than 0.5 s") as refused:
            reschedule(compiled(), "sgemm", LEVEL, cache)
    assert "\n" not in str(refused.value)
    with pytest.raises(RefusedScheduleError, match="schedule 'walked' is refused: "):
        reschedule(compiled("sm_80"), "sgemm", LEVEL, cache)
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    with pytest.raises(RefusedScheduleError, match=r"the search ended with status 1: "):
        reschedule(compiled(), "sgemm", LEVEL, cache)
    assert list(cache.directory.iterdir()) == []


def test_a_process_of_its_own_finds_the_same_code() -> None:
    code = text(compiled())
    request = {"arch": 90, "ahead": False}
    assert module.searched(code, 90, LEVEL) == search.search(code, request)


@pytest.mark.skipif(nvrtc() is None, reason="NVRTC is not here")
def test_a_kernel_without_a_loop_is_refused_as_a_compile_error(cache: KernelCache) -> None:
    """Workers store a refused candidate with its reason, like any that does not compile."""
    body = 'extern "C" __global__ void fill(float *x) { x[threadIdx.x] = 1; }'
    plain = compile_cubin(Source(body, {}, "fill"), "sm_90a")
    with pytest.raises(CompileError, match="'walked' is refused: it has no loop"):
        reschedule(plain, "fill", LEVEL, cache)


def test_opencl_has_no_machine_code_to_reorder() -> None:
    source = Source("kernel void f() {}", {}, "f")
    with pytest.raises(CompileError, match="OpenCL hides machine code"):
        compile_kernel(device("opencl"), source, LEVEL)
    assert compile_kernel(device("opencl"), source, None).entry == "f"


def test_a_search_dies_with_whoever_asked() -> None:
    """A tuner that is killed leaves no search behind that would go on for minutes."""
    script = (
        "import sys\n"
        "from tilewright.reschedule.cubin import searched\n"
        "from tilewright.reschedule.levels import LEVELS\n"
        "print('asking', flush=True)\n"
        "searched(sys.stdin.buffer.read(), 90, LEVELS[5])\n"
    )
    asking = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert asking.stdin is not None
    assert asking.stdout is not None
    asking.stdin.write(text(compiled()))
    asking.stdin.close()
    asking.stdout.readline()
    until = time.monotonic() + 120
    while not (searches := children(asking.pid)) and time.monotonic() < until:
        time.sleep(0.05)
    asking.kill()
    asking.wait()
    asking.stdout.close()
    assert searches
    while any(Path(f"/proc/{pid}").exists() for pid in searches) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in searches)


def children(parent: int) -> list[str]:
    """Return the ids of a process's children, where Linux tells them."""
    found = Path(f"/proc/{parent}/task/{parent}/children")
    return found.read_text().split() if found.exists() else []
