"""How well a cluster's scheduler keeps workers busy: candidates that only wait, on local workers.

    python benchmarks/cluster_scaling.py benchmarks/results/searches/cluster.json

Of a sweep that is bound by timing a worker's device is busy with one candidate at a time.  Here
that is a sleep, so that few cores can stand for many devices: what is measured is the scheduler
alone.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import distributed

from tilewright.problem import Problem
from tilewright.stencil import Variant, stencil
from tilewright.stencil.geometry import PLAIN
from tilewright.tuning import cluster as clusters
from tilewright.tuning.measurement import Measurement, Status, now
from tilewright.tuning.process import Answer
from tilewright.tuning.runner import Limits
from tilewright.tuning.strategies import strategy

WORKERS, SECONDS, BUDGET = (1, 2, 4, 8), 0.1, 12.0
FAMILY, PROBLEM = stencil("portable"), Problem(64, 64, 64, "s")


def slept(*_: Any) -> dict[str, Any]:
    """Stand for a candidate on a worker."""
    time.sleep(SECONDS)
    return asdict(Answer(Status.OK, data={"times_ns": [1000], "compile_seconds": 0.0}))


def row(count: int) -> dict[str, Any]:
    """Return what so many workers try."""
    made: list[Measurement] = []
    options: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": None}
    with (
        distributed.LocalCluster(n_workers=count, processes=True, **options) as local,
        closing(clusters.Cluster(local.scheduler_address, "opencl", "s")) as joined,
    ):
        while len(joined.workers) < count:
            joined.look()
            time.sleep(0.1)
        spec, variant = joined.live.spec, Variant.of(PROBLEM)
        blank = Measurement(
            FAMILY.default(variant, spec), PROBLEM, joined.live.fingerprint, spec.name, "opencl",
            FAMILY.version, Status.OK, created=now(),
        )  # fmt: skip
        chosen = strategy("random", FAMILY.space(variant, spec), 0, ())
        runner = clusters.ClusterRunner(
            joined, (), {}, blank, made.append, lambda _: PLAIN, Limits()
        )
        runner.search(chosen, time.monotonic() + BUDGET, set())
        wall = runner.spent.wall
    return {"workers": count, "candidates": len(made), "seconds": wall,
            "busy": len(made) * SECONDS / wall / count}  # fmt: skip


def main() -> None:
    clusters._do = slept
    found = []
    for count in WORKERS:
        found.append(row(count))
        print(found[-1], flush=True)
    told = {"seconds_of_a_candidate": SECONDS, "dask": distributed.__version__, "results": found}
    Path(sys.argv[1]).write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
