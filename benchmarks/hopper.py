r"""GEMM by Tilewright's stencils beside cuBLAS on a Hopper GPU: search, race, table.

    python benchmarks/hopper.py --precision s --seconds 165 --json FILE     needs a CUDA device
    python benchmarks/hopper.py --precision s --list                        the candidates; no GPU
    python benchmarks/hopper.py --precision s --small FILE      writes others, for small squares
    python benchmarks/hopper.py --precision s --only FILE --sizes 512,1024,2048 --json OTHER

Candidates are compiled by a pool of processes while others are checked and timed; a process
of its own measures, so that a kernel that crashes or hangs costs only itself.  Every result
is appended to FILE.log at once and FILE is written after each part; the table comes last.
Ratios are of medians of one A B A B run: ours, cuBLAS, ours, cuBLAS.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from hopper.candidates import candidates, small
from hopper.cases import ASKED, asked_cases
from hopper.log import Log
from hopper.named import json_file, named_in, named_rows, sides
from hopper.search import measure
from hopper.watching import keep, supervise, table
from tilewright.paths import write_atomically


def arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return what the command line asks for."""
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("--precision", default="s", choices=tuple(ASKED))
    parse.add_argument("--trans", help="cases, with commas between; all by default")
    parse.add_argument(
        "--sizes", type=sides, help="commas between; by default what is asked of the precision"
    )
    parse.add_argument("--seconds", type=float, default=165)
    parse.add_argument("--json", type=Path, default=Path("hopper.json"))
    parse.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parse.add_argument("--seed", type=json_file, help="an earlier FILE, whose best are tried first")
    parse.add_argument("--only", type=json_file, help="a list of candidates to try instead of all")
    parse.add_argument("--keep", type=json_file, help="an earlier FILE, of which the rest is kept")
    parse.add_argument("--small", type=Path, help="write candidates for small squares, and end")
    parse.add_argument("--list", action="store_true", help="count the candidates and end")
    parse.add_argument("--until", type=float, help=argparse.SUPPRESS)
    given = parse.parse_args(arguments)
    try:
        given.cases = asked_cases(given.precision, given.trans)
    except ValueError as error:
        parse.error(str(error))
    if given.only:
        try:
            given.named = named_in(given.only, given.precision, given.cases)
        except ValueError as error:
            parse.error(f"argument --only: {error}")
    if given.small and not given.small.absolute().parent.is_dir():
        parse.error(f"argument --small: {given.small} is in no directory that is there")
    return given


def main() -> None:
    given = arguments()
    letter, cases = given.precision, given.cases
    sizes = given.sizes or ASKED[letter].sizes
    if given.small:
        rows = named_rows(letter, {trans: small.candidates(letter, trans) for trans in cases})
        write_atomically(given.small, (json.dumps(rows) + "\n").encode())
        print(f"{given.small}: {len(rows)} candidates of {len(cases)} cases")
        return
    if given.list:
        for trans in cases:
            print(trans, len(given.named[trans] if given.only else candidates(letter, trans)))
        return
    if given.until:
        log = Log(given.json.with_suffix(".log"))
        measure(log, letter, cases, sizes, given.until, given.workers, given.seed, given.only)
        return
    # Read before anything is written: it may be the same file.
    earlier = json.loads(given.keep.read_bytes()) if given.keep else None
    log = supervise(given.json, time.time() + given.seconds)
    if earlier:
        keep(given.json, earlier)
    table(log, letter, sizes, cases)


if __name__ == "__main__":
    main()
