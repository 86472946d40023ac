"""Many calls at once, in a process of its own: threads, streams, contexts, graphs.

    python -m tests.serve.stress SEED

Reads a command a line and answers each with a line of JSON:

calls N      N calls by all threads together, a share of them from graphs
captures N   N graphs captured, run once and destroyed, one after the other
memory       what the process and the device hold, and how many numbers were wrong

Threads share streams two by two, and every other one has a foreign context current while it calls.
The first call of each kind is compared with an oracle; all others must have its bits.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cupy
import numpy as np

import tilewright as tw
from tilewright.backend.cuda.driver import check, driver
from tilewright.backend.cuda.functions import CAPTURE_RELAXED
from tilewright.bench.call_arrays import Arrays, arrays_of, operands, public_call
from tilewright.bench.call_cases import Case
from tilewright.problem import Trans

THREADS, STREAMS, KINDS = 16, 8, 72

# Of so many turns of a thread one is a graph of some calls.
TURNS, IN_GRAPH = 40, 4

NAMES = ("s", "d", "c", "z", "fp32", *(("bf16",) if find_spec("torch") else ()))
ROUNDOFF = {"s": 2**-24, "d": 2**-53, "c": 2**-24, "z": 2**-53, "fp32": 2**-24, "bf16": 2**-8}

# Counts numbers that have other bits, and leaves bits of not-a-number for the next call.
CHECK = """
extern "C" __global__ void check(unsigned short *found, const unsigned short *wanted,
                                 unsigned long long count, unsigned *wrong)
{
    for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += gridDim.x * blockDim.x) {
        if (found[i] != wanted[i])
            atomicAdd(wrong, 1u);
        found[i] = 0xffff;
    }
}
"""

api: Any = driver()


@dataclass
class Kind:
    """A kind of call with its operands and the first call's result."""

    arrays: Arrays
    case: Case
    a: Any
    b: Any
    right: Any

    @property
    def words(self) -> int:
        """Pairs of bytes that C has."""
        (m, n, _), *_ = self.case
        return m * n * self.arrays.dtype.itemsize // 2


def kinds_of(seed: int) -> list[Kind]:
    """Return kinds of every type; of every fourth k is long, so that sums are shared."""
    rng = np.random.default_rng(seed)
    found = []
    for at in range(KINDS):
        name = NAMES[at % len(NAMES)]
        most = (64, 64, 8192) if at % 4 == 3 else (384, 384, 384)
        m, n, k = (round(float(np.exp(rng.uniform(0, np.log(one))))) for one in most)
        letters = "NTC"[: 3 if name in "cz" else 2]
        ops = Trans(str(rng.choice(list(letters)))), Trans(str(rng.choice(list(letters))))
        case: Case = ((m, n, k), ops, "FC"[rng.integers(2)])
        arrays = arrays_of(name)
        a, b = operands(arrays, rng, case)
        c = arrays.empty((m, n), case[2])
        public_call(arrays, case, a, b, c)()
        look_at(name, case, *(on_host(x) for x in (a, b, c)))
        found.append(Kind(arrays, case, a, b, c))
    return found


def on_host(x: Any) -> np.ndarray:
    return x.get() if hasattr(x, "get") else x.float().cpu().numpy()


