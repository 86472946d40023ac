"""One device with matrices that all problems share: check, time, race."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tilewright.microbench.power import sample_power
from tilewright.precision import precision
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import stencil
from tilewright.tuning.matrices import normal

from .cases import ASKED, variant_of
from .here import first_gpu
from .log import Log

FINALISTS = 4
# Launches of a candidate, the first to warm up; fewer of problems larger than these.
SHORT, RUNS, RUNS_OF_LONG = 2048, 8, 4
# Sizes beyond this are timed only for candidates that were close to the best at CLOSE_AT.
ALWAYS, CLOSE_AT, CLOSE = 4800, 4096, 1.04
# The largest size that candidates are timed on; beyond it they are only raced.
SEARCHED = 8192
# The rate by which the length of a race is planned.
ASSUMED_FLOPS_PER_NS = 50e3
# What a race of candidates and one with cuBLAS may take each, in ns, and their fewest and most
# rounds: a product of 8192 in complex numbers takes 80 ms.
RACE_NS = 1.0e9
ROUNDS, LAST_ROUNDS = (3, 7), (5, 21)


class Bench:
    """Matrices of the largest size, which all problems share, and cuBLAS.

    Parameters
    ----------
    log : Log
        Where rows go.
    letter : str
        Precision.
    most : int
        The largest side.
    """

    def __init__(self, log: Log, letter: str, most: int) -> None:
        from tilewright.bench.peers.cublas import CuBLAS
        from tilewright.bench.record import device_record

        self.log, self.letter, self.live = log, letter, first_gpu()
        self.cublas = CuBLAS(self.live)
        log.add(kind="device", device=device_record(self.live, [self.cublas]))
        number = precision(letter)
        drawn = normal(np.random.default_rng(0), (min(most, 4096) ** 2,), number)
        whole = number.element_bytes * most**2
        self.memory = {name: self.live.allocate(whole) for name in "abc"}
        for name, at in itertools.product("ab", range(0, whole, drawn.nbytes)):
            part = np.roll(drawn, at // 4096)[: (whole - at) // number.element_bytes]
            self.live.write(self.memory[name], part, at)

    def workload(self, trans: str, size: int) -> Any:
        """Return a square problem on the shared matrices."""
        from tilewright.tuning.measure import Workload

        problem = Problem(size, size, size, self.letter, *trans)
        return Workload(self.live, problem, self.memory)

    def kernel(self, trans: str, config: Config) -> Any:
        """Return a candidate, compiled or from the cache."""
        family = stencil(config.stencil)
        return self.live.compile(family.source(config, variant_of(self.letter, trans), "cuda"))

    def try_one(self, trans: str, config: Config, sizes: tuple[int, ...]) -> None:
        """Check a candidate, then time it where it may win."""
        from tilewright.tuning.verify import screen

        row = row_of(self.letter, trans, config)
        self.log.add(kind="started", **row)
        times: dict[int, float] = {}
        reason, family = "", stencil(config.stencil)
        try:
            kernel = self.kernel(trans, config)
            screen(self.live, kernel, family, config, variant_of(self.letter, trans))
            for size in sizes:
                if size > ALWAYS and not self.close(trans, times):
                    break
                load = self.workload(trans, size)
                ns = self.times(load, kernel, family, config)
                times[size] = float(np.median(ns[1:]))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            if getattr(self.live, "lost", None):
                self.log.add(kind="tried", reason=reason, ns={}, **row)
                raise
        self.log.add(kind="tried", reason=reason, ns=times, **row)

    def times(self, load: Any, kernel: Any, family: Any, config: Config) -> list[int]:
        """Return the times of some launches, behind others of cuBLAS's where they are short.

        So they are in a race, and in most programs.  Behind its own launch a kernel finds its text
        near by, and may be 10 us faster (docs/hopper.md).
        """
        if load.problem.m > SHORT:
            return [load.run(kernel, family, config) for _ in range(RUNS_OF_LONG)]
        theirs, ns = self.cublas.prepare(load), []
        for _ in range(RUNS):
            theirs()
            ns.append(int(load.run(kernel, family, config)))
        return ns

    def tried(self, trans: str) -> list[dict[str, Any]]:
        """Return what was tried of a case."""
        return [row for row in self.log.of("tried") if row["trans"] == trans]

    def close(self, trans: str, times: dict[int, float]) -> bool:
        """Whether a candidate was within 4 % of the best, so that larger sizes are worth it."""
        if CLOSE_AT not in times:
            return True
        known = [sizes_of(row).get(CLOSE_AT) for row in self.tried(trans)]
        return times[CLOSE_AT] <= CLOSE * min([x for x in known if x] or [float("inf")])

    def ranked(self, trans: str, size: int) -> list[Config]:
        """Return the best candidates at a size, or at the nearest that was timed."""
        found = []
        for row in self.tried(trans):
            ns = sizes_of(row)
            at = size if size in ns or size <= SEARCHED else SEARCHED
            if at in ns:
                found.append((ns[at], Config(row["stencil"], row["config"])))
        found.sort(key=lambda pair: pair[0])
        return [config for _, config in found[:FINALISTS]]

    def final(self, trans: str, size: int) -> None:
        """Race the best in turns, then the winner and cuBLAS in turns: a row of the log."""
        about = {"precision": self.letter, "trans": trans, "size": size}
        best = self.ranked(trans, size)
        if not best:
            self.log.add(kind="final", **about, reason="no candidate was timed")
            return
        load = self.workload(trans, size)
        with sample_power(self.live) as power:
            config, times = self.race(load, best)
        rates = {
            name: load.problem.flops / float(np.median(ns)) / 1e3 for name, ns in times.items()
        }
        ratio = rates["tilewright"] / rates["cublas"]
        self.log.add(
            kind="final", **about, stencil=config.stencil, config=dict(config), id=config.id,
            ns=times, tflops=rates, ratio=ratio, wanted=ASKED[self.letter].bar(trans, size),
            clock_hz=power.clock_hz, power_w=power.power_w, throttle_reasons=power.reasons,
        )  # fmt: skip
        ours, theirs = rates["tilewright"], rates["cublas"]
        print(f"{self.letter} {trans} {size:5}: {ours:.1f} against {theirs:.1f}", flush=True)

    def race(self, load: Any, best: list[Config]) -> tuple[Config, dict[str, list[int]]]:
        """Return the fastest of some candidates, and its times beside cuBLAS's."""
        from tilewright.tuning.measure import interleaved

        p = load.problem
        kernels = [(self.kernel(p.trans, one), stencil(one.stencil), one) for one in best]
        about = p.flops / ASSUMED_FLOPS_PER_NS
        raced = interleaved(load, kernels, 0.0, rounds_of(ROUNDS, len(best) * about))
        kernel, family, config = kernels[int(np.argmin([np.median(times) for times in raced]))]
        theirs = self.cublas.prepare(load)
        calls = {"tilewright": lambda: load.run(kernel, family, config), "cublas": theirs}
        rounds = rounds_of(LAST_ROUNDS, 2 * about)
        times: dict[str, list[int]] = {name: [] for name in calls}
        for turn, (name, call) in itertools.product(range(rounds + 1), calls.items()):
            taken = call()
            if turn:  # the first warms up
                times[name].append(taken)
        return config, times


def rounds_of(bounds: tuple[int, int], round_ns: float) -> int:
    """Return how many rounds fit the time of a race, within bounds."""
    return int(min(bounds[1], max(bounds[0], RACE_NS // round_ns)))


def row_of(letter: str, trans: str, config: Config) -> dict[str, Any]:
    """Return a candidate as a row of the log names it."""
    return {
        "precision": letter,
        "trans": trans,
        "stencil": config.stencil,
        "id": config.id,
        "config": dict(config),
    }


def sizes_of(row: dict[str, Any]) -> dict[int, float]:
    """Return a row's times by size: JSON's keys are text."""
    return {int(size): ns for size, ns in row["ns"].items()}
