r"""What a kernel's text costs when it is first run, by how far from its entry it stands.

    python benchmarks/text_first_run.py --json FILE           needs a CUDA device
    python benchmarks/text_first_run.py --table --json FILE   only prints FILE

A kernel has `pad` KiB of text that never runs, then `length` KiB of multiplications (FFMA) that run
`PASSES` times, with a stamp of the clock before each pass: a block of 256 threads for each
multiprocessor.  It is timed behind its own launch and behind another kernel's, whose text is longer
than what is kept.  The first pass brings the text, later ones do not; what it takes more, over
distances, says how much text comes with the launch, and what the rest costs by the line.

Cycles are medians over rounds, the first left out, of means over blocks.  A line has 128 bytes,
eight instructions.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hopper.here import first_gpu
from hopper.named import json_file
from hopper.unmoved import unmoved
from tilewright.paths import write_atomically

# Pad and length in KiB: text of one length at many distances, then other lengths, near and far.
LENGTH = 26
PADS, NEAR, FAR = (
    (0, 16, 32, 36, 40, 44, 48, 52, 56, 60, 64, 80, 96, 128),
    (8, 16, 32, 48, 64, 96, 120),
    (8, 16, 48),
)
POINTS = [(pad, LENGTH) for pad in PADS] + [(0, one) for one in NEAR] + [(96, one) for one in FAR]
OTHER = (0, 200)
THREADS, PASSES, ROUNDS = 256, 4, 5
STAMPS = 8  # places for a block's
FFMA_PER_KIB, LINES_PER_KIB, REGISTERS = 64, 8, 16
METHOD = "cycles by each multiprocessor's clock, of thread 0; launches held; medians of means"
Row = dict[str, Any]


def text(pad: int, length: int) -> str:
    """Return a kernel's text: `pad` KiB that never run, and `length` KiB a pass."""
    registers = ", ".join(f"r{one} = threadIdx.x + {one}" for one in range(REGISTERS))
    total = " + ".join(f"r{one}" for one in range(REGISTERS))
    never = f"if (n == 12345) {{\n{ffma(pad)}\np[1] = (long long)({total});\n}}" if pad else ""
    return f"""extern "C" __global__ void first_run(long long *p, int n) {{
  float {registers}, y = threadIdx.x * 1e-3f, z = 1.5f;
  {never}
#pragma unroll 1
  for (int i = 0; i < n; ++i) {{
    long long now = clock64();
    if (threadIdx.x == 0) p[blockIdx.x * {STAMPS} + i] = now;
    {ffma(length)}
  }}
  if (threadIdx.x == 0) p[blockIdx.x * {STAMPS} + n] = clock64();
  if ({total} == 1e30f) p[0] = 0;
}}
"""


def ffma(kib: int) -> str:
    """Return so much text of multiplications, which no compiler moves or leaves out."""
    return "\n".join(
        f'asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(r{one % REGISTERS}) : "f"(y), "f"(z));'
        for one in range(kib * FFMA_PER_KIB)
    )


def begin_kib(code: bytes) -> float:
    """Return where a compiled kernel's passes begin."""
    from tilewright.sass import decode, main_loop, read_cubin

    (kernel,) = read_cubin(code).kernels
    loop = main_loop(decode(kernel.code, kernel.arch))
    if loop is None:
        raise ValueError("the kernel has no loop; its passes cannot be told apart")
    return round(loop.start / 1024, 3)


def loaded(live: Any, pad: int, length: int) -> tuple[Any, float]:
    """Return a kernel on the device, and where its passes begin."""
    from tilewright.stencil import Source

    made = unmoved(live, Source(text(pad, length), {}, "first_run"))
    return made, begin_kib(made.code)


def timed(live: Any, kernel: Any, before: Any, memory: int) -> Row:
    """Return cycles of each pass, behind another kernel where one is given."""
    from tilewright.stencil import Launch

    blocks = live.spec.multiprocessors
    launch, stamps = Launch((blocks, 1), (THREADS, 1)), np.zeros((blocks, STAMPS), np.int64)
    taken = []
    for _ in range(ROUNDS):
        if before is not None:
            live.launch_timed(before, launch, (memory, np.int32(1))).nanoseconds()
        live.launch_timed(kernel, launch, (memory, np.int32(PASSES))).nanoseconds()
        live.download(memory, stamps)
        taken.append(np.diff(stamps[:, : PASSES + 1], axis=1))
    cycles = np.array(taken[1:])  # by round, block and pass
    passes = np.median(cycles.mean(axis=1), axis=0)
    slowest = np.median(cycles[:, :, 0].max(axis=1))
    return {"passes": [round(float(one)) for one in passes], "slowest_first": round(float(slowest))}


