"""What `ablation.py` does on a device: patched kernels beside the one they were made of, in turns.

    C of whole waves of blocks     time of k less time of half of it = the loop alone,
    k and half of it                without a tile's beginning and end

Patched code lives in this process's memory only.  Matrices lie in one piece of memory with room
around each of them, although nothing should ever reach beyond them.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import time
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

import numpy as np

from ablation_patches import VARIANTS, Body, predictions
from hopper.cases import variant_of
from hopper.here import first_gpu
from hopper.log import Log
from hopper.pool import in_processes
from tilewright.precision import precision
from tilewright.problem import Problem
from tilewright.sass import occupancy, read_cubin
from tilewright.space import Config
from tilewright.stencil import stencil

Row = dict[str, Any]
# Seconds for one variant beside the plain kernel: NVML's clock is renewed about every 20 ms.
LEAST, MOST = 0.12, 0.6
FEWEST = 3  # rounds, however long one takes
MARGIN = 64 << 20  # bytes around each matrix
SIDE = 4096  # of the matrices that there is memory for, at least
WARP, SCHEDULERS = 32, 4


def source_of(case: Row) -> Any:
    """Return a case's source."""
    config = Config(case["stencil"], case["config"])
    variant = variant_of(case["precision"], case["trans"])
    return stencil(case["stencil"]).source(config, variant, "cuda")


def compiled(case: Row, arch: str) -> Any:
    """Return what the compiler makes of a case, or made of it before."""
    from tilewright.backend.cache import KernelCache
    from tilewright.backend.cuda.compiler import cached_cubin

    return cached_cubin(source_of(case), arch, KernelCache())


def prepare(case: Row, arch: str, predict: bool) -> str:
    """Compile a case and patch it; return a row as JSON, with the reason where that fails.

    Its ``codes`` are the cubins of all variants, which are passed on to be timed, not kept.

    Parameters
    ----------
    case : dict
        Precision, trans, stencil, case (the config's id) and config.
    arch : str
        Such as ``"sm_90a"``.
    predict : bool
        Whether the model is asked of each variant instead: ``variants``.
    """
    try:
        made, source = compiled(case, arch), source_of(case)
        name = made.lowered.get(source.entry, source.entry)
        body = Body.of(made.code, name)
        found = read_cubin(made.code).kernel(name)
        variant = variant_of(case["precision"], case["trans"])
        config = Config(case["stencil"], case["config"])
        threads = stencil(case["stencil"]).resources(config, variant).threads
        shared = found.shared_bytes + source.dynamic_shared_bytes
        blocks = resident(case, occupancy(found.arch, threads, found.registers, shared).blocks)
        row: Row = {"blocks": blocks, "threads": threads, "multiply_adds": body.multiply_adds}
        if predict:
            row["variants"] = list(predictions(body, blocks, threads))
        else:
            row["codes"], row["refused"] = codes_of(body)
    except Exception as error:
        return json.dumps({"reason": f"{type(error).__name__}: {error}".splitlines()[0]})
    return json.dumps({"reason": "", **row})


def codes_of(body: Body) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variants' cubins in base 64, and of those that cannot be the reason."""
    codes, refused = {}, {}
    for name, change in VARIANTS.items():
        try:
            codes[name] = b64encode(body.patched(change)).decode()
        except ValueError as error:
            refused[name] = str(error)
    return codes, refused


def resident(case: Row, fit: int) -> int:
    """Return the blocks of a case that a multiprocessor has at a time."""
    config = case["config"]
    return max(1, min(fit, config["resident"]) if config.get("persistent") else fit)


