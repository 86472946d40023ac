r"""The static model of loops against kernels on a GPU: draw, launch, collect, check.

    python benchmarks/calibrate.py draw DIR                    compile drawn configs; no GPU
    ncu --clock-control none --cache-control none -k gemm --csv --page raw \
        --metrics METRICS python benchmarks/calibrate.py launch DIR > DIR/ncu.csv
    python benchmarks/calibrate.py collect DIR FILE            what was measured, with the code
    python benchmarks/calibrate.py check [FILE]                predict it; no GPU

METRICS are printed by ``draw``.  Every kernel is launched on a full wave of thread blocks for two
depths k; their difference is the loop alone, without its prologue and epilogue.  The file keeps
each loop's steady state as machine code, so that the check needs no compiler.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path

import numpy as np

from tilewright.bench.loops import pack_trace, unpack_trace
from tilewright.precision import precision
from tilewright.problem import Trans
from tilewright.sass import (
    decode,
    k_loop,
    loop_accesses,
    main_loop,
    occupancy,
    read_cubin,
    steady_trace,
)
from tilewright.sass.loops import is_useful
from tilewright.sass.pipes import pipe_of
from tilewright.sass.simulate import simulate
from tilewright.space import Config
from tilewright.stencil import Variant
from tilewright.stencil.portable import Portable

RESULT = Path(__file__).parent / "results" / "h100" / "loops.json"
ARCH = 90
FMA, DFMA = (f"sm__sass_thread_inst_executed_op_{op}_pred_on.sum" for op in ("ffma", "dfma"))
CYCLES, ISSUED = "sm__cycles_active.sum", "smsp__issue_active.sum"
EXECUTED = "smsp__inst_executed.sum"
METRICS = ",".join((CYCLES, ISSUED, EXECUTED, FMA, DFMA))
# FFMA and DFMA lanes of an H100's multiprocessor.
LANES = {FMA: 128, DFMA: 64}
GRID = (12, 11)  # 132 multiprocessors; times the resident blocks along m
# Draws: variant, configs, seed.  Small register tiles are left out: no tuner would time them.
DRAWS = (
    ("sNN", 12, 101), ("sNT", 12, 102), ("sTN", 12, 103), ("sTT", 12, 104),
    ("dNN", 5, 105), ("dTN", 5, 107), ("cNN", 4, 108), ("zNT", 4, 109),
)  # fmt: skip
LEAST_TILE = 16
OPERAND_BYTES = 512 << 20


def variant_of(name: str) -> Variant:
    return Variant(precision(name[0]), Trans(name[1]), Trans(name[2]))


def draw(folder: Path) -> None:
    """Compile drawn configs and the stencil's own starts."""
    from tilewright.backend.cuda.architecture import architecture_spec
    from tilewright.backend.cuda.compiler import compile_cubin

    folder.mkdir(parents=True, exist_ok=True)
    stencil, spec, rows = Portable(), architecture_spec("sm_90a"), []
    for name, count, seed in DRAWS:
        variant = variant_of(name)
        drawn = stencil.space(variant, spec).sample(40 * count, seed)
        configs = [c for c in drawn if c["read_a_m"] and c["read_b_n"] and _tile(c) >= LEAST_TILE]
        for config in (*configs[:count], *stencil.starts(variant, spec)[:5]):
            source = stencil.source(config, variant, "cuda")
            code = compile_cubin(source, "sm_90a").code
            (folder / f"{len(rows):03d}.cubin").write_bytes(code)
            values = {key: config[key] for key in config}
            rows.append({"variant": name, "config": values, "dynamic": source.dynamic_shared_bytes})
    (folder / "list.json").write_text(json.dumps(rows, indent=1))
    print(f"{len(rows)} kernels in {folder}; METRICS are\n{METRICS}")


