r"""What the compiler makes of candidates of `hopper.py`, and what the cycle model says; no GPU.

    python benchmarks/hopper_static.py --precision c --trans NN --seconds 600 [--each 20]

Compiles the first candidates for sm_90a, of the named cases in turns, and writes registers,
spills, the share of multiply-adds among the main loop's instructions and the share of their
peak that `tilewright.sass` predicts of the loop (no wave, no start, no end) to
benchmarks/results/sm_90a/hopper_PRECISION_static.json, after every candidate; candidates that
are there already are kept.  ``--staying`` takes, instead of the first candidates, each that has
blocks that stay beside the one that differs in nothing else.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from hopper.candidates import candidates
from hopper.cases import ASKED, variant_of
from hopper.search import in_turns
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc_version
from tilewright.paths import write_atomically
from tilewright.sass import inspect_kernel, read_cubin
from tilewright.space import Config
from tilewright.stencil import stencil

ARCH = "sm_90a"
WRITTEN = Path(__file__).parent / "results" / ARCH
STAYING = ("persistent", "stream_k")


def plain(config: Config) -> Config:
    """Return the config without what makes blocks stay."""
    return Config(config.stencil, {k: v for k, v in config.items() if k not in STAYING})


def wanted(letter: str, trans: str, each: int, staying: bool) -> list[Config]:
    """Return the candidates of a case that are looked at."""
    found = candidates(letter, trans)
    if staying:
        stay = [one for one in found if one.get("persistent")]
        space = stencil("simt_async").space(variant_of(letter, trans), architecture_spec(ARCH))
        beside = [x for one in stay for x in (plain(one), one)]
        found = [one for one in dict.fromkeys(beside) if one in space]
    return found[:each]


def told(letter: str, trans: str, config: Config) -> dict[str, Any]:
    """Return a row: what machine code says of a candidate."""
    family, variant = stencil(config.stencil), variant_of(letter, trans)
    source = family.source(config, variant, "cuda")
    (kernel,) = read_cubin(compile_cubin(source, ARCH).code).kernels
    threads = family.resources(config, variant).threads
    seen = inspect_kernel(kernel, threads, source.dynamic_shared_bytes)
    assert seen.loop is not None
    return {
        "trans": trans, "stencil": config.stencil, "id": config.id, "config": dict(config),
        "registers": seen.resources.registers,
        "spills": seen.resources.local_loads + seen.resources.local_stores,
        "loop": len(seen.loop.instructions),
        "multiply_adds": seen.loop.useful_share,
        "predicted": seen.cycles.pipe_share if seen.cycles else None,
        "blocks": seen.occupancy.blocks,
    }  # fmt: skip


def line(row: dict[str, Any]) -> str:
    """Return a row for a person."""
    c = row["config"]
    stays = "".join(f" {name} {c[name]}" for name in STAYING if name in c)
    shape = f"{c['block_m']}x{c['block_n']}x{c['block_k']}, {c['tile_m']}x{c['tile_n']}"
    return (
        f"{row['trans']} {shape:20} unroll {c['unroll_k']:2} stages {c['stages']}{stays:26}"
        f" {row['registers']:4} registers {row['spills']:3} spills"
        f" {row['multiply_adds']:6.1%} FMA {row['predicted'] or 0:6.1%} predicted"
        f" {row['blocks']} blocks"
    )


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("--precision", default="s", choices=tuple(ASKED))
    parse.add_argument("--trans", default="NN", help="cases, with commas between")
    parse.add_argument("--each", type=int, default=20, help="candidates of each case")
    parse.add_argument("--staying", action="store_true")
    parse.add_argument("--seconds", type=float, default=600)
    parse.add_argument("--json", type=Path)
    given = parse.parse_args()
    path = given.json or WRITTEN / f"hopper_{given.precision}_static.json"
    made = json.loads(path.read_text()) if path.exists() else {"rows": []}
    made |= {"arch": ARCH, "compiler": f"NVRTC {nvrtc_version()}"}
    known = {(row["trans"], row["stencil"], row["id"]) for row in made["rows"]}
    until = time.monotonic() + given.seconds
    lists = [
        [(trans, one) for one in wanted(given.precision, trans, given.each, given.staying)]
        for trans in given.trans.split(",")
    ]
    for trans, config in in_turns(lists):
        if time.monotonic() > until:
            break
        if (trans, config.stencil, config.id) not in known:
            made["rows"].append(told(given.precision, trans, config))
            write_atomically(path, (json.dumps(made, indent=1) + "\n").encode())
            print(line(made["rows"][-1]), flush=True)


if __name__ == "__main__":
    main()
