r"""What matrix units for doubles sustain from registers alone: rate, clock and power.

    python benchmarks/dmma_power.py --json FILE           needs an H100
    python benchmarks/dmma_power.py --table --json FILE   only prints FILE

Instructions of 4, 8 and 16 steps, in four orders (kernels/dmma.cu), with random numbers; and with
zeros.  Of each load a second settles clock and power, the next one and a half count.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hopper.here import first_gpu
from hopper.named import json_file
from tilewright.paths import write_atomically

TEXT = Path(__file__).parent / "kernels" / "dmma.cu"
ORDERS = ("by rows", "by columns", "one of each", "both change")
STEPS = (4, 8, 16)
WARPS, LINES, THREADS, ROUNDS = 8, 4, 256, 20_000
SETTLED, COUNTED = 1.0, 1.5
Row = dict[str, Any]


def loads() -> Iterator[tuple[int, int, str]]:
    """Yield steps, order and numbers of each load."""
    for steps in STEPS:
        yield from ((steps, order, "normal") for order in range(len(ORDERS)))
        yield steps, 0, "zeros"


def flops(multiprocessors: int) -> int:
    """Return the operations of a launch: instructions of 16 x 8 over 16 steps in a round."""
    return 2 * 16 * 8 * 16 * LINES**2 * WARPS * multiprocessors * ROUNDS


def measured(live: Any, memory: dict[str, Any], steps: int, order: int, numbers: str) -> Row:
    """Return a load's row."""
    from tilewright.microbench.power import sample_power
    from tilewright.stencil import Launch, Source

    source = Source(TEXT.read_text(), {"STEPS": steps, "ORDER": order}, "dmma")
    kernel, many = live.compile(source), live.spec.multiprocessors
    launch = Launch(grid=(many, 1), block=(THREADS, 1))
    arguments = memory[numbers], memory["out"], np.int64(ROUNDS)
    times: list[int] = []
    with sample_power(live) as power:
        began = time.perf_counter()
        while (now := time.perf_counter() - began) < SETTLED + COUNTED:
            taken = live.launch(kernel, launch, arguments).nanoseconds()
            if now >= SETTLED:
                times.append(taken)
    settled = power.since(SETTLED)
    return {
        "steps": steps,
        "order": ORDERS[order],
        "numbers": numbers,
        "flops_per_second": flops(many) / float(np.median(times)) * 1e9,
        "clock_hz": settled.clock_hz,
        "power_w": settled.power_w,
        "reasons": settled.reasons,
    }


def told(row: Row) -> str:
    """Return a row in a line, with the share of what units do in a cycle."""
    rate, clock = row["flops_per_second"], row["clock_hz"] or float("nan")
    return (
        f"{row['steps']:2} steps, {row['order']:11}, {row['numbers']:6}: {rate / 1e12:.1f} TFLOP/s"
        f" at {clock / 1e9:.3f} GHz and {row['power_w'] or float('nan'):.0f} W"
    )


def measure(path: Path) -> None:
    """Measure all loads and write the file."""
    from tilewright.bench.record import device_record, environment_record

    live = first_gpu()
    count = 64 * THREADS * live.spec.multiprocessors
    normal = np.random.default_rng(0).standard_normal(count)
    memory = {"normal": live.upload(normal), "zeros": live.upload(np.zeros_like(normal))}
    memory["out"] = live.allocate(8)
    file: Row = {
        "about": "Matrix units for doubles from registers alone (python benchmarks/dmma_power.py).",
        "environment": environment_record(),
        "device": device_record(live, []),
        "rows": [],
    }
    for load in loads():
        file["rows"].append(measured(live, memory, *load))
        print(told(file["rows"][-1]), flush=True)
    write_atomically(path, (json.dumps(file, indent=1) + "\n").encode())


def main() -> None:
    parse = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parse.add_argument("--json", type=Path, default=Path("dmma_power.json"))
    parse.add_argument("--table", action="store_true", help="print a file and end")
    given = parse.parse_args()
    if not given.table:
        measure(given.json)
        return
    try:
        path = json_file(str(given.json))
    except argparse.ArgumentTypeError as error:
        parse.error(f"argument --json: {error}")
    for row in json.loads(path.read_bytes())["rows"]:
        print(told(row))


if __name__ == "__main__":
    main()
