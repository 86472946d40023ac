r"""Which instructions of a GEMM's loop cost what: take a class of them out, time what is left.

    python benchmarks/ablation.py --seconds 25 --json FILE                  needs an H100
    python benchmarks/ablation.py --list --json FILE                        only predicts; no GPU
    python benchmarks/ablation.py --configs FILE --trans NT --json FILE     other configs

In the loop over k of the fastest kernel of each transpose one class of instructions becomes NOPs
(`ablation_patches.VARIANTS`); where it is deleted, what follows moves up.  Such a kernel computes
nothing of use: its code is neither kept nor served.  Each is timed beside the unpatched one in
turns, on C of whole waves of blocks, at k and at half of it, so that the difference is the loop
alone; data are random, but where fragments are no longer read they stand still, which takes less
power: the clock is sampled beside.  A process of its own measures, so that a kernel that hangs
costs only itself.  FILE is written as rows come; the table comes last.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from ablation_measure import key_of, measure, prepare
from ablation_patches import PLAIN, VARIANTS
from hopper.log import Log
from hopper.named import json_file
from hopper.pool import in_processes
from hopper.watching import supervise, write
from tilewright.space import Config

RESULT = Path(__file__).parent / "results" / "h100" / "hopper_s.json"
ARCH = "sm_90a"
SILENCE = 12.0  # seconds without a word: a process's start and compiling take up to eight
WON_AT = 4096
Row = dict[str, Any]


def cases_in(path: Path, trans: list[str] | None, size: int = WON_AT) -> list[Row]:
    """Return the cases of a file: winners of a search at a size, or configs as they stand.

    Parameters
    ----------
    path : Path
        What `hopper.py` wrote, or one row with ``config``, or a list of them; ``stencil``,
        ``precision`` and ``trans`` may be left out.
    trans : list of str, optional
        Transposes that are wanted; of a row without one, each of them.
    size : int
        Whose winners.

    Raises
    ------
    SystemExit
        If the file has no such config.
    """
    found = json.loads(path.read_text())
    if isinstance(found, dict) and "log" in found:
        rows = [one for one in found["log"] if one["kind"] == "final" and one["size"] == size]
    else:
        rows = found if isinstance(found, list) else [found]
    cases: dict[tuple[str, str], Row] = {}
    for row in rows:
        for each in [row["trans"]] if "trans" in row else trans or ["NT"]:
            if "config" in row and (trans is None or each in trans):
                case = case_of(row, each)
                cases[key_of(case)] = case
    if not cases:
        raise SystemExit(f"--configs={path} has no config for {trans or 'any transpose'}")
    return list(cases.values())


def case_of(row: Row, trans: str) -> Row:
    """Return what is measured of a row with a config."""
    config = Config(row.get("stencil", "simt_async"), row["config"])
    return {
        "precision": row.get("precision", "s"), "trans": trans, "stencil": config.stencil,
        "case": config.id, "config": dict(config),
    }  # fmt: skip


def listed(log: Log, cases: list[Row], until: float, workers: int) -> None:
    """Enter what the model says of each variant."""
    calls = [(case, ARCH, True) for case in cases]
    for case, text in in_processes(prepare, cases, calls, workers, until):
        log.add(kind="predicted", **case, **json.loads(text))


def lines(log: Log) -> list[str]:
    """Return the table: the model's and the device's cycles of a scheduler for a warp's trip."""
    told = {key_of(case): case for kind in ("prepared", "predicted") for case in log.of(kind)}
    tried = {(key_of(row), row["variant"]): row for row in log.of("tried")}
    made = []
    for key, case in told.items():
        values = ", ".join(f"{name} {value}" for name, value in case["config"].items() if value)
        made.append(f"{case['trans']} {case['case']}: {values} {case['reason']}")
        predicted = {one["variant"]: one for one in case.get("variants", ())}
        if not case["reason"]:
            made.append(HEAD)
            made += [
                f"  {name:33} {model(case, predicted, name)} {measured(tried.get((key, name), {}))}"
                for name in VARIANTS
            ]
    return made


HEAD = (
    f"  {'':33} {'gone':>4} {'left':>5} {'ports':>6} {'model':>7} {'share':>6} {'won':>6} |"
    f" {'loop':>7} {'share':>6} {'won':>6} {'whole':>6} {'won':>6} {'MHz':>5} {'W':>4}"
)


def model(case: Row, predicted: dict[str, Row], name: str) -> str:
    """Return the model's part of a line."""
    one = predicted.get(name, {"reason": ""})
    if "predicted" not in one:
        return f"{one['reason'][:39]:39} |"
    share, before = (case["multiply_adds"] / predicted[x]["predicted"] for x in (name, PLAIN))
    return (
        f"{one['gone']:4} {one['instructions']:5} {one['ports']:6} {one['predicted']:7.1f}"
        f" {share:6.1%} {share - before:+6.1%} |"
    )


def measured(row: Row) -> str:
    """Return the device's part of a line, or why there is none."""
    if "found" not in row:
        return row.get("reason") or "not measured"
    now, was = row["found"]["patched"], row["found"]["plain"]
    won = {name: now[name] - was[name] for name in ("loop_share", "whole_share")}
    return (
        f"{now['loop_cycles']:7.1f} {now['loop_share']:6.1%} {won['loop_share']:+6.1%}"
        f" {now['whole_share']:6.1%} {won['whole_share']:+6.1%}"
        f" {(row['clock_hz'] or 0) / 1e6:5.0f} {row['power_w'] or 0:4.0f}"
    )


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Return what the command line asks for."""
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse.add_argument("--configs", type=json_file, default=RESULT, help="a file with configs")
    parse.add_argument("--trans", help="cases, with commas between; all by default")
    parse.add_argument("--size", type=int, default=4096, help="m and n, about")
    parse.add_argument("--depth", type=int, default=4096, help="k")
    parse.add_argument("--seconds", type=float, default=25.0)
    parse.add_argument("--json", type=Path, default=Path("ablation.json"))
    parse.add_argument("--workers", type=int, default=min(8, os.cpu_count() or 1))
    parse.add_argument("--list", action="store_true", help="patch and predict; needs no device")
    parse.add_argument("--until", type=float, help=argparse.SUPPRESS)
    return parse.parse_args(given)


def main() -> None:
    """Predict, measure, write, print."""
    given = arguments()
    until = given.until or time.time() + given.seconds
    cases = cases_in(given.configs, given.trans.split(",") if given.trans else None)
    log = given.json.with_suffix(".log")
    if given.until:
        measure(Log(log), cases, given.size, given.depth, until, given.workers)
        return
    if given.list:
        log.unlink(missing_ok=True)
        listed(Log(log), cases, until, given.workers)
        write(given.json, Log(log))
    else:
        supervise(given.json, until, SILENCE)
    print("\n".join(lines(Log(log))))
    print(f"cycles of a scheduler for a warp's trip; 'won' are points beside {PLAIN!r} in turns")


if __name__ == "__main__":
    main()
