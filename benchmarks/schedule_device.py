"""What `schedule.py` does on a GPU with one rescheduled kernel: its bits, then its time.

Bits are compared with the unscheduled kernel's, on random data, in `CALM` launches of each of
five sizes, then in `HARD` with nearly all of the device's memory taken, and as many while another
stream runs a kernel of its own: a value that arrives late shows only where timing differs.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilewright.backend.base import BackendError
from tilewright.backend.cache import KernelCache
from tilewright.backend.cuda.compiler import Cubin, cached_cubin
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.space import Config
from tilewright.stencil import Source, Variant
from tilewright.stencil.simt_async import SimtAsync

__all__ = ["FAMILY", "ROUNDS", "source_of", "supervised"]

FAMILY = SimtAsync()
CALM, HARD, ROUNDS, TIMED = 20, 10, 11, (4096, 8192)
# Interior and edge blocks, a remainder of k, leading dimensions that forbid wide copies.
RAGGED = ((4096, 4096, 4096), (1024, 1280, 96), (1000, 1028, 540), (997, 1013, 531), (8, 8, 8192))
PATIENCE = 25  # seconds for one version's checks and times
LEFT = 256 << 20  # bytes that memory pressure leaves free
CHUNK = 1 << 30
BESIDE = 6  # launches that another stream is given before each one that is checked


def source_of(trans: str, config: Config) -> Source:
    """Return a config's source."""
    return FAMILY.source(config, _variant(trans), "cuda")


def _variant(trans: str) -> Variant:
    return Variant(precision("s"), Trans(trans[0]), Trans(trans[1]))


def supervised(row: dict[str, Any], code: bytes) -> dict[str, Any]:
    """Measure a version in a process of its own; return what it measured, or why not."""
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    child = context.Process(target=measure, args=(row["trans"], row["config"], code, answer))
    child.start()
    until = time.time() + PATIENCE
    while answer.empty() and child.is_alive() and time.time() < until:
        time.sleep(0.05)
    found = None if answer.empty() else answer.get(timeout=5)
    child.kill()
    child.join()
    if found is None:
        return {"reason": f"ended with {child.exitcode} or said nothing for {PATIENCE} s"}
    return dict(found[1]) if found[0] == "done" else {"reason": found[1]}


def measure(trans: str, values: dict[str, Any], code: bytes, answer: Any) -> None:
    """Check a version's bits, then time it; say what came of it."""
    try:
        answer.put(("done", _Version(trans, values, code).measured()))
    except Exception as error:
        answer.put(("failed", f"{type(error).__name__}: {error}".splitlines()[0]))