def _tile(config: Config) -> int:
    sides = (("block_m", "threads_m"), ("block_n", "threads_n"))
    return int(np.prod([config.integer(a) // config.integer(b) for a, b in sides]))


def launch(folder: Path) -> None:
    """Launch every kernel at two depths k; Nsight Compute looks on."""
    from tilewright.backend.cuda.compiler import Cubin
    from tilewright.backend.cuda.device import LoadedKernel, device_at
    from tilewright.backend.cuda.launch import PreparedLaunch
    from tilewright.stencil import Launch

    live, random, log = device_at(0), np.random.default_rng(0), []
    bits = random.standard_normal(OPERAND_BYTES // 8)
    data = {8: bits, 4: random.standard_normal(OPERAND_BYTES // 4, dtype=np.float32)}
    held: dict[int, list[int]] = {}
    for number, row in enumerate(json.loads((folder / "list.json").read_text())):
        variant, config = variant_of(row["variant"]), row["config"]
        kernel = read_cubin(folder / f"{number:03d}.cubin").kernel()
        threads = config["threads_m"] * config["threads_n"]
        shared = kernel.shared_bytes + row["dynamic"]
        blocks = occupancy(ARCH, threads, kernel.registers, shared).blocks
        m, n = GRID[0] * config["block_m"] * blocks, GRID[1] * config["block_n"]
        size = variant.precision.element_bytes
        depth = 2048
        while 2 * depth * max(m, n) * size > OPERAND_BYTES:
            depth //= 2
        real = variant.precision.real_dtype.type
        width = np.dtype(real).itemsize
        if width not in held:
            held[width] = [live.upload(data[width]) for _ in "ab"] + [live.allocate(1 << 30)]
        a, b, c = held[width]
        cubin = Cubin((folder / f"{number:03d}.cubin").read_bytes(), "", {}, "sm_90a")
        loaded = LoadedKernel(live, cubin, "gemm", row["dynamic"])
        for k in (depth, 2 * depth):
            lda = k if variant.trans_a.transposed else m
            ldb = n if variant.trans_b.transposed else k
            sizes = [np.int64(v) for v in (m, n, k)]
            zero, one, none = np.int64(0), real(1), real(0)
            arguments = (
                *sizes, one, none, a, zero, np.int64(lda), b, zero, np.int64(ldb),
                none, none, c, zero, np.int64(m),
            )  # fmt: skip
            grid = Launch((GRID[0] * GRID[1] * blocks, 1), (threads, 1))
            prepared = PreparedLaunch(live, loaded.function, grid, arguments, row["dynamic"])
            with live.current():
                prepared.enqueue(live.stream)
            live.finish()
            log.append({**row, "number": number, "m": m, "n": n, "k": k, "blocks": blocks})
    (folder / "launches.json").write_text(json.dumps(log))


def collect(folder: Path, target: Path) -> None:
    """Join what Nsight Compute counted with each loop's machine code."""
    lines = [line for line in csv.reader((folder / "ncu.csv").open()) if len(line) > len(LANES)]
    head = next(i for i, line in enumerate(lines) if CYCLES in line)
    counted = [
        {key: float(line[lines[head].index(key)].replace(",", "")) for key in METRICS.split(",")}
        for line in lines[head + 2 :]
    ]
    launches = json.loads((folder / "launches.json").read_text())
    loops = []
    for at in range(0, len(launches), 2):
        one, two = counted[at], counted[at + 1]
        spent = {key: two[key] - one[key] for key in one}
        loops.append(_record(folder, launches[at], spent))
    target.write_text(json.dumps({"arch": ARCH, "loops": loops}, indent=0) + "\n")


def _record(folder: Path, launched: dict, spent: dict[str, float]) -> dict:
    kernel = read_cubin(folder / f"{launched['number']:03d}.cubin").kernel()
    config = launched["config"]
    threads = config["threads_m"] * config["threads_n"]
    busy = sum(spent[key] / lanes for key, lanes in LANES.items())
    return {
        **{key: launched[key] for key in ("variant", "config", "m", "n", "k", "blocks")},
        "threads": threads,
        "fma_share": busy / spent[CYCLES],
        "issue_share": spent[ISSUED] / 4 / spent[CYCLES],
        **loop_code(kernel, threads),
    }


def loop_code(kernel, threads: int) -> dict:
    """Return a kernel's steady state and its shared wavefronts as plain data."""
    instructions = decode(kernel.code, kernel.arch)
    loop = k_loop(instructions, main_loop(instructions))
    trace = steady_trace(instructions, loop)
    known = loop_accesses(instructions, loop, threads).wavefronts
    shared = {i.address for i in trace if i.mnemonic in ("LDS", "STS")}
    return {
        "wavefronts": {str(at): known[at] for at in sorted(shared & known.keys())},
        "unknown": len(shared - known.keys()),
        "trace": pack_trace(trace),
    }


def predict(record: dict) -> float:
    """Return the share of cycles in which the model sees the multiply-adds' pipe busy."""
    trace = unpack_trace(record["trace"], ARCH)
    known = {int(at): count for at, count in record["wavefronts"].items()}
    warps = -(-record["threads"] // 32)
    useful = sum(pipe_of(i, ARCH)[1] for i in trace if is_useful(i))
    return useful / simulate(trace, ARCH, record["blocks"], warps, wavefronts=known)


def spearman(first: list[float], second: list[float]) -> float:
    """Return the rank correlation of two lists without ties."""
    ranks = [np.argsort(np.argsort(values)) for values in (first, second)]
    return float(np.corrcoef(*ranks)[0, 1])


def check(source: Path) -> None:
    """Predict every loop of a file and print how well."""
    loops = json.loads(source.read_text())["loops"]
    guesses = [predict(loop) for loop in loops]
    for loop, guess in zip(loops, guesses, strict=True):
        measured = loop["fma_share"]
        mark = "" if abs(guess - measured) <= 0.05 else "  *"
        print(f"{loop['variant']}  {measured:6.1%}  {guess:6.1%}  {guess - measured:+6.1%}{mark}")
    groups = {"all": lambda _: True, "all wavefronts known": lambda loop: not loop["unknown"]}
    for name, wanted in groups.items():
        pairs = [(x["fma_share"], g) for x, g in zip(loops, guesses, strict=True) if wanted(x)]
        near = sum(abs(measured - guess) <= 0.05 for measured, guess in pairs)
        rank = spearman(*(list(column) for column in zip(*pairs, strict=True)))
        print(f"{name}: {near} of {len(pairs)} within 5 points, Spearman {rank:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=("draw", "launch", "collect", "check"))
    parser.add_argument("path", type=Path, nargs="?", default=RESULT)
    parser.add_argument("target", type=Path, nargs="?")
    given = parser.parse_args()
    if given.step == "collect":
        collect(given.path, given.target or RESULT)
    else:
        {"draw": draw, "launch": launch, "check": check}[given.step](given.path)


if __name__ == "__main__":
    sys.exit(main())
