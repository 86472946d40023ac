"""From a compiled kernel to a rescheduled one: searched once, kept, checked at every use."""

from __future__ import annotations

import functools
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sass.compiled import kept
from tilewright.backend import CompileError, device
from tilewright.backend.cache import KernelCache
from tilewright.backend.cuda import rescheduling, searching
from tilewright.backend.cuda.compiler import Cubin, cached_cubin, compile_cubin, nvrtc
from tilewright.backend.cuda.rescheduling import RefusedScheduleError, reschedule, schedule_key
from tilewright.sass import decode, differences, edit, read_cubin, schedule
from tilewright.stencil import Schedule, Source

LEVEL = Schedule("order", ("reuse", "order"))
SOURCE = Source("", {}, "sgemm", schedule=LEVEL)


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

    def __call__(self, code: bytes, arch: int, wanted: Schedule, seconds: float) -> bytes:
        self.count += 1
        return one_round(code, arch, wanted.steps)


@functools.cache
def one_round(code: bytes, arch: int, steps: tuple[str, ...]) -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "schedule", functools.partial(schedule, rounds=1))
        return searching.search(code, {"arch": arch, "steps": steps, "seed": 0})


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Searches:
    found = Searches()
    monkeypatch.setattr(rescheduling, "searched", found)
    return found


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "kernels")


def test_the_main_loop_changes_and_is_proved_the_same(
    searches: Searches, cache: KernelCache
) -> None:
    before, after = compiled(), reschedule(compiled(), SOURCE, cache)
    assert text(before) != text(after)
    assert len(before.code) == len(after.code)
    assert differences(decode(text(before), 90), decode(text(after), 90), 90) == []
    assert after.lowered == before.lowered

    # What is kept is not searched again, and is the same.
    assert reschedule(compiled(), SOURCE, cache).code == after.code
    assert searches.count == 1

    # Code in a cache is data: what is not proved the same is searched anew.
    key = schedule_key(text(before), 90, LEVEL)
    one = next(i for i in decode(text(before), 90) if i.opcode == 0x223)
    wrong = edit(one, 90, a=(one.srcs[0].value + 2) % 64).raw.to_bytes(16, "little")
    spoiled = text(before)[: one.address] + wrong + text(before)[one.address + 16 :]
    for bad in (spoiled, spoiled[:-16], b"", b"\xff" * len(spoiled)):
        cache.save(key, bad)
        assert reschedule(compiled(), SOURCE, cache).code == after.code
        assert cache.load(key) == text(after)
    assert searches.count == 5


def test_a_proof_is_made_once_for_the_same_code(
    searches: Searches, cache: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = reschedule(compiled(), SOURCE, cache)
    proofs: list[bytes] = []

    def no_more(before: bytes, after: bytes, arch: int) -> str:
        proofs.append(after)
        return "it is not proved"

    monkeypatch.setattr(rescheduling, "_reason", no_more)
    assert reschedule(compiled(), SOURCE, cache).code == made.code
    assert proofs == []
    # Without a cache, or for other code, there is none.
    with pytest.raises(RefusedScheduleError, match="it is not proved"):
        reschedule(compiled(), SOURCE)
    key = schedule_key(text(compiled()), 90, LEVEL)
    cache.save(key, text(compiled()))
    reschedule(compiled(), SOURCE, cache)
    assert proofs[-1] == text(compiled())


def test_a_key_stands_for_code_architecture_steps_seed_and_scheduler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = schedule_key(b"code", 90, LEVEL)
    assert first == schedule_key(b"code", 90, replace(LEVEL, name="another name"))
    others = {
        schedule_key(b"another", 90, LEVEL),
        schedule_key(b"code", 100, LEVEL),
        schedule_key(b"code", 90, replace(LEVEL, steps=("reuse",))),
        schedule_key(b"code", 90, replace(LEVEL, seed=1)),
    }
    monkeypatch.setattr(rescheduling, "SCHEDULER_VERSION", -1)
    others.add(schedule_key(b"code", 90, LEVEL))
    assert len(others) == 5
    assert first not in others


def test_a_refusal_says_why_in_one_line_and_keeps_nothing(cache: KernelCache) -> None:
    with pytest.raises(RefusedScheduleError, match=r"took longer than 0.5 s") as refused:
        reschedule(compiled(), SOURCE, cache, seconds=0.5)
    assert "\n" not in str(refused.value)
    with pytest.raises(RefusedScheduleError, match="schedule 'order' is refused: "):
        reschedule(compiled("sm_80"), SOURCE, cache)
    broken = replace(SOURCE, schedule=replace(LEVEL, steps=("magic",)))
    with pytest.raises(RefusedScheduleError, match=r"status 1: ValueError: .*'magic' is no step"):
        reschedule(compiled(), broken, cache)
    assert list(cache.directory.iterdir()) == []


def test_a_process_of_its_own_finds_the_same_code() -> None:
    """The search is the same for the same seed, wherever it runs."""
    level = Schedule("flags", ("reuse",))
    code = text(compiled())
    request = {"arch": 90, "steps": level.steps, "seed": 0}
    assert searching.searched(code, 90, level, 60.0) == searching.search(code, request)


@pytest.mark.skipif(nvrtc() is None, reason="NVRTC is not here")
def test_what_compiles_is_rescheduled_or_refused_as_a_compile_error(cache: KernelCache) -> None:
    """Workers store a refused candidate with its reason, like any that does not compile."""
    body = 'extern "C" __global__ void fill(float *x) { x[threadIdx.x] = 1; }'
    source = Source(body, {}, "fill", schedule=LEVEL)
    for compile_it in (
        lambda: compile_cubin(source, "sm_90a"),
        lambda: cached_cubin(source, "sm_90a", cache),
    ):
        with pytest.raises(CompileError, match="'order' is refused: it has no loop"):
            compile_it()
    plain = replace(source, schedule=None)
    assert cached_cubin(plain, "sm_90a", cache).code == compile_cubin(plain, "sm_90a").code


def test_opencl_has_no_machine_code_to_reorder() -> None:
    with pytest.raises(CompileError, match="schedule='order' reorders machine code"):
        device("opencl").compile(Source("kernel void f() {}", {}, "f", schedule=LEVEL))


def test_a_search_dies_with_whoever_asked() -> None:
    """A tuner that is killed leaves no search behind that would go on for minutes."""
    script = (
        "import sys\n"
        "from tilewright.backend.cuda.searching import searched\n"
        "from tilewright.stencil.schedule import LEVELS\n"
        "print('asking', flush=True)\n"
        "searched(sys.stdin.buffer.read(), 90, LEVELS[1], 60.0)\n"
    )
    asking = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert asking.stdin is not None
    assert asking.stdout is not None
    asking.stdin.write(text(compiled()))
    asking.stdin.close()
    asking.stdout.readline()
    until = time.monotonic() + 30
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
