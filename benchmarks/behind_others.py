r"""What a kernel takes behind its own launch, and behind others: needs a CUDA device.

    python benchmarks/behind_others.py --precision s --trans NN --sizes 1024,2048 --json FILE

Kernels are those that won the races of benchmarks/results/h100/hopper_*.json.  Each is timed on a
stream that is held, so that a kernel of one thread is always between: behind itself, behind
cuBLAS's product of that size and of 64 x 64 x 64, and behind another of ours, likewise; so is what
it was before its main loop was moved (docs/text.md), if it was, and the bits of C are compared.
Medians of `ROUNDS` launches are printed; FILE has all of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import ship
from hopper.cases import ASKED, asked_cases, variant_of
from hopper.named import sides
from hopper.unmoved import unmoved
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.paths import write_atomically
from tilewright.space import Config
from tilewright.stencil import stencil

ROUNDS, TINY = 12, 64


def winners(letter: str, cases: list[str], sizes: list[int]) -> list[tuple[str, int, Config]]:
    """Return case, size and config of each race that was won at these sizes."""
    log = ship.load(f"hopper_{letter}.json")["log"]
    won = [row for row in log if row["kind"] == "final" and "config" in row]
    return [
        (row["trans"], row["size"], Config(row["stencil"], row["config"]))
        for row in won
        if row["trans"] in cases and row["size"] in sizes
    ]


def behind(call: Callable[[], int], other: Callable[[], object]) -> list[int]:
    """Return the times of a call, each behind another, the first left out."""
    taken = []
    for _ in range(ROUNDS + 1):
        other()
        taken.append(call())
    return taken[1:]


def measure(
    bench: Any, races: list[tuple[str, int, Config]], twin: Callable[..., Any] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield a row for each winner: nanoseconds by what ran before.

    `twin` returns a winner as it stood before its loop was moved; without it none is timed.
    """
    for trans, size, config in races:
        load, tiny = (bench.workload(trans, side) for side in (size, TINY))
        run, other = (
            partial(load.run, bench.kernel(trans, one), stencil(one.stencil), one)
            for one in (config, second(bench.letter, races, trans, config))
        )
        kernel, family, one = other.args
        before: dict[str, Callable[[], object]] = {
            "itself": lambda: None,
            "cublas": bench.cublas.prepare(load),
            f"cublas {TINY}": bench.cublas.prepare(tiny),
            "another of ours": other,
            f"another of ours {TINY}": partial(tiny.run, kernel, family, one),
        }
        ns = {name: behind(run, call) for name, call in before.items()}
        about = {"precision": bench.letter, "trans": trans, "size": size}
        row = {**about, "stencil": config.stencil, "config": dict(config), "ns": ns}
        stood = twin(bench.live, source_of(bench.letter, trans, config)) if twin else run.args[0]
        row["moved"] = stood is not run.args[0] and stood.code != run.args[0].code
        if row["moved"]:
            as_stood = partial(load.run, stood, *run.args[1:])
            row["ns_unmoved"] = {name: behind(as_stood, call) for name, call in before.items()}
            row["same_bits"] = result(bench, load, run) == result(bench, load, as_stood)
        yield row


def source_of(letter: str, trans: str, config: Config) -> Any:
    """Return a winner's text."""
    return stencil(config.stencil).source(config, variant_of(letter, trans), "cuda")


def result(bench: Any, load: Any, run: Callable[[], int]) -> bytes:
    """Return C's bits, all of them written by this launch."""
    found = np.full(load.elements["c"] * load.problem.precision.element_bytes, 0xFF, np.uint8)
    bench.live.write(load.memory["c"], found)
    run()
    bench.live.download(load.memory["c"], found)
    return found.tobytes()


def second(letter: str, races: list[tuple[str, int, Config]], trans: str, config: Config) -> Config:
    """Return another winner of the case; its stencil's default where there is none."""
    others = [one for case, _, one in races if case == trans and one != config]
    family, device = stencil(config.stencil), architecture_spec(ship.ARCH)
    return others[0] if others else family.default(variant_of(letter, trans), device)


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("--precision", default="s", choices=tuple(ASKED))
    parse.add_argument("--trans", help="cases, with commas between; all by default")
    parse.add_argument("--sizes", type=sides, default=[1024, 2048])
    parse.add_argument("--json", type=Path, required=True)
    given = parse.parse_args()
    try:
        cases = asked_cases(given.precision, given.trans)
    except ValueError as error:
        parse.error(str(error))
    races = winners(given.precision, cases, given.sizes)
    if not races:
        parse.error(f"argument --sizes: no race of {given.sizes} is in the results")
    write(given.json, given.precision, races)


def write(path: Path, letter: str, races: list[tuple[str, int, Config]]) -> None:
    """Measure, print, and write after each row."""
    from hopper.bench import Bench
    from hopper.log import Log
    from tilewright.bench.record import environment_record
    from tilewright.bench.sweep import Method

    log = Log(path.with_suffix(".log"))
    bench = Bench(log, letter, max(size for _, size, _ in races))
    made: dict[str, Any] = {"environment": environment_record(Method(ROUNDS)), "behind": []}
    made["device"] = log.of("device")[0]["device"]
    for row in measure(bench, races, unmoved):
        made["behind"].append(row)
        write_atomically(path, (json.dumps(made, indent=1) + "\n").encode())
        for kind in ("ns", "ns_unmoved"):
            medians = {name: statistics.median(x) / 1e3 for name, x in row.get(kind, {}).items()}
            print(row["trans"], row["size"], kind, medians, row.get("same_bits", ""), flush=True)


if __name__ == "__main__":
    main()