def look_at(name: str, case: Case, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    """Compare a result with NumPy's in double precision."""
    wide = np.complex128 if name in "cz" else np.float64
    x, y = (
        (v.T if op.transposed else v).astype(wide) for v, op in zip((a, b), case[1], strict=True)
    )
    x, y = (v.conj() if op.conjugated else v for v, op in zip((x, y), case[1], strict=True))
    # Sums of bfloat16 products are single precision's, or tensor cores', and rounded once.
    roundoff = 2**-21 if name == "bf16" else ROUNDOFF[name]
    most = (4 * (case[0][2] + 4) * roundoff + (2**-8 if name == "bf16" else 0)) * (abs(x) @ abs(y))
    if not np.all(abs(c - x @ y) <= most):
        raise SystemExit(f"{name} {case} is wrong")


class Worker:
    """A thread's calls: results of its own, a stream that another shares, one for graphs."""

    def __init__(self, kinds: list[Kind], stream: Any, foreign: Any, seed: int, state: Any) -> None:
        self.rng = np.random.default_rng(seed)
        self.stream, self.foreign = stream, foreign
        self.graphs = cupy.cuda.Stream(non_blocking=True)
        self.check, self.wrong = state
        self.calls = []
        for kind in kinds:
            (m, n, _), _, order = kind.case
            c = kind.arrays.empty((m, n), order)
            call = public_call(kind.arrays, kind.case, kind.a, kind.b, c)
            places = [np.uint64(kind.arrays.address(x)) for x in (c, kind.right)]
            self.calls.append((call, (*places, np.uint64(kind.words), self.wrong)))

    def run(self, count: int) -> None:
        """Make so many calls."""
        done = 0
        with current(self.stream):
            while done < count:
                if count - done >= IN_GRAPH and self.rng.integers(TURNS) == 0:
                    self.graph(IN_GRAPH)
                    done += IN_GRAPH
                else:
                    self.one()
                    done += 1
        self.stream.synchronize()

    def one(self) -> None:
        """Call, and look at the result on the same stream."""
        call, arguments = self.calls[self.rng.integers(len(self.calls))]
        if self.foreign is None:
            call()
        else:
            check(api.cuCtxPushCurrent(self.foreign), "using a context")
            try:
                call()
            finally:
                check(api.cuCtxPopCurrent(), "leaving a context")
        self.check((8,), (128,), arguments)

    def graph(self, count: int) -> None:
        """Capture some calls, and run them."""
        stream = self.graphs.ptr
        with current(self.graphs):
            check(api.cuStreamBeginCapture(stream, CAPTURE_RELAXED), "beginning a capture")
            for _ in range(count):
                self.one()
            graph = check(api.cuStreamEndCapture(stream), "ending a capture")
        ready = check(api.cuGraphInstantiate(graph, 0), "making a graph")
        check(api.cuGraphLaunch(ready, stream), "running a graph")
        self.graphs.synchronize()
        check(api.cuGraphExecDestroy(ready), "destroying a graph")
        check(api.cuGraphDestroy(graph), "destroying a graph")


@contextmanager
def current(stream: Any) -> Iterator[None]:
    """Let calls of both libraries go to a stream."""
    if "bf16" not in NAMES:
        with stream:
            yield
        return
    import torch

    with stream, torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr)):
        yield


class Stress:
    """All threads."""

    def __init__(self, seed: int) -> None:
        self.kinds = kinds_of(seed)  # kept: workers know their results by address
        ordinal = cupy.cuda.Device().id
        self.device = check(api.cuDeviceGet(ordinal), "finding the device")
        foreign = check(api.cuCtxCreate(0, self.device), "making a context")
        check(api.cuCtxPopCurrent(), "leaving a context")
        self.wrong = cupy.zeros(1, "u4")
        streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(STREAMS)]
        state = cupy.RawKernel(CHECK, "check"), self.wrong
        nothing = np.uint64(0)
        state[0]((1,), (1,), (nothing, nothing, nothing, self.wrong))  # compiled and loaded
        self.workers = [
            Worker(self.kinds, streams[at % STREAMS], foreign if at % 2 else None, seed + at, state)
            for at in range(THREADS)
        ]
        cupy.cuda.Device().synchronize()  # before other streams look at what the first one wrote
        self.pool = ThreadPoolExecutor(THREADS)

    def calls(self, count: int) -> dict[str, Any]:
        """Make so many calls, shared by the threads."""
        list(self.pool.map(lambda one: one.run(count // THREADS), self.workers))
        return {"calls": count // THREADS * THREADS}

    def captures(self, count: int) -> dict[str, Any]:
        """Capture one call after the other."""
        for at in range(count):
            self.workers[at % THREADS].graph(1)
        return {"captures": count}

    def memory(self) -> dict[str, Any]:
        """Return bytes of the process, of its pools and of the whole device, and wrong numbers."""
        cupy.cuda.Device().synchronize()
        gc.collect()
        check(api.cuDeviceGraphMemTrim(self.device), "trimming graphs' memory")
        pools = cupy.get_default_memory_pool().total_bytes()
        if "bf16" in NAMES:
            import torch

            pools += torch.cuda.memory_reserved()
        free, total = cupy.cuda.runtime.memGetInfo()
        lines = Path("/proc/self/status").read_text().splitlines()
        resident = next(line.split()[1] for line in lines if line.startswith("VmRSS"))
        return {
            "resident": int(resident) * 1024, "objects": sys.getallocatedblocks(),
            "pools": pools, "device": total - free, "wrong": int(self.wrong[0]),
        }  # fmt: skip


def main() -> None:
    stress = Stress(int(sys.argv[1]))
    for line in sys.stdin:
        name, *counts = line.split()
        print(json.dumps(getattr(stress, name)(*map(int, counts))), flush=True)
    stress.pool.shutdown()
    tw.release()


if __name__ == "__main__":
    main()