class _Version:
    """A rescheduled kernel beside the one it was made of."""

    def __init__(self, trans: str, values: dict[str, Any], code: bytes) -> None:
        from tilewright.backend import Kernel, device
        from tilewright.backend.cuda.device import LoadedKernel

        self.trans, self.config = trans, Config(FAMILY.name, values)
        self.live: Any = device("cuda:0")
        source = source_of(trans, self.config)
        self.plain = self.live.compile(source)
        found = cached_cubin(source, self.live.arch, KernelCache())
        cubin: Cubin = dataclasses.replace(found, code=code)
        loaded = LoadedKernel(self.live, cubin, source.entry, source.dynamic_shared_bytes)
        self.made = Kernel(loaded, source.entry, 0.0, code)
        self.memory = _matrices(self.live)

    def measured(self) -> dict[str, Any]:
        """Return how often bits were compared, and times of ours, theirs and cuBLAS."""
        from tilewright.tuning.verify import screen

        screen(self.live, self.made, FAMILY, self.config, _variant(self.trans))
        compared = {"calm": self.compare(CALM)}
        with self.pressed() as taken:
            compared["under memory pressure"] = self.compare(HARD)
        with self.busy() as beside:
            compared["beside another kernel"] = self.compare(HARD, beside)
        times = {str(size): self.timed(size) for size in TIMED}
        return {
            "device": str(self.live), "compared": compared, "bytes_taken": taken, "ns": times,
        }  # fmt: skip

    def load(self, m: int, n: int, k: int) -> Any:
        """Return a problem on the matrices that all share."""
        from tilewright.tuning.measure import Workload

        return Workload(self.live, Problem(m, n, k, "s", *self.trans), self.memory)

    def compare(self, launches: int, beside: Any = None) -> int:
        """Return how many launches had the unscheduled kernel's bits; raise at another bit."""
        count = 0
        for m, n, k in RAGGED:
            load = self.load(m, n, k)
            right = self.bits(load, self.plain)
            for _ in range(launches):
                if beside is not None:
                    beside()
                wrong = int(np.count_nonzero(self.bits(load, self.made) != right))
                if wrong:
                    raise ArithmeticError(f"{wrong} elements of {m} x {n} x {k} have other bits")
                count += 1
        return count

    def bits(self, load: Any, kernel: Any) -> Any:
        """Run once on a C full of another pattern; return C's bits."""
        found = np.full(load.elements["c"], 0xFFFFFFFF, np.uint32)
        self.live.write(self.memory["c"], found)
        load.run(kernel, FAMILY, self.config)
        self.live.download(self.memory["c"], found)
        return found

    @contextmanager
    def pressed(self) -> Iterator[int]:
        """Take the device's memory but for `LEFT`, as far as it lets us."""
        held: list[int] = []
        size = CHUNK
        while size >= LEFT // 4:
            try:
                held.append(self.live.allocate(size))
            except (BackendError, MemoryError):
                size //= 2
        for _ in range(min(len(held), 4)):  # the last ones are the small ones
            self.live.free(held.pop())
        try:
            yield len(held)
        finally:
            for memory in held:
                self.live.free(memory)

    @contextmanager
    def busy(self) -> Iterator[Any]:
        """Yield what gives another stream some launches of the unscheduled kernel."""
        size = 1024
        live = self.live
        own = {name: live.allocate(4 * size * size) for name in "abc"}
        with live.current():
            flag = int(live.api.CUstream_flags.CU_STREAM_NON_BLOCKING)
            stream = int(live.check(live.api.cuStreamCreate(flag), "making a stream"))
        from tilewright.tuning.measure import Workload

        load: Any = Workload(live, Problem(size, size, size, "s", *self.trans), own)
        launch = FAMILY.launch(self.config, size, size)
        events: list[Any] = []

        def beside() -> None:
            events[:] = [
                live.launch(self.plain, launch, load._arguments, stream) for _ in range(BESIDE)
            ]

        try:
            yield beside
        finally:
            live.finish()
            for memory in own.values():
                live.free(memory)

    def timed(self, size: int) -> dict[str, list[int]]:
        """Return nanoseconds of the plain kernel, this one and cuBLAS, in turns."""
        from tilewright.bench.peers.cublas import CuBLAS

        load = self.load(size, size, size)
        calls = {
            "plain": lambda: load.run(self.plain, FAMILY, self.config),
            "scheduled": lambda: load.run(self.made, FAMILY, self.config),
        }
        try:
            calls["cublas"] = CuBLAS(self.live).prepare(load)
        except Exception as error:  # the comparison with ourselves stands without it
            print(f"no cuBLAS: {error}", flush=True)
        times: dict[str, list[int]] = {name: [] for name in calls}
        for turn in range((ROUNDS if size < 8192 else 5) + 1):
            for name, call in calls.items():
                taken = call()
                if turn:  # the first warms up
                    times[name].append(taken)
        return times


def _matrices(live: Any) -> dict[str, Any]:
    """Return memory for the largest problem, A and B random; drawing all of it would take long."""
    most = max(TIMED) ** 2
    drawn = np.random.default_rng(0).standard_normal(most // 4, dtype=np.float32)
    memory = {name: live.allocate(4 * most) for name in "abc"}
    for name in "ab":
        for part in range(4):
            live.write(memory[name], np.roll(drawn, 4097 * part), part * drawn.nbytes)
    return memory
