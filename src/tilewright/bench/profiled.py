"""The process that Nsight Compute looks into: one library's product, once.

Run as ``python -m tilewright.bench.profiled TASK``, TASK being a JSON object.  Only what is
launched between the profiler's start and stop is counted: the product after a warm-up.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.backend import LiveDevice, device
from tilewright.bench.peers import peer
from tilewright.bench.sweep import OURS, our_call
from tilewright.serve.kernels import ready
from tilewright.tuning.measure import Workload
from tilewright.tuning.record import problem_from_json

__all__ = ["counted", "main", "run"]


@contextmanager
def counted(live: LiveDevice) -> Iterator[None]:
    """Let the profiler count what the block launches; elsewhere than on CUDA nobody counts."""
    if live.backend != "cuda":
        yield
        return
    cuda: Any = live
    with cuda.current():
        cuda.check(cuda.api.cuProfilerStart(), "starting the profiler")
    try:
        yield
        live.finish()
    finally:
        with cuda.current():
            cuda.check(cuda.api.cuProfilerStop(), "stopping the profiler")


def run(task: dict[str, Any]) -> int:
    """Compute a product twice, the second time counted; return its nanoseconds."""
    live = device(task["device"])
    workload = Workload(live, problem_from_json(task["problem"]))
    try:
        if task["library"] == OURS:
            call = our_call(workload, *ready(live, workload.problem))
        else:
            call = peer(task["library"], live).prepare(workload)
        call()
        with counted(live):
            return call()
    finally:
        workload.close()


def main() -> None:
    """Carry out the task in the first argument."""
    print(run(json.loads(sys.argv[1])), file=sys.stderr)


if __name__ == "__main__":
    main()