def measure(live: Any) -> Iterator[Row]:
    """Yield a row for each point: cycles of passes by what ran before."""
    memory = live.allocate(live.spec.multiprocessors * STAMPS * 8)
    other, _ = loaded(live, *OTHER)
    for pad, length in POINTS:
        kernel, begin = loaded(live, pad, length)
        yield {
            "pad_kib": pad,
            "length_kib": length,
            "begin_kib": begin,
            "threads": THREADS,
            "itself": timed(live, kernel, None, memory),
            "behind": timed(live, kernel, other, memory),
        }


def first_and_later(row: Row) -> tuple[int, float]:
    """Return cycles of the first pass and of a later one, behind another kernel."""
    first, *later = row["behind"]["passes"]
    return first, float(np.median(later))


def lines_beyond(begin: float, length: float, near: float) -> float:
    """Return how many lines of a text lie beyond the first `near` KiB of a kernel."""
    return LINES_PER_KIB * min(length, max(0.0, begin + length - near))


def fitted(points: Sequence[tuple[float, float, float]]) -> Row:
    """Return how much text comes with a launch, and what lines cost more in the first pass.

    Least squares over that size in steps of 1 KiB; lines near and lines beyond cost a number of
    cycles each.

    Parameters
    ----------
    points : sequence of (float, float, float)
        Where the text begins, its length, both in KiB, and what the first pass takes more.
    """
    extra = np.array([more for _, _, more in points])
    lines = np.array([LINES_PER_KIB * length for _, length, _ in points])
    found: list[tuple[float, int, float, float]] = []
    for near in range(int(max(begin + length for begin, length, _ in points)) + 1):
        beyond = np.array([lines_beyond(begin, length, near) for begin, length, _ in points])
        costs = np.stack([lines - beyond, beyond], axis=1)
        each = np.linalg.lstsq(costs, extra, rcond=None)[0]
        found.append((float(((costs @ each - extra) ** 2).sum()), near, *map(float, each)))
    _, near, close, far = min(found)
    return {
        "near_kib": near,
        "extra_per_line_near": round(close, 2),
        "extra_per_line_beyond": round(far, 2),
    }


def fit(rows: Sequence[Row]) -> Row:
    """Return what rows of one length say, with the cycles of a line in later passes."""
    points, later = [], []
    for row in (row for row in rows if row["length_kib"] == LENGTH):
        first, again = first_and_later(row)
        points.append((row["begin_kib"], row["length_kib"], first - again))
        later.append(again / (LINES_PER_KIB * row["length_kib"]))
    return {**fitted(points), "per_line_later": round(float(np.median(later)), 2)}


def told(file: Row) -> Iterator[str]:
    """Yield a file's table; a line's cycles where all lines are beyond what is near."""
    found = file["fit"]
    yield "pad KiB  length KiB  first pass  later passes  cycles of a line beyond"
    for row in file["rows"]:
        first, later = first_and_later(row)
        lines = LINES_PER_KIB * row["length_kib"]
        each = f"{first / lines:.1f}" if row["begin_kib"] >= found["near_kib"] else "-"
        yield (f"{row['pad_kib']:7}  {row['length_kib']:10}  {first:10}  {later:12.0f}  {each:>23}")
    yield (
        f"The first {found['near_kib']} KiB come with the launch.  A line takes"
        f" {found['per_line_later']:.1f} cycles in later passes; in the first"
        f" {found['extra_per_line_beyond']:.1f} more beyond them,"
        f" {found['extra_per_line_near']:.1f} more among them"
    )


def write(path: Path, live: Any) -> Row:
    """Measure all points and write the file."""
    from tilewright.bench.record import device_record, environment_record
    from tilewright.bench.sweep import Method

    file: Row = {
        "about": "Cycles of passes through text by its distance from a kernel's entry"
        " (python benchmarks/text_first_run.py).",
        "environment": {**environment_record(Method(ROUNDS)), "method": METHOD},
        "device": device_record(live, []),
    }
    file["rows"] = list(measure(live))
    file["fit"] = fit(file["rows"])
    write_atomically(path, (json.dumps(file, indent=1) + "\n").encode())
    return file


def main() -> None:
    parse = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parse.add_argument("--json", type=Path, required=True)
    parse.add_argument("--table", action="store_true", help="print a file and end")
    given = parse.parse_args()
    if given.table:
        try:
            lines = list(told(json.loads(json_file(str(given.json)).read_bytes())))
        except argparse.ArgumentTypeError as error:
            parse.error(f"argument --json: {error}")
        except (KeyError, TypeError):
            parse.error(f"argument --json: {given.json} has other results; give what a run wrote")
    else:
        if not given.json.absolute().parent.is_dir():
            parse.error(f"argument --json: {given.json} is in no directory that is there")
        lines = list(told(write(given.json, first_gpu())))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
