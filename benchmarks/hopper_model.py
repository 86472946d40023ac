r"""Compare the cycle model's forecast with the times of the search on an H100; no GPU needed.

    python benchmarks/hopper_model.py --seconds 900 [--each 60] [--json FILE]

Takes candidates of benchmarks/results/h100/hopper_s.json, evenly over the ranking of each case
at 4096, compiles them for sm_90a and asks `tilewright.tuning.forecast` for the share of the
multiply-adds' peak, as a tuning run does before it times anything.  The compiler here need not
be the one that the times are from; FILE names it.  It is written after every candidate.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import zip_longest
from pathlib import Path

import numpy as np

from hopper.cases import cases_of, variant_of
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc_version
from tilewright.paths import write_atomically
from tilewright.space import Config
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.forecast import forecast

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "benchmarks" / "results" / "h100" / "hopper_s.json"
WRITTEN = ROOT / "benchmarks" / "results" / "sm_90a" / "hopper_model.json"
FAMILY, CASES = SimtAsync(), cases_of("s")
ARCH, SIZE, MULTIPROCESSORS = "sm_90a", 4096, 132


def sample(trans, number):
    """Return measured candidates evenly over a case's ranking, shuffled: even if cut off."""
    rows = json.loads(MEASURED.read_text())["log"]
    timed = [x for x in rows if x["kind"] == "tried" and x["trans"] == trans]
    timed = sorted((x for x in timed if str(SIZE) in x["ns"]), key=lambda x: x["ns"][str(SIZE)])
    places = np.unique(np.linspace(0, len(timed) - 1, number).round().astype(int))
    return [timed[place] for place in np.random.default_rng(0).permutation(places)]


def told(trans, row):
    """Return what the model expects of a candidate beside what was measured."""
    config = Config(FAMILY.name, row["config"])
    source = FAMILY.source(config, variant_of("s", trans), "cuda")
    code = compile_cubin(source, ARCH).code
    launch = FAMILY.launch(config, SIZE, SIZE)
    share = forecast(code, launch, MULTIPROCESSORS, source.dynamic_shared_bytes)
    return {"trans": trans, "id": row["id"], "forecast": share, "ns": row["ns"][str(SIZE)]}


def main():
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("--seconds", type=float, default=900)
    parse.add_argument("--each", type=int, default=60, help="candidates of each case")
    parse.add_argument("--json", type=Path, default=WRITTEN)
    given = parse.parse_args()
    until = time.monotonic() + given.seconds
    made = {"size": SIZE, "arch": ARCH, "compiler": f"NVRTC {nvrtc_version()}", "rows": []}
    turns = zip_longest(*([(trans, row) for row in sample(trans, given.each)] for trans in CASES))
    for trans, row in (job for turn in turns for job in turn if job):
        if time.monotonic() > until:
            break
        made["rows"].append(told(trans, row))
        write_atomically(given.json, (json.dumps(made, indent=1) + "\n").encode())
        if len(made["rows"]) % 20 == 0:
            print(f"{len(made['rows'])} candidates", flush=True)


if __name__ == "__main__":
    main()
