"""What marking code for a timeline costs: spans while nobody records, and while somebody does.

    python benchmarks/timeline_cost.py [--json FILE]

The fast path of tw.gemm holds no span at all: a plan made while nobody records calls the
launch itself (`timeline.traced`).  Everywhere else a span must cost less than 100 ns.
"""

from __future__ import annotations

import argparse
import json
import timeit
from pathlib import Path

from tilewright import timeline
from tilewright.bench.record import environment_record
from tilewright.bench.sweep import Method
from tilewright.timeline import span

# Short enough that some batches run undisturbed on a busy machine: the least counts, as what
# disturbs only adds (timeit's manual).
LOOPS = 10_000
BAR_NS = 100.0


def nanoseconds(statement: str, batches: int) -> list[float]:
    """Return the cost of a statement in each batch, the loop's own taken off."""
    names = {"span": span, "size": 4096}
    empty = min(timeit.repeat("pass", globals=names, number=LOOPS, repeat=batches))
    times = timeit.repeat(statement, globals=names, number=LOOPS, repeat=batches)
    return [(taken - empty) / LOOPS * 1e9 for taken in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--json", type=Path, help="file to write")
    options = parser.parse_args()
    statements = {
        "off": "with span('launch'): pass",
        "off, with a size": "with span('copy', size): pass",
    }
    times = {name: nanoseconds(text, options.batches) for name, text in statements.items()}
    timeline.start()
    times["on"] = nanoseconds("with span('launch'): pass", 20)
    timeline.stop()
    least = {name: min(row) for name, row in times.items()}
    for name, taken in least.items():
        print(f"{name:18} {taken:7.1f} ns")
    met = max(least[name] for name in statements) < BAR_NS
    print(f"bar (under {BAR_NS:g} ns while off):", "met" if met else "MISSED")
    if options.json:
        report = {"environment": environment_record(Method()), "least_ns": least, "met": met}
        report["environment"].pop("rounds")
        report["environment"]["method"] = (
            "timeit, the empty loop taken off, the least of all batches"
        )
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
