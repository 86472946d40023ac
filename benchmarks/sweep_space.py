"""Record a space: configs drawn uniformly from all that the hardware allows, timed on a GPU.

    python benchmarks/sweep_space.py s NN 40 1 benchmarks/spaces/h100/sgemm_nn.json.gz

Letter, transposes, seconds, seed and the T4 file to write; one that is there keeps its points.
Thresholds are left out, so that pruning can be judged.  All cores compile, in processes of their
own; one process checks and times, and is started anew where a kernel takes the device from it.
Every config is timed on four shapes whose columns are aligned, so that one kernel serves them all.
"""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import lru_cache
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tilewright.backend.cache import KernelCache
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.arranging import arranged
from tilewright.backend.cuda.compiler import cached_cubin, nvrtc_version
from tilewright.backend.cuda.device import device_at
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.sass import read_cubin
from tilewright.sass.occupancy import occupancy
from tilewright.sass.resources import resources
from tilewright.space import Config, Space
from tilewright.stencil import Variant, stencil
from tilewright.tuning.measure import Workload, random_matrix, repeat

FAMILIES = {"s": "simt_async", "c": "simt_async", "d": "mma_f64", "z": "mma_f64"}
SHAPES = ((4096, 4096, 4096), (1000, 3000, 2200), (6248, 340, 1256), (520, 648, 8200))
ARCH = "sm_90a"
# Columns that are compared at three places, seconds until a kernel counts as hanging, and how much
# slower than the best a first run ends a config's timing on a shape.
COLUMNS, HANGING, HOPELESS = 8, 8.0, 3.0
INVALID = {"compile_error": "compile", "launch_error": "runtime", "timeout": "timeout"}


@lru_cache
def asked_of(letter: str, trans: str) -> Asked:
    return Asked(letter, trans)


class Asked:
    """What is recorded: a precision and transposes on an architecture."""

    def __init__(self, letter: str, trans: str) -> None:
        self.letter, self.trans = letter, (Trans(trans[0]), Trans(trans[1]))
        self.family = stencil(FAMILIES[letter])
        self.variant = Variant(precision(letter), *self.trans)
        self.spec = architecture_spec(ARCH)
        space = self.family.space(self.variant, self.spec)
        rules = [rule for rule in space.constraints if rule.kind in ("divisibility", "hardware")]
        self.space = Space(space.stencil_name, space.parameters, rules)
        self.problems = [Problem(*shape, letter, *self.trans) for shape in SHAPES]

    def source(self, config: Config, problem: Problem) -> Any:
        """Return a config's source in the launch mode that a problem asks for."""
        wanted = self.family.geometry(config).mode(problem)
        mode = self.family.nearest_mode(config, self.variant, self.spec, wanted)
        return self.family.source(config, self.variant, "cuda", mode)


def compiled(letter: str, trans: str, config: Config) -> tuple[dict[str, float], str]:
    """Compile into the disk cache; return what the machine code says, or why there is none."""
    asked, started, cache = asked_of(letter, trans), time.perf_counter(), KernelCache()
    found: dict[str, float] = {}
    try:
        for problem in asked.problems:
            source = asked.source(config, problem)
            cubin = arranged(cached_cubin(source, ARCH, cache), cache)
            if found:
                continue
            kernel = max(read_cubin(cubin.code).kernels, key=lambda one: len(one.code))
            taken = resources(kernel)
            shared = taken.shared_bytes + source.dynamic_shared_bytes
            threads = prod(asked.family.launch(config, *SHAPES[0]).block)
            fits = occupancy(kernel.arch, threads, taken.registers, shared)
            found = {
                "registers": taken.registers, "shared_bytes": shared, "threads": threads,
                "blocks": fits.blocks, "stack_bytes": taken.stack_bytes,
                "local_loads": taken.local_loads, "local_stores": taken.local_stores,
                "instructions": taken.instructions,
            }  # fmt: skip
    except Exception as error:
        return {"seconds": time.perf_counter() - started}, f"{type(error).__name__}: {error}"
    return {**found, "seconds": time.perf_counter() - started}, ""