def whole_waves(case: Row, size: int, slots: int) -> tuple[int, int]:
    """Return m and n near `size` whose tiles fill whole waves of so many blocks."""
    config = case["config"]
    block_m, block_n = config["block_m"], config["block_n"]
    each = slots // math.gcd(slots, config.get("split_k", 1))
    tiles = each * max(1, round(size * size / (block_m * block_n * each)))
    sides = [(a * block_m, tiles // a * block_n) for a in range(1, tiles + 1) if tiles % a == 0]
    return min(sides, key=lambda side: abs(math.log(side[0] / side[1])))


def measure(
    log: Log, cases: Sequence[Row], size: int, depth: int, until: float, workers: int
) -> None:
    """Compile in other processes and time each case as soon as it is ready.

    Parameters
    ----------
    log : Log
        Rows of an earlier process that was cut off are not made again.
    cases : sequence of dict
        Rows with precision, trans, stencil, case (the config's id) and config.
    size, depth : int
        About m and n; k.
    until : float
        When to stop, as `time.time` counts.
    workers : int
        Compilers beside this process.
    """
    from tilewright.bench.record import device_record

    live: Any = first_gpu()
    log.add(kind="device", device=device_record(live, []))
    known = {(key_of(row), row["variant"]) for row in log.of("tried")}
    told = {key_of(row) for row in log.of("predicted")}
    left = [one for one in cases if any((key_of(one), name) not in known for name in VARIANTS)]
    jobs = [(one, False) for one in left]
    jobs += [(one, True) for one in cases if key_of(one) not in told]
    stage, done = Stage(live, left, size, depth), 0
    calls = [(case, live.arch, predict) for case, predict in jobs]
    for (case, predict), text in in_processes(prepare, jobs, calls, workers, until):
        row = json.loads(text)
        codes = row.pop("codes", {})
        log.add(kind="predicted" if predict else "prepared", **case, **row)
        if not predict:
            todo = {name: codes[name] for name in codes if (key_of(case), name) not in known}
            share = (until - time.time()) / (len(left) - done)
            stage.case(log, {**case, **row}, todo, time.time() + share)
            done += 1


def key_of(row: Row) -> tuple[str, str]:
    """Return what tells cases apart: a transpose and a config's id."""
    return row["trans"], row["case"]


class Stage:
    """A device with matrices that all cases share."""

    def __init__(self, live: Any, cases: Sequence[Row], size: int, depth: int) -> None:
        self.live, self.size, self.depth = live, size, depth
        letters = {case["precision"] for case in cases}
        element = max((precision(letter).element_bytes for letter in letters), default=4)
        # Whole waves may need more than `size` squared; a matrix that needs more is refused.
        self.area = element * 2 * max(size, depth, SIDE) ** 2
        base = live.allocate(3 * self.area + 4 * MARGIN)
        self.memory = {
            name: base + MARGIN + place * (self.area + MARGIN) for place, name in enumerate("abc")
        }
        drawn = np.random.default_rng(0).standard_normal(SIDE**2, dtype=np.float32)
        for name, at in itertools.product("ab", range(0, self.area, drawn.nbytes)):
            part = np.roll(drawn, at // 4097)[: (self.area - at) // drawn.itemsize]
            live.write(self.memory[name], part, at)

    def case(self, log: Log, case: Row, codes: dict[str, str], until: float) -> None:
        """Time variants of a case, each beside the plain kernel; rows of the log."""
        if not codes:
            return
        made, source = compiled(case, self.live.arch), source_of(case)
        plain = self.live.compile(source)
        for place, (name, text) in enumerate(codes.items()):
            each = (until - time.time()) / (len(codes) - place)
            if each < LEAST / 2:
                print(f"{case['trans']}: no time for {len(codes) - place} variants", flush=True)
                return
            about = {"trans": case["trans"], "case": case["case"], "variant": name}
            about["id"] = f"{case['case']} {name}"
            log.add(kind="started", **about)
            reason, found = "", {}
            try:
                cubin = dataclasses.replace(made, code=b64decode(text))
                patched = self.loaded(cubin, source)
                found = self.timed(case, plain, patched, min(MOST, each))
            except Exception as error:
                reason = f"{type(error).__name__}: {error}".splitlines()[0]
            log.add(kind="tried", reason=reason, **about, **found)
            if getattr(self.live, "lost", None):
                raise self.live.lost
        print(f"{case['trans']}: {len(codes)} variants", flush=True)

    def loaded(self, cubin: Any, source: Any) -> Any:
        """Return a kernel of patched code, which no cache ever sees."""
        from tilewright.backend import Kernel
        from tilewright.backend.cuda.device import LoadedKernel

        wants = source.dynamic_shared_bytes, source.part_bytes
        loaded = LoadedKernel(self.live, cubin, source.entry, *wants)
        return Kernel(loaded, source.entry, 0.0, cubin.code)

    def timed(self, case: Row, plain: Any, patched: Any, seconds: float) -> Row:
        """Return times of both kernels at both depths, in turns, and what follows from them."""
        from tilewright.microbench.power import sample_power
        from tilewright.tuning.measure import Workload

        began = time.perf_counter()
        family, config = stencil(case["stencil"]), Config(case["stencil"], case["config"])
        m, n = whole_waves(case, self.size, self.live.spec.multiprocessors * case["blocks"])
        loads = {
            k: Workload(self.live, Problem(m, n, k, case["precision"], *case["trans"]), self.memory)
            for k in (self.depth, self.depth // 2)
        }
        element = precision(case["precision"]).element_bytes
        if max(element * max(load.elements.values()) for load in loads.values()) > self.area:
            raise ValueError(f"m={m}, n={n} need more memory than there is; give another size")
        kernels = {"plain": plain, "patched": patched}
        ns: dict[str, dict[int, list[int]]] = {one: {k: [] for k in loads} for one in kernels}
        for kernel in kernels.values():  # the first of each warms up
            loads[self.depth].run(kernel, family, config)
        with sample_power(self.live) as power:
            while (
                len(ns["patched"][self.depth // 2]) < FEWEST
                or time.perf_counter() - began < seconds
            ):
                for k, load in loads.items():
                    for one, kernel in kernels.items():
                        ns[one][k].append(load.run(kernel, family, config))
        count = self.live.spec.multiprocessors
        clock = power.clock_hz or self.live.spec.clock_hz
        return {
            "m": m, "n": n, "k": list(loads), "ns": ns, "clock_hz": power.clock_hz,
            "power_w": power.power_w, "throttle_reasons": power.reasons,
            "found": {one: figures(case, (m, n), ns[one], clock, count) for one in kernels},
        }  # fmt: skip


def figures(
    case: Row, sides: tuple[int, int], ns: dict[int, list[int]], clock: float, count: int
) -> Row:
    """Return a kernel's cycles for a trip and its shares of the multiply-adds' peak.

    Parameters
    ----------
    case : dict
        The case, with ``multiply_adds`` of a warp's trip.
    sides : tuple of int
        m and n.
    ns : dict
        Times by depth.
    clock : float
        Of multiprocessors, in Hz.
    count : int
        Multiprocessors.

    Returns
    -------
    dict
        ``loop_cycles``, of a scheduler for a trip of one warp, from the difference of both
        depths; ``loop_share`` of the peak in it; ``whole_share``, of the deeper run as a whole.
    """
    each = precision(case["precision"]).flops // 2  # multiply-adds of real numbers
    # A scheduler of sm_90 has 32 FP32 lanes: a warp's multiply-add takes it one cycle at best.
    best = {k: math.prod(sides) * k * each / (WARP * SCHEDULERS * count) for k in ns}
    cycles = {k: float(np.median(times)) * 1e-9 * clock for k, times in ns.items()}
    deep, half = max(ns), min(ns)
    share = (best[deep] - best[half]) / (cycles[deep] - cycles[half])
    return {
        "loop_cycles": case["multiply_adds"] / share,
        "loop_share": share,
        "whole_share": best[deep] / cycles[deep],
    }
