"""Record all tilings of SGEMM on a GPU, as ASTRA did: an exhaustive search of what is left.

    python benchmarks/sweep_tilings.py 4096 540 FOLDER

Size, seconds, and where `sweep.sqlite` is, from which a further run goes on; beside it a T4 file of
each case, and `tilings.json` for `of_tilings.py`: funnels, where the time went, and the fastest
beside what `gemm` serves and cuBLAS, in turns.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

from committed import CASES
from tilewright.backend import LiveDevice, device
from tilewright.backend.cuda.compiler import nvrtc_version
from tilewright.bench.peers import peer
from tilewright.bench.sweep import OURS, interleaved_calls, way_call
from tilewright.problem import Problem
from tilewright.reschedule.levels import schedule_space
from tilewright.serve.routes.realigned import way_of
from tilewright.space import Constraint, Space
from tilewright.stencil import Variant, stencil
from tilewright.tuning.measure import Workload
from tilewright.tuning.measurement import Measurement, Stage
from tilewright.tuning.store import Store
from tilewright.tuning.t4 import t4_results
from tilewright.tuning.tuner import tune

FAMILY = stencil("simt_async")

# What is no tiling is as in the kernels that serve squares of 4096.
FIXED = {
    "warps_k": 1, "cluster_k": 1, "persistent": 1, "stream_k": 2, "tree_reduction": 0,
    "parallel_split_k": 0, "tma": 0, "specialised_epilogue": 0, "run_bytes": 32,
    "serpentine_rows": 0, "b_first": 0, "copy_groups": 2, "swizzle_rows": 8, "schedule": 0,
}  # fmt: skip
# Two of ASTRA's three thresholds (Kurzak et al. 2012, Figure 2), set as there so that some thousand
# are left of a case; the third, blocks of a multiprocessor, plays no role there either.
LEAST_REUSE, LEAST_THREADS = 4, 256
ROUNDS = 9  # of the race


def _equals(name: str, value: int) -> Constraint:
    def holds(**values: Any) -> Any:
        return values[name] == value

    holds.__signature__ = Signature([Parameter(name, Parameter.KEYWORD_ONLY)])  # type: ignore[attr-defined]
    return Constraint(f"{name} {value}", holds, "no tiling: as in what serves 4096", "heuristic")


TILINGS = (
    *(_equals(name, value) for name, value in FIXED.items()),
    Constraint(
        "whole tiles unrolled", lambda block_k, unroll_k: block_k == unroll_k,
        "no tiling: a loop's trip is a tile", "heuristic",
    ),
    Constraint(
        "register reuse",
        lambda tile_m, tile_n: tile_m * tile_n >= LEAST_REUSE * (tile_m + tile_n),
        f"at least {LEAST_REUSE} multiply-adds for each number read from shared memory",
        "heuristic",
    ),
    Constraint(
        "occupancy",
        lambda block_m, block_n, tile_m, tile_n, min_blocks: (
            block_m * block_n * min_blocks >= LEAST_THREADS * tile_m * tile_n
        ),
        f"at least {LEAST_THREADS} threads on a multiprocessor", "heuristic",
    ),
)  # fmt: skip


def race(live: LiveDevice, problem: Problem, fastest: list[Measurement]) -> dict[str, Any]:
    """Time the fastest, what `gemm` serves and cuBLAS in turns."""
    workload, variant, calls = Workload(live, problem), Variant.of(problem), {}
    for one in fastest:
        kernel = live.compile(FAMILY.source(one.config, variant, live.dialect, one.mode))
        calls[one.config.id] = partial(workload.run, kernel, FAMILY, one.config)
    calls[OURS] = way_call(workload, way_of(live, problem, workload.call))
    library = peer("cublas", live)
    calls[library.name] = library.prepare(workload)
    for call in calls.values():
        call()
    seconds = interleaved_calls(calls, ROUNDS).values()
    *times, cublas = ([round(1e9 * one) for one in row] for row in seconds)
    workload.close()
    return {"configs": [dict(one.config) for one in fastest], "times_ns": times, "ships": 1,
            "cublas_ns": cublas}  # fmt: skip


def main() -> None:
    size, until, folder = int(sys.argv[1]), time.monotonic() + float(sys.argv[2]), Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    live, path = device("cuda:0"), folder / "tilings.json"
    runs = json.loads(path.read_text())["runs"] if path.exists() else []
    told: dict[str, Any] = {
        "device": live.spec.name, "driver": live.driver, "compiler": f"NVRTC {nvrtc_version()}",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)), "runs": runs, "cases": [], "races": [],
    }  # fmt: skip
    with Store(folder / "sweep.sqlite") as store:
        for number, trans in enumerate(CASES):
            problem = Problem(size, size, size, "s", *trans)  # type: ignore[arg-type]
            space = schedule_space(FAMILY, Variant.of(problem), live.spec)
            funnel = Space(FAMILY.name, space.parameters, (*space.constraints, *TILINGS)).funnel()
            found = tune(
                problem, live, budget=(until - time.monotonic()) / (len(CASES) - number),
                strategy="exhaustive", stencil=FAMILY.name, constraints=TILINGS, store=store,
            )  # fmt: skip
            name, spent = f"sgemm_{trans.lower()}_tilings", asdict(found.spent)
            spent["timing"] += spent.pop("checking")
            runs.append({"case": name, "tried": found.tried, "failed": found.failed,
                         "seconds": spent})  # fmt: skip
            told["cases"].append({"case": name, "raw_size": funnel.raw_size,
                                  "funnel": [asdict(stage) for stage in funnel]})  # fmt: skip
            told["races"].append({"case": name, **race(live, problem, list(found.finalists))})
            every = store.query(problem=problem, stage=Stage.SCREEN)
            text = json.dumps(t4_results(every), allow_nan=False).encode()
            (folder / f"{name}.json.gz").write_bytes(gzip.compress(text, mtime=0))
            print(trans, found.tried, "tried,", found.failed, "failed;", found.spent, flush=True)
            path.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