def timer(letter: str, trans: str, pipe: Any) -> None:
    """Check and time configs from a pipe until there is none."""
    asked, live, rng = Asked(letter, trans), device_at(0), np.random.default_rng(7)
    most = {"a": 0, "b": 0, "c": 0}
    for m, n, k in SHAPES:
        most = {"a": max(most["a"], m * k), "b": max(most["b"], k * n), "c": max(most["c"], m * n)}
    host = {name: random_matrix(rng, most[name], asked.problems[0]) for name in most}
    memory = {name: live.upload(array) for name, array in host.items()}
    works = [Workload(live, problem, memory) for problem in asked.problems]
    wanted = [_columns(host, problem) for problem in asked.problems]
    best: list[float | None] = [None] * len(works)
    pipe.send("ready")
    while (config := pipe.recv()) is not None:
        found = []
        try:
            for at, work in enumerate(works):
                kernel = live.compile(asked.source(config, work.problem))
                poison = np.full(COLUMNS * work.problem.m, np.nan, host["c"].dtype)
                for place in wanted[at]:
                    live.write(memory["c"], poison, place * work.problem.m * poison.itemsize)
                first = work.run(kernel, asked.family, config)
                hopeless = best[at] is not None and first > HOPELESS * best[at]
                times = (first,) if hopeless else repeat(work, kernel, asked.family, config)
                right = _is_right(live, memory["c"], poison, work.problem, wanted[at])
                if right:
                    best[at] = min(median(times), best[at] or median(times))
                found.append((list(times), right))
            pipe.send(("ok", found))
        except Exception as error:
            pipe.send(("launch_error", f"{type(error).__name__}: {error}"))
            if "Lost" in type(error).__name__ or "Failed" in type(error).__name__:
                return


def _columns(host: dict[str, Any], problem: Problem) -> dict[int, Any]:
    """Return some columns of the product in float64, by the first of each few."""
    m, n, k = problem.m, problem.n, problem.k
    wide = np.complex128 if np.iscomplexobj(host["a"]) else np.float64
    a, b = host["a"][: m * k], host["b"][: k * n]
    a = (
        a.reshape((k, m), order="F").T
        if problem.trans_a.transposed
        else a.reshape((m, k), order="F")
    )
    b = (
        b.reshape((n, k), order="F").T
        if problem.trans_b.transposed
        else b.reshape((k, n), order="F")
    )
    places = (0, n // 2 // COLUMNS * COLUMNS, n - COLUMNS)
    return {at: a.astype(wide) @ b[:, at : at + COLUMNS].astype(wide) for at in places}


def _is_right(live: Any, memory: Any, got: Any, problem: Problem, wanted: dict[int, Any]) -> bool:
    """Whether columns are within what rounding a sum of normal numbers gives."""
    most = 256 * np.finfo(got.dtype).eps * problem.k**0.5
    for at, right in wanted.items():
        live.download(memory, got, at * problem.m * got.itemsize)
        error = np.max(np.abs(got.reshape((problem.m, COLUMNS), order="F") - right))
        if not error <= most:
            return False
    return True


def entries(asked: Asked, row: dict[str, Any], device: str) -> list[dict[str, Any]]:
    """Return a config's T4 results, one for each shape."""
    made = []
    features = {name: value for name, value in row["features"].items() if name != "seconds"}
    for at, problem in enumerate(asked.problems):
        times, right = row["results"][at] if row["status"] == "ok" else ([], False)
        why = INVALID.get(row["status"], "correct" if right else "correctness")
        failed = "CompilationFailedConfig" if why == "compile" else "RuntimeFailedConfig"
        value = median(times) / 1e6 if why == "correct" else failed
        of = {name: getattr(problem, name) for name in "mnk"} | {"precision": asked.letter}
        of |= {name: str(getattr(problem, name)) for name in ("trans_a", "trans_b")}
        made.append({
            "configuration": row["config"], "objectives": ["time"],
            "times": {
                "compilation": 1e3 * row["features"]["seconds"],
                "benchmark": 1e3 * row.get("seconds", 0.0) / len(asked.problems),
                "runtimes": [one / 1e6 for one in times],
            },
            "invalidity": why, "correctness": int(why == "correct"),
            "measurements": [
                {"name": "time", "value": value, "unit": "ms"},
                *({"name": x, "value": y, "unit": "static"} for x, y in features.items()),
            ],
            "timestamp": row["created"],
            "tilewright": {"stencil": asked.family.name, "device_name": device, "problem": of},
        })  # fmt: skip
    return made


def write(path: Path, made: list[dict[str, Any]], device: str) -> None:
    """Write a T4 file; points of one that is there come first, and are not repeated."""
    known = json.loads(gzip.decompress(path.read_bytes()))["results"] if path.exists() else []
    before = {json.dumps(one["configuration"], sort_keys=True) for one in known}
    fresh = [x for x in made if json.dumps(x["configuration"], sort_keys=True) not in before]
    compiler = f"NVRTC {nvrtc_version()}"
    about = {"timeunit": "milliseconds", "device": device, "autotuner": "tilewright",
             "compiler": compiler}  # fmt: skip
    document = {"schema_version": "1.0.0", "metadata": about, "results": [*known, *fresh]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(document).encode(), mtime=0))


def main() -> None:
    letter, trans, seconds, seed, path = sys.argv[1:6]
    until, asked = time.monotonic() + float(seconds), Asked(letter, trans)
    context = multiprocessing.get_context("spawn")
    draws = iter(asked.space.sample(5000, int(seed)))
    cores = len(os.sched_getaffinity(0))
    running: dict[Any, Config] = {}
    ready: list[tuple[Config, dict[str, Any]]] = []
    rows: list[dict[str, Any]] = []
    process: Any = None
    up, since, timing = False, 0.0, None
    with ProcessPoolExecutor(max(1, cores - 1), mp_context=context) as pool:
        while time.monotonic() < until:
            if process is None:
                here, there = context.Pipe()
                process = context.Process(target=timer, args=(letter, trans, there), daemon=True)
                process.start()
                there.close()
                up, timing = False, None
            while len(running) < 2 * cores and len(ready) < 4 * cores:
                config = next(draws)
                running[pool.submit(compiled, letter, trans, config)] = config
            for future in [one for one in running if one.done()]:
                config = running.pop(future)
                features, error = future.result()
                row = {"config": asked.space._whole(config), "features": features, "status": "ok",
                       "created": datetime.now(UTC).isoformat()}  # fmt: skip
                if error:
                    rows.append(row | {"status": "compile_error"})
                else:
                    ready.append((config, row))
            if up and timing is None and ready:
                timing, since = ready.pop(0), time.monotonic()
                here.send(timing[0])
            try:
                answer = here.recv() if here.poll(0.003) else None
            except EOFError:
                answer = ("launch_error", "the process died")
            late = timing is not None and time.monotonic() - since > HANGING
            if answer == "ready":
                up = True
            elif timing is not None and (answer or late):
                status, results = answer or ("timeout", "")
                spent = time.monotonic() - since
                rows.append(timing[1] | {"status": status, "results": results, "seconds": spent})
                timing = None
            if late or not process.is_alive():
                process.kill()
                process = None
        workers = [process, *pool._processes.values()]
        for one in running:
            one.cancel()
        device = str(device_at(0).spec.name)
        write(Path(path), [x for row in rows for x in entries(asked, row, device)], device)
        print(f"{len(rows)} configs, {sum(row['status'] == 'ok' for row in rows)} timed")
        sys.stdout.flush()
        for one in workers:
            if one is not None:
                one.kill()
        os._exit(0)


if __name__ == "__main__":
    main()
